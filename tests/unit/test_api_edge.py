"""The layer around every request."""

import asyncio

import httpx
import pytest
from prometheus_client import REGISTRY
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from app.routes.edge import Edge
from app.routes.errors import Answering


def without_pages(*_: object) -> None:
    return None


def edge(app: ASGIApp, most: int = 10) -> Edge:
    return Edge(app, Answering(without_pages), most_at_once=most)


def ask(edge: Edge, path: str = "/") -> httpx.Response:
    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=edge)) as client:
            return await client.get(f"http://api{path}")

    return asyncio.run(call())


async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError("SECRET")


async def breaks_halfway(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ZeroDivisionError


async def client_leaves(scope: Scope, receive: Receive, send: Send) -> None:
    raise ClientDisconnect


def test_a_fault_is_a_500_with_an_id_and_without_details() -> None:
    answer = ask(edge(breaks))
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "SECRET" not in answer.text


def test_a_fault_in_the_middle_of_an_answer_cuts_it_off() -> None:
    with pytest.raises(ZeroDivisionError):
        ask(edge(breaks_halfway))


def test_a_fault_is_counted() -> None:
    labels = {"method": "GET", "route": "unknown", "status": "500"}
    before = REGISTRY.get_sample_value("vqueue_http_seconds_count", labels) or 0
    ask(edge(breaks))
    assert REGISTRY.get_sample_value("vqueue_http_seconds_count", labels) == before + 1


def test_a_client_that_leaves_is_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):  # nobody is there to answer
        ask(edge(client_leaves))
    assert "status=499" in capfd.readouterr().out


def test_a_nul_in_the_url_goes_no_further() -> None:
    answer = ask(edge(breaks), "/a%00b")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_url")


@pytest.mark.parametrize(("path", "status"), [("/v1/batches", 503), ("/healthz", 200)])
def test_more_at_once_than_there_is_room_for_are_told_to_come_back(path: str, status: int) -> None:
    """Probes are answered all the same: a busy process is none to be killed."""

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    answer = ask(edge(answers, most=0), path)
    assert answer.status_code == status
    if status == 503:
        assert answer.json()["error"]["code"] == "unavailable"
        assert answer.headers["retry-after"] == "1"


def test_a_request_that_has_ended_makes_room(capfd: pytest.CaptureFixture[str]) -> None:
    full = edge(breaks, most=1)
    assert [ask(full).status_code for _ in range(3)] == [500, 500, 500]
