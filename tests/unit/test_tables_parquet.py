"""Parquet's cells become text as a person would write it; images may lie in them as bytes."""

import io
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tables.base import MAX_ROW_CHARS, MOST_COLUMNS, Cell, InputError
from app.tables.parquet import Parquet
from app.tables.values import cell_of, date_text

# Run apart: how far the memory of a process grew while it read a table, in MiB.
READ = """
import resource, sys
from app.tables.parquet import Parquet
def grown():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
with open(sys.argv[1], "rb") as file:
    before = grown()
    for row in Parquet(file).rows([0, 1]):
        del row
    print(grown() - before)
"""


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


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        (pa.timestamp("s", "Mars/Phobos"), 0, "1970-01-01T00:00:00+00:00[Mars/Phobos]"),
        (pa.timestamp("ns", "Mars/Phobos"), 1, "1970-01-01T00:00:00.000000001+00:00[Mars/Phobos]"),
        (pa.timestamp("ns"), 1_123_456_789, "1970-01-01T00:00:01.123456789"),
        (pa.timestamp("ns"), 1_500_000_000, "1970-01-01T00:00:01.500000"),
        (pa.timestamp("ns", "Europe/Berlin"), 5, "1970-01-01T01:00:00.000000005+01:00"),
        (pa.timestamp("ns"), -1, "1969-12-31T23:59:59.999999999"),
        (pa.timestamp("s"), 253_402_300_800, "10000-01-01T00:00:00"),
        (pa.timestamp("s", "UTC"), 253_402_300_800, "10000-01-01T00:00:00+00:00[UTC]"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), -719_529, "-001-12-31"),
        (pa.date64(), 253_402_300_800_000, "10000-01-01"),
        (pa.time64("ns"), 3_600_000_000_001, "01:00:00.000000001"),
        (pa.duration("ns"), 1_000_000_001, "0:00:01.000000001"),
        (pa.duration("s"), 2**62, f"{2**62} s"),
        (pa.list_(pa.timestamp("ns")), [1, None], '["1970-01-01T00:00:00.000000001", null]'),
        (
            pa.struct({"a": pa.timestamp("s", "Mars/Phobos")}),
            {"a": 0},
            '{"a": "1970-01-01T00:00:00+00:00[Mars/Phobos]"}',
        ),
        (pa.map_(pa.string(), pa.date32()), [("k", 2_932_897)], '[["k", "10000-01-01"]]'),
    ],
)
def test_a_time_that_python_has_no_value_for_is_written_in_full(
    kind: pa.DataType, value: Any, cell: Cell
) -> None:
    array = pa.array([value], kind)
    assert cell_of(array[0]) == cell


@given(st.dates())
def test_dates_by_hand_are_those_of_the_calendar(day: date) -> None:
    assert date_text((day - date(1970, 1, 1)).days) == day.isoformat()


def test_a_cell_that_cannot_be_read_is_empty_and_the_others_of_its_row_stay() -> None:
    raw = pa.array([b"\xff", b"ok"]).view(pa.string())
    rows = list(Parquet(io.BytesIO(written({"bad": raw, "name": ["Cup", "Pan"]}))).rows([0, 1]))
    assert [list(row.cells) for row in rows] == [[None, "Cup"], ["ok", "Pan"]]
    assert rows[0].problem
    assert rows[0].problem.message == "The text is not valid UTF-8."


def test_columns_of_one_name_are_told_apart_by_their_places() -> None:
    arrays = [pa.array(["1"]), pa.array(["2"]), pa.array([{"b": "3"}]), pa.array(["4"])]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=["a", "a", "s", "s.b"]), out)
    (row,) = Parquet(out).rows([1, 0, 3, 2, 1])
    assert row.cells == ["2", "1", "4", '{"b": "3"}', "2"]


def test_a_table_with_too_many_columns_is_refused() -> None:
    content = written({"s": pa.array([{f"c{n}": 1 for n in range(MOST_COLUMNS + 1)}])})
    with pytest.raises(InputError, match="over 10,000 columns"):
        Parquet(io.BytesIO(content))


def write_heavy(path: Path, value: str, rows: int, **options: Any) -> None:
    heavy = pa.chunked_array([pa.array([value])] * rows)
    table = pa.table({"x": heavy, "image": [f"https://a.example/{n}.jpg" for n in range(rows)]})
    pq.write_table(table, path, compression="zstd", store_schema=False, row_group_size=rows, **options)


@pytest.mark.parametrize(
    ("size_mib", "rows", "options"),
    [
        (10, 100, {}),
        (30, 16, {"use_dictionary": False}),
        (30, 16, {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}),
    ],
)
def test_a_small_file_of_heavy_rows_is_read_in_little_memory(
    tmp_path: Path, size_mib: int, rows: int, options: dict[str, Any]
) -> None:
    path = tmp_path / "heavy.parquet"
    write_heavy(path, "y" * (size_mib << 20), rows, **options)
    assert path.stat().st_size < 2**20
    read = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
    assert int(read.stdout) < 200


def test_a_value_that_is_too_heavy_is_the_fault_of_its_row_alone() -> None:
    heavy = "y" * (MAX_ROW_CHARS + 1)
    rows = [*Parquet(io.BytesIO(written({"x": [heavy, "a"], "n": [1, 2]}))).rows([0, 1])]
    assert [list(row.cells) for row in rows] == [[None, "1"], ["a", "2"]]
    assert rows[0].problem
    assert (rows[0].problem.code, rows[0].problem.column) == ("row_too_long", "x")


def test_the_cells_of_a_row_may_come_to_so_much_together() -> None:
    heavy = "y" * (MAX_ROW_CHARS - 1)
    (row,) = Parquet(io.BytesIO(written({name: [heavy] for name in "abc"} | {"d": ["ok"]}))).rows(range(4))
    assert [len(cell or "") for cell in row.cells] == [len(heavy), len(heavy), 0, 2]
    assert row.problem
    assert (row.problem.code, row.problem.column) == ("row_too_long", "c")


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
