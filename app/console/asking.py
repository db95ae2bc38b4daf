"""The form that makes a batch of a file: as it is sent, filled in at first, and what it asks for. Pure."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.checks import Json, wrong
from app.console.formats import clipped
from app.console.words import Words
from app.errors import RequestError
from app.previews import Asked, Head
from app.states import Endpoint
from app.tables.base import Cell
from app.tables.columns import plain

# A form of ours has at most 200 fields, and a question five of them.
MOST_QUESTIONS = 30
# Of a small page: columns to choose among, columns of the first rows, and characters of a cell.
MOST_COLUMNS, COLUMNS_SHOWN, CELL_CHARS = 200, 30, 120
WINDOWS = ("1h", "6h", "24h", "3d", "7d")
DELIMITERS = {"": "auto", ",": "comma", ";": "semicolon", "tab": "tab", "|": "bar"}
IMAGE_URL = re.compile(r"\s*data:[^,]{0,100};base64,", re.IGNORECASE)
REFERENCES = ("http://", "https://", "s3://", "data:", "file-")
IMAGE_NAMES = ("image", "img", "picture", "photo", "url")
ID_NAMES = ("id", "sku", "key", "uuid", "guid", "ean", "gtin", "asin", "code", "name")
# Fields of a batch's body, and those of the form where they are filled in.
_FIELDS = {
    "image_columns": "image",
    "questions": "q0.ask",
    "completion_window": "window",
    "near_duplicates": "near",
    "logprobs": "sure",
    "input_file_id": "",
}


@dataclass(frozen=True)
class QuestionFields:
    """A question as it is filled in; `kind` says which of the fields below it counts."""

    name: str = "answer"
    ask: str = ""
    kind: str = "free"  # or choices, schema
    choices: str = ""  # one a line
    schema: str = ""


@dataclass(frozen=True)
class AskForm:
    """All fields as texts. `once` tells one filling-in from the next: pressed twice, it makes one batch."""

    questions: Sequence[QuestionFields] = (QuestionFields(),)
    image: str = ""
    image_2: str = ""
    id_column: str = ""
    system: str = ""
    model: str = ""
    max_tokens: str = ""
    temperature: str = ""
    detail: str = ""
    sure: str = ""  # on, off, or as the questions have it
    delimiter: str = ""
    encoding: str = ""
    endpoint: str = Endpoint.CHAT.value
    name: str = ""
    priority: str = "standard"
    window: str = "24h"
    cache: str = ""
    near: str = ""
    strict: str = ""
    dry_run: str = ""
    once: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def layout(self) -> dict[str, str | None]:
        """How the table is to be read where that is not to be guessed."""
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return {"delimiter": delimiter or None, "encoding": self.encoding.strip() or None}


# What stands under "More", and what it is when nobody has touched it.
MORE = {
    "max_tokens": "",
    "temperature": "",
    "detail": "",
    "sure": "",
    "priority": "standard",
    "window": "24h",
    "cache": "",
    "near": "",
    "delimiter": "",
    "encoding": "",
    "strict": "",
    "dry_run": "",
}
_TEXTS = [name for name in AskForm.__dataclass_fields__ if name != "questions"]


def read_form(fields: Mapping[str, str]) -> AskForm:
    """The form as it was sent; what is missing is empty."""
    count = next((at for at in range(MOST_QUESTIONS) if f"q{at}.ask" not in fields), MOST_QUESTIONS)
    questions = [
        QuestionFields(**{name: _line_ends(fields.get(f"q{at}.{name}", "")) for name in QUESTION_FIELDS})
        for at in range(count)
    ]
    texts = {name: _line_ends(fields[name]) for name in _TEXTS if name in fields}
    return AskForm(questions=questions, **texts)


QUESTION_FIELDS = list(QuestionFields.__dataclass_fields__)


def first_form(head: Head | None, *, filename: str, model: str, endpoint: str) -> AskForm:
    """Filled in as far as the table tells."""
    form = AskForm(name=filename, model=model, endpoint=endpoint)
    if head is None:
        return form
    image = guess_image(head)
    return replace(form, image=image, id_column=guess_id(head, image))


def change_questions(form: AskForm, action: str) -> AskForm:
    """With one question more (`add`), or without one (`remove:2`)."""
    questions = list(form.questions)
    if action == "add" and len(questions) < MOST_QUESTIONS:
        names = {question.name for question in questions}
        number = len(questions) + 1
        while f"answer_{number}" in names:
            number += 1
        questions.append(QuestionFields(f"answer_{number}" if questions else "answer"))
    verb, _, number = action.partition(":")
    places = [str(place) for place in range(len(questions))]
    if verb == "remove" and number in places and len(questions) > 1:
        del questions[places.index(number)]
    return replace(form, questions=questions)


def guess_image(head: Head) -> str:
    """The first column whose cells look like images, else one named so; '' where none is."""
    for at, column in enumerate(head.columns):
        cells = [row.cells[at] for row in head.rows if at < len(row.cells) and row.cells[at]]
        if cells and all(
            isinstance(cell, bytes) or cell.strip().startswith(REFERENCES) for cell in cells if cell
        ):
            return column
    named = (one for one in head.columns if any(name in plain(one) for name in IMAGE_NAMES))
    return next(named, next((head.columns[at] for at in sorted(head.local)), ""))


def guess_id(head: Head, image: str) -> str:
    """The first column named like an id whose cells differ; '' where none is."""
    for wanted in ID_NAMES:
        for at, column in enumerate(head.columns):
            named = plain(column) == wanted or plain(column).endswith(f"_{wanted}")
            cells = [row.cells[at] for row in head.rows if at < len(row.cells)]
            if named and column != image and all(cells) and len(set(cells)) == len(cells):
                return column
    return ""


def local_cells(head: Head | None, form: AskForm) -> int:
    """How many rows name pictures on their owner's machine, which no worker can fetch."""
    if head is None:
        return 0
    return max(
        (head.local.get(at, 0) for at, one in enumerate(head.columns) if one in (form.image, form.image_2)),
        default=0,
    )


