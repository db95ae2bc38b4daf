"""A process dies exactly between two lines, and the next one makes good what it left.

docs/architecture.md lists the windows; those that are not here have their test where it says.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.config import Settings
from app.ids import file_key, result_file_id
from app.states import BatchStatus, JobState
from demo.web import serve_folder
from tests.chaos.conftest import Start
from tests.chaos.dying import EXIT_CODE
from tests.chaos.pictures import picture
from tests.desk import PIXEL, Desk, image, line
from tests.rows import Rows
from tests.waiting import eventually

PUBLISH = "app.queue:ChunkSender.send"
PUT = "app.objects:ObjectStore.put"
PUT_STREAM = "app.objects:ObjectStore.put_stream"
BLOCK = 2_000  # lines that ingest adds at a time


def ask(rows: Rows, settings: Settings, question: str, count: int) -> list[int]:
    ids = rows.add_jobs(count, model=settings.served_model)
    prompt = f'{{"turns": [{{"role": "user", "parts": [{{"text": "{question}"}}]}}]}}'
    rows.run("UPDATE jobs SET prompt = :prompt WHERE id = ANY(:ids)", prompt=prompt, ids=ids)
    return ids


def asked(desk: Desk, count: int, *more: str) -> list[str]:
    model = desk.settings.served_model
    return [*(line(f"r{number}", f"q{number}", model=model) for number in range(count)), *more]


def in_state(rows: Rows, state: JobState) -> bool:
    return set(rows.states().values()) == {state}


def each_answered_once(rows: Rows, *, attempts: Sequence[int]) -> bool:
    answers = rows.one("SELECT count(*) FROM answers")
    found = rows.all("SELECT DISTINCT attempt FROM jobs ORDER BY 1")
    return in_state(rows, JobState.COMPLETED) and answers == len(rows.states()) and found == list(attempts)


def test_between_job_rows_and_message(rows: Rows, on_broker: Settings, start: Start) -> None:
    ask(rows, on_broker, "sent?", 3)
    assert start("dispatcher", on_broker, at=f"before {PUBLISH}").ended() == EXIT_CODE
    assert in_state(rows, JobState.READY)
    start("dispatcher", on_broker)
    start("worker", on_broker)
    assert eventually(lambda: each_answered_once(rows, attempts=[1]))


def test_between_message_and_mark(rows: Rows, on_broker: Settings, start: Start) -> None:
    """Both messages arrive, and the second claims nothing."""
    ask(rows, on_broker, "twice?", 3)
    assert start("dispatcher", on_broker, at=f"after {PUBLISH}").ended() == EXIT_CODE
    assert in_state(rows, JobState.READY)
    start("dispatcher", on_broker)
    eventually(lambda: in_state(rows, JobState.QUEUED))
    worker = start("worker", on_broker)
    eventually(lambda: worker.output().count('"chunk_claimed"') == 2)
    assert eventually(lambda: each_answered_once(rows, attempts=[1]))


def test_between_claim_and_record(rows: Rows, on_broker: Settings, start: Start) -> None:
    ask(rows, on_broker, "again?", 3)
    start("dispatcher", on_broker)
    dying = start("worker", on_broker, at="before workers.runner:Runner._outcomes")
    assert dying.ended() == EXIT_CODE
    assert in_state(rows, JobState.RUNNING)
    start("worker", on_broker)
    assert eventually(lambda: each_answered_once(rows, attempts=[2]))


def test_between_record_and_ack(rows: Rows, on_broker: Settings, start: Start) -> None:
    ask(rows, on_broker, "once?", 3)
    start("dispatcher", on_broker)
    assert start("worker", on_broker, at="after workers.runner:Runner.run").ended() == EXIT_CODE
    assert in_state(rows, JobState.COMPLETED)
    worker = start("worker", on_broker)
    ask(rows, on_broker, "another?", 1)
    assert eventually(lambda: each_answered_once(rows, attempts=[1]))
    assert worker.running()


def test_between_lost_lease_and_late_answer(
    rows: Rows, on_broker: Settings, start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ask(rows, on_broker, f"wait for {gate}", 3)
    start("dispatcher", on_broker)
    frozen = start("worker", on_broker)
    eventually(lambda: in_state(rows, JobState.RUNNING))
    frozen.pause()
    gate.touch()
    start("worker", on_broker)
    eventually(lambda: each_answered_once(rows, attempts=[2]))
    frozen.resume()
    eventually(lambda: frozen.says("chunk_recorded"))
    assert '"dropped": 3' in frozen.output()
    assert each_answered_once(rows, attempts=[2])


def test_frozen_inside_a_transaction(rows: Rows, hasty: Settings, start: Start) -> None:
    """Its locks, on the batch's row too, hold up nobody for long."""
    rows.add_batch()
    rows.add_jobs(3, batch_id="batch_1", model=hasty.served_model)
    frozen = start("worker", hasty, at="after app.store.records:record_answers", by="freeze")
    start("dispatcher", hasty)
    eventually(frozen.stopped, within_s=40)
    start("worker", hasty)
    assert eventually(lambda: each_answered_once(rows, attempts=[2]), within_s=60)
    assert frozen.stopped()
    assert rows.counts() == (3, 3, 0)


