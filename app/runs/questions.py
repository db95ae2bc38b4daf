"""Questions as they are typed on a command line: `TEXT`, or `NAME=TEXT`. Pure."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.runs.base import WrongRun
from vqueue import Question

# A question that has an equals sign is only named by it where a single word comes before.
NAMED = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)
WITH_COLON = re.compile(r"(\w[\w.-]*:[\w.:-]*)=.", re.DOTALL)
UNNAMED = "answer"


def read_questions(asks: Sequence[str], schemas: Sequence[str]) -> list[Question]:
    """The questions in their order; a schema is `FILE` for the only one, or `NAME=FILE`."""
    questions: list[Question] = []
    for ask in asks:
        name, text = _named(ask, f"{UNNAMED}_{len(questions) + 1}" if len(asks) > 1 else UNNAMED)
        if any(one["name"] == name for one in questions):
            raise WrongRun(f"--ask has two questions named {name!r}: give each a name of its own")
        questions.append({"name": name, "ask": text})
    for given in schemas:
        _give_schema(questions, given)
    return questions


def _named(ask: str, otherwise: str) -> tuple[str, str]:
    if wrong := WITH_COLON.match(ask):
        raise WrongRun(f"--ask {wrong[1]}=...: a question's name must have no colon")
    found = NAMED.fullmatch(ask)
    name, text = (found[1], found[2]) if found else (otherwise, ask)
    if not text.strip():
        raise WrongRun("--ask is empty: what is to be asked of each image?")
    return name, text


def _give_schema(questions: Sequence[Question], given: str) -> None:
    found = NAMED.fullmatch(given)
    if found and (named := [one for one in questions if one["name"] == found[1]]):
        named[0]["schema"] = _read_schema(Path(found[2]))
    elif len(questions) == 1:
        questions[0]["schema"] = _read_schema(Path(given))
    else:
        names = ", ".join(one["name"] for one in questions) or "no questions"
        raise WrongRun(f"--schema {given}: say whose it is, as NAME=FILE; there are {names}")


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise WrongRun(f"--schema {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WrongRun(f"--schema {path} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise WrongRun(f"--schema {path} is no JSON schema: it must be an object")
    return schema
