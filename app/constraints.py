"""What an answer may be held to, as OpenAI's and vLLM's clients write it. Pure."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from app.checks import Json, is_unicode, shown, wrong
from app.grammars import json_grammar, refusal, too_many_optional

GUIDES = frozenset({"structured_outputs", "guided_choice"})  # vLLM's, at every endpoint
FIELDS = GUIDES | {"response_format"}

# A schema stands in every job that has it. Thousands of properties would take seconds to compile.
MOST_SCHEMA_BYTES = 32_768
MOST_CHOICES = 1_000
MOST_CHOICE_CHARS = 32_768  # of all choices together

# vLLM's other spellings, with the value that means "not used".
_UNSERVED: Mapping[str, Json] = {
    "regex": None,
    "grammar": None,
    "structural_tag": None,
    "whitespace_pattern": None,
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
}


def read_constraint(body: Mapping[str, Json]) -> dict[str, Json] | None:
    """As it is stored: one of `json_object`, `choice` and `json_schema`, a JSON text."""
    if _READERS.keys().isdisjoint(body):
        return None
    given = [
        (name, found) for name, read in _READERS.items() if (found := read(name, body.get(name))) is not None
    ]
    if len(given) > 1:
        names = " and ".join(name for name, _ in given)
        raise wrong(given[1][0], f"{names} exclude each other: an answer is held to one form, so keep one.")
    return given[0][1] if given else None


def _response_format(param: str, value: Json) -> dict[str, Json] | None:
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else value
    match kind:
        case "text":
            return None
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return _json_schema(f"{param}.json_schema", value.get("json_schema"))
        case _:
            raise wrong(
                param, f"{param}.type must be 'text', 'json_object' or 'json_schema', not {shown(kind)}."
            )


def read_text_format(param: str, value: Json) -> dict[str, Json] | None:
    """`text.format` of the Responses API: there the schema lies beside its type."""
    if isinstance(value, dict) and value.get("type") == "json_schema":
        return _json_schema(param, {name: given for name, given in value.items() if name != "type"})
    return _response_format(param, value)


def _json_schema(param: str, value: Json) -> dict[str, Json]:
    """OpenAI's shape. The answer is held to the schema, strict or not; the name is for people."""
    if not isinstance(value, dict) or value.get("schema") is None:
        raise wrong(
            param, f'{param} must be an object {{"name": ..., "schema": {{...}}}}, not {shown(value)}.'
        )
    if unknown := sorted(set(value) - {"name", "description", "schema", "strict"}):
        raise wrong(param, f"{shown(unknown[0])} is not known in {param}: leave it out.")
    return _schema(f"{param}.schema", value["schema"])


def _structured_outputs(param: str, value: Json) -> dict[str, Json] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise wrong(param, f'{param} must be an object such as {{"choice": [...]}}, not {shown(value)}.')
    for name, given in value.items():
        if name not in _UNSERVED and name not in _KINDS:
            raise wrong(param, f"{shown(name)} is not known in {param}: use {' or '.join(_KINDS)}.")
        if name in _UNSERVED and given is not None and given != _UNSERVED[name]:
            raise wrong(param, f"{param}.{name} is not served: use {' or '.join(_KINDS)}.")
    kinds = [name for name in _KINDS if value.get(name) not in (None, False)]
    if len(kinds) != 1:
        raise wrong(param, f"{param} must hold exactly one of {', '.join(_KINDS)}.")
    return _KINDS[kinds[0]](f"{param}.{kinds[0]}", value[kinds[0]])


def _json_object(param: str, value: Json) -> dict[str, Json]:
    if value is not True:
        raise wrong(param, f"{param} must be true or left out, not {shown(value)}.")
    return {"json_object": True}


def _schema(param: str, value: Json) -> dict[str, Json]:
    """vLLM takes a schema as a JSON text too."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            where = f" from character {error.pos + 1} on" if isinstance(error, json.JSONDecodeError) else ""
            raise wrong(param, f"{param} is a text that is not JSON{where}.") from error
    if not isinstance(value, dict):
        raise wrong(param, f"{param} must be a JSON object, not {shown(value)}.")
    text = _compact(param, value)
    if problem := schema_problem(text):
        raise wrong(param, f"The schema cannot be followed: {problem}", "invalid_schema")
    return {"json_schema": text}


def _compact(param: str, schema: Json) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise wrong(
            param, "The schema cannot be followed: it is nested too deep.", "invalid_schema"
        ) from error
    if not is_unicode(text):
        raise wrong(param, f"{param} holds a lone surrogate, which UTF-8 cannot encode.")
    if (size := len(text.encode())) > MOST_SCHEMA_BYTES:
        raise wrong(param, f"{param} has {size} bytes; the limit is {MOST_SCHEMA_BYTES}: make it smaller.")
    return text


@lru_cache(maxsize=256)  # a million lines of a batch often carry one schema
def schema_problem(schema: str) -> str | None:
    """What no answer can be held to in a schema, None where nothing is."""
    try:
        return too_many_optional(schema) or refusal(json_grammar(schema))
    except ValueError as error:
        return f"{error}."


def _choice(param: str, value: Json) -> dict[str, Json] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_CHOICES:
        raise wrong(param, f"{param} must be a list of 1 to {MOST_CHOICES} texts, not {shown(value)}.")
    for option in value:
        if not isinstance(option, str) or not option or not is_unicode(option) or "\0" in option:
            raise wrong(param, f"Every choice in {param} must be a text that is not empty: {shown(option)}.")
    if (chars := sum(map(len, value))) > MOST_CHOICE_CHARS:
        raise wrong(
            param, f"The choices in {param} have {chars} characters; the limit is {MOST_CHOICE_CHARS}."
        )
    return {"choice": value}


_Reader = Callable[[str, Json], dict[str, Json] | None]
_KINDS: Mapping[str, _Reader] = {"json": _schema, "choice": _choice, "json_object": _json_object}
_READERS: Mapping[str, _Reader] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_choice": _choice,
}
