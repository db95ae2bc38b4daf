"""Packed attention over trees of pieces equals plain attention over each row's own full sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.packed import Decode, Layout, Span, Tails, attend, partial, partial_by_products
from workers.engine.slots import Shape, Slots

WIDTH = 8
SCALING = WIDTH**-0.5
LAYER = 1
SIZES = st.integers(1, 7)
SEEDS = st.integers(0, 10_000)


@dataclass(eq=False)
class Piece:
    """A piece of a tree; a `new` one is computed in the step."""

    parent: "Piece | None"
    size: int
    new: bool
    kv: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def chain(self) -> list["Piece"]:
        return [*(self.parent.chain() if self.parent else []), self]


@dataclass(eq=False)
class Row:
    """`tail` tokens to compute under a piece, or one after `own` tokens that stand in its slot."""

    piece: Piece | None
    tail: int
    own: int
    slot: int


@dataclass(frozen=True)
class Case:
    pieces: Sequence[Piece]
    rows: Sequence[Row]
    heads: int
    group: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pieces: list[Piece] = []
    for _ in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *pieces]))
        new = draw(st.booleans()) or (parent is not None and parent.new)
        pieces.append(Piece(parent, draw(SIZES), new))
    count = draw(st.integers(1, 6))
    slots = draw(st.permutations(range(count)))
    joining = draw(st.integers(0, count))
    rows = [
        Row(
            draw(st.sampled_from([None, *pieces])),
            draw(SIZES) if number < joining else 1,
            0 if number < joining else draw(st.integers(0, 9)),
            slots[number],
        )
        for number in range(count)
    ]
    order = {piece: place for place, piece in enumerate(pieces)}
    rows.sort(key=lambda row: (row.own > 0, [order[each] for each in row.piece.chain()] if row.piece else []))
    return Case(pieces, rows, draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(SEEDS))


@dataclass
class Step:
    """A case laid out as a packed sequence, with the keys and values that each row should see."""

    case: Case
    numbers: torch.Generator = field(init=False)
    size: int = 0

    def __post_init__(self) -> None:
        self.numbers = torch.Generator().manual_seed(self.case.seed)
        shape = Shape(LAYER + 1, self.case.heads, WIDTH, torch.float32, torch.device("cpu"))
        self.slots = Slots(shape)
        for _ in self.case.rows:
            self.slots.take()
        self.slots.kv[:] = self.random(*self.slots.kv.shape)  # what is beyond a row's own must not matter
        for piece in self.case.pieces:
            piece.kv = shape.piece(piece.size)
            if not piece.new:
                piece.kv[:] = self.random(*piece.kv.shape)

    def random(self, *size: int) -> torch.Tensor:
        return torch.randn(size, generator=self.numbers)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What `attend` gives, and what plain attention does."""
        case = self.case
        places: dict[Piece | Row, slice] = {}
        for part in [*(piece for piece in case.pieces if piece.new), *case.rows]:
            size = part.size if isinstance(part, Piece) else part.tail
            places[part] = slice(self.size, self.size + size)
            self.size += size
        query = self.random(1, case.heads * case.group, self.size, WIDTH)
        key, value = self.random(2, 1, case.heads, self.size, WIDTH).unbind()
        expected = torch.cat([self.plain(part, places, query, key, value) for part in places])
        module = cast(torch.nn.Module, SimpleNamespace(layer_idx=LAYER))
        out, _ = attend(module, query, key, value, None, scaling=SCALING, layout=self.layout(places))
        return out[0], expected

    def plain(self, part: Piece | Row, places: dict[Any, slice], query: Any, key: Any, value: Any) -> Any:
        """One softmax over everything before and up to each token."""
        above = part.piece if isinstance(part, Row) else part.parent
        seen: list[torch.Tensor] = []
        for piece in above.chain() if above else []:
            new = places.get(piece)
            seen.append(piece.kv[LAYER] if new is None else torch.stack([key[0, :, new], value[0, :, new]]))
        if isinstance(part, Row):
            seen.append(self.slots.kv[LAYER, :, part.slot, :, : part.own].clone())
        here = places[part]
        seen.append(torch.stack([key[0, :, here], value[0, :, here]]))
        keys, values = torch.cat(seen, dim=2).repeat_interleave(self.case.group, dim=1)
        scores = query[0, :, here] @ keys.transpose(1, 2) * SCALING
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(keys.shape[1] - scores.shape[-2] + 1)
        shares = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return (shares @ values).transpose(0, 1).flatten(1)

    def layout(self, places: dict[Any, slice]) -> Layout:
        case = self.case
        levels: list[list[Span]] = []
        for part, place in places.items():
            above = part.piece if isinstance(part, Row) else part.parent
            for depth, piece in enumerate(above.chain() if above else []):
                levels += [[]] if depth == len(levels) else []
                spans = levels[depth]
                joined = bool(spans) and spans[-1].kv is piece.kv and spans[-1].stop == place.start
                start = spans.pop().start if joined else place.start
                spans.append(Span(piece.kv, start, place.stop))
        own = [
            (number, row.slot, row.own + number - places[row].start)
            for row in case.rows
            for number in range(places[row].start, places[row].stop)
        ]
        numbers, slots, spots = torch.tensor(own).T
        return Layout(
            builds=tuple(Span(p.kv, places[p].start, places[p].stop) for p in case.pieces if p.new),
            levels=tuple(map(tuple, levels)),
            slots=self.slots,
            own_tokens=numbers,
            own_slots=slots,
            own_places=spots,
            tails=tails([places[row] for row in case.rows if row.own == 0]),
            decode=decode([(row, places[row].start) for row in case.rows if row.own > 0]),
        )


