"""Ended batches get their files: every line in exactly one, the same bytes however often they are written."""

import random
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from app.db import transaction
from app.errors import FatalWork, LineError, TransientWork
from app.finalize import Finalize
from app.ids import file_key
from app.ingest import Ingest
from app.states import BatchStatus
from app.store.batches import cancel_batch
from app.store.watch import stop_batch
from app.sweep import Sweeper
from tests.desk import Desk, image, line, lines
from tests.faulty import FaultyStore
from tests.servers import S3Place

URL = "https://example.com/a.png"


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    yield work
    work.close()


@pytest.fixture
def finalize(desk: Desk) -> Finalize:
    return Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, page_jobs=2)


@pytest.fixture
def sweeper(desk: Desk) -> Sweeper:
    return Sweeper(sessions=desk.sessions, block_jobs=2, again_after_s=0)


def submitted(desk: Desk, ingest: Ingest, content: list[str]) -> str:
    batch_id = desk.submit(content)
    ingest.step()
    return batch_id


def test_a_batch_with_open_jobs_is_left_alone(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = submitted(desk, ingest, lines(3))
    desk.answer(batch_id, count=2)
    assert not finalize.step()
    assert desk.status(batch_id) is BatchStatus.IN_PROGRESS


def test_the_end_of_a_batch_is_told_once_to_those_who_want_to_know(
    desk: Desk, ingest: Ingest, finalize: Finalize
) -> None:
    desk.execute(
        "INSERT INTO webhook_endpoints (id, tenant_id, name, url, event_types, secret) "
        "VALUES ('whe_1', :tenant, 'mine', 'https://a.example/', '{batch.completed}', 'whsec_')",
        tenant=desk.tenant,
    )
    batch_id = submitted(desk, ingest, lines(2))
    desk.answer(batch_id)
    while finalize.step():
        pass
    assert (desk.count("webhook_events"), desk.count("webhook_deliveries")) == (1, 1)


def test_answers_go_to_the_output_file_in_order(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = submitted(desk, ingest, lines(5))
    desk.answer(batch_id)
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.error_file_id) == (BatchStatus.COMPLETED, None)
    assert batch.finalizing_at is not None
    assert batch.completed_at is not None
    found = desk.result_lines(batch.output_file_id)
    assert [row["custom_id"] for row in found] == ["r1", "r2", "r3", "r4", "r5"]
    completion = ChatCompletion.model_validate(found[0]["response"]["body"], strict=True)
    assert completion.choices[0].message.content == "A cat."
    assert completion.system_fingerprint == "rev1"


def test_log_probabilities_and_notes_reach_the_output_file(
    desk: Desk, ingest: Ingest, finalize: Finalize
) -> None:
    batch_id = submitted(desk, ingest, [line("r1", logprobs=True, top_logprobs=1), line("r2")])
    told, plain = desk.claim(batch_id)
    desk.record([told], logprobs=[("A\ufffd", -0.5, [("\u2028", -1.25)])], notes=["repetition"])
    desk.record([plain])
    finalize.step()
    first, second = desk.result_lines(desk.batch(batch_id).output_file_id)
    completion = ChatCompletion.model_validate(first["response"]["body"], strict=True)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(token.logprob, token.top_logprobs[0].token) for token in logprobs.content] == [(-0.5, "\u2028")]
    assert first["response"]["body"]["vqueue"] == {"notes": ["repetition"]}
    assert second["response"]["body"]["choices"][0]["logprobs"] is None
    assert "vqueue" not in second["response"]["body"]


