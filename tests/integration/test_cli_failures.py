"""`vqueue failures`, `vqueue retry` and `vqueue results`, against a real database, broker and API."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing

import pytest
from celery import Celery
from pydantic import SecretStr

from app.batches import Brake
from app.cli.failures import newest, tables
from app.config import Settings
from app.db import Sessions
from app.failures import FailureDesk
from app.limits import Limits
from app.queue import ChunkSender, count_dead, dead_queue, make_celery
from app.retrying import Retries
from tests.rows import Rows
from tests.serving import new_key


@pytest.fixture
def rows(db: Sessions) -> Rows:
    """Three jobs of an ended batch: one is answered, and two failed of different things."""
    rows = Rows(db)
    rows.add_batch()
    ids = rows.add_jobs(4, batch_id="batch_1")
    rows.complete(ids[0])
    rows.fail(*ids[1:3], code="http_403")
    rows.fail(ids[3], code="out_of_memory")
    rows.run("UPDATE batches SET status = 'completed', ended_at = now()")
    return rows


@pytest.fixture
def desk(db: Sessions) -> FailureDesk:
    limits = Limits(sessions=db, backlog_max_jobs=10**6, disk_min_free_bytes=0, data_dir=None)
    return FailureDesk(sessions=db, retries=Retries(sessions=db, limits=limits, brake=Brake(None, 100)))


def run(settings: Settings, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VQUEUE_DATABASE_URL": settings.database_url.get_secret_value()} | more
    whole = [sys.executable, "-m", "app.cli.main", *command]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)


def listed(settings: Settings, *options: str) -> list[str]:
    """The batches that `vqueue failures` names in a pipe."""
    done = run(settings, "failures", *options)
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_batches_with_failures_are_lines_in_a_pipe(settings: Settings, rows: Rows) -> None:
    rows.add_batch("batch_2")
    rows.complete(*rows.add_jobs(1, batch_id="batch_2"))
    done = run(settings, "failures")
    assert done.stdout == "batch_1\ttenant_a\tcompleted\t4\t3\t3\thttp_403\n"


def test_only_what_a_retry_would_take_now_is_in_a_pipe(settings: Settings, rows: Rows) -> None:
    for name, status in (("batch_2", "in_progress"), ("batch_3", "cancelled")):
        rows.add_batch(name)
        rows.fail(*rows.add_jobs(1, batch_id=name))
        rows.run("UPDATE batches SET status = :status WHERE id = :id", id=name, status=status)
    rows.run("DELETE FROM batch_errors WHERE batch_id = 'batch_3'")  # its job never ran
    assert listed(settings) == ["batch_1"]
    assert listed(settings, "batch_2", "batch_1") == ["batch_2", "batch_1"]


def test_what_was_retried_is_left_out_of_a_pipe_and_so_is_its_retry_while_it_runs(
    settings: Settings, desk: FailureDesk, rows: Rows
) -> None:
    made = run(settings, "retry", "batch_1").stdout.strip()
    assert listed(settings) == []
    assert f"retried as {made}" in "\n".join(tables(desk.recent(within_s=60), with_jobs=False))
    rows.run("UPDATE batches SET status = 'failed' WHERE id = :id", id=made)
    assert listed(settings) == ["batch_1"], "a retry that had no job is none"


def test_a_pipe_has_all_and_a_terminal_says_what_it_cut(
    settings: Settings, desk: FailureDesk, rows: Rows
) -> None:
    for number in range(2, 23):
        rows.add_batch(f"batch_{number}")
        rows.fail(*rows.add_jobs(1, batch_id=f"batch_{number}"))
    rows.run("UPDATE batches SET status = 'completed'")
    assert len(listed(settings)) == 22
    assert len(listed(settings, "--last", "3")) == 3
    shown = newest(desk.recent(within_s=60), 20, with_jobs=False)
    assert shown[-1] == "2 older batches are not shown: --last shows more."
    assert newest(desk.recent(within_s=60), 22, with_jobs=False)[-1].startswith("batch_")


def test_failures_are_chosen_by_code_and_by_whether_they_may_pass(settings: Settings, rows: Rows) -> None:
    rows.add_batch("batch_2")
    rows.fail(*rows.add_jobs(1, batch_id="batch_2"), code="http_404")
    rows.run("UPDATE batches SET status = 'completed'")
    assert listed(settings, "--code", "http_404") == ["batch_2"]
    assert listed(settings, "--passing") == ["batch_1"]
    assert listed(settings, "--passing", "--code", "http_404") == []


def test_a_batch_that_is_not_there_is_said_so(settings: Settings, rows: Rows) -> None:
    done = run(settings, "failures", "batch_nope", "batch_1")
    assert (done.returncode, done.stderr) == (1, "There is no batch batch_nope.\n")
    assert done.stdout.startswith("batch_1\t")


def test_failed_jobs_are_retried_once_unless_more_is_asked_for(settings: Settings, rows: Rows) -> None:
    first = run(settings, "retry", "batch_1")
    assert (first.returncode, first.stdout.startswith("batch_")) == (0, True)
    again = run(settings, "retry", "batch_1", "batch_0")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"already, as {first.stdout.strip()}: --again" in again.stderr
    assert again.stderr.endswith("There is no batch batch_0.\n")
    (made,) = rows.table("SELECT id, tenant_id, retry_of FROM batches WHERE retry_of IS NOT NULL")
    assert tuple(made) == (first.stdout.strip(), "tenant_a", "batch_1")
    more = run(settings, "retry", "batch_1", "--again")
    assert (more.returncode, more.stdout not in ("", first.stdout)) == (0, True)


def test_a_retry_keeps_to_the_quota_that_tenants_have_by_default(settings: Settings, rows: Rows) -> None:
    done = run(settings, "retry", "batch_1", VQUEUE_QUOTA_QUEUED_JOBS="2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "may have 2: there is no room for 3 more" in done.stderr
    assert run(settings, "retry", "batch_1", VQUEUE_QUOTA_QUEUED_JOBS="3").returncode == 0


def test_what_cannot_be_retried_says_why(settings: Settings, rows: Rows) -> None:
    done = run(settings, "retry", "batch_1", "--state", "expired")
    assert done.returncode == 1
    assert "--state failed takes 3." in done.stderr
    unknown = run(settings, "retry", "batch_1", "--state", "running")
    assert unknown.returncode == 2
    assert re.findall(r"'(\w+)'", unknown.stderr) == ["running", "failed", "expired", "cancelled"]
    rows.run("UPDATE batches SET status = 'in_progress'")
    assert "its status is in_progress" in run(settings, "retry", "batch_1").stderr


def test_codes_come_with_their_fault_and_an_example(desk: FailureDesk, rows: Rows) -> None:
    rows.run("UPDATE jobs SET error_message = 'x', worker = 'w7' WHERE line = 2")
    codes, batches, jobs = _paragraphs(tables(desk.of(["batch_1"]), with_jobs=True))
    assert [line.split() for line in codes[1:]] == [
        ["http_403", "2", "theirs", "no"],
        ["out_of_memory", "1", "ours", "may"],
    ]
    assert batches[1].split() == ["batch_1", "tenant_a", "completed", "4", "3", "3", "http_403"]
    assert jobs[1].split() == ["batch_1", "http_403", "2", "2", "1", "0", "w7", "http_403!"]


def test_what_a_terminal_would_obey_is_not_printed(desk: FailureDesk, rows: Rows) -> None:
    rows.run("UPDATE batch_errors SET message = E'\\x1b[2J a\\nb' WHERE code = 'http_403'")
    shown = "\n".join(tables(desk.recent(within_s=60), with_jobs=True))
    assert "?[2J a b" in shown


def test_no_failures_are_said_so(desk: FailureDesk, db: Sessions) -> None:
    assert tables(desk.recent(within_s=60), with_jobs=False) == ["No batch has failed jobs."]


def test_chunks_that_rabbitmq_put_aside_are_counted(settings: Settings, rabbitmq_url: str) -> None:
    chosen = settings.model_copy(update={"broker_url": SecretStr(rabbitmq_url)})
    assert count_dead(chosen) == 0
    with Celery(broker=rabbitmq_url).connection_for_write() as connection, connection.channel() as channel:
        queue = dead_queue().bind(channel)
        queue.declare()
        connection.Producer(channel).publish({}, exchange=queue.exchange)
        assert count_dead(chosen) == 1
    with closing(ChunkSender(celery=make_celery(chosen), amqp=True)) as sender:
        assert sender.dead() == 1
    assert count_dead(settings) is None, "Valkey puts none aside"


def test_results_are_json_lines(api_url: str, db: Sessions, settings: Settings) -> None:
    key = new_key(db)
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    ids = rows.add_jobs(3, batch_id="batch_1")
    rows.fail(ids[1])
    rows.complete(ids[0], ids[2], text="caf\u00e9\u2028")
    done = run(settings, "results", "batch_1", "--follow", VQUEUE_URL=f"{api_url}/v1", VQUEUE_API_KEY=key)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert [(line["seq"], line["custom_id"]) for line in lines] == [(1, "r2"), (2, "r1"), (3, "r3")]
    assert "caf\u00e9\\u2028" in done.stdout
    wrong = run(settings, "results", "batch_2", VQUEUE_URL=f"{api_url}/v1", VQUEUE_API_KEY=key)
    assert (wrong.returncode, "No batch found" in wrong.stderr) == (1, True)


def test_following_goes_on_until_the_last_job(api_url: str, db: Sessions, settings: Settings) -> None:
    key = new_key(db)
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    first, second = rows.add_jobs(2, batch_id="batch_1")
    rows.complete(first)
    environment = os.environ | {"VQUEUE_URL": f"{api_url}/v1", "VQUEUE_API_KEY": key}
    command = [sys.executable, "-m", "app.cli.main", "results", "batch_1", "--follow"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["custom_id"] == "r1"
        rows.complete(second)
        assert [json.loads(line)["custom_id"] for line in follower.stdout] == ["r2"]
    assert follower.returncode == 0


def _paragraphs(lines: list[str]) -> list[list[str]]:
    return [part.split("\n") for part in "\n".join(lines).split("\n\n")]
