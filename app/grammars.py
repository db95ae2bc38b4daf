"""Grammars for llguidance: what answers are held to, a JSON schema or a list of choices. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # exists in its annotations only

ANY_OBJECT = '{"type":"object"}'

# A model that may write any amount of space often writes nothing else until max_tokens; indents are kept.
_SPACE = r"[ \n\r\t]{1,40}"
# Set whatever a schema's own "x-guidance" says, so that nothing in it is quietly left aside.
JSON_RULES: "JsonCompileOptions" = {"whitespace_pattern": _SPACE, "lenient": False, "coerce_one_of": False}

# By default a hostile pattern holds a step up for 0.8 s and a row's states may take 500 MB.
LIMITS = LLParserLimits(step_lexer_fuel=50_000, max_lexer_states=50_000, verbose_errors=False)

# Properties beside each other that may all be left out: each takes up 4 of the 2,000 items of a parser's row,
# as each may come next. All branches of an "anyOf" are in one row.
MOST_OPTIONAL = 450

_MOST_REASON = 300
_UNSUPPORTED = re.compile(r"Unimplemented keys: \[(.*)\]", re.DOTALL)


def json_grammar(schema: str) -> str:
    """The grammar of JSON that a schema describes, keys in its order; ValueError if it is no object."""
    try:
        read = json.loads(schema)  # first, as llguidance pastes a text unread into its own JSON
        if not isinstance(read, dict):
            raise ValueError("it is no JSON object")
        return LLMatcher.grammar_from_json_schema(json.dumps(read, allow_nan=False), overrides=JSON_RULES)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def choice_grammar(options: Sequence[str]) -> str:
    """The grammar of exactly these texts."""
    texts = " | ".join(map(json.dumps, options))
    return LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}")


def refusal(grammar: str) -> str | None:
    """Why a grammar cannot be followed, None where it can: some faults show only while tokens are chosen."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=LIMITS)
    if failed:
        return reason(messages[0])
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=LIMITS)
    matcher.compute_bitmask()
    if not matcher.is_error() and matcher.try_consume_tokens([ord("{")]):
        matcher.compute_bitmask()
    return reason(matcher.get_error()) if matcher.is_error() else None


def too_many_optional(schema: str) -> str | None:
    """Whether some place of an answer has more properties to choose from than a parser follows."""
    most = max((_optional(one) for one in _objects(json.loads(schema))), default=0)
    if most <= MOST_OPTIONAL:
        return None
    return f"it has {most} properties side by side that may be left out; at most {MOST_OPTIONAL} are served."


@cache
def _bytes() -> LLTokenizer:
    """Tokens that are single bytes, for trying a grammar without any model's."""
    return LLTokenizer("byte")


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


def _optional(schema: Any) -> int:
    """The longest row of properties that need not be there, those of its branches added."""
    if not isinstance(schema, dict):
        return 0
    named, required = schema.get("properties"), schema.get("required")
    needed = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set[str]()
    names = named if isinstance(named, dict) else {}
    rows = [len(list(row)) for is_needed, row in groupby(names, key=needed.__contains__) if not is_needed]
    branches = [
        one for key in ("anyOf", "oneOf", "allOf") if isinstance(of := schema.get(key), list) for one in of
    ]
    return max(rows, default=0) + sum(map(_optional, branches))


def reason(message: str) -> str:
    """llguidance's error as a sentence of ours that names the feature."""
    if found := _UNSUPPORTED.search(message):
        return f"{found[1]} is not supported in a schema: leave it out."
    if "oneOf constraints" in message:
        return '"oneOf" is served where its branches exclude each other: use "anyOf".'
    if "not present in a registry" in message:
        return 'only references inside the schema are served, such as "#/$defs/name".'
    if "recursion limit" in message:
        return "it is nested too deep."
    if message.startswith("NoExtension"):
        return "nothing satisfies it."
    if "items; max is" in message:
        return "it leaves too much open at one place: have fewer properties or branches there."
    told = " ".join(message.partition("<")[0].split())[:_MOST_REASON]
    return f"{told}."
