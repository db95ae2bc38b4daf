"""Pictures that lie here: found in a table's image columns, sent, and named by their ids in its copy."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from app.runs.base import WrongRun
from app.runs.inputs import IMAGE, Input, Kind, columns_of, parquet, pictures_in, rows_of
from app.runs.missing import why_missing
from app.runs.notebook import Notebook
from app.runs.references import may_be_local, names_file
from app.tables.columns import plain
from app.tables.names import last_part
from vqueue import BadRequest, Client, TooLarge

SENDERS = 8
QUIET_S = 10.0
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
    text = "" if isinstance(cell, bytes) else cell.strip()
    if not may_be_local(text) and not names_file(text):
        found.elsewhere += 1
        return
    path = None if names_file(text) else _inside(root, text)
    if path is not None and isinstance(cell, str):
        found.files[cell] = path
        return
    found.missing += 1
    found.example = found.example or f"{text[:100]!r} in row {row} ({why_missing(root, text)[:300]})"


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
    refused: dict[str, str],
) -> Mapping[str, str]:
    """The ids by the texts that name the files, each uploaded once; `sent` is told how many are there.

    One that is refused keeps its text, so that its own rows fail and no others; `say` is told why, and
    `refused` has it by text.
    """
    names = {path: text for text, path in reversed([*files.items()])}  # of several, the first
    ids = {path: id for path in names if (id := notebook.find(path))}

    def send(path: Path) -> None:
        try:
            file = api.upload(path, name=path.name, purpose="vision", expires_after_s=EXPIRES_S)
        except (BadRequest, TooLarge) as error:
            say(f"{names[path]} is not sent, and its rows will fail: {error.message}")
            if path.stat().st_size:
                refused.update((text, error.message) for text, one in files.items() if one == path)
            return
        notebook.add(path, names[path], id=file.id, until=file.expires_at or 0)
        ids[path] = file.id
        sent(len(ids))

    sent(len(ids))
    pool = ThreadPoolExecutor(SENDERS)
    try:
        futures = [pool.submit(send, path) for path in names if path not in ids]
        _await(futures, lambda: len(ids), say)
    finally:
        pool.shutdown(cancel_futures=True)
    return {text: ids.get(path, text) for text, path in files.items()}


def _await(futures: Sequence["Future[None]"], count: Callable[[], int], say: Callable[[str], None]) -> None:
    """Until all are done or one raises; where none gets through, this is told."""
    waiting, seen = set(futures), count()
    while waiting:
        done, waiting = wait(waiting, timeout=QUIET_S, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if waiting and count() == seen:
            say(f"no picture got through for {QUIET_S:g} s: the service does not answer, trying again")
        seen = count()


def write_copy(source: Input, columns: Sequence[str], instead: Mapping[str, str], folder: Path) -> Path:
    """The table with ids in place of local pictures, as a new file in the folder."""
    if source.kind is Kind.PARQUET:
        path = folder / "table.parquet"
        named = [columns_of(source)[at] for at in places(source, columns)]
        parquet().rewrite(
            source.here,
            path,
            named,
            lambda row: {name: instead.get(cell, cell) if cell else cell for name, cell in row.items()},
        )
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
    if source.kind is Kind.TXT:  # with the pictures' names: as a list, they would be called by their ids
        yield [IMAGE, NAME]
        yield from ([instead.get(cell, cell), last_part(cell)] for (cell,) in _texts(source, [0]))
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
