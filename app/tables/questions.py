"""Rows of a table as jobs: the ids, images and questions that a spec makes of their cells. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.chat import ChatRequest, ChatRules, ModelRules
from app.checks import Json, is_unicode, shown, wrong
from app.errors import LineError, RequestError
from app.lines import MAX_CUSTOM_ID, BadLine, ParsedLine, row_error
from app.messages import DETAILS, LOW_DETAIL_PIXELS, Reading, UnusableImage
from app.params import read_params
from app.references import ImageReference, RefKind
from app.tables.base import Row, blank
from app.tables.columns import find_column
from app.tables.spec import Question, TableSpec
from app.tables.templates import Template, parse_template

NOT_SHARED = ("messages", "response_format", "structured_outputs", "guided_choice")


@dataclass(frozen=True)
class AskedQuestion:
    name: str
    template: Template
    params: Mapping[str, Json]


@dataclass(frozen=True)
class Asked:
    """A checked spec, but for the columns that it names: what goes to which model."""

    model: ModelRules
    questions: Sequence[AskedQuestion]
    system: Template | None
    detail: str | None


def check_spec(spec: TableSpec, rules: ChatRules) -> Asked:
    """Everything about a spec that can be told without its table. RequestError names the field."""
    body = {name: value for name, value in (spec.body or {}).items() if value is not None}
    detail = body.pop("detail", None)
    if detail is not None and detail not in DETAILS:
        raise wrong("table.body.detail", f"detail must be one of {', '.join(DETAILS)}, not {shown(detail)}.")
    if alone := next((name for name in NOT_SHARED if name in body), None):
        form = "its form its `schema` or `choices`"
        message = f"{alone} does not belong into body: a question's text is its `ask`, {form}."
        raise wrong(f"table.body.{alone}", message)
    if len(spec.image_columns) > rules.images_per_job:
        message = f"There are too many image columns: the limit is {rules.images_per_job} images per request."
        raise wrong("table.image_columns", message)
    try:
        model = rules.model(body)
        shared = read_params(body, max_new_tokens=model.max_new_tokens)
    except RequestError as error:
        error.param = f"table.body.{error.param}"
        raise
    if detail == "low":
        shared["max_pixels"] = LOW_DETAIL_PIXELS
    questions = [_question(at, one, shared) for at, one in enumerate(spec.questions)]
    system = parse_template("table.system", spec.system) if spec.system else None
    return Asked(model, questions, system, detail)


class RowReader:
    """Makes each row's jobs; `wanted` are the columns whose cells the rows must have, in that order."""

    def __init__(self, spec: TableSpec, asked: Asked, columns: Sequence[str], rules: ChatRules) -> None:
        self._spec = spec
        self._asked = asked
        self._rules = rules
        self._names = columns
        self.wanted: list[int] = []
        self._id = self._place(spec.id_column, "table.id_column") if spec.id_column else None
        self._images = [self._place(name, "table.image_columns") for name in spec.image_columns]
        self._system = _Text(asked.system, self._places(asked.system, "table.system"))
        self._asks = [
            _Text(one.template, self._places(one.template, f"table.questions[{at}].ask"))
            for at, one in enumerate(asked.questions)
        ]

    @property
    def questions(self) -> int:
        return len(self._asks)

    def lines(self, row: Row) -> list[ParsedLine | BadLine]:
        """A job for each question; where the row is at fault, each is a bad line that says so."""
        row_id: str | None = None
        try:
            row_id = self._row_id(row)
            if row.problem is not None:
                raise wrong(row.problem.column or "", row.problem.message, row.problem.code)
            images = self._read_images(row)
            system = self._turn_of_system(row)
        except RequestError as error:
            return [self._bad(row, row_id, at, error) for at in range(len(self._asks))]
        return [self._line(row, row_id, at, images, system) for at in range(len(self._asks))]

    def _place(self, name: str, param: str) -> int:
        """Where among the wanted cells a column is."""
        column = find_column(name, self._names, param=param)
        if column not in self.wanted:
            self.wanted.append(column)
        return self.wanted.index(column)

    def _places(self, template: Template | None, param: str) -> list[int]:
        return [self._place(name, param) for name in template.columns] if template else []

    def _column(self, place: int) -> str:
        return self._names[self.wanted[place]].strip()

    def _row_id(self, row: Row) -> str:
        if self._id is None:
            return str(row.number)
        if row.problem is not None:
            raise wrong(row.problem.column or "", row.problem.message, row.problem.code)
        name, value = self._column(self._id), self._text(row, self._id).strip()
        if not value:
            raise wrong(name, "The id is missing: give every row one, or leave id_column out.", "missing_id")
        longest = max(len(self._custom_id(value, at)) for at in range(len(self._asks)))
        if longest > MAX_CUSTOM_ID:
            message = f"The id makes a custom_id of {longest} characters; the limit is {MAX_CUSTOM_ID}."
            raise wrong(name, message, "invalid_custom_id")
        return value

    def _custom_id(self, row_id: str, at: int) -> str:
        return row_id if len(self._asks) == 1 else f"{row_id}:{self._asked.questions[at].name}"

    def _text(self, row: Row, place: int) -> str:
        cell = row.cells[place]
        if isinstance(cell, bytes):
            raise wrong(self._column(place), "The cell holds bytes where a text belongs.", "invalid_cell")
        if cell is None:
            return ""
        if "\0" in cell or not (cell.isascii() or is_unicode(cell)):
            message = "The cell holds a NUL or another character that no text has: remove it."
            raise wrong(self._column(place), message, "invalid_character")
        return cell

    def _read_images(self, row: Row) -> Reading:
        reading = self._rules.reading(self._asked.model)
        for place in self._images:
            cell, name = row.cells[place], self._column(place)
            if isinstance(cell, bytes) and cell:
                reading.images.append(_reference(cell))
                reading.image_params.append(name)
            elif not blank(cell or None):
                reading.image(name, name, self._text(row, place), self._asked.detail)
        if not reading.images:
            columns = " and ".join(shown(self._column(place)) for place in self._images)
            raise wrong(
                self._column(self._images[0]), f"The image is missing: {columns} is empty.", "missing_image"
            )
        return reading

    def _turn_of_system(self, row: Row) -> list[dict[str, Json]]:
        if self._asked.system is None:
            return []
        return [{"role": "system", "parts": [{"text": self._fill(row, self._system)}]}]

    def _fill(self, row: Row, text: "_Text") -> str:
        assert text.template is not None
        return text.template.fill([self._text(row, place) for place in text.places])

    def _line(
        self, row: Row, row_id: str, at: int, images: Reading, system: list[dict[str, Json]]
    ) -> ParsedLine | BadLine:
        try:
            asked = self._fill(row, self._asks[at])
            if not asked.strip():
                column = self._column(self._asks[at].places[0]) if self._asks[at].places else ""
                raise wrong(column, "The question is missing: the cell is empty.", "missing_question")
            self._check_length(asked, system)
        except RequestError as error:
            return self._bad(row, row_id, at, error)
        shown_images = [{"image": number} for number in range(len(images.images))]
        turns = [*system, {"role": "user", "parts": [*shown_images, {"text": asked}]}]
        request = ChatRequest(
            model=self._asked.model.name,
            prompt={"turns": turns},
            params=self._asked.questions[at].params,
            images=tuple(images.images),
            image_params=tuple(images.image_params),
        )
        return ParsedLine(self._spec.line(row.number, at), self._custom_id(row_id, at), request, row.number)

    def _check_length(self, asked: str, system: list[dict[str, Json]]) -> None:
        texts = [asked, *(turn["parts"][0]["text"] for turn in system)]
        if sum(map(len, texts)) <= self._asked.model.prompt_max_chars:
            return
        reading = self._rules.reading(self._asked.model)
        for text in texts:
            reading.text("", text)
        reading.check_length("")

    def _bad(self, row: Row, row_id: str | None, at: int, error: RequestError) -> BadLine:
        line = self._spec.line(row.number, at)
        return BadLine(
            custom_id=self._custom_id(row_id, at) if row_id is not None else None,
            error=row_error(line, row.number, error.param, error.code, error.message),
            line=line,
            model=error.model if isinstance(error, UnusableImage) else None,
        )