def test_failures_go_to_the_error_file(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = submitted(desk, ingest, [line("r1"), "{", line("r3", n=5)])
    desk.answer(batch_id)
    finalize.step()
    batch = desk.batch(batch_id)
    assert [row["custom_id"] for row in desk.result_lines(batch.output_file_id)] == ["r1"]
    found = desk.result_lines(batch.error_file_id)
    assert [row["custom_id"] for row in found] == [None, "r3"]
    assert found[1]["response"]["body"]["error"]["param"] == "body.n"


def test_a_batch_of_failures_has_no_output_file(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    bad = "data:image/png;base64,AAAA"
    batch_id = submitted(desk, ingest, [line(f"r{number}", [image(bad)]) for number in range(3)])
    finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.output_file_id) == (BatchStatus.COMPLETED, None)
    assert (batch.total, batch.completed, batch.failed) == (3, 0, 3)
    assert len(desk.result_lines(batch.error_file_id)) == 3


def test_result_files_are_files_of_the_tenant(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = desk.submit(lines(2), expires=3600)
    ingest.step()
    desk.answer(batch_id)
    finalize.step()
    file = desk.file(desk.batch(batch_id).output_file_id)
    assert (file.purpose, file.filename) == ("batch_output", f"{batch_id}_output.jsonl")
    assert file.expires_at is not None
    assert (file.expires_at - file.created_at).total_seconds() == 3600
    stored = desk.objects.head(file.object_key)
    assert stored is not None
    assert (stored.bytes, stored.content_type) == (file.bytes, "application/jsonl; charset=utf-8")


def test_a_file_written_twice_has_the_same_bytes(
    desk: Desk, ingest: Ingest, finalize: Finalize, s3: S3Place
) -> None:
    batch_id = submitted(desk, ingest, [*lines(4), "bad"])
    desk.answer(batch_id)
    faulty = FaultyStore(s3)
    dying = Finalize(sessions=desk.sessions, objects=faulty, settings=desk.settings)
    with pytest.raises(TransientWork):
        dying.step()
    first = desk.content(f"file-{batch_id.removeprefix('batch_')}-output")
    assert desk.status(batch_id) is BatchStatus.FINALIZING
    assert not finalize.step(), "the lease of the one that died still runs"
    desk.pass_leases()
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert batch.status is BatchStatus.COMPLETED
    assert desk.content(batch.output_file_id) == first
    assert len(desk.result_lines(batch.error_file_id)) == 1
    faulty.close()


def test_a_stopping_process_lets_go_of_its_batch(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = submitted(desk, ingest, lines(3))
    desk.answer(batch_id)
    stopping = Event()
    stopping.set()
    Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, stopping=stopping).step()
    assert desk.status(batch_id) is BatchStatus.FINALIZING
    assert desk.count("files") == 1
    assert finalize.step()
    assert desk.status(batch_id) is BatchStatus.COMPLETED


def test_the_slower_of_two_changes_nothing(
    desk: Desk, ingest: Ingest, finalize: Finalize, s3: S3Place
) -> None:
    def overtake() -> None:
        desk.pass_leases()
        finalize.step()

    batch_id = submitted(desk, ingest, lines(3))
    desk.answer(batch_id)
    slow = FaultyStore(s3, at=overtake)
    assert Finalize(sessions=desk.sessions, objects=slow, settings=desk.settings).step()
    assert desk.status(batch_id) is BatchStatus.COMPLETED
    assert len(desk.result_lines(desk.batch(batch_id).output_file_id)) == 3
    assert desk.count("files") == 2
    slow.close()


def test_a_deleted_file_is_not_brought_back_by_the_slower_of_two(
    desk: Desk, ingest: Ingest, finalize: Finalize, s3: S3Place
) -> None:
    def overtake() -> None:
        desk.pass_leases()
        finalize.step()
        desk.execute("DELETE FROM files WHERE purpose = 'batch_output'")

    desk.answer(submitted(desk, ingest, lines(3)))
    slow = FaultyStore(s3, at=overtake)
    assert Finalize(sessions=desk.sessions, objects=slow, settings=desk.settings).step()
    assert desk.count("files") == 1
    slow.close()


def test_wrong_counts_never_make_a_file(desk: Desk, ingest: Ingest, finalize: Finalize) -> None:
    batch_id = submitted(desk, ingest, lines(3))
    desk.answer(batch_id, count=2)
    desk.execute("UPDATE batches SET completed = 3")
    with pytest.raises(FatalWork, match="2 lines where it counts 3"):
        finalize.step()
    assert desk.objects.head(file_key(desk.tenant, f"file-{batch_id.removeprefix('batch_')}-output")) is None


def test_a_cancelled_batch_keeps_what_is_done(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper
) -> None:
    batch_id = submitted(desk, ingest, [*lines(5), line("r6", [image(URL)])])
    desk.answer(batch_id, count=1)
    running = desk.claim(batch_id, count=1)
    desk.cancel(batch_id)
    assert not finalize.step(), "a running job may still end"
    assert sweeper.step()
    assert (desk.counts(batch_id), desk.count("job_waits")) == ((6, 1, 4), 0)
    desk.record(running)
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert batch.status is BatchStatus.CANCELLED
    assert batch.cancelled_at is not None
    assert [row["custom_id"] for row in desk.result_lines(batch.output_file_id)] == ["r1", "r2"]
    assert {row["error"]["code"] for row in desk.result_lines(batch.error_file_id)} == {"batch_cancelled"}


@pytest.mark.parametrize("read", [0, 2])
def test_a_batch_closed_while_it_is_read_is_read_on_and_no_line_is_lost(
    desk: Desk, finalize: Finalize, sweeper: Sweeper, s3: S3Place, read: int
) -> None:
    content = [*lines(2), "{", line("r4", [image(URL)])]
    batch_id = desk.submit(content)
    size = sum(len(row.encode()) + 1 for row in content[:read])
    faulty = FaultyStore(s3, readable=size)
    dying = Ingest(sessions=desk.sessions, objects=faulty, settings=desk.settings, block_lines=1)
    with pytest.raises(TransientWork):
        dying.step()
    desk.pass_deadline(batch_id)
    sweeper.step()
    assert not finalize.step(), "lines are still to be read"
    desk.pass_leases()
    ingest = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    assert ingest.step()
    sweeper.step()
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.failed) == (BatchStatus.EXPIRED, 4, 4)
    assert batch.in_progress_at is None
    codes = [_code(row) for row in desk.result_lines(batch.error_file_id)]
    assert codes == ["batch_expired", "batch_expired", "invalid_json_line", "batch_expired"]
    for work in (dying, ingest):
        work.close()
    faulty.close()


def test_a_closed_batch_whose_file_is_gone_ends_with_what_is_there(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper
) -> None:
    batch_id = desk.submit(lines(3))
    desk.execute("DELETE FROM files")
    desk.cancel(batch_id)
    sweeper.step()
    assert ingest.step()
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.error_file_id) == (BatchStatus.CANCELLED, 0, None)


