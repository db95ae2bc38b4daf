"""The words of one row while it decodes: tokens so far, when it ends, and the text they make."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from workers.engine.base import Answer, FinishReason, Note, Sampling, TokenLogprob, Usage
from workers.engine.grammar import Matcher
from workers.engine.sampling import Draws, Turn, log_probabilities

BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character
# An answer repeats itself when its end is one run of at most LONGEST_PERIOD tokens, several times over.
LONGEST_PERIOD = 32
REPEATED_TOKENS = 32
REPEATED_TIMES = 4


class Generation:
    """Made anew for every try at a request, so that a row can be run again from the start."""

    def __init__(
        self,
        *,
        sampling: Sampling,
        prompt: NDArray[np.int64],
        tokenizer: Tokenizer,
        end_ids: frozenset[int],
        matcher: Matcher | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.sampling = sampling
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.notes: list[Note] = []
        self._draws = Draws(sampling.seed)
        self._prompt_tokens = len(prompt)
        self._seen = dict.fromkeys(prompt.tolist()) if sampling.repetition_penalty != 1 else {}
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._matcher = matcher
        self._logprobs: list[TokenLogprob] = []
        self._text = AnswerText(tokenizer, sampling.stop, on_text)

    def allowed(self) -> NDArray[np.bool_] | None:
        """The tokens (vocabulary,) that the row's grammar lets it take next; raises InvalidWork."""
        return self._matcher.allowed() if self._matcher is not None else None

    def turn(self, allowed: NDArray[np.bool_] | None) -> Turn:
        return Turn(self.sampling, self._draws, tuple(self._seen), allowed)

    def accept(self, token: int, logits: torch.Tensor) -> bool:
        """Take the token that was chosen from these logits (vocabulary,); True when the row is done."""
        self.tokens.append(token)
        if self.sampling.repetition_penalty != 1:
            self._seen[token] = None
        if self.sampling.logprobs is not None:
            self._logprobs.append(self._logprob(token, logits, self.sampling.logprobs))
        ended = token in self._end_ids
        if self._matcher is not None and not ended:
            self._matcher.accept(token)
        if self._text.add(token, hidden=ended) or ended:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.sampling.max_tokens:
            self.finish_reason = "length"
        return self.finish_reason is not None

    def answer(self, *, cached_tokens: int = 0) -> Answer:
        """The answer of a row that is done. Its usage counts the end token too, as other servers do."""
        assert self.finish_reason is not None
        text = self._text.whole(self.tokens, cut=self.finish_reason == "length")
        usage = Usage(self._prompt_tokens, len(self.tokens), cached_tokens)
        logprobs = tuple(self._logprobs) if self.sampling.logprobs is not None else None
        return Answer(text, self.finish_reason, usage, logprobs, self._notes(text))

    def _notes(self, text: str) -> tuple[Note, ...]:
        notes = list(self.notes)
        if not text.strip():
            notes.append(Note.EMPTY)
        if self.finish_reason == "length" and repeats(self.tokens):
            notes.append(Note.REPETITION)
        return tuple(notes)

    def _logprob(self, token: int, logits: torch.Tensor, alternatives: int) -> TokenLogprob:
        chosen, top = log_probabilities(logits, token, alternatives)
        return TokenLogprob(
            self._show(token), chosen, tuple((self._show(other), share) for other, share in top)
        )

    def _show(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)


class AnswerText:
    """The text that tokens make as they come: looks for stop strings, hands pieces to a listener."""

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], listener: Callable[[str], None] | None
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._listener = listener
        self._stream = DecodeStream(skip_special_tokens=True)
        self._so_far = ""
        self._told = 0
        self._cut: int | None = None

    def add(self, token: int, *, hidden: bool) -> bool:
        """True when a stop string is complete, also one across token borders."""
        if hidden or not (self._stops or self._listener):
            return False
        seen = len(self._so_far)
        self._so_far += self._stream.step(self._tokenizer, token) or ""
        found = [self._so_far.find(stop, max(0, seen - len(stop) + 1)) for stop in self._stops]
        self._cut = min((place for place in found if place >= 0), default=None)
        # What may be the beginning of a stop string is told later, or never.
        safe = len(self._so_far) - max((len(stop) - 1 for stop in self._stops), default=0)
        self._tell(self._so_far[: safe if self._cut is None else self._cut])
        return self._cut is not None

    def whole(self, tokens: Sequence[int], *, cut: bool) -> str:
        """Up to the stop string; a character that `max_tokens` cut in two is left out."""
        if self._cut is not None:
            text = self._so_far[: self._cut]
        else:
            text = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
            text = text.removesuffix(BROKEN) if cut else text
        self._tell(text)
        return text

    def _tell(self, text: str) -> None:
        if self._listener is not None and len(text) > self._told:
            self._listener(text[self._told :])
            self._told = len(text)


def repeats(tokens: Sequence[int]) -> bool:
    """Whether the answer's end is one run of tokens over and over."""
    for period in range(1, LONGEST_PERIOD + 1):
        size = max(REPEATED_TIMES * period, REPEATED_TOKENS)
        tail = list(tokens[-size:])
        if len(tail) == size and tail[period:] == tail[:-period]:
            return True
    return False
