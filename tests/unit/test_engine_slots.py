"""Slots: no gaps, no copies that go astray, nothing left behind."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.slots import FIRST_SLOTS, SLOT_TOKENS, Shape, Slots

SHAPE = Shape(layers=1, heads=2, width=2, dtype=torch.float32, device=torch.device("cpu"))


def mark(slots: Slots, slot: int, number: float) -> None:
    slots.kv[:, :, slot] = number


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=60))
def test_rows_keep_what_is_theirs_while_others_come_and_go(moves: list[int | None]) -> None:
    """As the engine does: rows stand by slot, and the last moves into a gap."""
    slots = Slots(SHAPE)
    rows: list[int] = []
    for number, move in enumerate(moves):
        if move is None or not rows:
            assert slots.take() == len(rows)
            mark(slots, len(rows), number)
            rows.append(number)
        else:
            slot = move % len(rows)
            slots.give_back(slot)
            rows[slot] = rows[-1]
            rows.pop()
        assert slots.used == len(rows)
        assert [float(slots.kv[0, 0, slot, 0, 0, 0]) for slot in range(len(rows))] == rows
        assert slots.kv.shape[2] >= slots.used


def test_memory_grows_with_the_rows_and_keeps_them() -> None:
    slots = Slots(SHAPE)
    for number in range(FIRST_SLOTS + 1):
        mark(slots, slots.take(), number)
    assert slots.kv.shape == (1, 2, 2 * FIRST_SLOTS, 2, SLOT_TOKENS, 2)
    assert [int(slots.kv[0, 1, slot, 1, -1, 1]) for slot in range(FIRST_SLOTS + 1)] == [*range(9)]


def test_what_is_copied_out_is_a_piece_that_no_later_row_changes() -> None:
    slots = Slots(SHAPE)
    mark(slots, slots.take(), 7)
    piece = slots.copy_out(0, 5)
    mark(slots, 0, 8)
    assert piece.shape == SHAPE.piece(5).shape == (1, 2, 2, 5, 2)
    assert piece.nbytes == 5 * SHAPE.token_bytes
    assert bool((piece == 7).all())


def test_a_wiped_slot_holds_nothing_that_is_no_number() -> None:
    slots = Slots(SHAPE)
    for number in range(3):
        mark(slots, slots.take(), number)
    mark(slots, 1, float("nan"))
    slots.wipe(1)
    assert [int(slots.kv[0, 0, slot].sum()) for slot in range(3)] == [0, 0, 2 * 2 * 2 * SLOT_TOKENS]
