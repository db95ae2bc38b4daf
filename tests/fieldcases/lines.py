"""Rows about JSON Lines files: what became of the batch, held against what each expectation wants."""

import json
from dataclasses import dataclass

from app.config import Settings
from app.errors import LineError
from app.states import BatchStatus
from tests.desk import StoredJob, line
from tests.fieldcases.cases import Case, Did, Expectation, Outcome
from tests.fieldcases.services import Services


@dataclass(frozen=True)
class Ran:
    """A batch after ingest, and after everything where nothing was left to do."""

    status: BatchStatus
    total: int
    errors: tuple[LineError, ...]
    jobs: tuple[StoredJob, ...]
    output: list[str] | None  # custom_ids
    failed: list[str] | None


def serve_jsonl(case: Case, services: Services) -> Outcome:
    """The verdict of the first expectation that holds."""
    ran = run(services, content_of(case, services.settings))
    for expect in case.expectations:
        if _VERDICTS[expect["verdict"]](expect, ran):
            return Did(expect["verdict"], {})
    return Did("something else", {"ran": ran})


def content_of(case: Case, settings: Settings) -> bytes:
    """The case's file, for this service's model; one that is described only is made."""
    if case.file is None:
        return "".join(f"{line(f'id-{number}', 'hi')}\n" for number in range(50_001)).encode()
    return case.read().replace(b"@MODEL@", settings.served_model.encode())


def run(services: Services, content: bytes) -> Ran:
    desk = services.desk()
    batch_id = desk.submit(content)
    services.read()
    services.end()
    batch = desk.batch(batch_id)
    return Ran(
        status=batch.status,
        total=batch.total,
        errors=tuple(batch.errors),
        jobs=tuple(desk.jobs(batch_id)),
        output=desk.ids(batch.output_file_id) if batch.output_file_id else None,
        failed=desk.ids(batch.error_file_id) if batch.error_file_id else None,
    )


def _accepted(expect: Expectation, ran: Ran) -> bool:
    ids = [job.custom_id for job in ran.jobs]
    good = all(job.state in ("ready", "waiting") for job in ran.jobs)
    return ran.total == expect["total"] and good and ids == (expect["ids"] or ids)


def _line_error(expect: Expectation, ran: Ran) -> bool:
    wanted = {(row["line"], row["code"]) for row in expect["lines"]}
    if ran.status is BatchStatus.FAILED:
        found = {(error.line, error.code) for error in ran.errors}
        return found == wanted and _mentions(expect, [error.message for error in ran.errors])
    bad = [job for job in ran.jobs if job.state == "failed"]
    good_ids = [job.custom_id for job in ran.jobs if job.state != "failed"]
    told = {(job.line, job.error_code) for job in bad}
    messages = [job.error_message or "" for job in bad]
    partly = expect["scope"] == "either" and good_ids == expect["good_ids"]
    return partly and told == wanted and _mentions(expect, messages)


def _file_error(expect: Expectation, ran: Ran) -> bool:
    first = ran.errors[0] if ran.errors else None
    failed = ran.status is BatchStatus.FAILED and first is not None and first.code == expect["code"]
    return failed and _mentions(expect, [error.message for error in ran.errors])


def _completed(expect: Expectation, ran: Ran) -> bool:
    counts = (ran.total, len(ran.output or ()), len(ran.failed or ()))
    wanted = tuple(expect["counts"][name] for name in ("total", "completed", "failed"))
    return ran.status is BatchStatus.COMPLETED and counts == wanted and ran.failed == expect["failed_ids"]


def _mentions(expect: Expectation, messages: list[str]) -> bool:
    words = expect.get("message_should_mention_any", ("",))
    return any(word.lower() in json.dumps(messages).lower() for word in words)


_VERDICTS = {
    "accept": _accepted,
    "line_error": _line_error,
    "file_error": _file_error,
    "completed": _completed,
}
