"""Sides laid beside each other: the best run of each, ratios, a table and the last line. Does no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.sides import Measure, Side

KEYS = ("vs_generate_cold", "vs_generate_warm", "vs_vllm_cold", "vs_vllm_features", "vs_static")


@dataclass(frozen=True)
class Run:
    side: Side
    measure: Measure


def best(runs: Sequence[Run], name: str, dtype: str | None = "float32") -> Run | None:
    """The run with the fewest CPU seconds per question over all thread counts; no `dtype` means any.

    None where the side was not run.
    """
    found = [run for run in runs if run.side.name == name and dtype in (None, run.side.dtype)]
    return min(found, key=lambda run: run.measure.cpu_each, default=None)


def faster(ours: Run | None, theirs: Run | None) -> float | None:
    """How many times fewer CPU seconds a question costs us."""
    if ours is None or theirs is None:
        return None
    return theirs.measure.cpu_each / ours.measure.cpu_each


def agreeing(ours: Run | None, theirs: Run | None) -> str:
    """How many of the questions that both answered have the same answer."""
    if ours is None or theirs is None:
        return "na"
    both = ours.measure.answers.keys() & theirs.measure.answers.keys()
    same = sum(ours.measure.answers[name] == theirs.measure.answers[name] for name in both)
    return f"{same}/{len(both)}"


def table(runs: Sequence[Run]) -> str:
    head = (
        f"{'side':<36}{'format':>10}{'threads':>9}{'rows':>6}{'questions':>11}{'CPU s each':>12}{'per s':>9}"
    )
    lines = [
        f"{run.side.name:<36}{run.side.dtype:>10}{run.side.threads:>9}{_rows(run.side):>6}"
        f"{run.measure.questions:>11}{run.measure.cpu_each:>12.4f}"
        f"{run.measure.questions / run.measure.wall_s:>9.2f}"
        for run in runs
    ]
    return "\n".join([head, *lines])


def _rows(side: Side) -> str:
    """Of a batch or of our steps; vLLM chooses its own."""
    return "-" if side.kind == "vllm" else str(side.batch or side.rows)


def last_line(ratios: Mapping[str, float | None], second: float | None, identical: str) -> str:
    pairs = [f"{key}={_number(ratios.get(key))}" for key in KEYS]
    return f"engine: {' '.join(pairs)} second_question={_number(second)} identical={identical}"


def _number(value: float | None) -> str:
    return "na" if value is None else f"{value:.2f}"