def test_between_blocks_of_lines(desk: Desk, rows: Rows, hasty: Settings, start: Start) -> None:
    picture_line = line("last", [image(PIXEL)], model=hasty.served_model)
    batch_id = desk.submit(asked(desk, BLOCK, picture_line))
    assert start("dispatcher", hasty, at=f"before {PUT}", on="images/").ended() == EXIT_CODE
    assert len(desk.jobs(batch_id)) == BLOCK
    start("dispatcher", hasty)
    eventually(lambda: desk.status(batch_id) is BatchStatus.IN_PROGRESS)
    assert [job.line for job in desk.jobs(batch_id)] == list(range(1, BLOCK + 2))


def test_between_image_bytes_and_image_row(rows: Rows, hasty: Settings, start: Start, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(picture(1))
    with serve_folder(tmp_path) as port:
        near = hasty.model_copy(update={"fetch_allow_hosts": ("127.0.0.1",), "fetch_ports": (port,)})
        wait_for_image(rows, f"http://127.0.0.1:{port}/a.jpg", near)
        assert start("fetcher", near, at=f"after {PUT}", on="images/").ended() == EXIT_CODE
        assert in_state(rows, JobState.WAITING)
        rows.run("UPDATE images SET due_at = now()")  # as when the dead one's lease has run out
        start("fetcher", near)
        assert eventually(lambda: in_state(rows, JobState.READY))
    assert rows.all("SELECT state FROM images") == ["stored"]


def test_between_last_answer_and_file(desk: Desk, hasty: Settings, start: Start) -> None:
    batch_id = desk.submit(asked(desk, 3, "no request"))
    start("worker", hasty)
    assert start("dispatcher", hasty, at=f"before {PUT_STREAM}", on="-output").ended() == EXIT_CODE
    assert desk.status(batch_id) is BatchStatus.FINALIZING
    assert desk.objects.head(key_of(desk, batch_id, "output")) is None
    start("dispatcher", hasty)
    eventually(lambda: desk.status(batch_id) is BatchStatus.COMPLETED)
    assert desk.ids(desk.batch(batch_id).output_file_id) == ["r0", "r1", "r2"]
    assert len(desk.result_lines(desk.batch(batch_id).error_file_id)) == 1


@pytest.mark.parametrize("part", ["output", "error"])
def test_between_file_and_mark(desk: Desk, hasty: Settings, start: Start, part: str) -> None:
    batch_id = desk.submit(asked(desk, 3, "no request"))
    start("worker", hasty)
    assert start("dispatcher", hasty, at=f"after {PUT_STREAM}", on=f"-{part}").ended() == EXIT_CODE
    assert desk.status(batch_id) is BatchStatus.FINALIZING
    first = desk.objects.get(key_of(desk, batch_id, part), max_bytes=10_000)
    start("dispatcher", hasty)
    eventually(lambda: desk.status(batch_id) is BatchStatus.COMPLETED)
    assert desk.objects.get(key_of(desk, batch_id, part), max_bytes=10_000) == first
    assert desk.ids(desk.batch(batch_id).output_file_id) == ["r0", "r1", "r2"]


def key_of(desk: Desk, batch_id: str, part: str) -> str:
    return file_key(desk.tenant, result_file_id(batch_id, part))


def wait_for_image(rows: Rows, url: str, settings: Settings) -> None:
    """A direct job that waits for the picture under this address."""
    rows.add_tenant()
    image_id = rows.one(
        "INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, host, state)"
        " VALUES ('tenant_a', 'url', :url, :url, '127.0.0.1', 'pending') RETURNING id",
        url=url,
    )
    (job_id,) = rows.add_jobs(
        1, model=settings.served_model, state="waiting", image_ids=[image_id], waiting_on=1
    )
    rows.run("INSERT INTO job_waits (image_id, job_id) VALUES (:image, :job)", image=image_id, job=job_id)
