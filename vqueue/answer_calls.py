"""The calls for labelled answers: found, counted, reviewed, and saved as a calibration set."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from vqueue.calls import Call
from vqueue.inputs import AnswerFilters, Verdict
from vqueue.types import LabelCount, LabelledAnswerPage, PairAgreement, Review


def answers(
    filters: AnswerFilters | None = None, *, limit: int = 100, after: str | None = None
) -> Call[LabelledAnswerPage]:
    """A page of answers under a choice list or a schema, newest first, behind the one with the id `after`."""
    params = _params(filters) | {"limit": limit} | ({"after": after} if after else {})
    return Call("GET", "/answers", _page, params=params)


def count_answers(
    filters: AnswerFilters | None = None, *, group_by: Sequence[str] = ("label",)
) -> Call[list[LabelCount]]:
    """How many labels there are of each group: up to three of label, field, question, policy_version, day,
    model and review."""
    params = _params(filters) | {"group_by": ",".join(group_by)}
    return Call("GET", "/answers/count", _counts, params=params)


def review(
    job_id: str, verdict: Verdict, *, label: Any = ..., field: str | None = None, note: str | None = None
) -> Call[Review]:
    """Confirm an answer, or overturn it with the right label, which may be None for a null.

    `field` says which one of an answer that has several.
    """
    body = {"verdict": verdict, "field": field, "note": note}
    given = {name: value for name, value in body.items() if value is not None}
    if label is not ...:
        given["label"] = label
    return Call("PUT", f"/answers/{job_id}/review", _review, json=given)


def delete_review(job_id: str, *, field: str | None = None) -> Call[None]:
    """Take a review back."""
    params = {} if field is None else {"field": field}
    return Call("DELETE", f"/answers/{job_id}/review", lambda _: None, params=params)


def corrections(to: Path | str, filters: AnswerFilters | None = None) -> Call[Path]:
    """Write the reviewed answers to a file of JSON lines, which appears whole or not at all."""
    path = Path(to)
    return Call("GET", "/answers/corrections", lambda _: path, params=_params(filters), save_to=path)


def agreement(filters: AnswerFilters | None = None) -> Call[list[PairAgreement]]:
    """How often two people said the same of the same answers, by question and pair of keys."""
    return Call("GET", "/answers/agreement", _pairs, params=_params(filters))


def _params(filters: AnswerFilters | None) -> dict[str, str | int]:
    given: Mapping[str, Any] = filters or {}
    return {name: _shown(value) for name, value in given.items() if value is not None}


def _shown(value: Any) -> str | int:
    return value.isoformat() if isinstance(value, datetime) else value


def _page(answer: httpx.Response) -> LabelledAnswerPage:
    return LabelledAnswerPage.model_validate_json(answer.content)


def _review(answer: httpx.Response) -> Review:
    return Review.model_validate_json(answer.content)


def _pairs(answer: httpx.Response) -> list[PairAgreement]:
    return [PairAgreement.model_validate(row) for row in answer.json()["data"]]


def _counts(answer: httpx.Response) -> list[LabelCount]:
    return [LabelCount.model_validate(row) for row in answer.json()["data"]]
