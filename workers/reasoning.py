"""Tells an answer from the reasoning before it, which engines give as `<think>...</think>`. Pure."""

from collections.abc import Callable

from workers.engine.base import CLOSE_REASONING, OPEN_REASONING


def split_reasoning(text: str) -> tuple[str | None, str]:
    """The reasoning and the answer. There is no answer where the reasoning was cut off.

    Only at the beginning is the mark one: anywhere else it is a part of the answer, as on a picture of it.
    """
    begun = text.lstrip()
    if not begun.startswith(OPEN_REASONING):
        return None, text
    reasoning, _, answer = begun.removeprefix(OPEN_REASONING).partition(CLOSE_REASONING)
    return reasoning.strip(), answer.lstrip()


class AnswerOnly:
    """Takes a text piece by piece, and hands on what of it is the answer."""

    def __init__(self, listener: Callable[[str], None]) -> None:
        self._listener = listener
        self._held = ""
        self._is_answer = False

    def __call__(self, piece: str) -> None:
        if not self._is_answer:
            self._held += piece
            if not self._begin():
                return
            piece = self._held
        self._listener(piece)

    def _begin(self) -> bool:
        """Whether the answer has begun by now; then that is what is held."""
        begun = self._held.lstrip()
        if OPEN_REASONING.startswith(begun[: len(OPEN_REASONING)]):  # it is the mark, or may become it
            answer = begun.partition(CLOSE_REASONING)[2].lstrip()
            if not answer:
                return False
            self._held = answer
        self._is_answer = True
        return True
