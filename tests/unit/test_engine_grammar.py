"""Constrained output: whatever tokens are chosen of those allowed, the answer is what was asked for."""

import json
import random
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from app.errors import FatalWork, InvalidWork
from tests.checkpoints import build_tokenizer
from workers.engine.base import Choice, Constraint, JsonObject, JsonSchema
from workers.engine.grammar import MOST_COMPILED, Grammars, Matcher

PADDING = 39  # logits are often wider than the vocabulary
PATIENCE = 40  # tokens, after which a walk takes the shortest way out
# The quote first: in a string the others are but characters. The 1 before the 0: -0.000 is not below 0.
# The Z before both: the parts of a second may have any number of digits.
WAYS_OUT = '"}]:,Zg10'


def bytewise() -> Tokenizer:
    """The checkpoints' tokenizer without normaliser and <think>: any text is one token a byte."""
    read = json.loads(build_tokenizer().backend_tokenizer.to_str())
    read["normalizer"] = None
    read["added_tokens"] = [token for token in read["added_tokens"] if token["special"]]
    tokenizer = Tokenizer.from_str(json.dumps(read))
    tokenizer.encode_special_tokens = True
    return tokenizer


TOKENIZER = bytewise()
VOCABULARY = TOKENIZER.get_vocab_size(with_added_tokens=True) + PADDING
ENDS = frozenset(TOKENIZER.get_vocab()[name] for name in ("<|im_end|>", "<|endoftext|>"))
GRAMMARS = Grammars(TOKENIZER, vocabulary=VOCABULARY, end_ids=ENDS)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-999, 999) | TEXTS


def described(kind: str, **bounds: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=bounds)


LEAVES = (
    st.just({})
    | described("string", minLength=st.integers(0, 3), maxLength=st.integers(3, 9))
    | described("string", pattern=st.sampled_from(["^[a-c]{2,5}$", "^\\d+(kg|g)$", "^é?$"]))
    | described("string", format=st.sampled_from(["date", "time", "uuid", "ipv4"]))
    | described("integer", minimum=st.integers(-50, 0), maximum=st.integers(0, 5_000))
    | described("number", minimum=st.integers(-50, 0), exclusiveMaximum=st.integers(1, 50))
    | described("boolean")
    | st.builds(lambda value: {"const": value}, SCALARS)
    | st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=4))
)


def larger(schemas: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
    properties = st.dictionaries(TEXTS, schemas, max_size=4)
    return (
        described("array", items=schemas, minItems=st.integers(0, 2), maxItems=st.integers(2, 4))
        | st.builds(lambda schemas: {"anyOf": schemas}, st.lists(schemas, min_size=1, max_size=3))
        | st.builds(
            lambda properties, names, more: {
                "type": "object",
                "properties": properties,
                "required": [name for name in properties if name in names],
                "additionalProperties": more,
            },
            properties,
            st.sets(TEXTS) | properties.map(set),
            st.booleans() | schemas,
        )
    )


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=5)


def walk(matcher: Matcher, seed: int) -> str:
    """An answer of random tokens, each of them allowed."""
    chance = random.Random(seed)
    tokens: list[int] = []
    while not ENDS & {token := step(matcher, chance, hurry=len(tokens) > PATIENCE)}:
        matcher.accept(token)
        tokens.append(token)
        assert len(tokens) < 500, TOKENIZER.decode(tokens)
    assert matcher.complete
    return TOKENIZER.decode(tokens, skip_special_tokens=True)


def step(matcher: Matcher, chance: random.Random, *, hurry: bool) -> int:
    allowed = np.flatnonzero(matcher.allowed()).tolist()
    out = [*ENDS, *tokens_of(WAYS_OUT)] if hurry else []
    return next((token for token in out if token in allowed), None) or chance.choice(allowed)


def tokens_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def after(constraint: Constraint, text: str) -> Matcher:
    """A matcher behind a text, each of whose tokens was allowed."""
    matcher = GRAMMARS.matcher(constraint)
    for token in tokens_of(text):
        assert matcher.allowed()[token]
        matcher.accept(token)
    return matcher


def allowed_texts(matcher: Matcher) -> set[str]:
    allowed: list[int] = np.flatnonzero(matcher.allowed()).tolist()
    return {TOKENIZER.decode([token], skip_special_tokens=False) for token in allowed}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_any_walk_ends_in_a_json_object(seed: int):
    assert isinstance(json.loads(walk(GRAMMARS.matcher(JsonObject()), seed)), dict)


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_walk_ends_in_json_that_its_schema_describes(schema: dict[str, object], seed: int):
    try:
        matcher = GRAMMARS.matcher(JsonSchema(json.dumps(schema)))
    except InvalidWork as error:
        assume("nsatisfiable" not in error.message)
        raise
    Draft202012Validator(schema).validate(json.loads(walk(matcher, seed)))


