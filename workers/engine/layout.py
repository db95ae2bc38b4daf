"""One step's input: pieces, tails and decoding rows packed into a single sequence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from workers.engine.features import Features
from workers.engine.packed import Decode, Layout, Span, Tails
from workers.engine.prefixes import Node
from workers.engine.prepare import Prepared
from workers.engine.rows import Row, chain
from workers.engine.slots import Slots


@dataclass(frozen=True)
class Build:
    """A piece to compute in this step, and a request whose prompt has its tokens."""

    node: Node
    source: Prepared

    @property
    def place(self) -> slice:
        return slice(self.node.start, self.node.end)

    def features(self) -> Iterator[Features]:
        """Of the images or parts of images that stand in this piece, in order."""
        for image in self.source.images:
            first, last = max(self.node.start, image.start), min(self.node.end, image.stop)
            if first < last:
                features = image.encoding.features
                assert features is not None
                yield features[:, first - image.start : last - image.start]


@dataclass(frozen=True)
class Packed:
    """Input for the model; `rows` get the logits at `keep`, in this order."""

    ids: torch.Tensor  # (1, tokens)
    positions: torch.Tensor  # (4, 1, tokens): text, time, height, width
    features: list[Features]
    layout: Layout
    rows: list[Row]
    keep: torch.Tensor  # (rows,): packed numbers


def pack(*, builds: Sequence[Build], joining: Sequence[Row], decoding: Sequence[Row], slots: Slots) -> Packed:
    """Parents stand before their children among `builds`; rows that join have a slot and own nothing yet."""
    packer = _Packer(slots)
    for build in builds:
        packer.build(build)
    joining = sorted(joining, key=Row.order)
    decoding = sorted(decoding, key=Row.order)
    for row in joining:
        packer.tail(row)
    for row in decoding:
        packer.newest(row)
    return packer.packed(joining, decoding)


@dataclass
class _Packer:
    slots: Slots
    ids: list[NDArray[np.int64]] = field(default_factory=list)
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    features: list[Features] = field(default_factory=list)
    builds: list[Span] = field(default_factory=list)
    levels: list[list[Span]] = field(default_factory=list)
    own: list[tuple[int, int, int]] = field(default_factory=list)  # packed number, slot, place
    ends: list[int] = field(default_factory=list)
    size: int = 0

    def build(self, build: Build) -> None:
        prompt, place = build.source.prompt, build.place
        assert isinstance(build.node.kv, torch.Tensor)
        start = self._add(prompt.ids[place], _positions(prompt.positions[:, place], build.node.start))
        self.builds.append(Span(build.node.kv, start, self.size))
        self.features.extend(build.features())
        self._attends(start, chain(build.node)[:-1])

    def tail(self, row: Row) -> None:
        prompt = row.prepared.prompt
        start = self._add(row.tail, _positions(prompt.positions[:, row.start :], row.start))
        self.own += [(start + place, row.slot, place) for place in range(len(row.tail))]
        self.ends.append(self.size - 1)
        self._attends(start, chain(row.node))

    def newest(self, row: Row) -> None:
        text, rope = row.position
        ids = np.array(row.generation.tokens[-1:], np.int64)
        start = self._add(ids, np.array([[text], [rope], [rope], [rope]], np.int64))
        self.own.append((start, row.slot, row.own))
        self.ends.append(start)
        self._attends(start, chain(row.node))

    def packed(self, joining: Sequence[Row], decoding: Sequence[Row]) -> Packed:
        device = self.slots.shape.device
        numbers, slots, places = torch.tensor(self.own).T.to(device)
        layout = Layout(
            builds=tuple(self.builds),
            levels=tuple(map(tuple, self.levels)),
            slots=self.slots,
            own_tokens=numbers,
            own_slots=slots,
            own_places=places,
            tails=_tails(joining, self.ends, device),
            decode=_decode(decoding, self.ends[len(joining) :], self.slots),
        )
        return Packed(
            ids=torch.from_numpy(np.concatenate(self.ids))[None].to(device),
            positions=torch.from_numpy(np.concatenate(self.positions, axis=1))[:, None].to(device),
            features=self.features,
            layout=layout,
            rows=[*joining, *decoding],
            keep=torch.tensor(self.ends, device=device),
        )

    def _add(self, ids: NDArray[np.int64], positions: NDArray[np.int64]) -> int:
        start = self.size
        self.ids.append(ids)
        self.positions.append(positions)
        self.size += len(ids)
        return start

    def _attends(self, start: int, nodes: Sequence[Node]) -> None:
        """The tokens from `start` on attend to these pieces; neighbours under one piece share a span."""
        for depth, node in enumerate(nodes):
            if depth == len(self.levels):
                self.levels.append([])
            spans = self.levels[depth]
            assert isinstance(node.kv, torch.Tensor)
            if spans and spans[-1].kv is node.kv and spans[-1].stop == start:
                start_of_span = spans.pop().start
                spans.append(Span(node.kv, start_of_span, self.size))
            else:
                spans.append(Span(node.kv, start, self.size))


def _positions(rope: NDArray[np.int64], start: int) -> NDArray[np.int64]:
    text = np.arange(start, start + rope.shape[1])[None]
    return np.concatenate([text, rope])


def _tails(rows: Sequence[Row], ends: Sequence[int], device: torch.device) -> Tails | None:
    if not rows:
        return None
    lengths = [len(row.tail) for row in rows]
    longest = max(lengths)
    starts = [end + 1 - length for end, length in zip(ends, lengths, strict=False)]
    # Padding repeats the last token: its result is thrown away.
    padded = [
        [start + min(place, length - 1) for place in range(longest)]
        for start, length in zip(starts, lengths, strict=True)
    ]
    places = [(number, place) for number, length in enumerate(lengths) for place in range(length)]
    batch_rows, batch_places = torch.tensor(places, device=device).T
    grid = torch.tensor(padded, device=device)
    return Tails(grid, grid[batch_rows, batch_places], batch_rows, batch_places)


def _decode(rows: Sequence[Row], tokens: Sequence[int], slots: Slots) -> Decode | None:
    if not rows:
        return None
    device, dtype = slots.shape.device, slots.shape.dtype
    by_slot = sorted(zip(rows, tokens, strict=True), key=lambda pair: pair[0].slot)
    numbers = [row.slot for row, _ in by_slot]
    filled = torch.tensor([row.own + 1 for row, _ in by_slot], device=device)
    empty = torch.arange(int(max(row.own for row in rows)) + 1, device=device) >= filled[:, None]
    mask = torch.zeros(empty.shape, dtype=dtype, device=device).masked_fill(empty, float("-inf"))
    return Decode(
        tokens=torch.tensor([token for _, token in by_slot], device=device),
        slots=None if numbers == list(range(len(rows))) else torch.tensor(numbers, device=device),
        mask=mask[:, None, None],
    )
