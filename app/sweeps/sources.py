"""Lists what a sweep's source has now, page by page: a bucket prefix, a catalog by URL, a table by SQL."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from app.checks import Json, is_unicode, shown
from app.config import Settings
from app.download import Downloader, make_downloader
from app.errors import InvalidWork, RequestError
from app.objects import ObjectMissing, ObjectStore
from app.references import parse_reference
from app.store.sweep_items import Listed
from app.store.sweep_sources import read_rows
from app.sweeps.questions import item_key
from app.tables.base import MAX_ROW_CHARS, InputError
from app.tables.columns import find_column
from app.tables.delimited import Delimited
from app.tables.names import is_image_name
from app.tables.places import Place, read_place

PAGE_ROWS = 1_000
READ_BYTES = 256 * 1024
# A catalog is larger than a picture.
CATALOG_S = 300.0
# A longer reference is refused like any that is no image, by the job that asks about it.
MOST_REF = 8192
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,127}")
Source = Mapping[str, Any]


class Sources:
    def __init__(
        self, *, objects: ObjectStore, settings: Settings, downloader: Downloader | None = None
    ) -> None:
        self._objects = objects
        self._settings = settings
        self._downloader = downloader or make_downloader(
            settings.model_copy(
                update={"image_max_bytes": settings.file_max_bytes, "fetch_total_s": CATALOG_S}
            )
        )

    def check(self, source: Source) -> None:
        """Whether it may be read at all, by what the operator allows. RequestError names the field."""
        match source["kind"]:
            case "bucket":
                self._check_bucket(read_prefix(source).bucket)
            case "catalog":
                _check_url(source["url"])
            case _:
                self._check_table(source)

    def check_columns(self, source: Source, columns: Sequence[str], *, param: str) -> None:
        """Whether it may have such columns at all; RequestError where not."""
        if columns and source["kind"] == "bucket":
            message = (
                f"A bucket has no columns, and {param} names {shown(columns[0])}: "
                "write {{ and }} where braces are meant."
            )
            raise RequestError(message, param=param, code="missing_column")
        wrong = [one for one in columns if source["kind"] == "table" and not IDENTIFIER.fullmatch(one)]
        if wrong:
            message = f"{wrong[0]!r} is no name of a column: write {{{{ and }}}} where braces are meant."
            raise RequestError(message, param=param, code="invalid_value")

    def pages(self, source: Source, *, columns: Sequence[str] = ()) -> Iterator[Sequence[Listed]]:
        """Everything there is now, with the cells of these columns.

        Raises WorkError, at any page, for what cannot be read to its end.
        """
        try:
            self.check(source)
        except RequestError as error:
            raise InvalidWork(error.code or "source_refused", error.message) from error
        match source["kind"]:
            case "bucket":
                return self._bucket(read_prefix(source), images_only=source.get("images_only", True))
            case "catalog":
                return self._catalog(source, columns)
            case _:
                return self._table(source, columns)

    def _check_bucket(self, bucket: str) -> None:
        if bucket not in self._settings.s3_source_buckets:
            message = (
                f"Images are not read from the bucket {bucket!r}; "
                "the operator can allow it in VQUEUE_S3_SOURCE_BUCKETS."
            )
            raise RequestError(message, param="source.prefix", code="blocked_bucket")

    def _check_table(self, source: Source) -> None:
        if source["database"] not in self._settings.sweep_sources:
            message = (
                f"No database is named {source['database']!r} here; the operator names them in "
                "VQUEUE_SWEEP_SOURCES."
            )
            raise RequestError(message, param="source.database", code="unknown_source")
        named = {name: source.get(name) for name in ("id_column", "image_column", "version_column")}
        for name, value in {"table": source["table"], **named}.items():
            if value is None and name == "version_column":
                continue
            parts = str(value).split(".") if name == "table" else [str(value)]
            if len(parts) > 2 or not all(IDENTIFIER.fullmatch(part) for part in parts):
                message = f"{value!r} is no name of a {'table' if name == 'table' else 'column'}."
                raise RequestError(message, param=f"source.{name}", code="invalid_value")

    def _bucket(self, place: Place, *, images_only: bool) -> Iterator[Sequence[Listed]]:
        try:
            for page in self._objects.pages(place.prefix, bucket=place.bucket):
                yield [
                    Listed(item_key(one.key), f"s3://{place.bucket}/{one.key}", one.etag.strip('"'))
                    for one in page
                    if not images_only or is_image_name(one.key)
                ]
        except ObjectMissing as error:
            message = f"The object store has no bucket {place.bucket!r}: make it, or change source.prefix."
            raise InvalidWork("source_unreadable", message) from error

    def _catalog(self, source: Source, columns: Sequence[str]) -> Iterator[Sequence[Listed]]:
        """On the disk first: a server need not wait until its rows are compared."""
        with TemporaryFile(prefix="vqueue-catalog-") as file:
            self._downloader.pour(source["url"], file.write)
            file.seek(0)
            own = _own_columns(source)
            read = _json_rows if _is_lines(source, file) else _delimited_rows
            yield from _paged(read(file, own, columns), own, columns)

    def _table(self, source: Source, columns: Sequence[str]) -> Iterator[Sequence[Listed]]:
        url = self._settings.sweep_sources[source["database"]].get_secret_value()
        own = _own_columns(source)
        for page in read_rows(url, source["table"], [*own, *columns]):
            yield [one for row in page if (one := listed_row(row, len(own), columns)) is not None]


def _own_columns(source: Source) -> list[str]:
    """Of id, image and, where there is one, version."""
    names = [source["id_column"], source["image_column"]]
    return [*names, source["version_column"]] if source.get("version_column") else names


def read_prefix(source: Source) -> Place:
    """The bucket prefix of a source; RequestError for what is none."""
    try:
        return read_place(source["prefix"])
    except RequestError as error:
        message = "The prefix is none: write s3://bucket/prefix."
        raise RequestError(message, param="source.prefix", code="invalid_value") from error


def listed_row(row: Sequence[object], own: int, columns: Sequence[str]) -> Listed | None:
    """An image of a table's row: id, reference, what else tells a version (`own` cells), and the others.

    None where id or reference is missing. Another value in another column makes no other version.
    """
    cells = ["" if cell is None else str(cell) for cell in row[:own]]
    name, ref = cells[0].strip(), cells[1].strip()[: MOST_REF + 1]
    if not name or not ref or any("\0" in cell or not is_unicode(cell) for cell in cells):
        return None
    version = hashlib.sha256(json.dumps(cells[1:]).encode()).hexdigest()
    return Listed(item_key(name), ref, version, dict(zip(columns, map(_text, row[own:]), strict=True)))


def _text(cell: object) -> str:
    """A cell as it stands in a question; what no text holds becomes U+FFFD."""
    if cell is None:
        return ""
    text = json.dumps(cell, ensure_ascii=False) if isinstance(cell, bool | list | dict) else str(cell)
    text = text.replace("\0", "\ufffd")
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _paged(
    rows: Iterator[Sequence[object]], own: Sequence[str], columns: Sequence[str]
) -> Iterator[Sequence[Listed]]:
    page: list[Listed] = []
    for row in rows:
        if (one := listed_row(row, len(own), columns)) is not None:
            page.append(one)
        if len(page) == PAGE_ROWS:
            yield page
            page = []
    yield page


def _is_lines(source: Source, file: BinaryIO) -> bool:
    begins = file.read(1)
    file.seek(0)
    return source.get("format") == "jsonl" or (source.get("format") is None and begins == b"{")


def _delimited_rows(file: BinaryIO, own: Sequence[str], columns: Sequence[str]) -> Iterator[Sequence[object]]:
    try:
        table = Delimited(iter(lambda: file.read(READ_BYTES), b""), wanted=own)
        places = [find_column(name, table.columns, param="source") for name in own]
        places += [_place(name, table.columns) for name in columns]
        for row in table.rows(places):
            if row.problem is None:
                yield row.cells
    except InputError as error:
        raise InvalidWork("source_unreadable", f"The catalog cannot be read: {error}") from error


def _place(name: str, there: Sequence[str]) -> int:
    try:
        return find_column(name, there, param="source")
    except InputError as error:
        raise InvalidWork("missing_column", f"A question names a column: {error}") from error


def _json_rows(file: BinaryIO, own: Sequence[str], columns: Sequence[str]) -> Iterator[Sequence[object]]:
    unseen, rows = set(columns), 0
    for number, line in enumerate(iter(lambda: file.readline(MAX_ROW_CHARS + 1), b""), 1):
        if not line.strip():
            continue
        found = _json_row(line, number)
        unseen -= found.keys()
        rows += 1
        yield [found.get(name) for name in (*own, *columns)]
    if rows and unseen:
        message = f"A question names a column: no line of the catalog has {shown(min(unseen))}."
        raise InvalidWork("missing_column", message)


def _json_row(line: bytes, number: int) -> Mapping[str, Json]:
    if len(line) > MAX_ROW_CHARS:
        message = f"The catalog cannot be read: line {number} has over {MAX_ROW_CHARS:,} bytes."
        raise InvalidWork("source_unreadable", message)
    try:
        found: Json = json.loads(line)
    except ValueError as error:
        message = f"The catalog cannot be read: line {number} is not JSON."
        raise InvalidWork("source_unreadable", message) from error
    if not isinstance(found, dict):
        raise InvalidWork("source_unreadable", f"The catalog cannot be read: line {number} is no object.")
    return found


def _check_url(url: str) -> None:
    try:
        parse_reference(url)
    except InvalidWork as error:
        raise RequestError(error.message, param="source.url", code=error.code) from error
