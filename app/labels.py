"""The labels of answers: what an answer under a choice list or a JSON schema says, value by value. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import RequestError

# Longer values are texts that nobody counts; and an index of Postgres holds 2,704 bytes a row.
MOST_VALUE_CHARS = 256
MOST_FIELD_CHARS = 128
MOST_LABELS = 256  # of one answer: a schema may have thousands of fields
MOST_RIGHT = 100  # of a reviewer's list
SAFE_INTEGER = 2**53

Json = Any
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True)
class Label:
    """A value of an answer; `field` is '' for the answer as a whole, `place` counts within a list."""

    field: str
    place: int
    value: str


def read_labels(constraint: Mapping[str, Json] | None, text: str) -> list[Label]:
    """What an answer under a choice list or a schema says; nothing where it was cut off, or held to neither.

    Top-level fields that are neither scalars nor lists of scalars are left out, and so are long texts.
    """
    found = [
        Label(field, place, value)
        for field, answer in read_values(constraint, text).items()
        for place, value in enumerate(_spelled(answer))
    ]
    return found[:MOST_LABELS]


def read_values(constraint: Mapping[str, Json] | None, text: str) -> dict[str, Json]:
    """The same as JSON values by field."""
    if not constraint:
        return {}
    if "choice" in constraint:
        chosen = next((one for one in (text, text.strip()) if one in constraint["choice"]), None)
        return {} if chosen is None else {"": chosen}
    if "json_schema" not in constraint:
        return {}
    try:
        answer = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(answer, dict):
        return {"": answer}
    return {name: value for name, value in answer.items() if name and _is_short(name, MOST_FIELD_CHARS)}


def spell(value: Json) -> str | None:
    """A scalar as a label says it: a string as it is, all else as in JSON; None for what is no label."""
    match value:
        case str():
            return value if _is_short(value, MOST_VALUE_CHARS) else None
        case float() if value.is_integer() and abs(value) < SAFE_INTEGER:
            return str(int(value))
        case float() if value - value != 0:  # 1e999 is JSON, but no number to Python
            return None
        case bool() | None | float():
            return json.dumps(value)
        case int() if abs(value) < 10**MOST_FIELD_CHARS:
            return str(value)
    return None


@dataclass(frozen=True)
class Choices:
    """What a reviewer chooses the right label from. Without values it is written as text."""

    values: Sequence[Json] = ()
    are_several: bool = False  # any number of them together


def choices_of(constraint: Mapping[str, Json], field: str) -> Choices:
    """As far as a choice list or the field's schema names all values plainly."""
    form = _form(constraint, field)
    if form.get("type") == "array":
        items = form.get("items")
        values = _named(items) if isinstance(items, dict) else ()
        return Choices(values, are_several=bool(values))
    return Choices(_named(form))


def right_label(constraint: Mapping[str, Json], field: str, given: Json, answer: Json) -> Json:
    """What a reviewer says in place of `answer`, as the field would have it.

    A text such as `true` stands for the JSON value where the field takes no text. RequestError for what the
    field cannot hold, for what is neither a scalar nor a list of scalars, and for the model's own answer.
    """
    form = _form(constraint, field)
    fitting = [_plain(one) for one in _readings(given) if _is_label(one) and _fits(one, form)]
    if not fitting:
        raise _refusal(f"The label must be {_wanted(form)}, not {json.dumps(given)[:80]}.", "invalid_label")
    if _same(fitting[0], answer):
        raise _refusal(
            "This is the model's own answer: confirm it, or name another label.", "label_unchanged"
        )
    return fitting[0]


def _spelled(answer: Json) -> Iterator[str]:
    if answer == []:
        yield "[]"  # as nothing would be seen, counted or reviewed of it otherwise
    values = [spell(one) for one in (answer if isinstance(answer, list) else [answer])]
    yield from (value for value in dict.fromkeys(values) if value is not None)


def _is_short(text: str, most: int) -> bool:
    """Whether Postgres can hold and index it."""
    return len(text) <= most and "\0" not in text and not any("\ud800" <= mark <= "\udfff" for mark in text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _form(constraint: Mapping[str, Json], field: str) -> Mapping[str, Json]:
    """The schema of a field, as far as it stands there plainly."""
    if "choice" in constraint:
        return {"enum": constraint["choice"]}
    schema = json.loads(constraint["json_schema"])
    form = schema.get("properties", {}).get(field) if field else schema
    return form if isinstance(form, dict) else {}


def _named(form: Mapping[str, Json]) -> Sequence[Json]:
    if isinstance(form.get("enum"), list):
        values = [one for one in form["enum"] if spell(one) is not None]
        return values if len(values) == len(form["enum"]) else ()
    return (True, False) if form.get("type") == "boolean" else ()


def _readings(given: Json) -> Iterator[Json]:
    yield given
    if isinstance(given, str):
        try:
            yield json.loads(given, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return


def _is_label(value: Json) -> bool:
    """Whether it may be told as a right label, whatever the schema would take beside."""
    several: Sequence[Json] = value if isinstance(value, list) else [value]
    return len(several) <= MOST_RIGHT and all(
        isinstance(one, str) or spell(one) is not None for one in several
    )


def _plain(value: Json) -> Json:
    """With numbers as labels spell them: 4.0 is 4."""
    if isinstance(value, list):
        return [_plain(one) if not isinstance(one, list) else one for one in value]
    whole = isinstance(value, float) and value.is_integer() and abs(value) < SAFE_INTEGER
    return int(value) if whole else value


def _fits(value: Json, form: Mapping[str, Json]) -> bool:
    if "enum" in form:
        return any(_same(value, one) for one in form["enum"])
    if isinstance(value, list):
        items = form.get("items")
        inner = items if isinstance(items, dict) else {}
        return _is_kind(value, form.get("type")) and all(_fits(one, inner) for one in value)
    return spell(value) is not None and _is_kind(value, form.get("type"))


def _is_kind(value: Json, kind: Json) -> bool:
    kinds: Sequence[Json] = kind if isinstance(kind, list) else [kind]
    if not any(one in TYPES for one in kinds if isinstance(one, str)):
        return True
    wanted = {one for name in kinds if isinstance(name, str) for one in TYPES.get(name, ())}
    if isinstance(value, bool):
        return bool in wanted
    return isinstance(_plain(value), tuple(wanted))


def _same(one: Json, other: Json) -> bool:
    """As JSON: true is not 1, but 1.0 is."""
    return json.dumps(_plain(one), sort_keys=True) == json.dumps(_plain(other), sort_keys=True)


def _wanted(form: Mapping[str, Json]) -> str:
    if "enum" in form:
        shown = [json.dumps(one, ensure_ascii=False) for one in form["enum"][:10]]
        more = ", ..." if len(form["enum"]) > len(shown) else ""
        return f"one of {', '.join(shown)}{more}"
    kind = form.get("type")
    kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else kind
    return (
        f"of type {kinds}" if kinds else f"a value or a list of values of up to {MOST_VALUE_CHARS} characters"
    )


def _refusal(message: str, code: str) -> RequestError:
    return RequestError(message, param="label", code=code)
