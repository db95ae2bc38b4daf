"""Chat completions by the official SDK against the real app, Postgres and Redis, and a worker in the test."""

import asyncio
import base64
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count

import httpx
import PIL.Image
import pytest
from openai import (
    APIError,
    AsyncOpenAI,
    BadRequestError,
    InternalServerError,
    OpenAI,
    RateLimitError,
)
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import BaseModel, SecretStr
from redis import Redis

from app.config import Settings
from app.db import Sessions
from app.errors import InvalidWork, TransientWork
from app.main import build_app, wire
from tests.chatting import working
from tests.processes import free_port
from tests.rows import Rows
from tests.serving import sdk, serving
from tests.waiting import eventually
from workers.engine.base import Answer, JsonSchema, Note, Request, TokenLogprob, Usage
from workers.engine.fake import FakeEngine

Start = Callable[[FakeEngine], FakeEngine]


class Mug(BaseModel):
    colour: str


class Endless:
    """An engine that answers nothing, until it is told that nobody wants the answer."""

    model = "demo"
    revision = "endless-1"
    number_format = "none"

    def __init__(self) -> None:
        self.answers: list[Future[Answer]] = []

    def submit(self, request: Request) -> Future[Answer]:
        answer: Future[Answer] = Future()
        answer.add_done_callback(lambda it: it.set_running_or_notify_cancel())
        self.answers.append(answer)
        return answer

    def close(self) -> None:
        for answer in self.answers:
            answer.cancel()


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def start(db: Sessions, settings: Settings) -> Iterator[Start]:
    """Starts a worker around an engine, until the test ends."""
    with ExitStack() as stack:

        def start(engine: FakeEngine) -> FakeEngine:
            stack.enter_context(working(db, settings, engine))
            return engine

        yield start


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_question_is_answered_on_the_line(start: Start, client: OpenAI, rows: Rows) -> None:
    start(FakeEngine())
    answer = client.chat.completions.create(model="demo", messages=user("what is it?"))
    assert answer.choices[0].message.content == "what is it?"
    assert (answer.choices[0].finish_reason, answer.model, answer.object) == (
        "stop",
        "demo",
        "chat.completion",
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    assert rows.all("SELECT priority || ' ' || state FROM jobs") == ["interactive completed"]


def test_a_picture_that_comes_along_is_shown_to_the_model(start: Start, client: OpenAI) -> None:
    engine = start(FakeEngine())
    out = io.BytesIO()
    PIL.Image.new("RGB", (64, 48), "red").save(out, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}],
    )
    assert [len(request.images) for request in engine.joined] == [1]
    assert engine.joined[0].urgent


def test_the_text_comes_while_the_engine_says_it(start: Start, client: OpenAI) -> None:
    gate = threading.Event()
    start(FakeEngine(pieces=lambda _: _held("red and ", gate, "blue")))
    stream = client.chat.completions.create(model="demo", messages=user("red and blue"), stream=True)
    chunks = [next(stream), next(stream)]
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None]
    assert text_of(chunks) == "red and "
    gate.set()
    rest = list(stream)
    assert text_of(rest) == "blue"
    assert [chunk.choices[0].finish_reason for chunk in rest] == [None, "stop"]


def test_usage_comes_last_where_it_is_asked_for(start: Start, client: OpenAI) -> None:
    start(FakeEngine())
    *chunks, last = client.chat.completions.create(
        model="demo", messages=user("what is it?"), stream=True, stream_options={"include_usage": True}
    )
    assert text_of(chunks) == "what is it?"
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 3


def test_what_is_known_at_the_end_comes_with_the_finish_reason(start: Start, client: OpenAI) -> None:
    logprobs = (TokenLogprob("red", -0.5, (("blue", -1.0),)),)
    start(FakeEngine(answer=lambda _: Answer("red", "length", Usage(5, 1), logprobs, (Note.REPETITION,))))
    chunks = list(
        client.chat.completions.create(
            model="demo", messages=user("?"), stream=True, logprobs=True, top_logprobs=1
        )
    )
    (choice,) = chunks[-1].choices
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert [token.token for token in choice.logprobs.content or ()] == ["red"]
    assert chunks[-1].model_extra == {"vqueue": {"notes": ["repetition"]}}
    assert chunks[-1].system_fingerprint == "fake-1"


def test_the_helper_of_the_sdk_gathers_a_stream(start: Start, client: OpenAI) -> None:
    start(FakeEngine())
    with client.chat.completions.stream(
        model="demo", messages=user("what is it?"), stream_options={"include_usage": True}
    ) as stream:
        whole = stream.get_final_completion()
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("what is it?", "stop")
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 3


def test_an_answer_in_a_form_is_read_by_the_sdk(start: Start, client: OpenAI) -> None:
    engine = start(FakeEngine(answer=lambda _: '{"colour": "red"}'))
    answer = client.chat.completions.parse(model="demo", messages=user("?"), response_format=Mug)
    assert answer.choices[0].message.parsed == Mug(colour="red")
    assert isinstance(engine.joined[0].constraint, JsonSchema)


