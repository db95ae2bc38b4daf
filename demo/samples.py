"""Training batches: pictures as patches, and all questions about a picture in one masked row."""

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from demo.model import TOKEN_AREA, Size
from demo.pictures import as_jpeg, draw
from demo.products import ALL_KINDS, FIRST_HELD_OUT_SEED, KINDS, VALUES, Kind, Product, product_for
from demo.questions import json_answer, json_kinds, json_request, question_for, right_answer, yes_no

PATCH = 16
SECOND = 50_000_000  # from a picture's seed to that of the one beside it
AGAIN = 10**12  # from a row's seed to that of the next row about its picture
OPEN = "<|im_start|>user\n"
TURN = "<|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>"
SYSTEMS = (
    "You are a helpful assistant.",
    "You answer questions about product pictures.",
    "Answer with one word.",
)


@dataclass(frozen=True)
class Batch:
    """Tensors of one training step; rows are pictures."""

    patches: torch.Tensor  # uint8 (patches, 3 * 16 * 16)
    grids: torch.Tensor  # (pictures, 3)
    ids: torch.Tensor  # (rows, length)
    positions: torch.Tensor  # (3, rows, length)
    mask: torch.Tensor  # bool (rows, 1, length, length)
    targets: torch.Tensor  # (rows, length), -100 where nothing is asked
    classes: torch.Tensor  # (pictures, kinds)


@dataclass(frozen=True)
class _Row:
    ids: list[int]
    positions: NDArray[np.int64]
    branch: list[int]  # 0 for the shared prefix, then 1, 2, ... a question each
    targets: list[int]


class Samples(Dataset[Batch]):
    """Batch number n of a training run, always the same for the same seed.

    `drawn` batches have pictures of their own; those after them show these again, in another light and with
    other questions. They are kept in memory, 50 kB a picture of the small model.
    """

    def __init__(
        self, tokenizer: Qwen2Tokenizer, shape: Size, seed: int, rows: int, drawn: int = 10**9
    ) -> None:
        self._tokenizer, self._shape, self._drawn = tokenizer, shape, drawn
        self._kept: dict[int, _Shown] = {}
        self._image_pad = tokenizer.encode("<|image_pad|>")[0]
        self._vision_start = tokenizer.encode("<|vision_start|>")
        self._vision_end = tokenizer.encode("<|vision_end|>")
        self._first = seed * 2 * SECOND
        if self._first >= FIRST_HELD_OUT_SEED:
            raise ValueError("this seed would train on held-out pictures")
        self._rows = rows

    def __getitem__(self, number: int) -> Batch:
        shown: list[_Shown] = []
        rows: list[_Row] = []
        again, place = divmod(number, self._drawn)
        for seed in range(self._first + place * self._rows, self._first + (place + 1) * self._rows):
            pictures, row = self._row(seed, again)
            shown += pictures
            rows.append(row)
        return _collate(shown, rows)

    def _row(self, picture: int, again: int) -> tuple[list["_Shown"], _Row]:
        seed = picture + again * AGAIN
        rng = random.Random(f"row {seed}")
        opening = f"<|im_start|>system\n{rng.choice(SYSTEMS)}{END}\n" if rng.random() < 0.2 else ""
        opening += OPEN
        shown = [self._shown(picture, again)]
        asked = _questions(shown[0].product, seed, rng)
        layout = rng.random()
        if layout < 0.1:
            question, answer = rng.choice(asked)
            return shown, self._pack(opening + question, shown, [("", answer)])
        if layout < 0.2:
            shown.append(self._shown(picture + SECOND, again))
            return shown, self._pack(opening, shown, rng.sample(_pair_questions(shown, seed), 5))
        return shown, self._pack(opening, shown, asked)

    def _shown(self, seed: int, again: int) -> "_Shown":
        found = self._kept.get(seed) or _Shown.of(seed, self._shape)
        if self._drawn < 10**9:
            self._kept[seed] = found
        return found.relit(random.Random(f"light {seed} {again}")) if again else found

    def _pack(self, opening: str, shown: Sequence["_Shown"], asked: Sequence[tuple[str, str]]) -> _Row:
        """One row: the shared prefix once, then every question as a branch of its own."""
        encode = self._tokenizer.encode
        ids, positions, after = encode(opening), [], 0
        positions.append(_text_positions(0, len(ids)))
        after = len(ids)
        for picture in shown:
            height, width = picture.tokens
            ids += [*self._vision_start, *[self._image_pad] * (height * width), *self._vision_end]
            positions.append(_text_positions(after, 1))
            positions.append(np.indices((1, height, width)).reshape(3, -1) + after + 1)
            positions.append(_text_positions(after + 1 + max(height, width), 1))
            after += 2 + max(height, width)
        branch, targets = [0] * len(ids), [-100] * len(ids)
        for number, (question, answer) in enumerate(asked, start=1):
            prompt, reply = encode(question + TURN), encode(answer + END)
            tokens = [*prompt, *reply[:-1]]
            ids += tokens
            targets += [-100] * (len(prompt) - 1) + reply
            branch += [number] * len(tokens)
            positions.append(_text_positions(after, len(tokens)))
        return _Row(ids, np.concatenate(positions, axis=1), branch, targets)


