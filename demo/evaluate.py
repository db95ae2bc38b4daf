"""Measures a demo checkpoint on held-out pictures: right answers, exactly, per kind."""

import argparse
import io
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean

import torch
from PIL import Image

from demo.answering import Answerer
from demo.pictures import as_jpeg, draw
from demo.products import ALL_KINDS, FIRST_HELD_OUT_SEED, KINDS, VALUES, Product, product_for
from demo.questions import json_answer, json_kinds, json_request, question_for, right_answer, yes_no

OTHERS = ("json", "yes_no")
BLANK = Image.new("RGB", (224, 224), (255, 255, 255))


@dataclass(frozen=True)
class Asked:
    """One question about one picture, with the only answer that counts."""

    kind: str
    picture: Image.Image
    question: str
    right: str


def held_out(pictures: int) -> Iterator[Asked]:
    """Every question about pictures whose seeds and combinations training never saw."""
    for seed in range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + pictures):
        product = product_for(seed, held_out=True)
        picture = Image.open(io.BytesIO(as_jpeg(draw(product, seed))))
        yield from _questions(product, picture, seed)


def _questions(product: Product, picture: Image.Image, seed: int) -> Iterator[Asked]:
    for kind in ALL_KINDS:
        yield Asked(kind, picture, question_for(kind, seed), right_answer(product, kind))
    kinds = json_kinds(seed)
    request = json_request(kinds, random.Random(seed).randrange(100))
    yield Asked("json", picture, request, json_answer(product, kinds))
    yield Asked("yes_no", picture, *yes_no(product, seed))


def blank(pictures: int) -> Iterator[Asked]:
    """The questions of the five kinds, asked about an empty picture."""
    for asked in held_out(pictures):
        if asked.kind in KINDS:
            yield Asked(asked.kind, BLANK, asked.question, asked.right)


def is_right(asked: Asked, answer: str) -> bool:
    """The same word, or for JSON the same object whatever its spaces."""
    if asked.kind != "json":
        return answer == asked.right
    try:
        return json.loads(answer) == json.loads(asked.right)
    except ValueError:
        return False


def scores(answerer: Answerer, questions: Iterator[Asked], rows: int) -> dict[str, float]:
    """The share of right answers of every kind that was asked."""
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for batch in _batches(questions, rows):
        answers = answerer.answer([(asked.picture, asked.question) for asked in batch])
        for asked, answer in zip(batch, answers, strict=True):
            seen[asked.kind] += 1
            right[asked.kind] += is_right(asked, answer)
    return {kind: right[kind] / seen[kind] for kind in seen}


def _batches(questions: Iterator[Asked], rows: int) -> Iterator[list[Asked]]:
    """Batches of one kind where possible: a word need not wait for a JSON object to end."""
    while some := sorted(islice(questions, 8 * rows), key=lambda asked: asked.kind):
        for start in range(0, len(some), rows):
            yield some[start : start + rows]


def chance() -> float:
    """What guessing one value gives on average over the five kinds."""
    return mean(1 / len(VALUES[kind]) for kind in KINDS)


def report(found: dict[str, float], empty: float, pictures: int) -> list[str]:
    """A table, and as last line the same figures for a script to read."""
    overall = mean(found[kind] for kind in KINDS)
    lines = ["| kind | right | chance |", "|---|--:|--:|"]
    for kind in ALL_KINDS:
        lines.append(f"| {kind} | {found[kind]:.2%} | {1 / len(VALUES[kind]):.0%} |")
    lines += [f"| {kind} | {found[kind]:.2%} | |" for kind in OTHERS]
    lines.append(f"| the five kinds | {overall:.2%} | {chance():.2%} |")
    lines.append(f"| the five kinds, blank picture | {empty:.2%} | {chance():.2%} |")
    figures = {"overall": overall} | {kind: found[kind] for kind in (*KINDS, "json")}
    figures |= {"blank": empty, "chance": chance()}
    figures |= {kind: found[kind] for kind in ("label", "yes_no")}
    line = " ".join(f"{name}={value:.4f}" for name, value in figures.items())
    return [*lines, f"demo_model: pictures={pictures} {line}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: python -m demo.evaluate models/demo."""
    parser = argparse.ArgumentParser(description="Measure a demo checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    answerer = Answerer(given.folder, getattr(torch, given.dtype))
    found = scores(answerer, held_out(given.pictures), given.rows)
    empty = scores(answerer, blank(min(given.pictures, 400)), given.rows)
    print("\n".join(report(found, mean(empty.values()), given.pictures)))


if __name__ == "__main__":
    main()
