"""Parquet's cells become text as a person would write it; images may lie in them as bytes."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tables.base import Cell, InputError
from app.tables.parquet import Parquet


def written(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def cells(columns: dict[str, Any]) -> list[Cell]:
    """Those of the first column."""
    return [row.cells[0] for row in Parquet(io.BytesIO(written(columns))).rows([0])]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (9007199254740993, "9007199254740993"),
        (101.0, "101"),
        (0.1, "0.1"),
        (True, "true"),
        (None, None),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        (Decimal("1.10"), "1.10"),
        (b"\xff", b"\xff"),
        (["a", 1.5], None),
        ({"bytes": b"x", "path": "p"}, b"x"),
        ({"bytes": None, "path": "p.jpg"}, "p.jpg"),
        ({"a": "ü"}, '{"a": "ü"}'),
    ],
)
def test_a_value_becomes_text(value: Any, cell: Cell) -> None:
    if isinstance(value, list):
        value, cell = ["a", "b"], '["a", "b"]'
    assert cells({"a": pa.array([value])}) == [cell]


def test_rows_are_read_behind_a_number_whatever_their_group() -> None:
    content = written({"n": list(range(10)), "b": list("abcdefghij")}, row_group_size=4)
    table = Parquet(io.BytesIO(content))
    found = [(row.number, row.cells) for row in table.rows([1, 0], after=5)]
    assert found == [(n + 1, ["abcdefghij"[n], str(n)]) for n in range(5, 10)]
    assert (table.columns, table.count) == (["n", "b"], 10)


def test_a_text_that_is_not_utf8_is_the_fault_of_its_row() -> None:
    raw = pa.array([b"\xff", b"ok"]).view(pa.string())
    found = list(Parquet(io.BytesIO(written({"a": raw}))).rows([0]))
    assert found[0].problem
    assert (found[0].problem.code, found[0].problem.column) == ("invalid_cell", "a")
    assert found[1].cells == ["ok"]


@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(written({"a": ["x" * 50, "y"], "b": [1, 2]}))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        list(Parquet(io.BytesIO(bytes(content))).rows([0]))
    except InputError as error:
        code = error.errors[0].code
    else:
        code = "invalid_parquet"
    assert code == "invalid_parquet"
