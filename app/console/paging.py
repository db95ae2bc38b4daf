"""Where the links beside a page of results lead. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.ids import job_name


@dataclass(frozen=True)
class Pager:
    """Rows by name: what to ask for the page before by, and the next one; None where there is none."""

    is_first: bool
    before: str | None
    after: str | None
    onward: str = "next"  # or `prev`: the link that goes on in the direction of the page


def pager(
    ids: Sequence[int],
    *,
    at: int | None,
    backwards: bool,
    resume: int | None,
    name: Callable[[int], str] = job_name,
) -> Pager:
    """Of a page that was asked for behind row `at`, or before it; `resume` is where its direction goes on."""

    def named(row: int | None) -> str | None:
        return None if row is None else name(row)

    first, last = (ids[0], ids[-1]) if ids else (at, at)
    if backwards:
        return Pager(is_first=False, before=named(resume), after=named(last), onward="prev")
    return Pager(is_first=at is None, before=None if at is None else named(first), after=named(resume))
