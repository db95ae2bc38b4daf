"""A zip's images become rows; what is no archive, or would unpack to too much, is refused."""

import io
import struct
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import pytest

from app.tables import archive
from app.tables.archive import ZippedImages
from app.tables.base import InputError, Row, said


def zipped(*members: tuple[str, bytes], method: int = ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w", method) as target:
        for name, data in members:
            target.writestr(name, data)
    return out.getvalue()


def opened(content: bytes, **options: Any) -> ZippedImages:
    return ZippedImages(io.BytesIO(content), size=len(content), **{"image_max_bytes": 1000, **options})


def rows(content: bytes, *, after: int = 0) -> list[Row]:
    return list(opened(content).rows([0, 1], after=after))


def problem(content: bytes) -> str:
    (row,) = rows(content)
    assert row.problem
    return row.problem.code


def refusal(content: bytes) -> str:
    with pytest.raises(InputError) as caught:
        opened(content)
    return caught.value.errors[0].code


def test_every_image_is_a_row() -> None:
    content = zipped(("a/1.jpg", b"one"), ("a/", b""), ("2.PNG", b"two"))
    assert [row.cells for row in rows(content)] == [[b"one", "a/1.jpg"], [b"two", "2.PNG"]]
    assert opened(content).count == 2
    assert [row.number for row in rows(content, after=1)] == [2]


def test_what_lies_beside_images_is_left_out() -> None:
    content = zipped(("1.jpg", b"one"), ("readme.txt", b"x"), ("__MACOSX/._1.jpg", b"x"), ("._2.jpg", b"x"))
    assert [row.cells[1] for row in rows(content)] == ["1.jpg"]


def test_names_without_endings_are_all_taken() -> None:
    assert [row.cells[1] for row in rows(zipped(("img1", b"x"), ("Thumbs.db", b"x")))] == ["img1"]


def test_a_members_name_is_text_only() -> None:
    assert rows(zipped(("../../etc/passwd.jpg", b"x")))[0].cells == [b"x", "../../etc/passwd.jpg"]


def test_a_member_that_is_too_large_is_not_unpacked() -> None:
    assert problem(zipped(("1.jpg", b"x" * 1001))) == "too_large"


def test_a_member_that_lies_about_its_size_is_cut_and_told() -> None:
    content = bytearray(zipped(("1.jpg", b"x" * 5000)))
    at = content.index(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 900)
    assert problem(bytes(content)) == "invalid_zip_member"


def test_a_damaged_member_harms_no_other() -> None:
    content = bytearray(zipped(("1.jpg", b"first"), ("2.jpg", b"second"), method=0))
    content[content.index(b"first")] ^= 1
    assert [row.problem.code if row.problem else row.cells for row in rows(bytes(content))] == [
        "invalid_zip_member",
        [b"second", "2.jpg"],
    ]


def test_an_unusual_method_is_refused_as_it_unpacks_without_bounds() -> None:
    assert problem(zipped(("1.jpg", b"x" * 900), method=ZIP_BZIP2)) == "invalid_zip_member"


def test_an_encrypted_member_is_told() -> None:
    content = bytearray(zipped(("1.jpg", b"x")))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= archive.ENCRYPTED
    assert problem(bytes(content)) == "invalid_zip_member"


def test_an_archive_that_claims_too_much_is_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "SMALL_BYTES", 100_000)
    assert refusal(zipped(*[(f"{n}.jpg", b"\0" * 500_000) for n in range(3)])) == "zip_bomb"


def test_members_that_share_their_bytes_are_a_bomb() -> None:
    content = zipped(("1.jpg", b"".join(struct.pack("<H", n) for n in range(400))))
    at = content.index(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    listed = content[at:end] * 20
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 20, 20, len(listed), at, 0)
    assert refusal(content[:at] + listed + tail) == "zip_bomb"


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", zipped(("1.jpg", b"x"))[:-8]])
def test_what_is_no_archive_is_refused(content: bytes) -> None:
    assert refusal(content) == "invalid_zip"


@pytest.mark.parametrize("reason", ["It is odd.", "It is odd. ", "It is odd"])
def test_what_a_library_says_ends_with_one_full_stop(reason: str) -> None:
    assert said(ValueError(f"{reason}\nand more")) == "It is odd"
