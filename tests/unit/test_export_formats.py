"""Rows as CSV, NDJSON and Parquet: what a reader gets back, and what a spreadsheet does not run."""

import csv
import io
import json
from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exports import formats, parquet
from app.exports.columns import Cells, Column, Kind, fits, with_own_names
from app.exports.formats import harmless, write_csv, write_ndjson
from app.exports.parquet import write_parquet

COLUMNS = [Column("id"), Column("n", Kind.INTEGER), Column("ok", Kind.BOOLEAN), Column("more", Kind.JSON)]
ROWS: list[Cells] = [("a", 1, True, {"b": [1, "ü"]}), (None, None, None, None), ('x"\r\ny', -2, False, "z")]
RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def read_csv(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def read_parquet(columns: Sequence[Column], rows: Sequence[Cells]) -> list[tuple[object, ...]]:
    table = pq.read_table(io.BytesIO(b"".join(write_parquet(columns, rows))))
    return list(zip(*(table.column(at).to_pylist() for at in range(table.num_columns)), strict=True))


def test_csv_has_text_as_it_is_and_everything_else_as_json() -> None:
    content = b"".join(write_csv(COLUMNS, ROWS))
    assert read_csv(content) == [
        ["id", "n", "ok", "more"],
        ["a", "1", "true", '{"b": [1, "ü"]}'],
        ["", "", "", ""],
        ['x"\r\ny', "-2", "false", "z"],
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a;=HYPERLINK(1)", "a;'=HYPERLINK(1)"),
        ('a; "@SUM(1)', "a; \"'@SUM(1)"),
        ("a\t=1;-x", "a\t'=1;'-x"),
        ("a;-5; - b;+.5;=", "a;-5; - b;+.5;'="),
        ("a=b; c", "a=b; c"),
    ],
)
def test_what_another_separator_would_make_a_formula_gets_an_apostrophe(text: str, cell: str) -> None:
    assert harmless(text) == cell


@pytest.mark.parametrize("cell", ["a;b=HYPERLINK(1)", "a\tb", 'a;"b"', "a,b", "", "a\nb"])
def test_no_field_is_parted_by_another_delimiter(cell: str) -> None:
    content = b"".join(write_csv([Column("a")], [(cell,)]))
    for delimiter in ",;\t":
        read = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter)
        assert list(read) == [["a"], [cell]]


def test_ndjson_has_an_object_per_row() -> None:
    lines = b"".join(write_ndjson(COLUMNS, ROWS)).split(b"\n")
    assert json.loads(lines[0]) == {"id": "a", "n": 1, "ok": True, "more": {"b": [1, "ü"]}}
    assert (json.loads(lines[1])["more"], len(lines)) == (None, 4)


def test_parquet_has_typed_columns() -> None:
    content = b"".join(write_parquet(COLUMNS, ROWS))
    schema = pq.read_schema(io.BytesIO(content))
    assert [str(kind) for kind in schema.types] == ["string", "int64", "bool", "string"]
    assert read_parquet(COLUMNS, ROWS)[0] == ("a", 1, True, '{"b": [1, "ü"]}')


def test_parquet_without_rows_has_columns() -> None:
    assert pq.read_schema(io.BytesIO(b"".join(write_parquet(COLUMNS, [])))).names == ["id", "n", "ok", "more"]


def test_a_format_comes_in_blocks_and_parquet_in_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BLOCK_BYTES", 10)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    rows = [(f"row {number}",) for number in range(5)]
    assert len(list(write_csv(COLUMNS[:1], rows))) > 2
    assert len(list(write_ndjson(COLUMNS[:1], rows))) > 2
    content = b"".join(write_parquet(COLUMNS[:1], rows))
    assert pq.ParquetFile(io.BytesIO(content)).num_row_groups == 3


@given(st.lists(st.tuples(TEXTS, TEXTS)))
def test_any_text_comes_back_from_parquet(rows: list[tuple[str, str]]) -> None:
    assert read_parquet([Column("a"), Column("b")], rows) == rows


@given(TEXTS)
def test_no_text_is_run_by_a_spreadsheet(text: str) -> None:
    cell = harmless(text)
    is_number = cell.strip("+-").replace(".", "").replace(",", "")[:1].isdecimal() and cell == text
    assert is_number or not cell.lstrip().startswith(RUN_BY_SPREADSHEETS)
    assert cell.replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", ["-5", "+3", "-0.25", "-1,5", "-.5", "1e-9", "-2E+3", "-7%", "a-b", "", "5"])
def test_numbers_and_plain_words_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    "text", ["=1+1", " =1", "-5+cmd", "@SUM(A1)", "\uff1d1", "\ufeff=1", "\tx", "\nx", "- a"]
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert harmless(text) == f"'{text}"


def test_names_of_columns_are_their_own() -> None:
    columns = with_own_names([Column("a"), Column("a_2"), Column("a"), Column("A")])
    assert [column.name for column in columns] == ["a", "a_2", "a_3", "A"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Kind.TEXT, "1", 1),
        (Kind.INTEGER, -(2**63), 2**63),
        (Kind.INTEGER, 0, True),
        (Kind.NUMBER, 1, "1"),
        (Kind.NUMBER, 1.5, True),
        (Kind.BOOLEAN, False, 0),
    ],
)
def test_a_column_holds_what_its_kind_allows(kind: Kind, good: object, bad: object) -> None:
    assert (fits(kind, good), fits(kind, bad)) == (True, False)
