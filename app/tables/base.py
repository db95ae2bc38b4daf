"""What all readers of tables share: rows, cells, and what makes a whole table unusable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.config import MIB
from app.errors import LineError

# Text as it stands in the file, or the bytes of an image. None where there is nothing.
Cell = str | bytes | None

# As much as a line of JSON Lines: an image of 20 MiB is 27 MiB of base64.
MAX_ROW_CHARS = 32 * MIB
MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class RowProblem:
    """What is wrong with one row."""

    code: str
    message: str
    column: str | None = None


@dataclass(frozen=True)
class Row:
    """A row by its number (from 1, the header and empty rows not counted), and the cells asked for.

    One with a `problem` makes no request, and its cells may be missing.
    """

    number: int
    cells: Sequence[Cell]
    problem: RowProblem | None = None


class InputError(Exception):
    """The input cannot be read (on): its batch fails, with these errors."""

    def __init__(self, *errors: LineError) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.errors = errors


def refused(code: str, message: str, *, param: str = "input_file_id") -> InputError:
    """What is wrong with the whole input."""
    return InputError(LineError(code, message, None, param))


def said(error: Exception) -> str:
    """What a library says of an input, to stand within a sentence: its first line without the end."""
    return str(error).partition("\n")[0].rstrip(" .")


class TableReader(Protocol):
    """A table that is open, to be read once; the same rows come at every opening."""

    @property
    def columns(self) -> Sequence[str]:
        """Their names as they stand in the header; two may be alike."""
        ...

    @property
    def count(self) -> int | None:
        """How many rows there are, where that is known beforehand."""
        ...

    @property
    def texts(self) -> Sequence[int]:
        """The columns that hold no images: what an export gives back."""
        ...

    def rows(self, columns: Sequence[int], *, after: int = 0) -> Iterator[Row]:
        """The rows behind number `after`, with the cells of these columns. May raise InputError."""
        ...


def blank(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
