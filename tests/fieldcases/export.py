"""Rows about answers that are dangerous or odd: an engine gives them, and every way out is looked at."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from app.db import transaction
from app.exports.answers import CUT, AnswerColumns, read_object
from app.exports.jobs import ExportedJob
from app.results import AnsweredJob
from app.states import JobState
from app.store.records import record_answers
from app.store.results import read_answered
from app.tables.spec import Question
from tests.desk import line
from tests.fieldcases.cases import Case, Did, Expectation, Outcome
from tests.fieldcases.services import Services
from workers.answers import answer_row
from workers.engine.base import Answer, FinishReason, Usage

# Shown by a browser as text or not at all.
TYPES = ("application/", "text/csv")
COLOUR = Question("it", "?", {"type": "object", "properties": {"color": {"type": "string"}}})


@dataclass(frozen=True)
class WaysOut:
    """One answer as it comes out: of the batch's file, the live results, and the exports by format."""

    custom_id: str
    stored: AnsweredJob
    file: httpx.Response
    results: httpx.Response
    exports: dict[str, httpx.Response]

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.file.content)["response"]["body"]["choices"][0]["message"]

    @property
    def cell(self) -> str:
        rows = list(csv.DictReader(io.StringIO(self.exports["csv"].text, newline="")))
        assert len(rows) == 1, rows
        return rows[0]["answer"]


def serve_export(case: Case, services: Services) -> Outcome:
    """The verdict of the first expectation that holds."""
    given = case.payload["model_answer"]
    named = case.id == "export-html-filename"
    reason = case.expectations[0].get("finish_reason", "stop")
    found = _asked(services, "red" if named else given, reason, custom_id=given if named else "a")
    for expect in case.expectations:
        if _VERDICTS[expect["verdict"]](expect, given, found):
            return Did(expect["verdict"], {})
    return Did("something else", {"message": found.message, "cell": found.cell})


def _asked(services: Services, text: str, reason: FinishReason, *, custom_id: str) -> WaysOut:
    desk = services.desk()
    batch_id = desk.submit([line(custom_id)])
    services.read()
    (job,) = desk.claim(batch_id)
    with transaction(desk.sessions) as session:
        row = answer_row(job, Answer(text, reason, Usage(7, 2)))
        assert record_answers(session, [row], model="demo", revision="rev1")
        (stored,) = read_answered(session, batch_id, after_line=0, limit=2)
    services.end()
    http = services.http(desk)
    formats = ("csv", "ndjson", "jsonl", "parquet")
    return WaysOut(
        custom_id,
        stored,
        http.get(f"/files/{desk.batch(batch_id).output_file_id}/content"),
        http.get(f"/batches/{batch_id}/results"),
        {name: http.get(f"/batches/{batch_id}/export?format={name}") for name in formats},
    )


def _csv_cell_safe(expect: Expectation, given: str, found: WaysOut) -> bool:
    harmless = not found.cell.startswith(tuple(expect.get("cell_must_not_start_with", ())))
    allowed = found.cell in expect.get("cell_any_of", [found.cell])
    return harmless and allowed and given in found.cell and found.message["content"] == expect["jsonl_keeps"]


def _html_inert(_: Expectation, given: str, found: WaysOut) -> bool:
    """Where there are no pages: no browser takes what comes for one, and nothing is changed in it."""
    downloads = [found.file, *found.exports.values()]
    typed = all(one.headers["content-type"].startswith(TYPES) for one in [*downloads, found.results])
    sniffed = all(one.headers["x-content-type-options"] == "nosniff" for one in downloads)
    saved = all(one.headers["content-disposition"].startswith("attachment") for one in downloads)
    kept = given in (found.message["content"], json.loads(found.file.content)["custom_id"])
    return typed and sniffed and saved and kept


def _terminal_inert(_: Expectation, given: str, found: WaysOut) -> bool:
    """The commands print lines of JSON: a control character is an escape there."""
    printed = found.file.text + found.results.text + found.exports["jsonl"].text
    return all(char.isprintable() or char == "\n" for char in printed) and found.message["content"] == given


def _log_one_record(_: Expectation, given: str, found: WaysOut) -> bool:
    lines = [found.file.text, found.exports["jsonl"].text, found.exports["ndjson"].text]
    return all(text.count("\n") == 1 for text in lines) and found.message["content"] == given


def _json_parsed(expect: Expectation, _: str, found: WaysOut) -> bool:
    return read_object(found.stored.text) == expect["value"]


def _kept_as_text(_: Expectation, given: str, found: WaysOut) -> bool:
    return found.message["content"] == given


def _flagged(expect: Expectation, given: str, found: WaysOut) -> bool:
    """Also where the answer's properties are columns: then none has a value."""
    (row,) = csv.DictReader(io.StringIO(found.exports["csv"].text, newline=""))
    ended = ExportedJob(1, found.custom_id, JobState.COMPLETED, found.stored)
    marked = row["finish_reason"] == found.stored.finish_reason == expect["finish_reason"]
    unread = AnswerColumns(COLOUR).cells(ended) == (None, CUT)
    return marked and unread and found.message["content"] == expect.get("answer", given)


def _answer_text(expect: Expectation, _: str, found: WaysOut) -> bool:
    return found.message["content"] == found.cell == expect["value"]


_VERDICTS: dict[str, Callable[[Expectation, str, WaysOut], bool]] = {
    "csv_cell_safe": _csv_cell_safe,
    "html_inert": _html_inert,
    "terminal_inert": _terminal_inert,
    "log_one_record": _log_one_record,
    "json_parsed": _json_parsed,
    "kept_as_text": _kept_as_text,
    "flagged": _flagged,
    "answer_text": _answer_text,
}
