"""The words of one row while it decodes: tokens so far, when it ends, and the text they make."""

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from workers.engine.base import Answer, FinishReason, Sampling, Usage
from workers.engine.sampling import Draws

BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character


class Generation:
    """Made anew for every try at a request, so that a row can be run again from the start."""

    def __init__(
        self, *, sampling: Sampling, prompt_tokens: int, tokenizer: Tokenizer, end_ids: frozenset[int]
    ) -> None:
        self.sampling = sampling
        self.draws = Draws(sampling.seed)
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._prompt_tokens = prompt_tokens
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._stops = [stop for stop in sampling.stop if stop]
        self._stream = DecodeStream(skip_special_tokens=True)
        self._streamed = ""
        self._cut: int | None = None

    def accept(self, token: int) -> bool:
        """Take the next token; True when the row is done."""
        self.tokens.append(token)
        if token in self._end_ids or self._stopped(token):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.sampling.max_tokens:
            self.finish_reason = "length"
        return self.finish_reason is not None

    def answer(self) -> Answer:
        """The answer of a row that is done. Its usage counts the end token too, as other servers do."""
        assert self.finish_reason is not None
        return Answer(self._text(), self.finish_reason, Usage(self._prompt_tokens, len(self.tokens)))

    def _stopped(self, token: int) -> bool:
        """Look for stop strings in the text that this token completes, also across token borders."""
        if not self._stops:
            return False
        chunk = self._stream.step(self._tokenizer, token) or ""
        seen = len(self._streamed)
        self._streamed += chunk
        found = [self._streamed.find(stop, max(0, seen - len(stop) + 1)) for stop in self._stops]
        places = [place for place in found if place >= 0]
        self._cut = min(places, default=None)
        return bool(places)

    def _text(self) -> str:
        """Up to the stop string; a character that `max_tokens` cut in two is left out."""
        if self._cut is not None:
            return self._streamed[: self._cut]
        text = self._tokenizer.decode(self.tokens, skip_special_tokens=True)
        return text.removesuffix(BROKEN) if self.finish_reason == "length" else text
