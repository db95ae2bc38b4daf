"""The words of one row while it decodes: tokens so far, when it ends, and the text they make."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from workers.engine.answer_text import AnswerText
from workers.engine.base import Answer, FinishReason, Note, Request, Sampling, TokenLogprob, Usage
from workers.engine.grammar import Grammars, Matcher
from workers.engine.prompt import Prompt
from workers.engine.repetition import repeats
from workers.engine.sampling import Draws, Turn, log_probabilities


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
        opening: str = "",
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
        self._text = AnswerText(tokenizer, sampling.stop, on_text, opening=opening)

    @classmethod
    def of(
        cls,
        request: Request,
        prompt: Prompt,
        *,
        tokenizer: Tokenizer,
        end_ids: frozenset[int],
        grammars: Grammars,
    ) -> "Generation":
        """A request's first try; raises InvalidWork for a grammar that cannot be followed."""
        matcher = grammars.matcher(request.constraint) if request.constraint else None
        return cls(
            sampling=request.sampling,
            prompt=prompt.ids,
            tokenizer=tokenizer,
            end_ids=end_ids,
            matcher=matcher,
            on_text=request.on_text,
            opening=prompt.opening if matcher is None else "",
        )

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
