"""Every call of the official SDK that a vqueue serves, once with `OpenAI` and once with `AsyncOpenAI`.

    export VQUEUE_URL=http://127.0.0.1:8000/v1 VQUEUE_API_KEY=vq_...
    .venv/bin/python docs/examples/sdk_tour.py [--webhook-url https://you.example/hook]

Files, batches, models and webhooks, chat completions and responses: each step prints what it called. Without
a URL of yours, webhooks are set up and taken down again, but nothing is sent to them.
"""

import argparse
import asyncio
import base64
import hmac
import inspect
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from openai import AsyncOpenAI, ConflictError, NotFoundError, OpenAI
from openai.types import Batch
from openai.types.file_create_params import ExpiresAfter
from openai.types.responses import Response

T = TypeVar("T")
Client = OpenAI | AsyncOpenAI

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
ENDED = {"completed", "failed", "expired", "cancelled"}
POLL_S = 0.5
PATIENCE_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--webhook-url", help="a URL of yours that takes events")
    webhook_url = parser.parse_args().webhook_url
    url, key = os.environ["VQUEUE_URL"], os.environ["VQUEUE_API_KEY"]
    for client in (OpenAI(base_url=url, api_key=key), AsyncOpenAI(base_url=url, api_key=key)):
        asyncio.run(tour(client, webhook_url))


async def tour(client: Client, webhook_url: str | None) -> None:
    """All calls by one client, sync or async."""
    say(type(client).__name__)
    model = await models(client)
    file_id = await files(client, model)
    await batches(client, file_id, model)
    await on_the_line(client, model)
    await webhooks(client, webhook_url)


async def models(client: Client) -> str:
    listed = (await done(client.models.list())).data
    model = await done(client.models.retrieve(listed[0].id))
    assert model.id == listed[0].id
    say("models: list, retrieve")
    return model.id


async def files(client: Client, model: str) -> str:
    """The id of a file of two lines, after a look at all that can be done with one."""
    data = "".join(line(name, model) for name in ("a", "b")).encode()
    expiry: ExpiresAfter = {"anchor": "created_at", "seconds": 3600}
    upload = client.files.create
    first = await done(upload(file=("a.jsonl", data), purpose="batch", expires_after=expiry))
    second = await done(upload(file=("b.jsonl", data), purpose="batch"))
    assert first.expires_at == first.created_at + 3600
    assert (await done(client.files.retrieve(second.id))) == second
    assert (await done(client.files.wait_for_processing(second.id))).status == "processed"
    assert (await done(client.files.content(second.id))).read() == data
    page = await done(client.files.list(limit=1, order="desc", purpose="batch"))
    assert [file.id for file in page.data] == [second.id]
    assert [file.id for file in (await done(page.get_next_page())).data] == [first.id]
    assert (await done(client.files.delete(first.id))).deleted
    await is_gone(client.files.retrieve, first.id)
    say("files: create, retrieve, wait_for_processing, content, list, delete")
    return second.id


async def batches(client: Client, file_id: str, model: str) -> None:
    made = await create(client, file_id, metadata={"tour": "yes"})
    batch = await ended(client, made.id)
    assert (batch.status, batch.metadata) == ("completed", {"tour": "yes"})
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 2
    assert batch.output_file_id is not None
    rows = (await done(client.files.content(batch.output_file_id))).read().decode().splitlines()
    assert sorted(json.loads(row)["custom_id"] for row in rows) == ["a", "b"]
    second = await create(client, file_id)
    page = await done(client.batches.list(limit=1))
    assert [found.id for found in page.data] == [second.id]
    assert [found.id for found in (await done(page.get_next_page())).data] == [batch.id]
    await cancel(client, second.id)
    await responses_batch(client, model)
    say("batches: create, retrieve, list, cancel, with lines of chat completions and of responses")


async def cancel(client: Client, batch_id: str) -> None:
    """A batch of two lines may well have ended before it can be cancelled: that is told as a conflict."""
    with suppress(ConflictError):
        assert (await done(client.batches.cancel(batch_id))).status in ("cancelling", "cancelled")
    assert (await ended(client, batch_id)).status in ("cancelled", "completed")