def opens_more(form: AskForm, problems: Mapping[str, str]) -> bool:
    """Whether what stands under "More" is to be seen at once."""
    return any(name in problems or getattr(form, name) != usual for name, usual in MORE.items())


def table_of(form: AskForm) -> dict[str, Json]:
    """`table` of a batch's body. RequestError, its `param` a field of that body, for what cannot be one."""
    images = [one for one in (form.image, form.image_2) if one]
    if not images:
        raise wrong("table.image_columns", "Choose the column that holds the images.", "missing_parameter")
    body = {
        "model": form.model or None,
        "max_tokens": _number(form.max_tokens, int, "table.body.max_tokens"),
        "temperature": _number(form.temperature, float, "table.body.temperature"),
        "detail": form.detail or None,
        "logprobs": _keeps_confidence(form) or None,
    }
    return {
        "image_columns": images,
        "id_column": form.id_column or None,
        "questions": [_question(at, one) for at, one in enumerate(form.questions)],
        "system": form.system if form.system.strip() else None,
        "body": {name: value for name, value in body.items() if value is not None},
        **form.layout,
    }


def batch_of(form: AskForm, file_id: str, *, has_table: bool) -> dict[str, Json]:
    """The body of `POST /v1/batches` that the form stands for."""
    body: dict[str, Json] = {
        "input_file_id": file_id,
        "endpoint": form.endpoint,
        "completion_window": form.window,
        "priority": form.priority,
        "strict": bool(form.strict),
        "dry_run": bool(form.dry_run),
        "cache": form.cache or None,
    }
    if form.name.strip():
        body["metadata"] = {"name": form.name.strip()}
    if form.near.strip():
        body["near_duplicates"] = {"distance": _number(form.near, int, "near_duplicates.distance")}
    return body | ({"table": table_of(form)} if has_table else {})


def field_of(param: str | None) -> str:
    """The form's field behind a field of a batch's body; '' for what is not filled in there."""
    name = (param or "").removeprefix("table.").removeprefix("body.")
    if name.startswith("questions["):
        number, _, part = name.removeprefix("questions[").partition("]")
        part = part.lstrip(".").partition(".")[0].partition("[")[0]
        return f"q{number}.{part if part in QUESTION_FIELDS else 'ask'}"
    if name == "image_columns[1]":
        return "image_2"
    name = name.partition("[")[0].partition(".")[0]
    name = _FIELDS.get(name, "name" if name == "metadata" else name)
    return name if name in _TEXTS or name == "q0.ask" else ""


@dataclass(frozen=True)
class CellView:
    """A cell as a page shows it: a short text, or how large an image is, about so where it is a data URL."""

    text: str = ""
    bytes: int | None = None


def cell_view(cell: Cell) -> CellView:
    if isinstance(cell, bytes):
        return CellView(bytes=len(cell))
    found = IMAGE_URL.match(cell or "")
    if cell and found:
        return CellView(bytes=(len(cell) - found.end()) * 3 // 4)
    return CellView(clipped(cell or "", CELL_CHARS))


def asked_as_text(asked: Sequence[Asked]) -> str:
    """A preview as a hidden field holds it between one look and the next."""
    return json.dumps([[one.row, one.question, one.job, one.error] for one in asked])


def read_asked(text: str) -> list[Asked]:
    """What `asked_as_text` has written; nothing where it is something else."""
    try:
        found: Any = json.loads(text or "[]")
        return [
            Asked(int(row), str(question), job and str(job), error and str(error))
            for row, question, job, error in found
        ]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []


def _keeps_confidence(form: AskForm) -> bool:
    """Whether tokens' probabilities are kept; by themselves, where an answer gets labels to be reviewed."""
    return form.sure == "on" or (form.sure != "off" and any(one.kind != "free" for one in form.questions))


def _question(at: int, given: QuestionFields) -> dict[str, Json]:
    param = f"table.questions[{at}]"
    if not given.ask.strip():
        raise wrong(f"{param}.ask", "Write what is to be asked.", "missing_parameter")
    question: dict[str, Json] = {"name": given.name.strip() or "answer", "ask": given.ask}
    if given.kind == "choices":
        question["choices"] = [one.strip() for one in given.choices.splitlines() if one.strip()]
        if not question["choices"]:
            raise wrong(f"{param}.choices", "Write the choices, one a line.", "missing_parameter")
    elif given.kind == "schema":
        question["schema"] = _schema(given.schema, f"{param}.schema")
    return question


def _schema(text: str, param: str) -> Json:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise wrong(param, f"The schema is not JSON: {error.msg} at {where}.", "invalid_json") from error
    except (ValueError, RecursionError) as error:
        raise wrong(param, "The schema is not JSON that can be read.", "invalid_json") from error


def _number(text: str, kind: type[int] | type[float], param: str) -> float | None:
    if not text.strip():
        return None
    try:
        return kind(text)
    except ValueError:
        raise wrong(param, "Write a number, or leave the field empty.", "invalid_value") from None


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def problem_of(error: RequestError, words: Words) -> dict[str, str]:
    """What is wrong, by the field beside which it is to be said."""
    return {field_of(error.param): words.told(error.code, error.message)}
