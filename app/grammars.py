"""Grammars for llguidance: what answers are held to, a JSON schema or a list of choices. Pure."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # exists in its annotations only

ANY_OBJECT = '{"type":"object"}'

# A model that may write any amount of space often writes nothing else until max_tokens; indents are kept.
_SPACE = r"[ \n\r\t]{1,40}"
# Set whatever a schema's own "x-guidance" says, so that nothing in it is quietly left aside.
JSON_RULES: "JsonCompileOptions" = {"whitespace_pattern": _SPACE, "lenient": False, "coerce_one_of": False}

# By default a hostile pattern holds a step up for 0.8 s and a row's states may take 500 MB.
LIMITS = LLParserLimits(step_lexer_fuel=50_000, max_lexer_states=50_000, verbose_errors=False)

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
    return reason(messages[0]) if failed else None


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
    told = " ".join(message.partition("<")[0].split())[:_MOST_REASON]
    return f"{told}."