def repeated_id(spec: TableSpec, line: ParsedLine | BadLine, earlier: int) -> LineError:
    """What to tell of a row whose id stands in an earlier job."""
    message = f"The id is that of row {spec.row(earlier)}, too: give every row one of its own."
    return row_error(line.line, spec.row(line.line), spec.id_column, "duplicate_id", message)


@dataclass(frozen=True)
class _Text:
    """A template, and where among the wanted cells its columns are."""

    template: Template | None
    places: Sequence[int]


def _question(at: int, question: Question, shared: Mapping[str, Json]) -> AskedQuestion:
    param = f"table.questions[{at}]"
    template = parse_template(f"{param}.ask", question.ask)
    return AskedQuestion(question.name, template, {**shared, **_constraint(param, question)})


def _constraint(param: str, question: Question) -> Mapping[str, Json]:
    if question.choices is not None:
        field, form = "choices", {"guided_choice": list(question.choices)}
    elif question.schema is not None:
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": question.schema}}
        field, form = "schema", {"response_format": schema}
    else:
        return {}
    try:
        return read_params(form, max_new_tokens=1)
    except RequestError as error:
        error.param = f"{param}.{field}"
        raise


def _reference(data: bytes) -> ImageReference:
    return ImageReference(RefKind.DATA, hashlib.sha256(data).hexdigest(), data=data)