@given(options=st.lists(TEXTS, min_size=1, max_size=6), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_walk_ends_in_a_choice(options: Sequence[str], seed: int):
    assert walk(GRAMMARS.matcher(Choice(tuple(options))), seed) in options


@given(options=st.lists(TEXTS, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_every_choice_can_be_the_answer(options: Sequence[str]):
    for option in options:
        matcher = after(Choice(tuple(options)), option)
        assert matcher.complete
        assert matcher.allowed()[list(ENDS)].all()


def test_a_choice_that_begins_another_may_end_or_go_on():
    matcher = after(Choice(("yes", "yes, partly")), "yes")
    assert matcher.complete
    assert allowed_texts(matcher) == {",", "<|im_end|>", "<|endoftext|>"}


def test_only_end_tokens_follow_a_complete_object():
    matcher = after(JsonObject(), '{"a": [1]}')
    assert matcher.complete
    assert allowed_texts(matcher) == {"<|im_end|>", "<|endoftext|>"}


def test_no_end_token_comes_before_the_object_is_complete():
    matcher = after(JsonObject(), '{"a": [1]')
    assert not matcher.complete
    assert not matcher.allowed()[list(ENDS)].any()


def test_a_text_that_looks_like_a_control_token_is_spelt():
    assert walk(GRAMMARS.matcher(Choice(("<|im_end|>",))), 0) == "<|im_end|>"
    assert allowed_texts(GRAMMARS.matcher(Choice(("<|im_end|>",)))) == {"<"}


def test_an_added_token_that_is_plain_text_may_be_part_of_a_choice():
    tokenizer = build_tokenizer().backend_tokenizer
    grammars = Grammars(tokenizer, vocabulary=VOCABULARY, end_ids=ENDS)
    for options in (("<think>",), ("<think>", "<think>!", "")):
        assert walk(grammars.matcher(Choice(options)), 1) in options


def test_a_choice_is_kept_as_it_is_where_the_tokenizer_would_compose_it():
    tokenizer = build_tokenizer().backend_tokenizer
    grammars = Grammars(tokenizer, vocabulary=VOCABULARY, end_ids=ENDS)
    assert walk(grammars.matcher(Choice(("e\u0301",))), 0) == "e\u0301"


def test_padding_of_the_logits_is_never_allowed():
    matcher = after(JsonObject(), '{"')
    assert matcher.allowed().shape == (VOCABULARY,)
    assert not matcher.allowed()[-PADDING:].any()


def test_keys_come_in_the_order_of_the_schema():
    schema = '{"type": "object", "properties": {"why": {}, "a": {}}, "required": ["a", "why"]}'
    assert '"w' in {'"' + text for text in allowed_texts(after(JsonSchema(schema), '{"'))}
    assert "a" not in allowed_texts(after(JsonSchema(schema), '{"'))


def test_space_between_values_is_bounded():
    matcher = after(JsonObject(), '{"a":' + " " * 40)
    assert " " not in allowed_texts(matcher)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"not": {"type": "string"}}', '"not" is not supported'),
        ('{"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}}', '"uniqueItems"'),
        ('{"type": "string", "format": "colour"}', "Unknown format: colour"),
        ('{"type": "string", "pattern": "(?=a)b"}', "look-ahead"),
        ('{"$ref": "https://example.com/schema"}', "only references inside the schema are served"),
        ('{"type": "strin"}', "Invalid type: strin"),
        ('{"type": "integer", "minimum": 3, "maximum": 2}', "minimum (3) is greater than maximum (2)"),
        ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "nothing satisfies it"),
        ('{"items":' * 5_000 + "{}" + "}" * 5_000, "nested too deep"),
        ('{"items":' * 200 + "{}" + "}" * 200, "nested too deep"),
        ('{"type": "object"}, {"lark_grammar": ""}', "cannot be read"),
        ("[]", "cannot be read"),
        ("true", "it is no JSON object"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_name(schema: str, words: str):
    with pytest.raises(InvalidWork) as caught:
        GRAMMARS.matcher(JsonSchema(schema))
    assert caught.value.code == "invalid_schema"
    assert words in caught.value.message


def test_a_pattern_that_grows_without_bound_fails_its_row_with_a_reason():
    matcher = GRAMMARS.matcher(JsonSchema('{"type": "string", "pattern": "^((((a{999}){999}){999}){999})$"}'))
    with pytest.raises(InvalidWork, match="too many expressions") as caught:
        matcher.accept(*tokens_of('"'))
    assert "<" not in caught.value.message


def test_a_token_that_is_not_allowed_is_refused():
    with pytest.raises(InvalidWork, match="invalid_schema"):
        GRAMMARS.matcher(JsonObject()).accept(*tokens_of("x"))


def test_matchers_of_one_grammar_know_nothing_of_each_other():
    first, second = GRAMMARS.matcher(JsonObject()), GRAMMARS.matcher(JsonObject())
    first.accept(*tokens_of("{"))
    assert allowed_texts(second) == {"{"}


def test_more_grammars_than_are_kept_all_work():
    grammars = Grammars(TOKENIZER, vocabulary=VOCABULARY, end_ids=ENDS)
    options = [str(number) for number in range(MOST_COMPILED + 5)]
    assert [walk(grammars.matcher(Choice((option,))), 0) for option in options * 2] == options * 2


def test_matchers_are_made_and_followed_on_several_threads_at_once():
    answers: list[str] = []
    grammars = Grammars(TOKENIZER, vocabulary=VOCABULARY, end_ids=ENDS)

    def work(seed: int) -> None:
        answers.append(walk(grammars.matcher(JsonObject()), seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(json.loads(answer)) for answer in answers] == [dict] * 8


def test_a_model_without_an_end_token_takes_no_constraint():
    grammars = Grammars(TOKENIZER, vocabulary=VOCABULARY, end_ids=frozenset())
    with pytest.raises(FatalWork, match="no end token"):
        grammars.matcher(JsonObject())
