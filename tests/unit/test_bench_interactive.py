"""What the benchmark of chat completions says of its calls."""

import pytest

from bench.interactive import BURST, last_line
from bench.interactive_calls import Call, times_of


def calls(*first_s: float) -> list[Call]:
    return [Call(200, seconds, 2 * seconds) for seconds in first_s]


def test_percentiles_are_those_of_the_calls() -> None:
    times = times_of(calls(*(number / 100 for number in range(1, 101))))
    assert (times.answered, times.first_s(0.5), times.first_s(0.95)) == (100, 0.5, 0.95)
    assert "last token p50 1.000 p95 1.900 p99 1.980 s" in times.told("idle")


def test_a_call_without_an_answer_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"1 of 2 calls were not answered: \[429\]"):
        times_of([*calls(0.1), Call(429, None, None)])


def test_the_last_line_has_both_sides_of_the_run() -> None:
    idle, busy = times_of(calls(0.05)), times_of(calls(0.25))
    assert last_line(idle, busy, 90.0, 100.0, 40) == (
        "interactive: idle_first_token_p50_s=0.050 busy_first_token_p50_s=0.250 "
        "busy_first_token_p95_s=0.250 batch_jobs_s=90.0 batch_jobs_s_alone=100.0 "
        f"overload_429=40/{BURST}"
    )