def test_a_batch_whose_file_did_not_pass_is_not_closed_and_ends_as_failed(
    desk: Desk, ingest: Ingest, sweeper: Sweeper
) -> None:
    batch_id = desk.submit([line("same"), line("same")])
    desk.execute("UPDATE batches SET errors = '[]', expires_at = now()")
    with transaction(desk.sessions) as session:
        assert cancel_batch(session, desk.tenant, batch_id) is None
    assert not sweeper.step()
    assert ingest.step()
    assert desk.status(batch_id) is BatchStatus.FAILED


def test_a_stopped_batch_keeps_what_is_done_and_fails(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper
) -> None:
    batch_id = submitted(desk, ingest, lines(5))
    desk.answer(batch_id, count=2)
    error = LineError("too_many_failures", "Stopped.")
    with transaction(desk.sessions) as session:
        assert stop_batch(session, batch_id, error)
    assert not finalize.step(), "open jobs are swept first"
    sweeper.step()
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.completed, batch.failed) == (BatchStatus.FAILED, 2, 3)
    assert (batch.errors, batch.failed_at is None) == ((error,), False)
    assert desk.ids(batch.output_file_id) == ["r1", "r2"]
    rows = desk.result_lines(batch.error_file_id)
    assert {(row["response"], row["error"]["code"]) for row in rows} == {(None, "batch_failed")}


def test_a_small_batch_does_not_wait_behind_a_large_one(desk: Desk, ingest: Ingest) -> None:
    large, small = submitted(desk, ingest, lines(4)), submitted(desk, ingest, lines(3))
    for batch_id in (large, small):
        desk.answer(batch_id)
    beside = Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, most_jobs=3)
    assert beside.step()
    assert not beside.step()
    assert (desk.status(large), desk.status(small)) == (BatchStatus.IN_PROGRESS, BatchStatus.COMPLETED)


def test_an_expired_batch_keeps_what_is_done(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper
) -> None:
    batch_id = submitted(desk, ingest, lines(10))
    desk.answer(batch_id, count=1)
    desk.pass_deadline(batch_id)
    sweeper.step()
    assert finalize.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.completed, batch.failed) == (BatchStatus.EXPIRED, 10, 1, 9)
    assert batch.expired_at is not None
    assert [row["custom_id"] for row in desk.result_lines(batch.output_file_id)] == ["r1"]
    assert [row["error"]["code"] for row in desk.result_lines(batch.error_file_id)] == ["batch_expired"] * 9


def test_a_job_that_comes_back_to_a_closed_batch_is_swept_too(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper
) -> None:
    batch_id = submitted(desk, ingest, lines(2))
    desk.claim(batch_id, count=1)
    desk.cancel(batch_id)
    sweeper.step()
    assert not finalize.step()
    desk.execute("UPDATE jobs SET state = 'ready' WHERE state = 'running'")
    assert sweeper.step()
    assert finalize.step()
    assert desk.counts(batch_id) == (2, 0, 2)


def test_an_image_that_arrives_after_the_sweep_revives_nothing(
    desk: Desk, ingest: Ingest, sweeper: Sweeper
) -> None:
    batch_id = submitted(desk, ingest, [line("r1", [image(URL)])])
    desk.cancel(batch_id)
    sweeper.step()
    desk.fetch()
    assert [job.state for job in desk.jobs(batch_id)] == ["cancelled"]
    assert desk.counts(batch_id) == (1, 0, 1)


@pytest.mark.parametrize("seed", range(4))
def test_each_line_ends_in_exactly_one_file(
    desk: Desk, ingest: Ingest, finalize: Finalize, sweeper: Sweeper, seed: int
) -> None:
    rng = random.Random(seed)
    kinds = [
        lambda n: line(n),
        lambda n: line(n, [image(URL)]),
        lambda n: line(n, n=9),
        lambda n: line(n, []),
    ]
    batch_id = submitted(desk, ingest, [rng.choice(kinds)(f"r{number}") for number in range(30)])
    desk.answer(batch_id, count=rng.randrange(20))
    close = desk.cancel if seed % 2 else desk.pass_deadline
    close(batch_id)
    sweeper.step()
    finalize.step()
    batch = desk.batch(batch_id)
    output, errors = desk.ids(batch.output_file_id), desk.ids(batch.error_file_id)
    assert sorted(output + errors) == sorted(f"r{number}" for number in range(30))
    assert (len(output), len(errors)) == (batch.completed, batch.failed)


def _code(row: dict[str, Any]) -> str:
    return (row["error"] or row["response"]["body"]["error"])["code"]