def tails(places: Sequence[slice]) -> Tails | None:
    if not places:
        return None
    longest = max(place.stop - place.start for place in places)
    padded = torch.tensor(
        [[min(place.start + step, place.stop - 1) for step in range(longest)] for place in places]
    )
    where = [(row, step) for row, place in enumerate(places) for step in range(place.stop - place.start)]
    rows, steps = torch.tensor(where).T
    return Tails(padded, padded[rows, steps], rows, steps)


def decode(rows: Sequence[tuple[Row, int]]) -> Decode | None:
    if not rows:
        return None
    filled = torch.tensor([row.own + 1 for row, _ in rows])
    mask = torch.zeros(len(rows), int(filled.max()))
    mask[torch.arange(mask.shape[1]) >= filled[:, None]] = float("-inf")
    tokens = torch.tensor([number for _, number in rows])
    return Decode(tokens, torch.tensor([row.slot for row, _ in rows]), mask[:, None, None])


@settings(deadline=None, max_examples=40)
@given(cases())
def test_any_tree_of_pieces_attends_as_one_sequence_a_row(case: Case) -> None:
    ours, theirs = Step(case).run()
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1e-5


@settings(deadline=None, max_examples=30)
@given(
    SEEDS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.sampled_from(["all", "causal", "mask"])
)
def test_plain_products_are_as_the_kernel(seed: int, batch: int, heads: int, tokens: int, kind: str) -> None:
    numbers = torch.Generator().manual_seed(seed)
    query, key, value = torch.randn(3, batch, heads, tokens, WIDTH, generator=numbers)
    mask = torch.zeros(batch, 1, 1, tokens)
    mask[..., 1:][torch.rand(mask[..., 1:].shape, generator=numbers) < 0.5] = float("-inf")
    options: dict[str, Any] = {"causal": kind == "causal", "mask": mask if kind == "mask" else None}
    ours = partial_by_products(query, key, value, scaling=SCALING, **options)
    theirs = partial(query, key, value, scaling=SCALING, **options)
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)


def test_new_keys_and_values_go_to_their_own_layer_and_places_only() -> None:
    piece = Piece(None, 3, new=True)
    rows = [Row(piece, 2, 0, 1), Row(piece, 1, 4, 0)]
    step = Step(Case([piece], rows, heads=2, group=2, seed=1))
    before = step.slots.kv.clone()
    step.run()
    changed = (step.slots.kv != before).any(dim=5).any(dim=3).any(dim=1)
    assert changed.nonzero().tolist() == [[LAYER, 0, 4], [LAYER, 1, 0], [LAYER, 1, 1]]
