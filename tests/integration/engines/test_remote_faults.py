"""What a remote server does wrong, and how many it is asked at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.errors import FatalWork, InvalidWork, TransientWork, WorkError
from tests.openai_server import openai_app
from tests.processes import free_port
from tests.requests import ask, picture
from tests.serving import serving
from tests.waiting import eventually
from workers.engine.base import Answer, Engine, Request, Silent
from workers.engine.fake import FakeEngine
from workers.engine.openai import RemoteEngine

MODELS = {"data": [{"id": "m", "owned_by": "vllm", "root": "/weights/m"}]}
Open = Callable[..., RemoteEngine]


@pytest.fixture
def open_remote() -> Iterator[Open]:
    """A remote engine at a URL or at an app that is served for it."""
    with ExitStack() as stack:

        def open_one(
            where: str | Starlette,
            *,
            model: str = "m",
            concurrency: int = 4,
            api_key: str | None = None,
            revision: str | None = None,
        ) -> RemoteEngine:
            url = where if isinstance(where, str) else stack.enter_context(serving(where))
            engine = RemoteEngine(
                name="mine",
                model=model,
                url=f"{url}/v1",
                observer=Silent(),
                max_pixels=12 * 32 * 32,
                concurrency=concurrency,
                timeout_s=20,
                api_key=api_key,
                revision=revision,
            )
            return stack.enter_context(closing(engine))

        yield open_one


def server(reply: Response) -> Starlette:
    """Lists the model `m`, and answers every question with this."""

    async def models(request: HttpRequest) -> Response:
        return JSONResponse(MODELS)

    async def complete(request: HttpRequest) -> Response:
        return reply

    return Starlette(
        routes=[Route("/v1/models", models), Route("/v1/chat/completions", complete, methods=["POST"])]
    )


def error_of(engine: Engine) -> WorkError:
    with pytest.raises(WorkError) as caught:
        engine.submit(ask(picture(1), "colour?")).result(timeout=20)
    return caught.value


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (JSONResponse({"error": {"message": "busy"}}, 503), TransientWork, "server_busy"),
        (JSONResponse({"error": {"message": "no"}}, 401), FatalWork, "server_refused"),
        (JSONResponse({"message": "context length is 9"}, 400), InvalidWork, "context_length_exceeded"),
        (Response("<html>", 200), FatalWork, "bad_reply"),
        (JSONResponse({"choices": []}), FatalWork, "bad_reply"),
    ],
)  # fmt: skip
def test_a_server_s_fault_is_one_of_ours(
    open_remote: Open, reply: Response, kind: type[WorkError], code: str
) -> None:
    error = error_of(open_remote(server(reply)))
    assert (type(error), error.code) == (kind, code)


def test_a_busy_server_s_delay_is_kept(open_remote: Open) -> None:
    error = error_of(open_remote(server(JSONResponse({}, 429, headers={"Retry-After": "7"}))))
    assert isinstance(error, TransientWork)
    assert error.retry_after_s == 7


def test_a_server_that_went_away_may_come_back(open_remote: Open) -> None:
    with serving(server(JSONResponse({}))) as url:
        engine = open_remote(url)
    error = error_of(engine)
    assert (type(error), error.code) == (TransientWork, "server_unreachable")


def test_a_server_that_is_away_at_the_start_is_told(open_remote: Open) -> None:
    with pytest.raises(TransientWork, match="server_unreachable"):
        open_remote(f"http://127.0.0.1:{free_port()}")


def test_a_model_that_the_server_has_not_is_refused(open_remote: Open) -> None:
    with pytest.raises(FatalWork, match=r"model_not_found: .*'other'.*m"):
        open_remote(server(JSONResponse({})), model="other")


def test_a_revision_is_what_the_server_says_or_the_setting(open_remote: Open) -> None:
    app = server(JSONResponse({}))
    assert open_remote(app).revision == "remote:/weights/m"
    assert open_remote(app, revision="2026-11").revision == "2026-11"


def test_the_key_is_sent(open_remote: Open) -> None:
    seen: list[str | None] = []

    async def models(request: HttpRequest) -> Response:
        seen.append(request.headers.get("Authorization"))
        return JSONResponse(MODELS)

    open_remote(Starlette(routes=[Route("/v1/models", models)]), api_key="secret")
    assert seen == ["Bearer secret"]


def test_no_more_are_asked_at_once_than_the_setting_allows(open_remote: Open) -> None:
    gate, behind = threading.Event(), 0
    most = 0

    async def models(request: HttpRequest) -> Response:
        return JSONResponse(MODELS)

    async def complete(request: HttpRequest) -> Response:
        nonlocal behind, most
        behind += 1
        most = max(most, behind)
        await asyncio.to_thread(gate.wait, 20)
        behind -= 1
        return JSONResponse({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]})

    app = Starlette(
        routes=[Route("/v1/models", models), Route("/v1/chat/completions", complete, methods=["POST"])]
    )
    engine = open_remote(app, concurrency=2)
    futures = [engine.submit(ask(f"{number}")) for number in range(6)]
    eventually(lambda: behind == 2)
    gate.set()
    assert [future.result(timeout=20).text for future in futures] == ["x"] * 6
    assert most == 2


def test_only_a_picture_over_the_budget_is_resized(open_remote: Open) -> None:
    with closing(FakeEngine(model="m")) as behind:
        engine = open_remote(openai_app(behind))
        engine.submit(ask(picture(1, 400, 300), picture(2, 33, 21), "which?")).result(timeout=20)
        sizes = [(image.width, image.height) for image in behind.submitted[0].images]
    assert sizes == [(128, 96), (33, 21)]


class Remembering(FakeEngine):
    """Keeps what became of every request."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__(model="m", gate=gate)
        self.futures: list[Future[Answer]] = []

    def submit(self, request: Request) -> Future[Answer]:
        self.futures.append(super().submit(request))
        return self.futures[-1]


def test_a_cancelled_request_is_dropped_at_the_server_too(open_remote: Open) -> None:
    gate = threading.Event()
    with closing(Remembering(gate)) as behind:
        engine = open_remote(openai_app(behind))
        first = engine.submit(ask("one"))
        eventually(lambda: behind.joined)
        second = engine.submit(ask("two"))
        eventually(lambda: len(behind.futures) == 2)
        second.cancel()
        eventually(behind.futures[1].cancelled)
        gate.set()
        assert first.result(timeout=20).text == "one"
    assert len(behind.joined) == 1
