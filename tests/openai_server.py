"""A small server that speaks OpenAI's chat completions in vLLM's dialect, around any engine."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from concurrent.futures import Future
from hashlib import sha256
from typing import Any

import numpy as np
import PIL.Image
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app.errors import InvalidWork, TransientWork, WorkError
from workers.engine.base import (
    Answer,
    Choice,
    Constraint,
    Engine,
    Image,
    ImagePart,
    JsonObject,
    JsonSchema,
    Part,
    Request,
    Sampling,
    TextPart,
    Turn,
)

Body = dict[str, Any]
LOOK_S = 0.02  # how often a client is looked after that may have gone


def openai_app(engine: Engine, *, owner: str = "vllm") -> Starlette:
    """`bodies` of its state has all that was asked."""

    async def models(request: HttpRequest) -> Response:
        entry = {"id": engine.model, "object": "model", "owned_by": owner, "root": engine.revision}
        return JSONResponse({"object": "list", "data": [entry]})

    async def complete(request: HttpRequest) -> Response:
        body = await request.json()
        app.state.bodies.append(body)
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        on_text = (
            (lambda piece: loop.call_soon_threadsafe(pieces.put_nowait, piece))
            if body.get("stream")
            else None
        )
        future = engine.submit(read_body(body, on_text))
        if on_text is not None:
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(pieces.put_nowait, None))
            return StreamingResponse(stream(pieces, future), media_type="text/event-stream")
        while not future.done():
            await asyncio.wait([asyncio.wrap_future(future)], timeout=LOOK_S)
            if not future.done() and await request.is_disconnected():
                future.cancel()
                return Response(status_code=499)
        error = future.exception()
        return refused(error) if error is not None else JSONResponse(whole(body, future.result()))

    app = Starlette(
        routes=[Route("/v1/models", models), Route("/v1/chat/completions", complete, methods=["POST"])]
    )
    app.state.bodies = []
    return app


async def stream(pieces: "asyncio.Queue[str | None]", future: "Future[Answer]") -> AsyncIterator[str]:
    try:
        while (piece := await pieces.get()) is not None:
            yield event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        answer = future.result()
        yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish_reason}]})
        yield event({"choices": [], "usage": usage(answer)})
        yield "data: [DONE]\n\n"
    finally:
        future.cancel()


def event(data: Body) -> str:
    return f"data: {json.dumps(data)}\n\n"


def read_body(body: Body, on_text: Any) -> Request:
    images: list[Image] = []
    turns = tuple(read_turn(message, images) for message in body["messages"])
    return Request(
        id="served",
        tenant=body.get("cache_salt", "everybody"),
        turns=turns,
        images=tuple(images),
        sampling=Sampling(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            top_p=body["top_p"],
            top_k=body.get("top_k", 0),
            seed=body.get("seed"),
            stop=tuple(body.get("stop", ())),
            repetition_penalty=body.get("repetition_penalty", 1.0),
            logprobs=body.get("top_logprobs") if body.get("logprobs") else None,
        ),
        constraint=read_constraint(body),
        on_text=on_text,
    )


def read_turn(message: Body, images: list[Image]) -> Turn:
    return Turn(message["role"], tuple(read_part(part, images) for part in message["content"]))


def read_part(part: Body, images: list[Image]) -> Part:
    if part["type"] == "text":
        return TextPart(part["text"])
    _, _, encoded = part["image_url"]["url"].partition(",")
    picture = PIL.Image.open(io.BytesIO(base64.b64decode(encoded)))
    pixels = np.asarray(picture.convert("RGB"))
    images.append(Image.of(sha256(pixels.tobytes()).hexdigest(), pixels))
    return ImagePart(len(images) - 1)


def read_constraint(body: Body) -> Constraint | None:
    if "structured_outputs" in body:
        return Choice(tuple(body["structured_outputs"]["choice"]))
    match body.get("response_format"):
        case {"type": "json_object"}:
            return JsonObject()
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return JsonSchema(json.dumps(schema))
        case _:
            return None


def whole(body: Body, answer: Answer) -> Body:
    choice: Body = {
        "index": 0,
        "message": {"role": "assistant", "content": answer.text},
        "finish_reason": answer.finish_reason,
    }
    if answer.logprobs is not None:
        choice["logprobs"] = {"content": [logprob(token) for token in answer.logprobs]}
    return {"object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage(answer)}


def logprob(token: Any) -> Body:
    top = [{"token": text, "logprob": share} for text, share in token.top]
    return {"token": token.token, "logprob": token.logprob, "top_logprobs": top}


def usage(answer: Answer) -> Body:
    counts = answer.usage
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
    }


def refused(error: BaseException) -> Response:
    """As vLLM tells a length: in a sentence of its own and without a code."""
    status = 400 if isinstance(error, InvalidWork) else 503 if isinstance(error, TransientWork) else 500
    message = error.message if isinstance(error, WorkError) else repr(error)
    if isinstance(error, InvalidWork) and error.code == "context_length_exceeded":
        message = f"This model's maximum context length is exceeded: {message}"
    return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)
