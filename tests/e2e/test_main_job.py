"""The main job, end to end: a file through the official SDK, answers and reasons back, whoever dies."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError
from openai.types import Batch

from app.auth import Keys
from app.db import Sessions
from demo.pictures import as_jpeg, draw, product_for
from tests.e2e.conftest import Cluster
from tests.waiting import eventually

ENDED = {"completed", "failed", "expired", "cancelled"}


def picture(seed: int) -> bytes:
    return as_jpeg(draw(product_for(seed, held_out=False), seed))


def line(custom_id: str, cluster: Cluster, *parts: dict[str, Any]) -> dict[str, Any]:
    body = {"model": cluster.settings.served_model, "messages": [{"role": "user", "content": list(parts)}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def text(question: str) -> dict[str, Any]:
    return {"type": "text", "text": question}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def submit(
    cluster: Cluster, lines: Sequence[dict[str, Any]], headers: Mapping[str, str] | None = None
) -> Batch:
    client = cluster.client()
    content = "".join(json.dumps(row) + "\n" for row in lines).encode()
    file = client.files.create(file=("jobs.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_headers=headers,
    )


def ended(cluster: Cluster, batch: Batch, within_s: float = 60) -> Batch:
    client = cluster.client()

    def poll() -> Batch | None:
        now = client.batches.retrieve(batch.id)
        return now if now.status in ENDED else None

    try:
        found = eventually(poll, within_s=within_s)
    except AssertionError as error:
        error.add_note(cluster.logs())
        raise
    assert found is not None
    return found


def rows_of(cluster: Cluster, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(row) for row in cluster.client().files.content(file_id).text.splitlines()]


def answers(cluster: Cluster, batch: Batch) -> dict[str, str]:
    rows = rows_of(cluster, batch.output_file_id)
    return {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}


def codes(cluster: Cluster, batch: Batch) -> dict[str, str]:
    rows = rows_of(cluster, batch.error_file_id)
    return {row["custom_id"]: (row["error"] or row["response"]["body"]["error"])["code"] for row in rows}


@pytest.fixture
def url(cluster: Cluster) -> str:
    """A picture on the test's own host."""
    (cluster.pictures / "a.jpg").write_bytes(picture(1))
    return f"{cluster.pictures_url}/a.jpg"


def test_images_by_every_route_are_answered_and_bad_ones_fail_with_their_reason(
    cluster: Cluster, url: str
) -> None:
    uploaded = cluster.client().files.create(file=("b.jpg", picture(2)), purpose="vision")
    data_url = f"data:image/jpeg;base64,{base64.b64encode(picture(3)).decode()}"
    (cluster.pictures / "page.jpg").write_text("<!doctype html><title>Robot check</title>")
    (cluster.pictures / "cut.jpg").write_bytes(picture(4)[:2000])
    batch = ended(
        cluster,
        submit(
            cluster,
            [
                line("url", cluster, image(url), text("one?")),
                line("file", cluster, image(uploaded.id), text("two?")),
                line("data", cluster, text("three?"), image(data_url)),
                line("text", cluster, text("four?")),
                line("both", cluster, image(url), image(data_url), text("five?")),
                line("gone", cluster, image(f"{cluster.pictures_url}/gone.jpg"), text("?")),
                line("page", cluster, image(f"{cluster.pictures_url}/page.jpg"), text("?")),
                line("cut", cluster, image(f"{cluster.pictures_url}/cut.jpg"), text("?")),
                line(
                    "inside", cluster, image("http://169.254.169.254/latest"), text("?")
                ),  # its port is none, too
            ],
        ),
    )
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed) == (9, 5)
    found = answers(cluster, batch)
    assert list(found) == ["url", "file", "data", "text", "both"]
    assert found["text"] == "four?"
    assert found["both"].split()[1:] == [found["url"].split()[1], found["data"].split()[1]]
    assert codes(cluster, batch) == {
        "gone": "http_404",
        "page": "not_an_image",
        "cut": "truncated",
        "inside": "blocked_url",
    }


def test_counts_only_grow_and_end_at_the_lines_of_the_files(cluster: Cluster) -> None:
    batch = submit(cluster, [line(f"r{number}", cluster, text("?")) for number in range(300)])
    seen = list(_polls(cluster, batch))
    sums = [completed + failed for _, completed, failed in seen]
    assert sums == sorted(sums)
    assert all(total in (0, 300) and completed + failed <= 300 for total, completed, failed in seen)
    last = ended(cluster, batch)
    assert len(answers(cluster, last)) == 300
    assert last.error_file_id is None


