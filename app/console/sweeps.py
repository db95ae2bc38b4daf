"""Sweeps and their runs as pages show them; the schedule in words. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.console.formats import clipped
from app.console.words import Words
from app.store.sweep_items import ChangeRow
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow

ANSWER_CHARS = 300
NUMBER, STEP = re.compile(r"\d{1,2}"), re.compile(r"\*/(\d{1,2})")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WORKDAYS = ("1-5", "mon-fri")


@dataclass(frozen=True)
class SweepView:
    """A sweep, and the run that says most of it: the one that stands still, else the newest."""

    sweep: SweepRow
    state: str  # stuck, running, paused or active
    run: RunRow | None
    schedule: str
    source: str

    @property
    def next_due_at(self) -> datetime | None:
        return None if self.sweep.paused_at else self.sweep.next_due_at


@dataclass(frozen=True)
class ChangeView:
    """An answer that is another than before; `picture` is where the item's is shown, if it is known."""

    item: str
    question: str
    before: str
    after: str
    content_hash: str | None
    picture: str | None


def sweep_view(sweep: SweepRow, run: RunRow | None, t: Words) -> SweepView:
    return SweepView(
        sweep,
        state_of(sweep, run),
        run,
        schedule_in_words(sweep.cron, t),
        source_in_words(sweep.source),
    )


def state_of(sweep: SweepRow, run: RunRow | None) -> str:
    if run is not None and is_stuck(run):
        return "stuck"
    if run is not None and run.ended_at is None:
        return "running"
    return "paused" if sweep.paused_at else "active"


def is_stuck(run: RunRow) -> bool:
    return run.stalled_at is not None and run.ended_at is None


def source_in_words(source: Mapping[str, Any]) -> str:
    """Where its images come from, on one line."""
    match source["kind"]:
        case "bucket":
            return str(source["prefix"])
        case "catalog":
            return str(source["url"])
        case _:
            return f"{source['database']}: {source['table']}"


def schedule_in_words(cron: str | None, t: Words) -> str:
    """What a cron line means; the line itself where it is an unusual one."""
    if cron is None:
        return t("sweeps.by_hand")
    fields = cron.lower().split()
    if len(fields) == 5:
        minute, hour, day, month, weekday = fields
        said = _by_hours(minute, hour, day, weekday, t) or _by_days(minute, hour, day, weekday, t)
        if month == "*" and said:
            return said
    return t("sweeps.by_line", line=cron)


def _by_hours(minute: str, hour: str, day: str, weekday: str, t: Words) -> str | None:
    """Those that come all day long."""
    if (day, weekday) != ("*", "*"):
        return None
    if hour == "*" and minute == "*":
        return t("sweeps.every_minutes", count=1)
    if hour == "*" and (step := STEP.fullmatch(minute)):
        return t("sweeps.every_minutes", count=step[1])
    if not NUMBER.fullmatch(minute):
        return None
    if hour == "*":
        return t("sweeps.hourly", minute=minute.zfill(2))
    if step := STEP.fullmatch(hour):
        return t("sweeps.every_hours", count=step[1], minute=minute.zfill(2))
    return None


def _by_days(minute: str, hour: str, day: str, weekday: str, t: Words) -> str | None:
    """Those that come once on some days."""
    if not (NUMBER.fullmatch(minute) and NUMBER.fullmatch(hour)):
        return None
    time = f"{hour.zfill(2)}:{minute.zfill(2)}"
    if (day, weekday) == ("*", "*"):
        return t("sweeps.daily", time=time)
    if day == "*" and weekday in WORKDAYS:
        return t("sweeps.on_workdays", time=time)
    if day == "*" and (number := _weekday(weekday)) is not None:
        return t("sweeps.weekly", time=time, day=t(f"sweeps.weekday_{number}"))
    if weekday == "*" and NUMBER.fullmatch(day):
        return t("sweeps.monthly", time=time, day=int(day))
    return None


def _weekday(name: str) -> int | None:
    if name in WEEKDAYS:
        return WEEKDAYS.index(name)
    return int(name) % 7 if NUMBER.fullmatch(name) and int(name) <= 7 else None


def change_views(
    changes: Sequence[ChangeRow], pictures: Mapping[str, str], link: Callable[[str], str]
) -> list[ChangeView]:
    """`pictures` are content hashes by item; `link` makes the address of one."""
    return [
        ChangeView(
            one.key,
            one.question,
            clipped(one.before, ANSWER_CHARS),
            clipped(one.after, ANSWER_CHARS),
            found := pictures.get(one.key),
            link(found) if found else None,
        )
        for one in changes
    ]
