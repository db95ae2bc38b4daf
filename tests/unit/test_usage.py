"""Usage is read by days and groups that make sense, adds up, and costs what the prices say."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import RequestError
from app.prices import Price
from app.store.usage import Use
from app.usage import Cost, add_up, cost_of, fold, read_days, read_parts

TODAY = date(2026, 11, 30)
PRICES = {"small": Price(1.0, 0.5, 2.0), "big": Price(10.0, 10.0, 20.0), "far": Price(1.0, 1.0, 1.0, "EUR")}
COUNTS = st.integers(0, 10**9)
USES = st.builds(
    Use,
    model=st.sampled_from(["small", "big"]),
    tenant=st.none(),
    day=st.dates(TODAY, TODAY + timedelta(days=2)),
    key_id=st.sampled_from(["", "key_1"]),
    completed=COUNTS,
    failed=COUNTS,
    prompt_tokens=COUNTS,
    cached_tokens=COUNTS,
    completion_tokens=COUNTS,
)


def use(model: str = "small", *, prompt: int = 1_000_000, completion: int = 0) -> Use:
    return Use(model, None, TODAY, "", 1, 0, prompt, 0, completion)


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (None, None, date(2026, 11, 1), TODAY),
        (None, "2026-02-10", date(2026, 1, 12), date(2026, 2, 10)),
        ("2026-11-30", None, TODAY, TODAY),
        ("2025-12-01", "2026-12-01", date(2025, 12, 1), date(2026, 12, 1)),
        (None, "0001-01-02", date.min, date(1, 1, 2)),
    ],
)
def test_days_are_the_last_thirty_unless_told_otherwise(
    start: str | None, end: str | None, first: date, last: date
) -> None:
    assert read_days(start, end, today=TODAY) == (first, last)


@pytest.mark.parametrize(
    ("start", "end", "param", "word"),
    [
        ("2026-13-01", None, "start", "YYYY-MM-DD"),
        ("20261101", None, "start", "YYYY-MM-DD"),
        ("2026-W48-1", None, "start", "YYYY-MM-DD"),
        ("2026-11-01", "now", "end", "'now'"),
        ("2026-12-01", None, "start", "after"),
        ("2025-11-29", None, "start", "367 days"),
    ],
)
def test_days_that_make_no_sense_are_refused(start: str, end: str | None, param: str, word: str) -> None:
    with pytest.raises(RequestError, match=word) as refused:
        read_days(start, end, today=TODAY)
    assert refused.value.param == param


def test_groups_are_named_in_any_order_and_unknown_ones_refused() -> None:
    assert read_parts("model, day,model") == ["day", "model"]
    assert read_parts("") == []
    with pytest.raises(RequestError, match=r"'week'.*day, key, model"):
        read_parts("day,week")


def test_a_cost_adds_up_over_models() -> None:
    assert cost_of([use("small"), use("big", prompt=0, completion=500_000)], PRICES) == Cost(11.0, "USD")


@pytest.mark.parametrize("models", [["small", "new"], ["small", "far"], []])
def test_there_is_no_cost_without_a_price_or_over_currencies(models: list[str]) -> None:
    assert cost_of([use(model) for model in models], PRICES) is None


def test_what_never_ran_needs_no_price() -> None:
    assert cost_of([use("small"), use("", prompt=0)], PRICES) == Cost(1.0, "USD")


@given(st.lists(USES), st.sets(st.sampled_from(["day", "key_id", "model"])))
def test_lines_add_up_to_the_total(uses: list[Use], by: set[str]) -> None:
    lines, total = fold(uses, by, PRICES), add_up(uses, PRICES)
    for name in ("completed", "failed", "prompt_tokens", "cached_tokens", "completion_tokens"):
        assert sum(getattr(line, name) for line in lines) == getattr(total, name)
    costs = sum(line.cost.amount for line in lines if line.cost)
    assert costs == pytest.approx(total.cost.amount if total.cost else 0, abs=1e-5 * (len(lines) + 1))