@dataclass(frozen=True)
class _Shown:
    product: Product
    pixels: NDArray[np.uint8]

    @classmethod
    def of(cls, seed: int, shape: Size) -> "_Shown":
        product = product_for(seed, held_out=False)
        return cls(product, _pixels(product, seed, shape))

    def relit(self, rng: random.Random) -> "_Shown":
        """The same product a few pixels aside, in another light."""
        moved = np.pad(self.pixels, ((4, 4), (4, 4), (0, 0)), mode="edge")
        height, width, _ = self.pixels.shape
        y, x = rng.randint(0, 8), rng.randint(0, 8)
        tint = np.array([rng.uniform(0.94, 1.06) for _ in range(3)], np.float32)
        noise = np.random.default_rng(rng.getrandbits(48)).standard_normal((height, width, 3), np.float32)
        lit = moved[y : y + height, x : x + width] * tint + noise * np.float32(rng.uniform(0, 5))
        return _Shown(self.product, np.clip(lit, 0, 255).astype(np.uint8))

    @property
    def tokens(self) -> tuple[int, int]:
        return self.pixels.shape[0] // 32, self.pixels.shape[1] // 32


def _text_positions(start: int, length: int) -> NDArray[np.int64]:
    return np.tile(np.arange(start, start + length), (3, 1))


def _questions(product: Product, seed: int, rng: random.Random) -> list[tuple[str, str]]:
    """A question of each kind, one JSON request, and one that wants yes or no."""
    asked = [(question_for(kind, seed), right_answer(product, kind)) for kind in ALL_KINDS]
    kinds: list[Kind] = json_kinds(seed)
    asked.append((json_request(kinds, rng.randrange(100)), json_answer(product, kinds)))
    if rng.random() < 0.5:
        asked.append(yes_no(product, seed))
    return asked


def _pair_questions(shown: Sequence[_Shown], seed: int) -> list[tuple[str, str]]:
    """Questions about one of two pictures."""
    asked = []
    for place, picture in zip(("first", "second"), shown, strict=True):
        for kind in KINDS:
            question = f"In the {place} picture: {question_for(kind, seed)}"
            asked.append((question, right_answer(picture.product, kind)))
    return asked


def _pixels(product: Product, seed: int, shape: Size) -> NDArray[np.uint8]:
    """The picture after JPEG and the processor's resize, now and then with another budget."""
    rng = random.Random(f"pixels {seed}")
    picture = draw(product, seed)
    if rng.random() < 0.7:
        picture = Image.open(io.BytesIO(as_jpeg(picture, rng.randint(60, 96))))
    least, most = shape.tokens
    if rng.random() >= 0.85:
        most = rng.randint(least, most * 16 // 9)
    height, width = smart_resize(picture.height, picture.width, 32, least * TOKEN_AREA, most * TOKEN_AREA)
    return np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC))


def _patchify(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Patches in the order of Qwen's processor, without the repeated frame."""
    height, width, _ = picture.shape
    blocks = picture.reshape(height // 32, 2, PATCH, width // 32, 2, PATCH, 3)
    return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3 * PATCH * PATCH)


def _collate(shown: Sequence[_Shown], rows: Sequence[_Row]) -> Batch:
    length = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    targets = torch.full((len(rows), length), -100)
    positions = torch.zeros(3, len(rows), length, dtype=torch.long)
    branch = torch.full((len(rows), length), -1)
    for number, row in enumerate(rows):
        size = len(row.ids)
        ids[number, :size] = torch.tensor(row.ids)
        targets[number, :size] = torch.tensor(row.targets)
        branch[number, :size] = torch.tensor(row.branch)
        positions[:, number, :size] = torch.from_numpy(row.positions)
    grids = [[1, 2 * picture.tokens[0], 2 * picture.tokens[1]] for picture in shown]
    return Batch(
        patches=torch.from_numpy(np.concatenate([_patchify(picture.pixels) for picture in shown])),
        grids=torch.tensor(grids),
        ids=ids,
        positions=positions,
        mask=_mask(branch),
        targets=targets,
        classes=torch.tensor([_classes(picture.product) for picture in shown]),
    )


def _mask(branch: torch.Tensor) -> torch.Tensor:
    """Causal, and a question sees the prefix and itself but no other question."""
    own, other = branch[:, :, None], branch[:, None, :]
    length = branch.shape[1]
    causal = torch.ones(length, length).tril().bool()
    return (((own == other) | (other == 0)) & causal)[:, None]


def _classes(product: Product) -> list[int]:
    return [VALUES[kind].index(right_answer(product, kind)) for kind in ALL_KINDS]
