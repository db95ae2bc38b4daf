"""The batches of a run, made from its seed: all kinds of lines, good and bad."""

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.pictures import PICTURES, picture

# Of a hundred lines. Those of the second group have to fail, each with its own reason.
GOOD = {"text": 38, "url": 30, "data": 16, "both": 6}
BAD = {"gone": 1, "page": 1, "cut": 1, "json": 1, "empty": 1, "model": 1, "data_broken": 1}
# What only the fake engine knows: a job that it refuses, and one that it answers at the second try.
OF_FAKE = {"refused": 2, "flaky": 2}
JOBS_OF_A_PICTURE = 3
EXPIRES_S = 30


class Fate(StrEnum):
    """What becomes of a batch."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"  # in the middle
    EXPIRED = "expired"  # a picture of it never comes
    FAILED = "failed"  # as a file that is no batch


@dataclass(frozen=True)
class Input:
    """One batch to be: its file, and how it is to end."""

    name: str
    tenant: int
    lines: tuple[bytes, ...]
    fate: Fate

    @property
    def window(self) -> str:
        return f"{EXPIRES_S}s" if self.fate is Fate.EXPIRED else "24h"

    @property
    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)


@dataclass(frozen=True)
class Maker:
    """Makes lines for a model, with pictures of a host."""

    model: str
    host: str
    fake: bool
    rng: random.Random

    def line(self, batch: str, number: int) -> bytes:
        kinds = {**GOOD, **BAD, **(OF_FAKE if self.fake else {})}
        (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
        return self.of_kind(kind, f"{batch}-{number:04}", batch, number)

    def of_kind(self, kind: str, custom_id: str, batch: str, number: int) -> bytes:
        """Questions carry their kind as first word: the fake engine reads it."""
        question = {"type": "text", "text": f"{kind} {custom_id}: what is it?"}
        url = _image(f"{self.host}/{batch}/p{number // JOBS_OF_A_PICTURE}.jpg")
        data = _image(_data_url(picture(self.rng.randrange(PICTURES))))
        match kind:
            case "json":
                return f'{{"custom_id": "{custom_id}", '.encode()
            case "empty":
                return self._request(custom_id, [])
            case "model":
                return self._request(custom_id, [question], model="nobody")
            case "url":
                return self._request(custom_id, [url, question])
            case "data":
                return self._request(custom_id, [data, question])
            case "both":
                return self._request(custom_id, [url, data, question])
            case "data_broken":
                return self._request(custom_id, [_image("data:image/png;base64,AAAA"), question])
            case "gone" | "page" | "cut" | "busy":
                return self._request(custom_id, [_image(f"{self.host}/{batch}/{kind}.jpg"), question])
            case _:
                return self._request(custom_id, [question])

    def _request(self, custom_id: str, content: Sequence[object], *, model: str | None = None) -> bytes:
        body = {
            "model": model or self.model,
            "messages": [{"role": "user", "content": list(content)}],
            "max_tokens": 8,
            "temperature": 0,
        }
        line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(line).encode()


def make_inputs(maker: Maker, *, jobs: int, per_batch: int) -> list[Input]:
    """So many jobs in batches of two tenants; one is cancelled, one expires, and a small one is refused."""
    fates = [Fate.EXPIRED, Fate.COMPLETED, Fate.CANCELLED]
    inputs: list[Input] = []
    while jobs > 0:
        number = len(inputs)
        fate = fates[number] if number < len(fates) else Fate.COMPLETED
        inputs.append(_input(maker, number, min(jobs, per_batch), fate))
        jobs -= per_batch
    return [*inputs, _refused(maker, len(inputs))]


def _input(maker: Maker, number: int, count: int, fate: Fate) -> Input:
    name = f"b{number:03}"
    lines = [maker.line(name, line) for line in range(count)]
    if fate is Fate.EXPIRED:
        lines[1] = maker.of_kind("busy", f"{name}-0001", name, 1)
    return Input(name, number % 2, tuple(lines), fate)


def _refused(maker: Maker, number: int) -> Input:
    """Two lines of one name make a file that is no batch."""
    twice = maker.of_kind("text", "twice", "refused", 0)
    return Input(f"b{number:03}", number % 2, (twice, twice), Fate.FAILED)


def _image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(data: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
