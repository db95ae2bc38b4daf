"""What is asked of which image: questions and their hashes, what still stands, and lines of input. Pure."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.checks import Json
from app.lines import MAX_CUSTOM_ID
from app.results import as_line
from app.states import Endpoint
from app.tables.templates import parse_template

NAME_CHARS = 64
# With the longest name of a question behind it, a key still fits a custom_id.
MOST_KEY = MAX_CUSTOM_ID - NAME_CHARS - 1

Spec = Mapping[str, Any]  # of a run: questions, model, body


def item_key(name: str) -> str:
    """The key of an image by its name at the source: the name, its end a digest where it is too long."""
    if len(name) <= MOST_KEY:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{name[: MOST_KEY - len(digest) - 1]}~{digest}"


def custom_id(key: str, question: str) -> str:
    return f"{key}:{question}"


def split_id(name: str) -> tuple[str, str]:
    """Key and question of a custom_id: names of questions have no colon."""
    key, _, question = name.rpartition(":")
    return key, question


def question_hashes(spec: Spec) -> dict[str, str]:
    """Hex sha256 of everything that an answer depends on but the image, by question."""
    return {
        question["name"]: hashlib.sha256(
            json.dumps([spec["model"], spec["body"], _said(question)], sort_keys=True).encode()
        ).hexdigest()
        for question in spec["questions"]
    }


def to_ask(asked: Mapping[str, str], hashes: Mapping[str, str]) -> list[str]:
    """The questions that have no answer which stands: `asked` are those that have one, by their hashes."""
    return [name for name, now in hashes.items() if asked.get(name) != now]


def request_line(key: str, ref: str, question: Mapping[str, Json], spec: Spec) -> bytes:
    """The line of an input file that asks one question of one image."""
    return as_line(
        {
            "custom_id": custom_id(key, question["name"]),
            "method": "POST",
            "url": Endpoint.CHAT.value,
            "body": request_body(ref, question, spec),
        }
    )


def request_body(ref: str, question: Mapping[str, Json], spec: Spec) -> dict[str, Json]:
    """A chat completion's body."""
    shared = {name: value for name, value in spec["body"].items() if value is not None}
    system, detail = shared.pop("system", None), shared.pop("detail", None)
    image = {"url": ref} | ({"detail": detail} if detail else {})
    parts = [{"type": "image_url", "image_url": image}, {"type": "text", "text": question["ask"]}]
    turns = [{"role": "system", "content": system}] if system else []
    messages = [*turns, {"role": "user", "content": parts}]
    return {"model": spec["model"], **shared, "messages": messages, **_constraint(question)}


class Asking:
    """A run's questions with the columns that they name. RequestError for an `ask` that is no template."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._questions = {question["name"]: question for question in spec["questions"]}
        self._hashes = question_hashes(spec)
        self._templates = {
            question["name"]: parse_template(f"questions[{at}].ask", question["ask"])
            for at, question in enumerate(spec["questions"])
        }
        named = (column for template in self._templates.values() for column in template.columns)
        self.columns: Sequence[str] = list(dict.fromkeys(named))

    @property
    def names(self) -> Collection[str]:
        return self._questions.keys()

    def columns_of(self, name: str) -> Sequence[str]:
        return self._templates[name].columns

    def hashes(self, cells: Mapping[str, str]) -> dict[str, str]:
        """Of everything that an answer depends on but the image, by question, for an item's cells."""
        return {name: self._hash(name, cells) for name in self._questions}

    def line(self, key: str, ref: str, cells: Mapping[str, str], name: str) -> bytes:
        """The line of an input file that asks one question of one image."""
        asked = self._templates[name].fill(self._values(name, cells))
        return request_line(key, ref, {**self._questions[name], "ask": asked}, self._spec)

    def _values(self, name: str, cells: Mapping[str, str]) -> list[str]:
        return [cells.get(column, "") for column in self._templates[name].columns]

    def _hash(self, name: str, cells: Mapping[str, str]) -> str:
        if not self._templates[name].columns:
            return self._hashes[name]
        said = json.dumps([self._hashes[name], self._values(name, cells)])
        return hashlib.sha256(said.encode()).hexdigest()


def changed_questions(before: Sequence[Mapping[str, Json]], after: Sequence[Mapping[str, Json]]) -> bool:
    """Whether another set of questions is asked."""
    return [_said(one) for one in before] != [_said(one) for one in after]


def _said(question: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in question.items() if value is not None}


def _constraint(question: Mapping[str, Json]) -> dict[str, Json]:
    if choices := question.get("choices"):
        return {"guided_choice": choices}
    if (schema := question.get("schema")) is not None:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return {"response_format": form}
    return {}