async def responses_batch(client: Client, model: str) -> None:
    parts = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "What is it?"}]
    body = {"model": model, "input": [{"role": "user", "content": parts}], "max_output_tokens": 8}
    row = {"custom_id": "r", "method": "POST", "url": "/v1/responses", "body": body}
    file = await done(client.files.create(file=("r.jsonl", json.dumps(row).encode()), purpose="batch"))
    batch = await ended(client, (await create(client, file.id, endpoint="/v1/responses")).id)
    assert batch.output_file_id is not None, batch
    told = json.loads((await done(client.files.content(batch.output_file_id))).read())
    assert Response.model_validate(told["response"]["body"]).output_text


async def on_the_line(client: Client, model: str) -> None:
    ask = client.chat.completions.create
    answer = await done(ask(model=model, messages=[{"role": "user", "content": "hello?"}], max_tokens=8))
    assert answer.choices[0].message.content
    response = await done(client.responses.create(model=model, input="hello?", max_output_tokens=8))
    assert response.output_text
    say("on the line: chat.completions.create, responses.create")


async def webhooks(client: Client, url: str | None) -> None:
    names: list[Any] = ["batch.completed", "batch.failed"]
    types = await done(client.webhooks.event_types.list())
    assert set(names) <= set(types.data)
    made = await done(
        client.webhooks.create(name="tour", url=url or "https://example.com/hook", event_types=names)
    )
    assert made.signing_secret.startswith("whsec_")
    changed = await done(client.webhooks.update(made.id, name="grand tour"))
    assert (await done(client.webhooks.retrieve(made.id))).name == changed.name == "grand tour"
    assert made.id in [found.id for found in (await done(client.webhooks.list(limit=100))).data]
    rotated = await done(client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True))
    assert rotated.signing_secret != made.signing_secret
    if url is not None:
        tested = await done(client.webhooks.test(made.id, event_type="batch.completed"))
        assert 200 <= tested.status_code < 300, tested
    verify(client, rotated.signing_secret)
    assert (await done(client.webhooks.delete(made.id))).deleted
    await is_gone(client.webhooks.retrieve, made.id)
    say("webhooks: event_types, create, update, retrieve, list, rotate_secret, test, unwrap, delete")


def verify(client: Client, secret: str) -> None:
    """What a receiver does with an event: `unwrap` checks its signature."""
    event = {"id": "evt_1", "object": "event", "created_at": 1, "type": "batch.completed"}
    body, now = json.dumps({**event, "data": {"id": "batch_1"}}), str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"evt_1.{now}.{body}".encode(), "sha256")).decode()
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": now,
        "webhook-signature": f"v1,{signature}",
    }
    assert client.webhooks.unwrap(body, headers, secret=secret).type == "batch.completed"


async def create(client: Client, file_id: str, endpoint: str = "/v1/chat/completions", **more: Any) -> Batch:
    return await done(
        client.batches.create(
            input_file_id=file_id,
            endpoint=endpoint,  # pyright: ignore[reportArgumentType]
            completion_window="24h",
            **more,
        )
    )


async def ended(client: Client, batch_id: str) -> Batch:
    until = time.monotonic() + PATIENCE_S
    while (batch := await done(client.batches.retrieve(batch_id))).status not in ENDED:
        assert time.monotonic() < until, batch
        await asyncio.sleep(POLL_S)
    return batch


async def is_gone(retrieve: Callable[[str], Any], name: str) -> None:
    try:
        await done(retrieve(name))
    except NotFoundError:
        return
    raise AssertionError(f"{name} is still there")


async def done(answer: T | Awaitable[T]) -> T:
    """The sync client has answered by now, the async one is waited for."""
    return await answer if inspect.isawaitable(answer) else answer  # pyright: ignore[reportReturnType]


def line(custom_id: str, model: str) -> str:
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "text", "text": f"What is {custom_id}?"},
    ]
    body = {"model": model, "messages": [{"role": "user", "content": parts}], "max_tokens": 8}
    row = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(row) + "\n"


def say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    main()
