"""Labelled questions about drawn pictures that no demo model was trained on, as batch lines."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from bench.queue_lines import URL
from demo.pictures import as_jpeg, draw
from demo.products import ALL_KINDS, FIRST_HELD_OUT_SEED, VALUES, product_for
from demo.questions import question_for, right_answer

# No picture of one set is in another, nor in those of `bench.load`.
SAMPLE_SEED = FIRST_HELD_OUT_SEED + 700_000
TEST_SEED = FIRST_HELD_OUT_SEED + 800_000
MAX_TOKENS = 8


def write_questions(path: Path, first_seed: int, questions: int, *, per_picture: int, **more: object) -> None:
    """So many lines, the kinds in turn, the right answer in each one's metadata; `more` goes into bodies."""
    with path.open("w") as file:
        for number, line in enumerate(_lines(first_seed, per_picture, more)):
            if number == questions:
                return
            file.write(json.dumps(line) + "\n")


def _lines(first_seed: int, per_picture: int, more: dict[str, object]) -> Iterator[dict[str, object]]:
    place = 0
    while True:
        seed = first_seed + place // per_picture
        product = product_for(seed, held_out=True)
        picture = base64.b64encode(as_jpeg(draw(product, seed))).decode()
        for _ in range(per_picture):
            kind = ALL_KINDS[place % len(ALL_KINDS)]
            image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}}
            content = [image, {"type": "text", "text": question_for(kind, seed)}]
            body = {
                "messages": [{"role": "user", "content": content}],
                "max_tokens": MAX_TOKENS,
                "guided_choice": VALUES[kind],
                "metadata": {"label": right_answer(product, kind), "kind": kind},
                **more,
            }
            yield {"custom_id": f"{seed}-{kind}", "method": "POST", "url": URL, "body": body}
            place += 1