def test_output_lines_stand_in_the_order_of_the_input(cluster: Cluster) -> None:
    names = [f"row-{number * 7919 % 200}" for number in range(200)]
    batch = ended(cluster, submit(cluster, [line(name, cluster, text(name)) for name in names]))
    assert answers(cluster, batch) == {name: name for name in names}
    assert list(answers(cluster, batch)) == names


def test_a_direct_job_is_answered_and_polled(cluster: Cluster, url: str) -> None:
    client = cluster.client()
    job: Any = client.post("/jobs", body={"question": "what?", "image": url}, cast_to=object)
    done: Any = eventually(lambda: _job(cluster, job["id"]), within_s=30)
    assert done["status"] == "completed"
    assert done["answer"]["text"].startswith("what? ")


def test_another_tenants_objects_are_not_found(cluster: Cluster, db: Sessions) -> None:
    batch = submit(cluster, [line("r1", cluster, text("?"))])
    stranger = cluster.client(Keys(sessions=db).create(tenant="tenant_b", name="other").secret)
    with pytest.raises(NotFoundError):
        stranger.batches.retrieve(batch.id)
    with pytest.raises(NotFoundError):
        stranger.files.content(batch.input_file_id)
    assert stranger.batches.list().data == []


def test_a_batch_cancelled_before_it_starts_asks_nothing_of_the_model(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    cluster.start("api", "dispatcher")
    batch = submit(cluster, [line(f"r{number}", cluster, text("?")) for number in range(20)])
    eventually(lambda: cluster.client().batches.retrieve(batch.id).status == "in_progress")
    cluster.client().batches.cancel(batch.id)
    cluster.start("worker")
    last = ended(cluster, batch)
    assert (last.status, last.output_file_id) == ("cancelled", None)
    assert set(codes(cluster, last).values()) == {"batch_cancelled"}
    assert cluster.rows.one("SELECT coalesce(sum(attempt), 0) FROM jobs") == 0


def test_a_batch_past_its_window_keeps_what_is_done_and_names_the_rest(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(chunk_jobs=1)
    cluster.start("api", "dispatcher", "worker")
    gate = tmp_path / "gate"
    held = [line(f"r{number}", cluster, text(f"wait for {gate}")) for number in range(9)]
    batch = submit(cluster, [line("done", cluster, text("quick?")), *held])
    eventually(lambda: cluster.rows.counts(batch.id)[1] == 1)
    eventually(lambda: "running" in cluster.rows.states().values())
    cluster.kill("worker")
    cluster.rows.run("UPDATE batches SET expires_at = now()")
    last = ended(cluster, batch)
    assert last.status == "expired"
    assert list(answers(cluster, last)) == ["done"]
    assert set(codes(cluster, last).values()) == {"batch_expired"}
    assert last.request_counts is not None
    assert (last.request_counts.completed, last.request_counts.failed) == (1, 9)


@pytest.mark.parametrize("role", ["dispatcher", "worker", "fetcher"])
def test_killing_a_role_in_the_middle_loses_nothing_and_doubles_nothing(
    cluster: Cluster, url: str, role: str
) -> None:
    lines = [line(f"r{number}", cluster, image(url), text(f"q{number}")) for number in range(400)]
    batch = submit(cluster, lines)
    eventually(lambda: cluster.rows.counts(batch.id)[1] > 10)
    cluster.kill(role)
    cluster.start(role)
    last = ended(cluster, batch, within_s=60)
    found = answers(cluster, last)
    assert {name: answer.split()[0] for name, answer in found.items()} == {
        f"r{number}": f"q{number}" for number in range(400)
    }
    assert cluster.rows.one("SELECT count(*) FROM answers") == 400


def _polls(cluster: Cluster, batch: Batch) -> Iterator[tuple[int, int, int]]:
    client = cluster.client()
    while True:
        now = client.batches.retrieve(batch.id)
        assert now.request_counts is not None
        yield now.request_counts.total, now.request_counts.completed, now.request_counts.failed
        if now.status in ENDED:
            return


def _job(cluster: Cluster, job_id: str) -> Any:
    job: Any = cluster.client().get(f"/jobs/{job_id}", cast_to=object)
    return job if job["status"] in {"completed", "failed"} else None
