"""The engine against `generate()` and vLLM on a mid-size model: CPU seconds a question, and its answers."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers.utils import logging

from bench.checkpoint import build_mid, build_tiny, words
from bench.comparison import Run, agreeing, best, faster, last_line, table
from bench.identical import compare, random_talks
from bench.latency import second_question
from bench.oracle import Oracle
from bench.ours import open_ours
from bench.sides import Side, least, measure
from bench.workloads import Workload, catalog, decode, unshared, warming, write_workload

PARTS = ("catalog", "mixed", "second", "identical")
FORMATS = ("float32", "bfloat16", "int8")  # the last line compares the first
BATCH = 16  # rows of a static batch and of `generate()`
SMALL_CACHE = 4 * 2**20  # bytes: the compared jobs drop one another's features and prefixes

GENERATE = "generate(), batches of 16"
COLD, WARM, FEATURES = "ours, cold", "ours, prefixes known", "ours, features known"
VLLM_COLD, VLLM_WARM, VLLM_FEATURES = "vLLM, cold", "vLLM, prefixes known", "vLLM, features handed in"
CONTINUOUS, STATIC, WIDE = "ours, unshared", "ours, unshared, static batches", "ours, unshared, wider steps"
VLLM_UNSHARED, GENERATE_UNSHARED = "vLLM, unshared", "generate(), unshared"


@dataclass(frozen=True)
class Size:
    """How much is asked. `generate()` answers only the first questions: each costs it the same."""

    pictures: int = 20
    each: int = 10
    generated: int = 64
    unshared: int = 48
    second: int = 8
    jobs: int = 500


QUICK = Size(pictures=4, each=4, generated=16, unshared=16, second=3, jobs=60)


def main() -> None:
    options = _options()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    size = QUICK if options.quick else Size()
    runs: list[Run] = []
    second: float | None = None
    identical = "na"
    with TemporaryDirectory(prefix="vqueue-bench-") as name:
        folder = Path(name)
        if {"catalog", "mixed", "second"} & set(options.only):
            build_mid(folder / "mid")
        if "catalog" in options.only:
            runs += _measure(_catalog_sides(folder, size, options), options)
        if "mixed" in options.only:
            runs += _measure(_mixed_sides(folder, size, options.rows), options)
        if "second" in options.only:
            second = second_question(folder / "mid", catalog(words(), pictures=size.second, each=2))
        if "identical" in options.only:
            identical = _identical(folder, size.jobs)
    _report(runs, second, identical)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, help="an environment with vLLM, as scripts/vllm_env makes it")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="leave out the other parts")
    parser.add_argument("--quick", action="store_true", help="few questions: to see that it runs")
    parser.add_argument("--rows", type=int, default=64, help="rows of our steps where they are not compared")
    parser.add_argument(
        "--repeats", type=int, default=2, help="rounds over all sides; the best of each counts"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="the best of these counts")
    parser.add_argument(
        "--formats", nargs="+", choices=FORMATS, default=FORMATS, help="of the catalog's part"
    )
    return parser.parse_args()


def _catalog_sides(folder: Path, size: Size, options: argparse.Namespace) -> list[Side]:
    """Many questions about each picture."""
    asked = catalog(words(), pictures=size.pictures, each=size.each)
    work = str(write_workload(asked, folder / "catalog"))
    start = str(write_workload(asked.first(size.generated), folder / "catalog-start"))
    other = str(write_workload(warming(asked, words()), folder / "other-questions"))
    behind = str(write_workload(warming(asked, words(), system="Answer."), folder / "other-prefixes"))
    features = str(_write_features(folder, asked))
    model, rows = str(folder / "mid"), options.rows
    sides = [
        Side(GENERATE, "generate", model, start, batch=BATCH),
        Side(COLD, "ours", model, work, rows=rows),
        Side(WARM, "ours", model, work, rows=rows, warm=other),
        Side(FEATURES, "ours", model, work, rows=rows, warm=behind),
        Side(VLLM_COLD, "vllm", model, work),
        Side(VLLM_WARM, "vllm", model, work, warm=other),
        Side(VLLM_FEATURES, "vllm", model, work, features=features),
    ]
    return [
        replace(side, threads=threads, dtype=dtype)
        for dtype in options.formats
        for threads in options.threads
        for side in sides
        if dtype != "int8" or side.kind == "ours"  # the others have none of their own on a CPU
    ]


def _mixed_sides(folder: Path, size: Size, rows: int) -> list[Side]:
    """One question about each picture, so that nothing is shared; answers of many lengths."""
    work = str(write_workload(unshared(words(), pictures=size.unshared), folder / "unshared"))
    model = str(folder / "mid")
    return [
        Side(CONTINUOUS, "ours", model, work, rows=BATCH),
        Side(STATIC, "ours", model, work, rows=BATCH, batch=BATCH),
        Side(WIDE, "ours", model, work, rows=rows),
        Side(VLLM_UNSHARED, "vllm", model, work),
        Side(GENERATE_UNSHARED, "generate", model, work, batch=BATCH),
    ]


def _write_features(folder: Path, asked: Workload) -> Path:
    pictures = {name: decode(data) for name, data in asked.pictures.items()}
    return Oracle(folder / "mid").write_features(pictures, folder / "features")


def _measure(sides: Iterable[Side], options: argparse.Namespace) -> list[Run]:
    """Round after round, so that what disturbs the machine disturbs all sides alike."""
    wanted = [side for side in sides if side.kind != "vllm" or options.vllm]
    rounds = [[_tell(side, options.vllm) for side in wanted] for _ in range(options.repeats)]
    return [Run(side, least([each[place].measure for each in rounds])) for place, side in enumerate(wanted)]


def _tell(side: Side, vllm: Path | None) -> Run:
    run = Run(side, measure(side, vllm=vllm))
    load = os.getloadavg()[0]
    print(
        f"{side.name}, {side.dtype}, {side.threads} threads: {run.measure.cpu_each:.4f} CPU s each, "
        f"load {load:.1f}",
        file=sys.stderr,
    )
    return run


def _identical(folder: Path, jobs: int) -> str:
    tiny = build_tiny(folder / "tiny")
    engine = open_ours(tiny, threads=1, rows=8, cache_bytes=SMALL_CACHE)
    try:
        outcomes = compare(engine, Oracle(tiny), random_talks(jobs, seed=1))
    finally:
        engine.close()
    for name in [name for name, equal in outcomes if not equal][:10]:
        print(f"job {name} differs from generate()", file=sys.stderr)
    return f"{sum(equal for _, equal in outcomes)}/{len(outcomes)}"


def _report(runs: Sequence[Run], second: float | None, identical: str) -> None:
    def ratio(ours: str, theirs: str, dtype: str = "float32") -> float | None:
        return faster(best(runs, ours, dtype), best(runs, theirs, dtype))

    ratios = {
        "vs_generate_cold": ratio(COLD, GENERATE),
        "vs_generate_warm": ratio(WARM, GENERATE),
        "vs_vllm_cold": ratio(COLD, VLLM_COLD),
        "vs_vllm_warm": ratio(WARM, VLLM_WARM),
        "vs_vllm_features": ratio(FEATURES, VLLM_FEATURES),
        "vs_vllm_cold_bf16": ratio(COLD, VLLM_COLD, "bfloat16"),
        "vs_vllm_features_bf16": ratio(FEATURES, VLLM_FEATURES, "bfloat16"),
        "vs_vllm_cold_best": faster(best(runs, COLD, None), best(runs, VLLM_COLD, None)),
        "vs_vllm_features_best": faster(best(runs, FEATURES, None), best(runs, VLLM_FEATURES, None)),
        "vs_static": ratio(WIDE, GENERATE_UNSHARED),
        "vs_static_of_ours": ratio(CONTINUOUS, STATIC),
        "vs_vllm_unshared": ratio(WIDE, VLLM_UNSHARED),
    }
    agreement = {
        "generate": agreeing(best(runs, COLD), best(runs, GENERATE)),
        "vllm": agreeing(best(runs, COLD), best(runs, VLLM_COLD)),
        "ours_warm": agreeing(best(runs, COLD), best(runs, WARM)),
        "vllm_unshared": agreeing(best(runs, CONTINUOUS), best(runs, VLLM_UNSHARED)),
    }
    print(table(runs))
    print(
        json.dumps(
            {
                "ratios": ratios,
                "same_answers_as_ours_cold": agreement,
                "second_question": second,
                "identical": identical,
                "cpus": os.cpu_count(),
                "runs": [_as_json(run) for run in runs],
            }
        )
    )
    print(last_line(ratios, second, identical))


def _as_json(run: Run) -> dict[str, object]:
    return {
        "side": run.side.name,
        "dtype": run.side.dtype,
        "threads": run.side.threads,
        "questions": run.measure.questions,
        "cpu_s": round(run.measure.cpu_s, 3),
        "wall_s": round(run.measure.wall_s, 3),
    }


if __name__ == "__main__":
    main()