def test_many_lines_are_held_at_once_and_each_hears_its_own(start: Start, api_url: str, api_key: str) -> None:
    start(FakeEngine(rows=8))
    answers = asyncio.run(_ask_at_once(api_url, api_key, 60))
    assert answers == [f"question {number}" for number in range(60)]


def test_the_line_goes_on_when_the_connection_to_redis_is_cut(
    start: Start, client: OpenAI, cache_url: str
) -> None:
    gate = threading.Event()
    start(FakeEngine(pieces=lambda _: _held("red ", gate, "and ", "blue")))
    stream = client.chat.completions.create(model="demo", messages=user("red and blue"), stream=True)
    assert text_of([next(stream), next(stream)]) == "red "
    with Redis.from_url(cache_url) as redis:
        redis.client_kill_filter(_type="pubsub")
    gate.set()
    assert text_of(list(stream)) == "and blue"


def test_without_redis_the_answer_comes_in_one_piece(start: Start, settings: Settings, api_key: str) -> None:
    away = settings.model_copy(update={"redis_url": SecretStr(f"redis://127.0.0.1:{free_port()}/0")})
    start(FakeEngine())
    with serving(build_app(wire(away))) as url, sdk(url, api_key) as client:
        chunks = list(
            client.chat.completions.create(model="demo", messages=user("red and blue"), stream=True)
        )
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "red and blue", None]


def test_a_second_attempt_that_says_the_same_goes_on_where_the_line_was(
    start: Start, client: OpenAI, rows: Rows
) -> None:
    gate = threading.Event()
    start(FakeEngine(pieces=_breaks_once("red and ", gate)))
    stream = client.chat.completions.create(model="demo", messages=user("red and blue"), stream=True)
    assert text_of([next(stream), next(stream)]) == "red and "
    gate.set()
    assert text_of(list(stream)) == "blue"
    assert rows.one("SELECT attempt FROM jobs") == 2


def test_a_second_attempt_that_says_something_else_ends_the_line_with_an_error(
    start: Start, client: OpenAI
) -> None:
    gate = threading.Event()
    start(FakeEngine(pieces=_breaks_once("green", gate)))
    stream = client.chat.completions.create(model="demo", messages=user("red and blue"), stream=True)
    assert text_of([next(stream), next(stream)]) == "green"
    gate.set()
    with pytest.raises(APIError, match="begun anew") as raised:
        list(stream)
    assert raised.value.code == "answer_changed"


def test_a_job_that_fails_before_its_first_text_is_told_by_its_status(start: Start, client: OpenAI) -> None:
    start(FakeEngine(answer=_too_long))
    with pytest.raises(BadRequestError, match="too long") as refused:
        client.chat.completions.create(model="demo", messages=user("?"), stream=True)
    assert refused.value.code == "context_length_exceeded"


