"""A manifest's lines are images: comments and empty lines aside, in any encoding and with any line end."""

from app.tables.base import Row
from app.tables.manifest import Manifest
from app.tables.names import last_part


def rows(content: bytes, *, after: int = 0) -> list[Row]:
    return list(Manifest([content]).rows([0, 1], after=after))


def test_every_line_is_an_image() -> None:
    content = b"\xef\xbb\xbf# photos\nhttps://a.example/p/1.jpg?w=3\r\n\n  s3://b/k?.png \nfile-1"
    assert [(row.number, row.cells) for row in rows(content)] == [
        (1, ["https://a.example/p/1.jpg?w=3", "1.jpg"]),
        (2, ["s3://b/k?.png", "k?.png"]),
        (3, ["file-1", "file-1"]),
    ]


def test_reading_goes_on_behind_a_line() -> None:
    assert [row.number for row in rows(b"a\n#\nb\nc\n", after=1)] == [2, 3]


def test_a_line_that_is_no_text_is_told() -> None:
    found = rows("é日本\n".encode() + b"\xff\n")
    assert [row.problem and row.problem.code for row in found] == [None, "invalid_encoding"]


def test_a_data_url_has_no_name() -> None:
    assert last_part("data:image/png;base64,AA/BB") == ""
