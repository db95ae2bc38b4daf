"""Turns to token ids and positions: the checkpoint's chat template, safe against control tokens in texts."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from app.errors import FatalWork, InvalidWork
from app.visual_tokens import MERGE
from workers.engine.base import OPEN_REASONING, Part, TextPart, Turn
from workers.engine.folder import IMAGE_MARK
from workers.engine.preprocess import Grid

IMAGE_BORDERS = ("<|vision_start|>", "<|vision_end|>")
PRIVATE_USE = range(0xE000, 0xF900)
TEMPLATE_MISMATCH = "the chat template does not place every image exactly once"


@dataclass(frozen=True)
class Prompt:
    """Token ids, their rope positions (time, height, width) and the position of the first new token.

    `images` are the numbers of the tokens at which images begin. `opening` is the mark of reasoning where the
    template ends with it; an answer that a grammar holds to its form has no reasoning all the same.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    next_position: int
    images: tuple[int, ...] = ()
    opening: str = ""

    def __len__(self) -> int:
        return len(self.ids)


class PromptBuilder:
    """Builds prompts from any thread.

    Control tokens that stand in a client's text are read as the plain characters they are made of. The
    library's `sanitize_control_tokens` does the same, but switches a flag of the shared tokenizer meanwhile.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, context: int) -> None:
        self._context = context
        self._render = tokenizer
        self._special = {
            token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        if IMAGE_MARK not in self._special:
            raise FatalWork("model_unsupported", f"{IMAGE_MARK} is no control token of the tokenizer")
        self._image_id = self._special[IMAGE_MARK]
        self.image_start, self.image_end = (self._special.get(mark, -1) for mark in IMAGE_BORDERS)
        longest_first = sorted(self._special, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self.tokenizer = _backend(tokenizer)
        self.tokenizer.encode_special_tokens = True
        self._most_bytes = context * _longest_token(self.tokenizer)

    def build(self, turns: Sequence[Turn], grids: Sequence[Grid]) -> Prompt:
        """The prompt of these turns; `grids` has one entry per image part, in order. Raises InvalidWork."""
        mark = _unused_character(turns)
        rendered = self._apply_template([self._message(turn, mark) for turn in turns])
        self._check_fits(rendered.replace(mark, ""))
        runs: list[list[int] | Grid] = []
        remaining = iter(grids)
        for piece in self._pattern.split(rendered):
            token = self._special.get(piece)
            if token == self._image_id:
                runs.append(_next(remaining))
            elif token is not None:
                runs.append([token])
            elif piece:
                runs.append(self.tokenizer.encode(piece.replace(mark, ""), add_special_tokens=False).ids)
        if next(remaining, None) is not None:
            raise FatalWork("model_unsupported", TEMPLATE_MISMATCH)
        opening = OPEN_REASONING if rendered.rstrip().endswith(OPEN_REASONING) else ""
        return replace(_assemble(runs, self._image_id), opening=opening)

    def _check_fits(self, text: str) -> None:
        """Refuse what cannot fit however well it is tokenised, which takes a second per megabyte."""
        size = len(text.encode())
        if size > self._most_bytes and self.tokenizer.normalizer is not None:  # which may make it shorter
            size = len(self.tokenizer.normalizer.normalize_str(text).encode())
        if size > self._most_bytes:
            raise InvalidWork(
                "context_length_exceeded",
                f"the prompt's {size} bytes of text are more than the model's {self._context} tokens hold",
            )

    def _message(self, turn: Turn, mark: str) -> dict[str, object]:
        return {"role": turn.role, "content": self._content(turn.parts, mark)}

    def _content(self, parts: Sequence[Part], mark: str) -> list[dict[str, str]]:
        """Parts as the template wants them, the mark breaking every control token, also one in two halves."""
        content: list[dict[str, str]] = []
        for before, part in itertools.pairwise([None, *parts]):
            if isinstance(part, TextPart):
                text = self._pattern.sub(lambda found: found[0][0] + mark + found[0][1:], part.text)
                content.append(
                    {"type": "text", "text": mark + text if isinstance(before, TextPart) else text}
                )
            else:
                content.append({"type": "image"})
        return content

    def _apply_template(self, messages: list[dict[str, object]]) -> str:
        try:
            rendered = self._render.apply_chat_template(
                messages,  # pyright: ignore[reportArgumentType]  # the annotation knows only texts
                tokenize=False,
                add_generation_prompt=True,
            )
        except TemplateError as error:
            raise InvalidWork("invalid_prompt", f"the model's chat template refuses this: {error}") from error
        assert isinstance(rendered, str)
        return rendered


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A tokenizer of our own, so that no flag is shared with other users of the library's object."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise FatalWork("model_unsupported", f"{type(tokenizer).__name__} has no tokenizer.json")
    own = Tokenizer.from_str(backend.to_str())
    own.no_padding()
    own.no_truncation()
    return own


def _longest_token(tokenizer: Tokenizer) -> int:
    """In bytes of text: one per character of a byte-level token, while added ones are written out."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    return max(
        len(token.encode()) if token in added else len(token)
        for token in tokenizer.get_vocab(with_added_tokens=True)
    )


def _unused_character(turns: Sequence[Turn]) -> str:
    """A private-use character that no text contains."""
    used = {char for turn in turns for part in turn.parts if isinstance(part, TextPart) for char in part.text}
    for code in PRIVATE_USE:
        if chr(code) not in used:
            return chr(code)
    raise InvalidWork("invalid_prompt", "the text uses every private-use character")


def _next(grids: Iterator[Grid]) -> Grid:
    grid = next(grids, None)
    if grid is None:
        raise FatalWork("model_unsupported", TEMPLATE_MISMATCH)
    return grid


def _assemble(runs: Sequence[list[int] | Grid], image_id: int) -> Prompt:
    """Text advances one position a token; an image is a plane at one time and advances by its longer side."""
    ids: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    images: list[int] = []
    start = 0
    for run in runs:
        if isinstance(run, Grid):
            images.append(sum(map(len, ids)))
            rows, columns = run.height // MERGE, run.width // MERGE
            ids.append(np.full(run.tokens, image_id, np.int64))
            positions.append(_plane(rows, columns) + start)
            start += max(rows, columns)
        else:
            ids.append(np.asarray(run, np.int64))
            positions.append(np.broadcast_to(np.arange(len(run)) + start, (3, len(run))))
            start += len(run)
    return Prompt(np.concatenate(ids), np.concatenate(positions, axis=1), start, tuple(images))


def _plane(rows: int, columns: int) -> NDArray[np.int64]:
    height, width = np.indices((rows, columns)).reshape(2, -1)
    return np.stack([np.zeros_like(height), height, width])
