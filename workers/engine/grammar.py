"""Constrained output: which tokens may come next, so that an answer is the JSON or the choice asked for."""

import json
import secrets
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray
from tokenizers import Tokenizer

from app.errors import FatalWork, InvalidWork
from app.grammars import ANY_OBJECT, LIMITS, choice_grammar, json_grammar, reason
from workers.engine.base import Choice, Constraint, JsonObject, JsonSchema

MOST_COMPILED = 32  # of a few hundred kB each, 16 MB where a schema has thousands of properties
INVALID_SCHEMA = "invalid_schema"


class Matcher:
    """Follows one row's answer; made anew for every try, and used by one thread."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens (vocabulary,) may come next: end tokens once the answer is complete, last only they.

        Raises InvalidWork where the grammar turns out to be too complex.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        """Go on behind a token that is allowed; raises InvalidWork as `allowed` does."""
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether the answer so far is one, though some may be continued."""
        return self._matcher.is_accepting()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _invalid(self._matcher)


class Grammars:
    """An engine's grammars, compiled once each; `vocabulary` is the width of its logits. For any thread."""

    def __init__(self, tokenizer: Tokenizer, *, vocabulary: int, end_ids: frozenset[int]) -> None:
        self._source = tokenizer
        self._vocabulary = vocabulary
        self._end_ids = end_ids
        self._loading = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Constraint, LLMatcher] = OrderedDict()

    def matcher(self, constraint: Constraint) -> Matcher:
        """A matcher at the start of an answer; raises InvalidWork for what cannot be followed."""
        with self._lock:
            compiled = self._compiled.get(constraint)
        if compiled is None:
            compiled = self._compile(constraint)
        self._keep(constraint, compiled)
        return Matcher(compiled.deep_copy(), self._vocabulary)

    def _compile(self, constraint: Constraint) -> LLMatcher:
        """Half a second for thousands of properties: outside the lock. Some faults show at a first token."""
        compiled = LLMatcher(self._words(), _grammar(constraint), log_level=0, limits=LIMITS)
        Matcher(compiled.deep_copy(), self._vocabulary).allowed()
        return compiled

    def _keep(self, constraint: Constraint, compiled: LLMatcher) -> None:
        with self._lock:
            self._compiled[constraint] = compiled
            self._compiled.move_to_end(constraint)
            if len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)

    def _words(self) -> LLTokenizer:
        """Read at the first constraint: a second and 100 MB for 152,000 tokens."""
        with self._loading:
            if self._tokenizer is None:
                if not self._end_ids:
                    raise FatalWork(
                        "model_unsupported", "the model has no end token, so no answer can be held to a form"
                    )
                self._tokenizer = LLTokenizer(
                    _plain(self._source), n_vocab=self._vocabulary, eos_token=sorted(self._end_ids)
                )
            return self._tokenizer


def _plain(tokenizer: Tokenizer) -> str:
    """A tokenizer that reads every text as it is: not composed, and added tokens by names that nobody knows.

    llguidance tokenises what a grammar leaves no choice about: by the checkpoint's tokenizer a choice
    "<|im_end|>" would be that very token, and "<think>" one that the grammar then refuses.
    """
    read: dict[str, Any] = json.loads(tokenizer.to_str())
    names = {token["content"]: f"<|{secrets.token_hex(16)}|>" for token in read["added_tokens"]}
    for token in read["added_tokens"]:
        token["content"] = names[token["content"]]
    vocabulary = read["model"]["vocab"]
    read["model"]["vocab"] = {names.get(word, word): number for word, number in vocabulary.items()}
    read["normalizer"] = None
    return json.dumps(read)


def _grammar(constraint: Constraint) -> str:
    try:
        match constraint:
            case JsonObject():
                return json_grammar(ANY_OBJECT)
            case JsonSchema(schema):
                return json_grammar(schema)
            case Choice(options):
                return choice_grammar(options)
    except ValueError as error:
        raise InvalidWork(INVALID_SCHEMA, f"The schema cannot be read: {reason(str(error))}") from error


def _invalid(matcher: LLMatcher) -> InvalidWork:
    return InvalidWork(
        INVALID_SCHEMA, f"The answer cannot be held to this form: {reason(matcher.get_error())}"
    )
