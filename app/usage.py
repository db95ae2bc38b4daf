"""Reports of what was used and what it cost, for tenants and for operators."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from app.db import Sessions, transaction
from app.errors import RequestError
from app.prices import Price
from app.store import usage as store
from app.store.usage import Use

# What a report may be grouped by, as clients say it, and the store's name of it.
PARTS = {"day": "day", "key": "key_id", "model": "model"}
DEFAULT_DAYS, MOST_DAYS = 30, 366
MOST_ROWS = 10_000
CENTS = 6  # digits behind the point: a job costs a fraction of a cent

# Which row of a report something belongs to: tenant, day, key and model, None for what is not asked for.
Group = tuple[str | None, date | None, str | None, str | None]


@dataclass(frozen=True)
class Cost:
    amount: float
    currency: str


@dataclass(frozen=True)
class Line:
    """What was used of a group. No cost where a model has no price, or currencies differ."""

    group: Group
    completed: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Cost | None


@dataclass(frozen=True)
class Report:
    start: date
    end: date
    by: Sequence[str]
    lines: Sequence[Line]
    total: Line


class Usage:
    def __init__(
        self,
        *,
        sessions: Sessions,
        prices: Mapping[str, Price],
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
    ) -> None:
        self._sessions = sessions
        self._prices = prices
        self._today = today

    def report(self, tenant_id: str, *, start: str | None, end: str | None, group_by: str) -> Report:
        """Of a tenant, from one day to the other. RequestError for what is no such report."""
        first, last = read_days(start, end, today=self._today())
        return self._report(tenant_id, first, last, read_parts(group_by))

    def report_all(self, tenant_id: str | None, *, days: int, by: str) -> Report:
        """Of each tenant, or of one, in the last days."""
        last = self._today()
        return self._report(tenant_id, last - timedelta(days=days - 1), last, ["tenant", *read_parts(by)])

    def _report(self, tenant_id: str | None, start: date, end: date, by: Sequence[str]) -> Report:
        names = {PARTS.get(part, part) for part in by}
        with transaction(self._sessions) as session:
            uses = store.read_usage(session, tenant_id, start=start, end=end, by=names, limit=MOST_ROWS + 1)
        if len(uses) > MOST_ROWS:
            raise RequestError(
                f"The report has more than {MOST_ROWS:,} rows. Ask for fewer days, or group by less.",
                param="group_by",
                code="report_too_large",
            )
        return Report(start, end, by, fold(uses, names, self._prices), add_up(uses, self._prices))


def read_days(start: str | None, end: str | None, *, today: date) -> tuple[date, date]:
    """The first and last day of a report; the last 30 where none is given."""
    last = _day(end, "end") if end else today
    earlier = max(1, last.toordinal() - DEFAULT_DAYS + 1)  # there is no day before the first
    first = _day(start, "start") if start else date.fromordinal(earlier)
    if first > last:
        raise RequestError(f"'start' ({first}) is after 'end' ({last}).", param="start", code="invalid_days")
    if (last - first).days >= MOST_DAYS:
        raise RequestError(
            f"From {first} to {last} are {(last - first).days + 1:,} days; a report has {MOST_DAYS} at most. "
            "Ask for a year at a time.",
            param="start",
            code="invalid_days",
        )
    return first, last


def read_parts(text: str) -> list[str]:
    """What to group by, in the order of PARTS."""
    given = [part.strip() for part in text.split(",") if part.strip()]
    for part in given:
        if part not in PARTS:
            raise RequestError(
                f"Nothing is grouped by {part[:40]!r}: name some of {', '.join(PARTS)}, with commas between.",
                param="group_by",
                code="invalid_group_by",
            )
    return [part for part in PARTS if part in given]


def fold(uses: Iterable[Use], by: Collection[str], prices: Mapping[str, Price]) -> list[Line]:
    """A line for each group, in the order in which they come; without the model, all models' in one."""
    groups: dict[Group, list[Use]] = {}
    for use in uses:
        group = (use.tenant, use.day, use.key_id, use.model if "model" in by else None)
        groups.setdefault(group, []).append(use)
    return [add_up(members, prices, group) for group, members in groups.items()]


def add_up(uses: Sequence[Use], prices: Mapping[str, Price], group: Group = (None, None, None, None)) -> Line:
    return Line(
        group,
        completed=sum(use.completed for use in uses),
        failed=sum(use.failed for use in uses),
        prompt_tokens=sum(use.prompt_tokens for use in uses),
        cached_tokens=sum(use.cached_tokens for use in uses),
        completion_tokens=sum(use.completion_tokens for use in uses),
        cost=cost_of(uses, prices),
    )


def cost_of(uses: Iterable[Use], prices: Mapping[str, Price]) -> Cost | None:
    """None where a model that was used has no price, or where they are in several currencies."""
    amount, currencies = 0.0, set[str]()
    for use in uses:
        price = prices.get(use.model)
        if price is None:
            if use.prompt_tokens or use.completion_tokens:
                return None
            continue  # only what never ran
        currencies.add(price.currency)
        amount += price.of(
            prompt=use.prompt_tokens, cached=use.cached_tokens, completion=use.completion_tokens
        )
    return Cost(round(amount, CENTS), currencies.pop()) if len(currencies) == 1 else None


def _day(text: str, param: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:  # of ISO's other forms none is taken
        raise RequestError(
            f"{text[:40]!r} is no day: YYYY-MM-DD is expected, such as 2026-11-30.",
            param=param,
            code="invalid_days",
        )
    return day
