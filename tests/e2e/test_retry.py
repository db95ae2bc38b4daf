"""Failed jobs are tried again, end to end: results while they run, a retry, and the brake."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai.types import Batch

from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import answers, codes, ended, image, line, picture, submit, text

# What is tested here never meets the broker.
pytestmark = pytest.mark.parametrize("broker_url", ["redis"], indirect=True)


def retry(cluster: Cluster, batch: Batch) -> Batch:
    return cluster.client().post(f"/batches/{batch.id}/retry", cast_to=Batch)


def results(cluster: Cluster, batch: Batch) -> list[dict[str, Any]]:
    """All that a client reads who polls until the last job."""
    seen: list[dict[str, Any]] = []
    done = False
    with httpx.Client(headers={"Authorization": f"Bearer {cluster.key}"}) as http:
        while not done:
            url = f"{cluster.client().base_url}batches/{batch.id}/results"
            page = http.get(url, params={"after": len(seen), "limit": 7}).json()
            seen += page["data"]
            done = page["ended"] and not page["has_more"]
    return seen


def test_results_are_read_while_they_come(cluster: Cluster) -> None:
    batch = submit(cluster, [line(f"r{number}", cluster, text(f"q{number}")) for number in range(200)])
    seen = results(cluster, batch)
    assert [result["seq"] for result in seen] == list(range(1, 201))
    last = ended(cluster, batch)
    assert {
        result["custom_id"]: result["response"]["body"]["choices"][0]["message"]["content"] for result in seen
    } == answers(cluster, last)


def test_pictures_that_were_missing_are_had_by_a_retry(cluster: Cluster) -> None:
    url = f"{cluster.pictures_url}/late.jpg"
    lines = [
        line("late", cluster, image(url), text("one?")),
        line("there", cluster, text("two?")),
        line("never", cluster, image(f"{cluster.pictures_url}/never.jpg"), text("three?")),
    ]
    first = ended(cluster, submit(cluster, lines))
    assert codes(cluster, first) == {"late": "http_404", "never": "http_404"}
    (cluster.pictures / "late.jpg").write_bytes(picture(7))
    second = ended(cluster, retry(cluster, first))
    assert second.model_dump()["vqueue"]["retry_of"] == first.id
    assert list(answers(cluster, second)) == ["late"]
    assert codes(cluster, second) == {"never": "http_404"}
    assert ended(cluster, first) == first


def test_a_batch_that_fails_wholesale_is_stopped(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(window_jobs=4, brake_share=0.5, brake_after=3)
    cluster.start("api", "dispatcher", "fetcher")
    gone = [
        line(f"gone{number}", cluster, image(f"{cluster.pictures_url}/{number}.jpg"), text("?"))
        for number in range(30)
    ]
    batch = submit(cluster, [*gone, *(line(f"r{number}", cluster, text("?")) for number in range(14))])
    last = ended(cluster, batch)
    assert last.status == "failed"
    assert last.errors is not None
    assert last.errors.data is not None
    assert [error.code for error in last.errors.data] == ["too_many_failures"]
    found = codes(cluster, last)
    assert len(found) == 44
    assert set(found.values()) == {"http_404", "batch_failed"}
