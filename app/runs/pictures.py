"""Pictures that lie here: found in a table's image columns, sent, and named by their ids in its copy."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from app.runs.base import WrongRun
from app.runs.inputs import IMAGE, Input, Kind, columns_of, parquet, pictures_in, rows_of
from app.runs.notebook import Notebook
from app.runs.references import may_be_local
from app.tables.columns import plain
from vqueue import BadRequest, Client, TooLarge

SENDERS = 8
EXPIRES_S = 30 * 86_400
NAME = "name"  # beside the image, in the table that is made of a folder


@dataclass
class Found:
    """Local pictures by the texts that name them, and how many images are elsewhere, or missing."""

    files: dict[str, Path] = field(default_factory=dict)
    elsewhere: int = 0
    missing: int = 0
    example: str = ""


def find_pictures(source: Input, columns: Sequence[str], folder: Path) -> Found:
    """Look at every cell of the image columns. Only files below the folder are taken."""
    found = Found()
    if source.kind is Kind.FOLDER:
        found.files = {path.relative_to(folder).as_posix(): path for path in pictures_in(folder)}
        return found
    if source.kind in (Kind.ZIP, Kind.PREFIX, Kind.JSONL):
        return found
    root = folder.resolve()
    for row in rows_of(source, places(source, columns)):
        for cell in row.cells:
            if cell and cell not in found.files:
                _look(found, cell, root, row.number)
    return found


def _look(found: Found, cell: str | bytes, root: Path, row: int) -> None:
    if isinstance(cell, bytes) or not may_be_local(cell.strip()):
        found.elsewhere += 1
        return
    path = _inside(root, cell.strip())
    if path is not None:
        found.files[cell] = path
        return
    found.missing += 1
    found.example = found.example or f"{cell.strip()[:100]!r} in row {row}"


def _inside(root: Path, text: str) -> Path | None:
    """The file of this name, unless it lies elsewhere: a table from a stranger must not send our files."""
    try:
        path = (root / text).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, RuntimeError):  # too long a name, a loop of links
        return None


def send_pictures(
    api: Client,
    files: Mapping[str, Path],
    notebook: Notebook,
    sent: Callable[[int], None],
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """The ids by the texts that name the files, each uploaded once; `sent` is told how many are there.

    One that is refused keeps its text, so that its own rows fail and no others; `say` is told why.
    """
    names = {path: text for text, path in reversed([*files.items()])}  # of several, the first
    ids = {path: id for path in names if (id := notebook.find(path))}

    def send(path: Path) -> None:
        try:
            file = api.upload(path, name=path.name, purpose="vision", expires_after_s=EXPIRES_S)
        except (BadRequest, TooLarge) as error:
            say(f"{names[path]} is not sent, and its rows will fail: {error.message}")
            return
        notebook.add(path, names[path], id=file.id, until=file.expires_at or 0)
        ids[path] = file.id
        sent(len(ids))

    sent(len(ids))
    pool = ThreadPoolExecutor(SENDERS)
    try:
        futures = [pool.submit(send, path) for path in names if path not in ids]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return {text: ids.get(path, text) for text, path in files.items()}


def write_copy(source: Input, columns: Sequence[str], instead: Mapping[str, str], folder: Path) -> Path:
    """The table with ids in place of local pictures, as a new file in the folder."""
    if source.kind is Kind.PARQUET:
        path = folder / "table.parquet"
        parquet().rewrite(source.here, path, columns, instead)
        return path
    if source.kind is Kind.TXT:
        path = folder / "images.txt"
        path.write_text("".join(f"{instead.get(cell, cell)}\n" for (cell,) in _texts(source, [0])))
        return path
    path = folder / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(_table(source, columns, instead))
    return path


def _table(source: Input, columns: Sequence[str], instead: Mapping[str, str]) -> Iterator[Sequence[str]]:
    if source.kind is Kind.FOLDER:
        yield [NAME, IMAGE]
        yield from ([name, instead[name]] for name in instead)
        return
    header = columns_of(source)
    shown = set(places(source, columns))
    yield header
    for cells in _texts(source, range(len(header))):
        yield [instead.get(cell, cell) if at in shown else cell for at, cell in enumerate(cells)]


def _texts(source: Input, columns: Sequence[int]) -> Iterator[list[str]]:
    for row in rows_of(source, columns):
        if row.problem:
            raise WrongRun(
                f"{source.text}: {row.problem.message} It has to be put right first, since the table is "
                "written anew with its local pictures."
            )
        yield [cell if isinstance(cell, str) else "" for cell in row.cells]


def places(source: Input, columns: Sequence[str]) -> list[int]:
    """Where these columns are, by name as the service finds them; WrongRun for one that is not there."""
    there = columns_of(source)
    found: list[int] = []
    for name in columns:
        at = [n for n, one in enumerate(there) if one == name] or [
            n for n, one in enumerate(there) if plain(one) == plain(name)
        ]
        if not at:
            raise WrongRun(
                f"{source.text} has no column {name!r}; there are {', '.join(map(repr, there[:20]))}"
            )
        found.append(at[0])
    return found
