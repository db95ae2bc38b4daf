"""A request sent twice with one Idempotency-Key makes one file or one job, also when both race."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.retention import Retention
from tests.desk import Desk
from tests.rows import Rows

KEY = {"Idempotency-Key": "night-1"}
Post = Callable[..., httpx.Response]


def upload(http: httpx.Client, content: bytes = b"{}\n", *, name: str = "in.jsonl", **headers: str) -> str:
    answer = _upload(http, content, name=name, headers=headers or KEY)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def _upload(http: httpx.Client, content: bytes, *, name: str, headers: dict[str, str]) -> httpx.Response:
    files = {"purpose": (None, "batch"), "file": (name, content)}
    return http.post("/v1/files", files=files, headers=headers)


def ask(http: httpx.Client, question: str = "why?", headers: dict[str, str] | None = None) -> httpx.Response:
    return http.post("/v1/jobs", json={"question": question}, headers=KEY if headers is None else headers)


def test_a_job_that_is_posted_again_is_the_same_job(http: httpx.Client, desk: Desk) -> None:
    first, second = ask(http), ask(http)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert desk.count("jobs") == 1


def test_without_a_key_there_are_two_jobs(http: httpx.Client, desk: Desk) -> None:
    ask(http, headers={})
    ask(http, headers={})
    assert desk.count("jobs") == 2


def test_jobs_that_race_are_one(http: httpx.Client, desk: Desk) -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda _: ask(http).json()["id"], range(24)))
    assert (len(ids), desk.count("jobs")) == (1, 1)


def test_a_key_for_another_job_is_a_conflict_for_good(http: httpx.Client) -> None:
    ask(http)
    refused = ask(http, "why not?")
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
    assert refused.json()["error"]["code"] == "idempotency_key_reused"


def test_a_file_that_is_sent_again_is_the_same_file(http: httpx.Client, desk: Desk) -> None:
    first, second = upload(http), upload(http)
    assert (second, desk.count("files")) == (first, 1)
    assert http.get(f"/v1/files/{first}/content").content == b"{}\n"


def test_the_bytes_of_the_second_upload_are_let_go(http: httpx.Client, desk: Desk) -> None:
    upload(http)
    before = list(desk.objects.keys("files/", bucket=desk.objects.bucket))
    upload(http)
    assert list(desk.objects.keys("files/", bucket=desk.objects.bucket)) == before


def test_files_that_race_are_one(http: httpx.Client, desk: Desk) -> None:
    with ThreadPoolExecutor(4) as threads:
        ids = set(threads.map(lambda _: upload(http), range(8)))
    assert (len(ids), desk.count("files")) == (1, 1)


@pytest.mark.parametrize(("content", "name"), [(b"{ }\n", "in.jsonl"), (b"{}\n", "other.jsonl")])
def test_a_key_for_another_file_is_a_conflict(http: httpx.Client, content: bytes, name: str) -> None:
    upload(http)
    refused = _upload(http, content, name=name, headers=KEY)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")


def test_a_file_and_a_job_may_have_one_key(http: httpx.Client, desk: Desk) -> None:
    upload(http)
    ask(http)
    assert (desk.count("files"), desk.count("jobs")) == (1, 1)


def test_a_key_is_free_again_when_what_it_made_is_deleted(http: httpx.Client) -> None:
    first = upload(http)
    http.delete(f"/v1/files/{first}")
    assert upload(http) != first


def test_a_key_counts_for_a_day_and_is_removed_then(http: httpx.Client, desk: Desk) -> None:
    first = upload(http)
    Rows(desk.sessions).run("UPDATE idempotency_keys SET created_at = now() - interval '25 hours'")
    Retention(sessions=desk.sessions, settings=desk.settings).step()
    assert desk.count("idempotency_keys") == 0
    assert upload(http) != first
