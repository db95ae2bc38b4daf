"""Where the links beside a page of results lead. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.ids import job_name


@dataclass(frozen=True)
class Pager:
    """Jobs by name: what to ask for the page before by, and the next one; None where there is none."""

    is_first: bool
    before: str | None
    after: str | None


def pager(ids: Sequence[int], *, at: int | None, backwards: bool, resume: int | None) -> Pager:
    """Of a page that was asked for behind job `at`, or before it; `resume` is where its direction goes on."""
    first, last = (ids[0], ids[-1]) if ids else (at, at)
    if backwards:
        return Pager(is_first=False, before=_name(resume), after=_name(last))
    return Pager(is_first=at is None, before=None if at is None else _name(first), after=_name(resume))


def _name(job_id: int | None) -> str | None:
    return job_name(job_id) if job_id is not None else None
