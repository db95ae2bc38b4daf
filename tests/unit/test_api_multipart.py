"""Multipart forms, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import RequestError
from app.multipart import TEXT_BYTES, Form

TYPE = 'multipart/form-data; boundary="X"'


def form_of(*parts: tuple[str, bytes]) -> bytes:
    """A form with these parts; the headers are given without their name."""
    written = b"".join(
        f"--X\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
        for head, data in parts
    )
    return written + b"--X--\r\n"


def read(body: bytes, *, block: int = 65_536) -> list[tuple[str, str | None, bytes]]:
    blocks = iter([body[at : at + block] for at in range(0, len(body), block)])
    return [(part.name, part.filename, b"".join(part.blocks())) for part in Form(TYPE, blocks).parts()]


def test_parts_come_in_order() -> None:
    body = form_of(('name="purpose"', b"batch"), ('name="file"; filename="a b.jsonl"', b"{}\r\n{}"))
    assert read(body) == [("purpose", None, b"batch"), ("file", "a b.jsonl", b"{}\r\n{}")]


def test_names_may_be_of_any_script() -> None:
    assert read(form_of(('name="file"; filename="商品.jsonl"', b"x")))[0][1] == "商品.jsonl"


@given(data=st.binary(max_size=300), block=st.integers(1, 40))
def test_the_pieces_do_not_matter(data: bytes, block: int) -> None:
    parts = [('name="file"; filename="f"', data), ('name="purpose"', b"batch")]
    assert read(form_of(*parts), block=block) == [("file", "f", data), ("purpose", None, b"batch")]


def test_what_nobody_read_is_passed_over() -> None:
    body = form_of(('name="a"', b"1" * 100), ('name="b"', b"2"))
    blocks = iter([body[at : at + 7] for at in range(0, len(body), 7)])
    assert [part.name for part in Form(TYPE, blocks).parts()] == ["a", "b"]


def test_only_the_block_at_hand_is_held() -> None:
    pulled: list[int] = []
    body = form_of(('name="file"; filename="f"', b"x" * 10_000))
    blocks = (pulled.append(at) or body[at : at + 100] for at in range(0, len(body), 100))
    part = next(Form(TYPE, blocks).parts())
    next(part.blocks())
    assert len(pulled) < 5


@pytest.mark.parametrize("cut", [0, 1, 30, 60, -1, -8])
def test_a_form_that_ends_too_early_is_refused(cut: int) -> None:
    whole = form_of(('name="file"; filename="f"', b"x" * 50)).removesuffix(b"\r\n")
    with pytest.raises(RequestError, match="it ends too early"):
        read(whole[:cut])


@given(st.binary(max_size=200))
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        read(b"?" + body)


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "multipart/form-data", "multipart/mixed"])
def test_other_types_are_refused(content_type: str | None) -> None:
    with pytest.raises(RequestError, match="multipart/form-data"):
        Form(content_type, iter([]))


def test_a_boundary_that_is_too_long_is_refused() -> None:
    with pytest.raises(RequestError, match="boundary"):
        Form(f"multipart/form-data; boundary={'x' * 5000}", iter([]))


def test_a_field_that_is_too_long_is_refused() -> None:
    form = Form(TYPE, iter([form_of(('name="purpose"', b"x" * (TEXT_BYTES + 1)))]))
    with pytest.raises(RequestError, match="is over") as refused:
        next(form.parts()).text()
    assert refused.value.param == "purpose"


def test_a_field_that_is_no_text_is_refused() -> None:
    form = Form(TYPE, iter([form_of(('name="purpose"', b"\xff"))]))
    with pytest.raises(RequestError, match="UTF-8"):
        next(form.parts()).text()