def test_a_fault_of_ours_is_told_as_one(start: Start, settings: Settings, api_key: str, db: Sessions) -> None:
    once = settings.model_copy(update={"job_attempts": 1})
    engine = FakeEngine(answer=_breaks)
    with (
        working(db, once, engine),
        serving(build_app(wire(once))) as url,
        sdk(url, api_key) as client,
        pytest.raises(InternalServerError, match="It broke") as failed,
    ):
        client.chat.completions.create(model="demo", messages=user("?"))
    assert (failed.value.status_code, failed.value.code) == (500, "step_failed")


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"messages": []}, "messages", "invalid_request"),
        ({"messages": None}, "messages", "missing_required_field"),
        ({"temperature": 3}, "temperature", "invalid_request"),
        ({"surprise": 1}, "surprise", "invalid_request"),
        ({"stream": "yes"}, "stream", "invalid_request"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_request"),
        ({"stream": True, "stream_options": {"speed": 1}}, "stream_options", "invalid_request"),
    ],
)
def test_a_body_that_is_refused(
    http: httpx.Client, rows: Rows, start: Start, body: dict[str, object], param: str, code: str
) -> None:
    start(FakeEngine())
    answer = http.post("/v1/chat/completions", json={"model": "demo", "messages": user("?"), **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_a_model_that_is_not_served_is_not_found(start: Start, http: httpx.Client, rows: Rows) -> None:
    start(FakeEngine())
    answer = http.post("/v1/chat/completions", json={"model": "other", "messages": user("?")})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_a_picture_that_is_none_is_named_by_its_place(start: Start, http: httpx.Client) -> None:
    start(FakeEngine())
    parts = [
        {"type": "text", "text": "?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    answer = http.post(
        "/v1/chat/completions", json={"model": "demo", "messages": [{"role": "user", "content": parts}]}
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "not_an_image")
    assert error["param"] == "messages[0].content[1].image_url.url"


def test_one_line_too_many_is_told_to_come_back(
    start: Start, settings: Settings, api_key: str, rows: Rows
) -> None:
    start(FakeEngine())
    rows.add_jobs(2, priority="interactive", state="waiting")
    small = settings.model_copy(update={"interactive_max": 2})
    with serving(build_app(wire(small))) as url, sdk(url, api_key) as client:
        with pytest.raises(RateLimitError) as refused:
            client.chat.completions.create(model="demo", messages=user("?"))
        rows.run("UPDATE jobs SET state = 'expired', finished_at = now() WHERE id = 1")
        assert client.chat.completions.create(model="demo", messages=user("?")).choices
    assert (refused.value.code, refused.value.response.headers["retry-after"]) == ("overloaded", "2")


def test_without_a_worker_nobody_is_kept_waiting(client: OpenAI, rows: Rows) -> None:
    with pytest.raises(InternalServerError) as refused:
        client.chat.completions.create(model="demo", messages=user("?"))
    assert (refused.value.status_code, refused.value.code) == (503, "no_worker")
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_at_the_deadline_the_line_ends_and_the_job_with_it(
    start: Start, settings: Settings, api_key: str, rows: Rows
) -> None:
    gate = threading.Event()
    start(FakeEngine(gate=gate))
    hasty = settings.model_copy(update={"interactive_timeout_s": 0.2})
    with (
        serving(build_app(wire(hasty))) as url,
        sdk(url, api_key) as client,
        pytest.raises(InternalServerError) as ended,
    ):
        client.chat.completions.create(model="demo", messages=user("?"))
    assert (ended.value.status_code, ended.value.code) == (504, "job_expired")
    assert ended.value.response.headers["x-should-retry"] == "false"
    assert eventually(lambda: rows.one("SELECT deadline <= now() FROM jobs"))
    gate.set()


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_before_the_job_begins_cancels_it(
    start: Start, http: httpx.Client, rows: Rows, stream: bool
) -> None:
    start(FakeEngine())
    parts = [{"type": "image_url", "image_url": {"url": "https://images.example/mug.png"}}]
    body = {"model": "demo", "messages": [{"role": "user", "content": parts}], "stream": stream}
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=body, timeout=0.5)
    eventually(lambda: rows.all("SELECT state FROM jobs") == ["cancelled"])


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_while_the_job_runs_ends_it(
    db: Sessions, settings: Settings, http: httpx.Client, rows: Rows, stream: bool
) -> None:
    engine = Endless()
    body = {"model": "demo", "messages": user("?"), "stream": stream}
    with working(db, settings, engine):
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/chat/completions", json=body, timeout=0.5)
        eventually(lambda: [answer.cancelled() for answer in engine.answers] == [True])
        assert rows.one("SELECT error_code FROM jobs") == "caller_left"
    assert rows.all("SELECT attempt FROM jobs WHERE state <> 'running'") == [1]


def test_an_answer_that_comes_after_its_caller_has_gone_is_recorded(
    start: Start, client: OpenAI, rows: Rows
) -> None:
    gate = threading.Event()
    start(FakeEngine(pieces=lambda _: _held("red ", gate, "blue")))
    stream = client.chat.completions.create(model="demo", messages=user("red blue"), stream=True)
    assert text_of([next(stream), next(stream)]) == "red "
    stream.close()
    eventually(lambda: rows.one("SELECT deadline <= now() FROM jobs"))
    assert rows.all("SELECT state FROM jobs") == ["running"]
    gate.set()
    eventually(lambda: rows.all("SELECT state FROM jobs") == ["completed"])


def test_a_line_that_is_silent_is_kept_alive(
    start: Start, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chats.SILENCE_S", 0.05)
    gate = threading.Event()
    start(FakeEngine(pieces=lambda _: _held("red ", gate, "blue")))
    body = {"model": "demo", "messages": user("red blue"), "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert any(line == ": keep-alive" for line in lines)
        gate.set()
        assert list(lines)[-2:] == ["data: [DONE]", ""]
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


async def _ask_at_once(url: str, key: str, count: int) -> list[str]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:

        async def ask(number: int) -> str:
            stream = await client.chat.completions.create(
                model="demo", messages=user(f"question {number}"), stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        return await asyncio.gather(*(ask(number) for number in range(count)))


def _held(first: str, gate: threading.Event, *rest: str) -> Iterator[str]:
    yield first
    gate.wait(20)
    yield from rest


def _breaks_once(first: str, gate: threading.Event) -> Callable[[str], Iterator[str]]:
    """Says one piece, waits at the gate and breaks; at the next attempt it says all."""
    attempts = count()

    def pieces(text: str) -> Iterator[str]:
        if next(attempts):
            yield text
            return
        yield first
        gate.wait(20)
        raise TransientWork("step_failed", "It broke.", retry_after_s=0.0)

    return pieces


def _breaks(_: Request) -> str:
    raise TransientWork("step_failed", "It broke.")


def _too_long(_: Request) -> str:
    raise InvalidWork("context_length_exceeded", "The prompt is too long.")
