"""Rows about the API: each acts its steps out, on the API as clients see it, and asserts what must hold."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from app.dispatch import Dispatcher
from app.planner import Chunk
from app.states import BatchStatus, JobState
from tests.asking import worker
from tests.desk import Desk, image, line, lines
from tests.fieldcases.ack_timeout import outlast_the_broker
from tests.fieldcases.caches import flush_and_spoil
from tests.fieldcases.cases import Case, Did, NotServed, Outcome
from tests.fieldcases.model import Lab
from tests.fieldcases.services import Services
from tests.waiting import eventually

TRIES = 3  # of a job that kills its worker: docs/api.md
POLLS, RUNNING, WORKERS = 100, 200, 4


def serve_api(case: Case, services: Services, lab: Lab) -> Outcome:
    act = partial(flush_and_spoil, lab) if case.id == "api-cache-flushed" else _acted(case, services)
    if act is None:
        return NotServed("nobody has acted this row out")
    try:
        act()
    except (AssertionError, pytest.fail.Exception) as error:
        return Did("something else", {"why": str(error)})
    return Did("behaviour", {})


def _acted(case: Case, services: Services) -> Callable[[], None] | None:
    act = _ACTS.get(case.id)
    return None if act is None else partial(act, services)


def _cancel_before_start(services: Services) -> None:
    desk = services.desk()
    batch_id = desk.submit(lines(3))
    services.read()
    assert services.client(desk).batches.cancel(batch_id).status == "cancelling"
    assert desk.claim(batch_id) == []
    services.end()
    batch = services.client(desk).batches.retrieve(batch_id)
    assert (batch.status, batch.output_file_id, _counts(batch)) == ("cancelled", None, (3, 0, 3))


def _cancel_completed(services: Services) -> None:
    desk = services.desk()
    client, batch_id = services.client(desk), _completed(services, desk, lines(2))
    before = client.batches.retrieve(batch_id)
    with pytest.raises(openai.ConflictError, match="completed"):
        client.batches.cancel(batch_id)
    assert client.batches.retrieve(batch_id) == before
    assert len(_ids(client, before.output_file_id)) == 2


def _cancel_by_other_key(services: Services) -> None:
    """Of one tenant all keys see the same."""
    desk = services.desk()
    owner, admin = services.client(desk), services.client(desk)
    batch_id = desk.submit(lines(3))
    services.read()
    desk.answer(batch_id, count=1)
    admin.batches.cancel(batch_id)
    services.end()
    batch = owner.batches.retrieve(batch_id)
    assert (len(_ids(owner, batch.output_file_id)), len(_ids(owner, batch.error_file_id))) == (1, 2)


def _expired_partly(services: Services) -> None:
    desk = services.desk()
    batch_id = desk.submit(lines(10))
    services.read()
    desk.answer(batch_id, count=1)
    desk.pass_deadline(batch_id)
    services.end()
    client = services.client(desk)
    batch = client.batches.retrieve(batch_id)
    assert (batch.status, bool(batch.expired_at), _counts(batch)) == ("expired", True, (10, 1, 9))
    codes = [row["error"]["code"] for row in desk.result_lines(batch.error_file_id)]
    assert (len(_ids(client, batch.output_file_id)), codes) == (1, ["batch_expired"] * 9)


def _all_failed(services: Services) -> None:
    desk = services.desk()
    broken = image("data:image/png;base64,iVBORw0KGgo=")
    batch_id = _completed(services, desk, [line(f"r{number}", [broken]) for number in range(3)])
    batch = services.client(desk).batches.retrieve(batch_id)
    assert (batch.status, batch.output_file_id, _counts(batch)) == ("completed", None, (3, 0, 3))
    assert len(desk.ids(batch.error_file_id)) == 3


def _none_failed(services: Services) -> None:
    desk = services.desk()
    batch_id = _completed(services, desk, lines(3))
    batch = services.client(desk).batches.retrieve(batch_id)
    assert (batch.status, batch.error_file_id, _counts(batch)) == ("completed", None, (3, 3, 0))


def _counts_monotonic(services: Services) -> None:
    desk = services.desk()
    batch_id = desk.submit(lines(RUNNING))
    services.read()
    claimed, client = desk.claim(batch_id), services.client(desk)

    def run(part: int) -> None:
        for job in claimed[part::WORKERS]:
            desk.record([job])

    with ThreadPoolExecutor(WORKERS) as pool:
        working = [pool.submit(run, part) for part in range(WORKERS)]
        seen = [_counts(client.batches.retrieve(batch_id)) for _ in range(POLLS)]
        assert all(one.result() is None for one in working)
    services.end()
    batch = client.batches.retrieve(batch_id)
    seen.append(_counts(batch))
    assert seen == sorted(seen)  # none of the three goes down, as failed stays 0
    assert all(total == RUNNING and done + failed <= total for total, done, failed in seen), seen
    assert seen[-1] == (RUNNING, len(_ids(client, batch.output_file_id)), 0)


def _repeated_retrieve(services: Services) -> None:
    desk = services.desk()
    client, batch_id = services.client(desk), _completed(services, desk, lines(2))
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: client.batches.retrieve(batch_id).model_dump(), range(10)))
    assert all(one == found[0] for one in found)
    file_id = found[0]["output_file_id"]
    assert client.files.content(file_id).content == client.files.content(file_id).content


def _idempotent_create(services: Services) -> None:
    client = services.client(services.desk())
    one, other = (
        client.files.create(file=("in.jsonl", line(name).encode()), purpose="batch").id for name in "ab"
    )
    create = partial(
        client.batches.create,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_headers={"Idempotency-Key": uuid4().hex},
    )
    first, second = create(input_file_id=one), create(input_file_id=one)
    assert (second.id, [batch.id for batch in client.batches.list()]) == (first.id, [first.id])
    with pytest.raises(openai.ConflictError):
        create(input_file_id=other)


def _order(services: Services) -> None:
    """It is that of the input."""
    desk = services.desk()
    batch_id = desk.submit(lines(50))
    services.read()
    claimed = desk.claim(batch_id)
    random.Random(7).shuffle(claimed)
    for job in claimed:
        desk.record([job])
    services.end()
    assert desk.ids(desk.batch(batch_id).output_file_id) == [f"r{number}" for number in range(1, 51)]


def _refused_line(services: Services) -> None:
    desk = services.desk()
    batch_id = _completed(services, desk, [line("good"), line("bad", max_tokens=-5)])
    batch = services.client(desk).batches.retrieve(batch_id)
    (row,) = desk.result_lines(batch.error_file_id)
    assert (row["custom_id"], row["response"]["status_code"]) == ("bad", 400)
    assert _counts(batch) == (2, 1, 1)


def _paging(services: Services) -> None:
    desk = services.desk()
    client = services.client(desk)
    there = {desk.submit(lines(1)) for _ in range(5)}
    seen: list[str] = []
    page = client.batches.list(limit=2)
    while True:
        seen += [batch.id for batch in page.data]
        desk.submit(lines(1))
        if not page.has_next_page():
            break
        page = page.get_next_page()
    assert len(set(seen)) == len(seen)
    assert there <= set(seen)


def _poison(services: Services) -> None:
    desk = services.lonely_desk()
    batch_id = desk.submit([line("poison", "die"), line("a", "fine?"), line("b", "fine?")])
    services.read()
    dispatcher = Dispatcher(sessions=desk.sessions, sender=services.sender, settings=services.quick)
    for attempt in range(TRIES):
        dispatcher.send()
        with worker(services.quick, services.folder, f"worker{attempt}") as process:
            eventually(lambda process=process: not process.running(), within_s=40)
        eventually(lambda: dispatcher.reap() or not _running(desk, batch_id))
    dispatcher.send()
    with worker(services.quick, services.folder, "last"):
        eventually(lambda: desk.counts(batch_id) == (3, 2, 1), within_s=40)
    services.end()
    (row,) = desk.result_lines(desk.batch(batch_id).error_file_id)
    assert (row["custom_id"], row["response"]["body"]["error"]["code"]) == ("poison", "engine_crash")


def _redelivered(services: Services) -> None:
    """As a broker does that thinks a chunk lost: its message comes again while its jobs run, and after."""
    desk, gate = services.lonely_desk(), services.folder / "gate"
    batch_id = desk.submit([line("long", f"wait for {gate}")])
    services.read()
    Dispatcher(sessions=desk.sessions, sender=services.sender, settings=services.quick).send()
    again = Chunk(services.settings.served_model, tuple(job.id for job in desk.jobs(batch_id)))
    with worker(services.quick, services.folder) as process:
        eventually(lambda: _running(desk, batch_id), within_s=40)
        services.sender.send([again])
        eventually(lambda: services.sender.depth(again.model) == 0)
        gate.touch()
        eventually(lambda: desk.counts(batch_id) == (1, 1, 0), within_s=40)
        services.sender.send([again])
        eventually(lambda: services.sender.depth(again.model) == 0)
        assert process.terminate() == 0
    services.end()
    assert desk.batch(batch_id).status is BatchStatus.COMPLETED
    assert (desk.ids(desk.batch(batch_id).output_file_id), desk.counts(batch_id)) == (["long"], (1, 1, 0))


def _completed(services: Services, desk: Desk, content: list[str]) -> str:
    batch_id = desk.submit(content)
    services.read()
    desk.answer(batch_id)
    services.end()
    return batch_id


def _counts(batch: Batch) -> tuple[int, int, int]:
    counts = batch.request_counts
    assert counts is not None
    return counts.total, counts.completed, counts.failed


def _ids(client: OpenAI, file_id: str | None) -> list[str]:
    assert file_id is not None
    rows = client.files.content(file_id).content.decode().split("\n")[:-1]
    return [json.loads(row)["custom_id"] for row in rows]


def _running(desk: Desk, batch_id: str) -> bool:
    return any(job.state == JobState.RUNNING for job in desk.jobs(batch_id))


_ACTS: dict[str, Callable[[Services], None]] = {
    "api-ack-timeout": outlast_the_broker,
    "api-cancel-before-start": _cancel_before_start,
    "api-cancel-completed": _cancel_completed,
    "api-cancel-by-other-role": _cancel_by_other_key,
    "api-expired-partly": _expired_partly,
    "api-all-failed": _all_failed,
    "api-none-failed": _none_failed,
    "api-counts-monotonic": _counts_monotonic,
    "api-repeated-retrieve": _repeated_retrieve,
    "api-idempotent-create": _idempotent_create,
    "api-order-not-promised": _order,
    "api-4xx-line-is-a-failure": _refused_line,
    "api-list-paging-stable": _paging,
    "api-poison-request": _poison,
    "api-long-task-redelivered": _redelivered,
}
