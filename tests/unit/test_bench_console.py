"""The console's benchmark: what its last line is made of."""

import pytest

from bench.console import FILTER, GRID, Kind, Timed, last_line, quantile


def a_kind(name: str, group: str, ms: list[float], size: int) -> Timed:
    return Timed(Kind(name, group, str), ms, size)


@pytest.mark.parametrize(("share", "value"), [(0.5, 10), (0.95, 19), (1, 20), (0, 1)])
def test_a_quantile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert quantile([float(one) for one in range(20, 0, -1)], share) == value


def test_the_last_line_joins_the_kinds_of_a_group() -> None:
    done = [
        a_kind("one", GRID, [5.0], 1_000),
        a_kind("two", GRID, [50.0], 90_400),
        a_kind("x", FILTER, [7], 5),
    ]
    assert last_line(done) == (
        "console: grid_p95_ms=50 filter_p95_ms=7 text_p95_ms=0 compare_p95_ms=0 page_kb=90"
    )
