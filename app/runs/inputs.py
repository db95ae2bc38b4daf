"""What is handed in: which kind of input it is, and its rows, as far as they are looked at here."""

import hashlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from app.runs.base import WrongRun
from app.runs.references import has_picture_suffix
from app.tables.base import InputError, Row
from app.tables.delimited import Delimited
from app.tables.manifest import Manifest

BLOCK = 1024 * 1024
SAMPLE_ROWS = 50


class Kind(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    ZIP = "zip"
    TXT = "txt"
    JSONL = "jsonl"
    FOLDER = "folder"
    PREFIX = "prefix"  # of a bucket


# Their one column of images has this name.
PLAIN = frozenset({Kind.ZIP, Kind.TXT, Kind.FOLDER, Kind.PREFIX})
IMAGE = "image"


@dataclass(frozen=True)
class Input:
    """`text` is how it was named; `path` is None of a prefix."""

    text: str
    kind: Kind
    path: Path | None = None
    delimiter: str | None = None
    encoding: str | None = None

    @property
    def here(self) -> Path:
        assert self.path is not None
        return self.path

    @property
    def folder(self) -> Path:
        """Where the relative paths of its images begin."""
        return self.here if self.kind is Kind.FOLDER else self.here.parent


def find_input(text: str, *, delimiter: str | None = None, encoding: str | None = None) -> Input:
    """What this names; WrongRun where it is nothing that can be asked about."""
    if text.startswith("s3://"):
        if not text.removeprefix("s3://").partition("/")[0]:
            raise WrongRun(f"{text}: a prefix looks like s3://bucket/prefix")
        return Input(text, Kind.PREFIX)
    path = Path(text)
    if path.is_dir():
        return Input(text, Kind.FOLDER, path)
    if not path.is_file():
        raise WrongRun(f"{text}: there is no such file or folder")
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in {"csv", "tsv", "parquet", "zip", "txt", "jsonl"}:
        raise WrongRun(
            f"{text}: a .csv, .tsv, .parquet, .jsonl, .zip of images, .txt of image URLs, a folder of images "
            "or s3://bucket/prefix is expected"
        )
    return Input(text, Kind(suffix), path, delimiter, encoding)


def fingerprint(found: Input) -> str:
    """Changes when the input does: by the bytes of a file, by names, sizes and times in a folder."""
    digest = hashlib.sha256(found.text.encode() if found.kind is Kind.PREFIX else b"")
    if found.kind is Kind.FOLDER:
        for path in pictures_in(found.here):
            stat = path.stat()
            digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    elif found.path is not None:
        with found.path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a folder and of those below it, by name; none that a link finds elsewhere."""
    root = folder.resolve()
    return sorted(
        path
        for path in folder.rglob("*")
        if has_picture_suffix(path.name) and path.is_file() and path.resolve().is_relative_to(root)
    )


def columns_of(found: Input) -> Sequence[str]:
    if found.kind in PLAIN:
        return [IMAGE]
    if found.kind is Kind.PARQUET:
        return parquet().columns_of(found.here)
    with found.here.open("rb") as file:
        return _delimited(found, file).columns


def sample_of(found: Input) -> list[Sequence[str | bytes | None]]:
    """The first rows, all cells."""
    columns = range(len(columns_of(found)))
    return [row.cells for row in islice(rows_of(found, columns), SAMPLE_ROWS) if row.problem is None]


def rows_of(found: Input, columns: Sequence[int]) -> Iterator[Row]:
    """All rows with the cells of these columns. WrongRun where the table cannot be read."""
    try:
        if found.kind is Kind.PARQUET:
            yield from parquet().rows_of(found.here, columns)
        elif found.kind is Kind.TXT:
            with found.here.open("rb") as file:
                yield from Manifest(_blocks(file), encoding=found.encoding).rows(columns)
        elif found.kind is Kind.FOLDER:
            for number, path in enumerate(pictures_in(found.here), 1):
                yield Row(number, [path.relative_to(found.here).as_posix()])
        else:
            with found.here.open("rb") as file:
                yield from _delimited(found, file).rows(columns)
    except InputError as error:
        raise WrongRun(f"{found.text}: {error}") from error


def parquet() -> ModuleType:
    """Imported where it is needed: pyarrow takes half a second and 60 MB."""
    return importlib.import_module("app.runs.parquet")


def _delimited(found: Input, file: BinaryIO) -> Delimited:
    delimiter = found.delimiter or ("\t" if found.kind is Kind.TSV else None)
    try:
        return Delimited(_blocks(file), delimiter=delimiter, encoding=found.encoding)
    except InputError as error:
        raise WrongRun(f"{found.text}: {error}") from error


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOCK), b"")
