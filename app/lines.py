"""One line of a batch's input file: a job, or what is wrong with it. Pure, and for any bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from app.chat import ChatRequest, ChatRules, parse_chat_body
from app.checks import Json, is_unicode, missing, shown, wrong
from app.config import MIB
from app.errors import LineError, RequestError
from app.messages import UnusableImage
from app.responses import parse_responses_body
from app.states import Endpoint

# An image of 20 MiB is 27 MiB of base64.
MAX_LINE_BYTES = 32 * MIB
MAX_CUSTOM_ID = 512
FIELDS = ("custom_id", "method", "url", "body")
BOM = b"\xef\xbb\xbf"
JSON_SPACE = b" \t\r\n"
ONE_PER_LINE = "A batch file is JSON Lines (JSONL): one JSON object per line."

# Whichever endpoint a body is for, it makes the same kind of request.
PARSERS: Mapping[str, Callable[[Json, ChatRules], ChatRequest]] = {
    Endpoint.CHAT: parse_chat_body,
    Endpoint.RESPONSES: parse_responses_body,
}


@dataclass(frozen=True)
class LineRules:
    """What every line of one batch must be: the batch's endpoint as url, and a body within `chat`."""

    endpoint: str
    chat: ChatRules


@dataclass(frozen=True)
class RawLine:
    """A physical line (from 1) without its newline; `data` is None where it is over MAX_LINE_BYTES."""

    number: int
    data: bytes | None
    size: int  # bytes in the file, newline included

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands in it; a byte order mark at the start of the file is nothing too."""
        return self.data is not None and not _without_bom(self.data, self.number).strip(JSON_SPACE)


@dataclass(frozen=True)
class ParsedLine:
    """A job; `row` is the row of a table that it was made of, and then `image_params` are columns."""

    line: int
    custom_id: str
    request: ChatRequest
    row: int | None = None

    def image_error(self, param: str, code: str, message: str) -> LineError:
        """What to tell of an image that cannot be used."""
        if self.row is not None:
            return row_error(self.line, self.row, param, code, message)
        return LineError(code, message, self.line, f"body.{param}")


@dataclass(frozen=True)
class BadLine:
    """A line that becomes a failed job. `model` is known when only an image kept it from being a job."""

    custom_id: str | None
    error: LineError
    line: int
    model: str | None = None


def split_lines(chunks: Iterable[bytes], *, first: int = 1) -> Iterator[RawLine]:
    """Physical lines, split on \\n alone, with the memory of one line; `first` numbers the first of them."""
    number, held, size = first, bytearray(), 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece) + 1
            yield RawLine(number, _whole(held, piece, size - 1), size)
            number, size = number + 1, 0
            held.clear()
        size += len(rest)
        if size <= MAX_LINE_BYTES:
            held += rest
        else:
            held.clear()
    if size:
        yield RawLine(number, _whole(held, b"", size), size)


def parse_line(raw: bytes | None, line: int, rules: LineRules) -> ParsedLine | BadLine:
    """Read one line that is not blank. Never raises; the first thing that is wrong is named."""
    custom_id: str | None = None
    try:
        fields = _object(raw, line)
        custom_id = _custom_id(fields)
        _check_envelope(fields, rules.endpoint)
        return ParsedLine(line, custom_id, _request(fields["body"], rules))
    except UnusableImage as error:
        return BadLine(custom_id, _line_error(error, line), line, error.model)
    except RequestError as error:
        return BadLine(custom_id, _line_error(error, line), line)


def row_error(line: int, row: int, column: str | None, code: str | None, message: str) -> LineError:
    """What is wrong with a row of a table, or with one of its columns."""
    where = f"Row {row}, column {shown(column)}" if column else f"Row {row}"
    return LineError(code or "invalid_request", f"{where}: {message}", line, column)


def _whole(held: bytearray, piece: bytes, length: int) -> bytes | None:
    if length > MAX_LINE_BYTES:
        return None
    return bytes(held) + piece if held else piece


def _without_bom(raw: bytes, line: int) -> bytes:
    return raw.removeprefix(BOM) if line == 1 else raw


def _line_error(error: RequestError, line: int) -> LineError:
    return LineError(error.code or "invalid_request", error.message, line, error.param)


def _object(raw: bytes | None, line: int) -> Mapping[str, Json]:
    if raw is None:
        raise wrong("", f"Line {line} is over {MAX_LINE_BYTES:,} bytes.", "line_too_long")
    try:
        found = _DECODER.decode(_without_bom(raw, line).decode())
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} is 0x{error.object[error.start]:02X}"
        message = f"Line {line} is not valid UTF-8 ({byte}): save the file in the encoding UTF-8."
        raise wrong("", message, "invalid_encoding") from error
    except json.JSONDecodeError as error:
        raise _not_json(line, f"{error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise _not_json(line, "it is nested too deeply") from error
    except _NoConstant as error:
        raise _not_json(line, str(error)) from error
    except ValueError as error:  # the only other one
        raise _not_json(line, "it holds a number of thousands of digits") from error
    if not isinstance(found, dict):
        raise _not_json(line, f"it is {shown(found)}, not an object")
    return found


def _not_json(line: int, reason: str) -> RequestError:
    return wrong("", f"Line {line} is not a JSON object: {reason}. {ONE_PER_LINE}", "invalid_json_line")


def _custom_id(fields: Mapping[str, Json]) -> str:
    if "custom_id" not in fields:
        raise missing("custom_id")
    value = fields["custom_id"]
    if not isinstance(value, str) or not value:
        raise _bad_id(f"must be a text that is not empty, not {shown(value)}")
    if len(value) > MAX_CUSTOM_ID:
        raise _bad_id(f"has {len(value)} characters; the limit is {MAX_CUSTOM_ID}")
    if "\0" in value or not is_unicode(value):
        raise _bad_id(f"holds a NUL or half of a surrogate pair, which no file can give back: {shown(value)}")
    return value


def _bad_id(reason: str) -> RequestError:
    return wrong("custom_id", f"custom_id {reason}.", "invalid_custom_id")


def _check_envelope(fields: Mapping[str, Json], endpoint: str) -> None:
    for name in FIELDS:
        if name not in fields:
            raise missing(name)
    if fields["method"] != "POST":
        raise wrong("method", f"method must be 'POST', not {shown(fields['method'])}.", "invalid_method")
    if fields["url"] != endpoint:
        raise wrong(
            "url",
            f"url must be the batch's endpoint {endpoint!r}, not {shown(fields['url'])}.",
            "url_mismatch",
        )


def _request(body: Json, rules: LineRules) -> ChatRequest:
    """The body's request; params of errors are told from the line's root."""
    try:
        return PARSERS[rules.endpoint](body, rules.chat)
    except RequestError as error:
        error.param = f"body.{error.param}" if error.param else "body"
        raise


class _NoConstant(ValueError):
    pass


def _refuse_constant(name: str) -> Json:
    raise _NoConstant(f"{name} is no JSON value; write null or a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
