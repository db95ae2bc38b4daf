"""The text that an answer's tokens make as they come."""

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character


class AnswerText:
    """The text that tokens make as they come: looks for stop strings, hands pieces to a listener."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        listener: Callable[[str], None] | None,
        *,
        opening: str = "",
    ) -> None:
        """`opening` stands at the end of the prompt, and belongs to the answer."""
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._listener = listener
        self._stream = DecodeStream(skip_special_tokens=True)
        self._so_far = ""
        self._told = 0
        self._cut: int | None = None
        self._opening = opening
        if opening and listener is not None:
            listener(opening)

    def add(self, token: int, *, hidden: bool) -> bool:
        """True when a stop string is complete, also one across token borders."""
        if hidden or not (self._stops or self._listener):
            return False
        seen = len(self._so_far)
        self._so_far += self._stream.step(self._tokenizer, token) or ""
        found = [self._so_far.find(stop, max(0, seen - len(stop) + 1)) for stop in self._stops]
        self._cut = min((place for place in found if place >= 0), default=None)
        # What may be the beginning of a stop string is told later, or never.
        safe = max(0, len(self._so_far) - max((len(stop) - 1 for stop in self._stops), default=0))
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
        return self._opening + text

    def _tell(self, text: str) -> None:
        if self._listener is not None and len(text) > self._told:
            self._listener(text[self._told :])
            self._told = len(text)
