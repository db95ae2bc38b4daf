"""A multipart form read as a stream, part after part: only the block at hand is in memory."""

from collections import deque
from collections.abc import Iterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import RequestError

# Enough for any field of ours; a file is read as blocks.
TEXT_BYTES = 4096


class Part:
    """One field of a form. Its content can be read once, before the next part is asked for."""

    def __init__(self, form: "Form", *, name: str, filename: str | None, content_type: str | None) -> None:
        self.name = name
        self.filename = filename
        self.content_type = content_type
        self._form = form

    def blocks(self) -> Iterator[bytes]:
        return self._form.content()

    def text(self) -> str:
        data = bytearray()
        for block in self.blocks():
            data += block
            if len(data) > TEXT_BYTES:
                raise _bad_form(f"the field is over {TEXT_BYTES:,} bytes", param=self.name)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _bad_form("the field is not UTF-8", param=self.name) from None


class Form:
    """The parts of a multipart body that comes in `blocks`.

    Raises RequestError for what is no multipart form, and for one that ends too early.
    """

    def __init__(self, content_type: str | None, blocks: Iterator[bytes]) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise _bad_form("expected multipart/form-data with a boundary")
        self._blocks = blocks
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value = b"", b""
        # What the parser found in the last block: the start of a part, content, or None for a part's end.
        self._found: deque[Part | bytes | None] = deque()
        self._complete = False
        try:
            self._parser = self._make_parser(options[b"boundary"])
        except FormParserError:
            raise _bad_form("the boundary is too long") from None

    def parts(self) -> Iterator[Part]:
        while self._more():
            # Content that the reader of the last part left is passed over.
            if isinstance(found := self._found.popleft(), Part):
                yield found

    def content(self) -> Iterator[bytes]:
        """The blocks up to the end of the current part."""
        while self._more():
            if not isinstance(found := self._found.popleft(), bytes):
                return
            yield found

    def _more(self) -> bool:
        """Read until something is found; whether there was anything."""
        while not self._found:
            block = next(self._blocks, None)
            if block is None:
                if not self._complete:
                    raise _bad_form("it ends too early")
                return False
            try:
                self._parser.write(block)
            except FormParserError:
                raise _bad_form("it is damaged") from None
        return True

    def _make_parser(self, boundary: bytes) -> MultipartParser:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": self._on_name,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": lambda data, start, end: self._found.append(bytes(data[start:end])),
                "on_part_end": lambda: self._found.append(None),
                "on_end": self._on_end,
            },
        )

    def _on_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"").decode("latin-1")
        _, options = parse_options_header(disposition)
        if b"name" not in options:
            raise _bad_form("a part has no name")
        filename = options.get(b"filename")
        content_type = self._headers.get(b"content-type")
        self._found.append(
            Part(
                self,
                name=options[b"name"].decode(errors="replace"),
                filename=None if filename is None else filename.decode(errors="replace"),
                content_type=None if content_type is None else content_type.decode("latin-1"),
            )
        )

    def _on_end(self) -> None:
        self._complete = True


def _bad_form(reason: str, *, param: str | None = None) -> RequestError:
    return RequestError(f"We could not read the form: {reason}.", param=param, code="invalid_form")
