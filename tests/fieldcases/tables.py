"""Rows about CSV and Parquet files: what the readers of tables and the maker of jobs do with them."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from app.chat import ChatRules, ModelRules
from app.config import MIB
from app.lines import BadLine, ParsedLine
from app.tables.base import InputError, TableReader, refused
from app.tables.delimited import Delimited
from app.tables.parquet import Parquet
from app.tables.questions import RowReader, check_spec, repeated_id
from app.tables.spec import read_spec
from tests.fieldcases.cases import Case, Did, Expectation, Outcome

RULES = ChatRules(models={"demo": ModelRules("demo", MIB, 64)}, images_per_job=4)


@dataclass(frozen=True)
class Made:
    """The lines of a table, or why there are none."""

    good: list[ParsedLine]
    bad: list[BadLine]
    refused: InputError | None = None


def serve_csv(case: Case) -> Outcome:
    content = case.read()
    return _told(case, make(case, lambda wanted: Delimited([content], wanted=wanted)))


def serve_parquet(case: Case) -> Outcome:
    content = case.read()
    return _told(case, make(case, lambda _: Parquet(BytesIO(content))))


def make(case: Case, opened: Callable[[list[str]], TableReader]) -> Made:
    columns = case.columns
    table = {
        "image_columns": [columns["image"]],
        "id_column": columns.get("id"),
        "questions": [] if "question" in columns else [{"name": "answer", "ask": "What is it?"}],
        "question_column": columns.get("question"),
        "body": {"model": "demo"},
    }
    spec = read_spec(table)
    good: dict[str, ParsedLine] = {}
    bad: list[BadLine] = []
    try:
        reader = opened([name for name in columns.values() if name])
        rows = RowReader(spec, check_spec(spec, RULES), reader.columns, RULES)
        for row in reader.rows(rows.wanted):
            for line in rows.lines(row):
                if isinstance(line, BadLine):
                    bad.append(line)
                elif line.custom_id in good:
                    bad.append(BadLine(None, repeated_id(spec, line, good[line.custom_id].line), line.line))
                else:
                    good[line.custom_id] = line
    except InputError as error:
        return Made([], [], error)
    if not good and not bad:  # as ingest ends such a batch
        return Made([], [], refused("empty_file", "The input file is empty: it has no rows."))
    return Made(list(good.values()), bad)


def _told(case: Case, made: Made) -> Outcome:
    """The verdict of the first expectation that holds."""
    for expect in case.expectations:
        if _VERDICTS[expect["verdict"]](expect, made):
            return Did(expect["verdict"], {})
    return Did("something else", {"good": [_as_row(line) for line in made.good], "bad": made.bad})


def _accepted(expect: Expectation, made: Made) -> bool:
    rows = [_as_row(line) for line in made.good]
    counted = len(rows) == expect.get("row_count", len(rows))
    return not made.refused and not made.bad and bool(rows) and counted and rows == expect.get("rows", rows)


def _row_error(expect: Expectation, made: Made) -> bool:
    """Of one question a row: a job's line is its row."""
    rows = [_as_row(line) for line in made.good]
    told = all(line.error.code == expect["code"] for line in made.bad)
    where = [line.line for line in made.bad] == expect["rows_in_error"]
    named = all(line.error.message.startswith(f"Row {line.line}") for line in made.bad)
    return (
        told
        and where
        and named
        and rows == (expect["good_rows"] if expect["good_rows"] is not None else rows)
    )


def _file_error(expect: Expectation, made: Made) -> bool:
    if made.refused is None:
        return False
    error = made.refused.errors[0]
    words = expect.get("message_should_mention_any", ("",))
    return error.code == expect["code"] and any(word.lower() in error.message.lower() for word in words)


def _as_row(line: ParsedLine) -> list[str]:
    """Id, image and question."""
    parts = line.request.prompt["turns"][0]["parts"]
    return [line.custom_id, line.request.images[0].ref, parts[-1]["text"]]


_VERDICTS = {"accept": _accepted, "row_error": _row_error, "file_error": _file_error}
