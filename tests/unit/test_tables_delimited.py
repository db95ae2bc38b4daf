"""CSV as spreadsheets and programs write it: every value as text, and each fault told with its row."""

import csv
import io
from collections.abc import Collection, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tables.base import InputError, Row
from app.tables.delimited import Delimited


def opened(
    content: bytes | str,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    wanted: Collection[str] = (),
) -> Delimited:
    data = content.encode() if isinstance(content, str) else content
    return Delimited([data], delimiter=delimiter, encoding=encoding, wanted=wanted)


def rows(table: Delimited, *, after: int = 0) -> list[Row]:
    return list(table.rows(range(len(table.columns)), after=after))


def cells(table: Delimited) -> list[Sequence[object]]:
    found = rows(table)
    assert not [row.problem for row in found if row.problem]
    return [row.cells for row in found]


def problem(content: bytes | str) -> str:
    found = rows(opened(content))[0].problem
    assert found
    return found.code


def refusal(content: bytes | str) -> str:
    with pytest.raises(InputError) as caught:
        rows(opened(content))
    return caught.value.errors[0].code


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_seen_from_the_header(delimiter: str) -> None:
    table = opened(f"id{delimiter}a b\n1{delimiter}x\n")
    assert table.columns == ["id", "a b"]
    assert cells(table) == [["1", "x"]]


def test_the_delimiter_is_the_one_that_finds_the_named_columns() -> None:
    assert opened("id;a,b,c,d\n", wanted=["id"]).columns == ["id", "a,b,c,d"]


def test_a_given_delimiter_is_not_doubted() -> None:
    assert opened("a,b;c,d,e\n", delimiter=";").columns == ["a,b", "c,d,e"]


def test_a_spreadsheet_may_name_its_delimiter() -> None:
    assert cells(opened("sep=;\r\na,b;c\r\n1,2;3\r\n")) == [["1,2", "3"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(end: str) -> None:
    assert cells(opened(f"a,b{end}1,2{end}3,4")) == [["1", "2"], ["3", "4"]]


def test_empty_rows_are_not_counted() -> None:
    found = rows(opened("\n,\na,b\n\n1,2\n , \n3,4\n\n"))
    assert [(row.number, row.cells) for row in found] == [(1, ["1", "2"]), (2, ["3", "4"])]


def test_reading_goes_on_behind_a_row() -> None:
    assert [row.number for row in rows(opened("a\n1\n2\n3\n"), after=2)] == [3]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_recognised(encoding: str) -> None:
    assert cells(opened("naïve,b\nÉté,€5\n".encode(encoding))) == [["Été", "€5"]]


def test_a_letter_far_behind_decides_the_encoding() -> None:
    content = b"a\n" + b"x\n" * 600_000 + "é\n".encode("cp1252") + "è\n".encode("cp1252")
    assert cells(opened(content))[-2:] == [["é"], ["è"]]


def test_a_row_that_is_not_utf8_is_told_and_harms_no_other() -> None:
    found = rows(opened("a\n日本語\n".encode() + b"\xe9\n" + "日本\n".encode()))
    assert [row.problem.code if row.problem else row.cells for row in found] == [
        ["日本語"],
        "invalid_encoding",
        ["日本"],
    ]


def test_a_given_encoding_is_not_doubted() -> None:
    assert cells(opened("a\nЖ\n".encode("cp1251"), encoding="cp1251")) == [["Ж"]]


def test_broken_utf16_fails_the_table() -> None:
    assert refusal("a\nb\n".encode("utf-16") + b"x") == "invalid_encoding"


def test_a_row_may_end_early() -> None:
    assert cells(opened("a,b,c\n1\n")) == [["1", "", ""]]


def test_a_row_with_a_cell_too_many_is_told() -> None:
    assert problem("a,b\n1,2,3\n") == "wrong_cell_count"
    assert cells(opened("a,b\n1,2,,\n")) == [["1", "2"]]


def test_a_quote_that_never_ends_swallows_no_rows() -> None:
    assert refusal('a,b\n1,"open\n2,x\n3,y\n') == "invalid_csv"


def test_a_row_without_end_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tables.delimited.MAX_ROW_CHARS", 100)
    assert refusal('a,b\n1,"' + "x\n" * 100) == "row_too_long"


def test_many_rows_are_no_long_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tables.delimited.MAX_ROW_CHARS", 20)
    assert len(cells(opened("a,b\n" + "1,2\n" * 100))) == 100


def test_a_line_without_end_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tables.text.MAX_ROW_CHARS", 100)
    assert refusal("a,b\n" + "x" * 101) == "line_too_long"


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_a_table_without_header_is_empty(content: str) -> None:
    assert refusal(content) == "empty_file"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=5), st.sampled_from([",", ";", "\t"]))
def test_what_a_program_writes_comes_back(written: list[list[str]], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([["id", "text"], *written])
    kept = [row for row in written if any(cell and not cell.isspace() for cell in row)]
    assert cells(opened(out.getvalue(), encoding="utf-8", delimiter=delimiter)) == kept


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(InputError):
        numbers = [row.number for row in rows(opened(content))]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("encoding", ["utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("given", [None, "utf-16"])
def test_utf_32_is_refused_by_its_name(encoding: str, given: str | None) -> None:
    content = ("" if encoding == "utf-32" else "\ufeff").encode(encoding) + "a,b\r\n1,2\r\n".encode(encoding)
    with pytest.raises(InputError, match=r"is UTF-32: save it in the encoding UTF-8\.$"):
        Delimited([content], encoding=given)
