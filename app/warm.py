"""Work that fills the caches ahead of time: which images and instructions, and what became of them. Pure."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vqueue.types import Result

# In a batch's metadata: its images' features go to Redis at once, and its answers say what was there.
WARM = "vqueue_warm"
# What a warm job's answer is: its image, or its instruction's prefix, was there already or has been made.
THERE, MADE = "there", "made"
# The latest deadline that the API takes: within a tenant all other work comes first.
WINDOW = "30d"
# A catalog's line that begins so is an image as it stands.
SCHEMES = ("https://", "http://", "s3://")

Json = Any  # a line of a client's file or of the API's answer, any shape until read


class UnreadableCatalog(Exception):
    """The file is no catalog, or nothing has the prefix; the text says why."""


@dataclass
class Summary:
    """What became of the images and instructions, by the answers to them."""

    there: int = 0
    made: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def ended(self, result: Result) -> None:
        if (failure := result.failure) is not None:
            self.failures[failure.code or "unknown"] += 1
        elif result.text == THERE:
            self.there += 1
        else:
            self.made += 1

    def __str__(self) -> str:
        """One line of key=value pairs, and after it why something failed."""
        failed = self.failures.total()
        reasons = ", ".join(f"{code} x {count}" for code, count in self.failures.most_common())
        counts = f"stored={self.there + self.made} encoded={self.made} there={self.there} failed={failed}"
        return f"warm: {counts}" + (f" ({reasons})" if reasons else "")


def read_catalog(path: Path, column: str) -> Iterator[str]:
    """The images of a CSV's column, or of lines: URLs, JSON texts, objects with that field, or a batch's."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        yield from _of_csv(lines, column) if path.suffix.lower() == ".csv" else _of_json(lines, column)


def image_line(image: str, *, number: int, model: str, detail: str) -> bytes:
    """A batch's line that asks for an image, and for as little as can be asked."""
    part = {"type": "image_url", "image_url": {"url": image, "detail": detail}}
    return _line(f"image-{number}", model, [{"role": "user", "content": [part]}])


def instruction_line(instruction: str, *, number: int, model: str) -> bytes:
    messages = [{"role": "system", "content": instruction}, {"role": "user", "content": "."}]
    return _line(f"instruction-{number}", model, messages)


def _line(name: str, model: str, messages: list[dict[str, Json]]) -> bytes:
    body = {"model": model, "messages": messages, "max_tokens": 1}
    line = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode() + b"\n"


def _of_csv(lines: Iterable[str], column: str) -> Iterator[str]:
    rows = csv.DictReader(lines)
    if column not in (rows.fieldnames or ()):
        raise UnreadableCatalog(f"no column {column!r}; there are {', '.join(rows.fieldnames or ())}")
    yield from (row[column] for row in rows if row[column])


def _of_json(lines: Iterable[str], column: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.lower().startswith(SCHEMES):
            yield text
        elif text:
            try:
                yield from _images_in(json.loads(text), column)
            except (ValueError, KeyError, TypeError) as error:
                raise UnreadableCatalog(f"line {number} names no image ({error!r})") from error


def _images_in(value: Json, column: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if "body" not in value:
        return [value[column]]
    return [image for message in value["body"]["messages"] for image in _shown(message)]


def _shown(message: Mapping[str, Json]) -> list[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]
