"""A sample of questions as engine requests: batch lines, or a folder of images and what to ask about them."""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.agreement import Question
from app.chat import ChatRequest, ChatRules, ModelRules, parse_chat_body
from app.config import Settings
from app.data_urls import is_data_url
from app.errors import RequestError, WorkError
from app.images import Limits, content_hash, image_limits, inspect, normalise
from app.imaging.formats import sniff
from app.store.jobs import ClaimedJob
from workers.engine.base import Image, Pixels, Request
from workers.requests import read_request

# A line's JSON, which may be anything until it is checked.
Json = Any

TENANT = "compare"
# The lines' own models do not matter: both sides answer all of them.
MODEL = "sample"


@dataclass(frozen=True)
class Asked:
    """A question of the sample, checked as a batch's line is, with its images not yet decoded."""

    question: Question
    body: ChatRequest
    images: tuple[Image, ...]

    def request(self, number: int, settings: Settings) -> Request:
        """The same request that a worker with these settings would make of it."""
        job = ClaimedJob(
            id=number,
            attempt=1,
            tries=1,
            tenant_id=TENANT,
            batch_id=None,
            model=settings.served_model,
            prompt=self.body.prompt,
            params=self.body.params,
            image_ids=(),
            waited_s=0.0,
        )
        return read_request(job, self.images, settings)


def read_lines(path: Path, settings: Settings) -> list[Asked]:
    """Batch lines, images as data URLs or as files beside this one; `metadata.kind` is a question's kind.

    RequestError names the first line that is none.
    """
    reader = _Reader(path.parent, settings)
    try:
        lines = [row for row in enumerate(path.read_text("utf-8-sig").split("\n"), 1) if row[1].strip()]
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8: batch lines are expected.") from error
    if not lines:
        raise RequestError(f"{path} holds no question.")
    return _with_uses([_in_place(f"{path}, line {number}", reader, line) for number, line in lines])


def read_folder(folder: Path, questions: Sequence[str], settings: Settings) -> list[Asked]:
    """Every question about every image of a folder, image by image; the question is its own kind."""
    reader = _Reader(folder, settings)
    images = [path.name for path in sorted(folder.iterdir()) if path.is_file() and _is_image(path)]
    if not images:
        raise RequestError(f"{folder} holds no image.")
    rows = [(image, json.dumps(row)) for image in images for row in _rows(image, questions)]
    return _with_uses([_in_place(f"{folder / image}", reader, row) for image, row in rows])


class _Reader:
    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._limits = image_limits(settings)
        only = ModelRules(MODEL, settings.prompt_max_chars, settings.max_new_tokens)
        self._rules = ChatRules(models={MODEL: only}, images_per_job=settings.images_per_job)

    def read(self, row: Json) -> Asked:
        body = row.get("body") if isinstance(row, dict) else None
        if not isinstance(body, dict):
            raise RequestError('it is no batch line: {"custom_id": ..., "body": {...}} is expected')
        images = _inlined(body.get("messages"), self._folder)
        request = parse_chat_body({**body, "model": MODEL, "messages": images}, self._rules)
        question = Question(
            str(row.get("custom_id", "")), _question(request), _of(body, "kind"), _of(body, "label")
        )
        return Asked(question, request, tuple(self._image(image.data) for image in request.images))

    def _image(self, data: bytes) -> Image:
        info = inspect(data, self._limits)
        return Image(content_hash(data), info.width, info.height, partial(_pixels, data, self._limits))


def _in_place(place: str, reader: _Reader, line: str) -> Asked:
    try:
        return reader.read(json.loads(line))
    except json.JSONDecodeError as error:
        raise RequestError(f"{place}: it is no JSON: {error.msg}") from error
    except (RequestError, WorkError) as error:
        raise RequestError(f"{place}: {error.message}") from error


def _rows(image: str, questions: Sequence[str]) -> Iterator[Json]:
    for number, question in enumerate(questions, 1):
        parts = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": question}]
        body = {"messages": [{"role": "user", "content": parts}], "metadata": {"kind": question}}
        yield {"custom_id": f"{image} {number}", "body": body}


def _inlined(messages: Json, folder: Path) -> Json:
    """The messages with every image that is a file written out as a data URL; odd ones stay for the check."""
    if isinstance(messages, list):
        return [_inlined(one, folder) for one in messages]
    if not isinstance(messages, dict):
        return messages
    url = messages.get("url")
    if isinstance(url, str) and not is_data_url(url):
        return {**messages, "url": _data_url(url, folder)}
    return {name: _inlined(value, folder) for name, value in messages.items()}


def _data_url(name: str, folder: Path) -> str:
    path = folder / name
    if "://" in name or not path.is_file():
        raise RequestError(f"{name!r} is no file beside the sample; images are data URLs or files here")
    return f"data:;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _with_uses(asked: Sequence[Asked]) -> list[Asked]:
    """Each image with the number of questions about it, as the feature cache would know it of a batch."""
    uses = Counter(image.content_hash for one in asked for image in one.images)
    return [
        replace(
            one, images=tuple(replace(image, expected_uses=uses[image.content_hash]) for image in one.images)
        )
        for one in asked
    ]


def _question(request: ChatRequest) -> str:
    turns: Sequence[Mapping[str, Json]] = request.prompt["turns"]  # as parse_chat_body writes them
    return next((part["text"] for part in reversed(turns[-1]["parts"]) if "text" in part), "")


def _of(body: Mapping[str, Json], name: str) -> str | None:
    """What its metadata says under a name."""
    metadata = body.get("metadata")
    said = metadata.get(name) if isinstance(metadata, dict) else None
    return str(said) if said is not None else None


def _is_image(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            sniff(file.read(4096))
    except WorkError:
        return False
    return True


def _pixels(data: bytes, limits: Limits) -> Pixels:
    return np.asarray(normalise(data, limits))
