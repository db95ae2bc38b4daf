"""The answers to one question of a table as cells: a column, or one for each property of its schema. Pure."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from app.checks import Json, shown
from app.exports.columns import Cells, Column, Kind, fits
from app.exports.jobs import ExportedJob
from app.results import AnsweredJob, UnansweredJob, why_unanswered
from app.tables.spec import Question

CUT = "length: The answer was cut off at max_tokens: raise it."

_KINDS = {
    "string": Kind.TEXT,
    "integer": Kind.INTEGER,
    "number": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
}
# As models like to pack JSON where no grammar holds them to the form.
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)


class AnswerColumns:
    """Of one question: its answers, then what is wrong with them."""

    def __init__(self, question: Question) -> None:
        self._properties = _properties(question.schema)
        self._kinds = [_kind(form) for form in self._properties.values()] or [Kind.TEXT]
        name = question.name
        names = [f"{name}.{one}" for one in self._properties] or [name]
        self.columns = [*map(Column, names, self._kinds), Column(f"{name}_error")]

    def cells(self, job: ExportedJob | None) -> Cells:
        ended = job and job.ended
        match ended:
            case AnsweredJob():
                return self._answered(ended)
            case UnansweredJob():
                code, message = why_unanswered(ended)
                return self._without(f"{code}: {message}")
            case None:
                return self._without(None)

    def _answered(self, job: AnsweredJob) -> Cells:
        is_cut = job.finish_reason == "length"
        if not self._properties:
            return (job.text, CUT if is_cut else None)
        if is_cut:
            return self._without(CUT)
        found = read_object(job.text)
        if found is None:
            return self._without(f"invalid_json: The answer is no JSON object: {shown(job.text)}.")
        values = [found.get(name) for name in self._properties]
        return (*map(_fitting, self._kinds, values), self._misfits(values))

    def _misfits(self, values: Sequence[Json]) -> str | None:
        """What has no place in its column. JSON's null has one in each."""
        wrong = [
            f"{name} is {shown(value)}, which is no {kind.value}"
            for name, kind, value in zip(self._properties, self._kinds, values, strict=True)
            if value is not None and not fits(kind, value)
        ]
        return f"invalid_json: {'; '.join(wrong)}." if wrong else None

    def _without(self, error: str | None) -> Cells:
        return (*(None for _ in self._kinds), error)


def read_object(text: str) -> Mapping[str, Json] | None:
    """The JSON object that an answer is, with or without a fence around it; None where it is none."""
    fenced = _FENCED.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(literal)
    return number


def _fitting(kind: Kind, value: Json) -> Json:
    return value if value is not None and fits(kind, value) else None


def _properties(schema: Mapping[str, Json] | None) -> Mapping[str, Json]:
    found = schema.get("properties") if schema else None
    return found if isinstance(found, dict) else {}


def _kind(form: Json) -> Kind:
    """What a property can be; one that may be null can be so besides."""
    kinds = form.get("type") if isinstance(form, dict) else None
    named = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
    return _KINDS.get(named[0], Kind.JSON) if len(named) == 1 and isinstance(named[0], str) else Kind.JSON
