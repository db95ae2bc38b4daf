"""Text on its way adds up, whatever comes twice, late or never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.live_text import HeardText, Piece, text_channel

TEXT = "red, green and blue"


def heard(*pieces: Piece) -> str:
    text = HeardText()
    for piece in pieces:
        text.hear(piece)
    return text.text


def test_pieces_in_order_add_up() -> None:
    assert heard(Piece(1, 0, "red"), Piece(1, 3, ", green")) == "red, green"


def test_a_piece_that_comes_again_adds_only_what_is_new() -> None:
    assert heard(Piece(1, 0, "red"), Piece(1, 0, "red, "), Piece(1, 0, "red")) == "red, "


def test_what_comes_behind_a_gap_is_left_aside() -> None:
    assert heard(Piece(1, 0, "red"), Piece(1, 5, "green")) == "red"


def test_a_new_attempt_begins_anew_and_the_old_one_is_not_heard_any_more() -> None:
    assert heard(Piece(1, 0, "red"), Piece(2, 0, "blue"), Piece(1, 3, ", green")) == "blue"


@given(st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)))))
def test_whatever_is_heard_is_the_beginning_of_what_was_said(spans: list[tuple[int, int]]) -> None:
    assert TEXT.startswith(heard(*(Piece(1, start, TEXT[start:stop]) for start, stop in spans)))


def test_nothing_is_sent_after_what_an_attempt_did_not_say() -> None:
    text = HeardText()
    text.hear(Piece(1, 0, "red and"))
    assert (text.after("red"), text.after("green"), text.after("red and blue")) == (" and", "", "")


def test_a_piece_travels_as_bytes() -> None:
    piece = Piece(3, 7, 'é"\u2028', ended=True)
    assert Piece.unpack(piece.pack()) == piece


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b"[1, 2]", b'["a", 0, "", false]'])
def test_bytes_that_are_no_piece_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        Piece.unpack(data)


def test_a_channel_belongs_to_one_tenants_job() -> None:
    assert text_channel("tenant_a", 7) != text_channel("tenant_b", 7)
