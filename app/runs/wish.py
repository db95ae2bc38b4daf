"""What a user asks for, as the API wants it: the table of a batch, its file, its pictures."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.runs.base import WrongRun
from app.runs.columns import guess_image_column
from app.runs.inputs import IMAGE, PLAIN, Input, Kind, columns_of, sample_of
from app.runs.notebook import Notebook
from app.runs.own import Own
from app.runs.pictures import NAME, Found, find_pictures, places, send_pictures, write_copy
from vqueue import Client, Question, Table
from vqueue.inputs import CacheMode, Cascade

DELIMITERS = ",;\t|"
Say = Callable[[str], None]
Sent = Callable[[int, int], None]


@dataclass(frozen=True)
class Wish:
    """`image_columns` are empty where nobody named one; `shared` is what all requests have in common."""

    source: Input
    questions: Sequence[Question] = ()
    question_column: str | None = None
    image_columns: Sequence[str] = ()
    id_column: str | None = None
    system: str | None = None
    shared: tuple[tuple[str, Any], ...] = ()
    image_folder: Path | None = None
    window: str = "24h"
    strict: bool = False
    cache: CacheMode | None = None
    cascade: Cascade | None = None
    near_duplicates: int | None = None


@dataclass(frozen=True)
class HandedIn:
    """What a batch is created from."""

    input_file_id: str
    table: Table | None


def read_cascade(path: Path) -> Cascade:
    """A cascade as `vqueue calibrate` wrote it; WrongRun for a file that is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
        cascade = Cascade(model=found["model"], threshold=found["threshold"], steps=found.get("steps", []))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongRun(
            f"{path} is no cascade: `vqueue calibrate` writes one, with a model and a threshold."
        ) from error
    return cascade


def check(wish: Wish) -> None:
    """WrongRun for options that do not go together."""
    asks = bool(wish.questions) + (wish.question_column is not None)
    if wish.source.kind is Kind.JSONL:
        if asks or wish.image_columns or wish.id_column or wish.system or wish.shared:
            raise WrongRun(
                f"{wish.source.text}: the lines of a .jsonl are whole requests already; "
                "--ask and what goes with it are for tables and pictures"
            )
        return
    if asks == 0:
        raise WrongRun('what is to be asked? --ask "What colour is it?", or --question-column COLUMN')
    if asks == 2:
        raise WrongRun(
            "--ask and --question-column do not go together: a table's column, or the same for all"
        )


def choose_columns(wish: Wish, say: Say) -> Sequence[str]:
    """The image columns, guessed where nobody named one."""
    if wish.source.kind is Kind.JSONL:
        return []
    if wish.source.kind in PLAIN:
        return wish.image_columns or [IMAGE]
    named = [*wish.image_columns, *(one for one in (wish.id_column, wish.question_column) if one)]
    _look_at_delimiter(wish.source)
    places(wish.source, named)  # refused at once where one is missing
    if wish.image_columns:
        return wish.image_columns
    guessed = guess_image_column(columns_of(wish.source), sample_of(wish.source))
    say(f"images: the column {guessed!r} (--image-column names another)")
    return [guessed]


def _look_at_delimiter(source: Input) -> None:
    """WrongRun where the delimiter that was given leaves one column with others' delimiters in it."""
    if source.delimiter is None or len(there := columns_of(source)) != 1:
        return
    if likely := [one for one in DELIMITERS if one != source.delimiter and one in there[0]]:
        one = f"with --delimiter {source.delimiter!r} there is only one column, {there[0]!r}"
        raise WrongRun(f"{one}: is it {likely[0]!r}?")


def picture_folder(wish: Wish) -> Path:
    return wish.image_folder or wish.source.folder


def own_table(wish: Wish, refused: Mapping[str, str]) -> Own | None:
    """The user's table, to name things in an export as it does; None where nothing of it lies here."""
    if wish.source.kind in (Kind.PREFIX, Kind.JSONL, Kind.ZIP):
        return None
    columns, folder = choose_columns(wish, lambda _: None), picture_folder(wish)
    own = Own(wish.source, columns, folder, find_pictures(wish.source, columns, folder), refused)
    return own if own.is_local else None


def hand_in(
    api: Client, wish: Wish, notebook: Notebook, *, say: Say, sent: Sent, refused: dict[str, str]
) -> HandedIn:
    """Upload what the API cannot get by itself: the table, with its local pictures.

    `refused` is given the pictures that the API does not take, by their texts, with its reasons.
    """
    columns = choose_columns(wish, say)
    table = _table(wish, columns, api)
    source = wish.source
    if source.kind is Kind.PREFIX:
        return HandedIn(source.text, table)
    folder = picture_folder(wish)
    found = find_pictures(source, columns, folder)
    _look_at(wish, found, columns, folder, say)
    if not found.files:
        return HandedIn(api.upload(source.here).id, table)
    total = len(set(found.files.values()))
    ids = send_pictures(api, found.files, notebook, lambda count: sent(count, total), say, refused)
    with TemporaryDirectory(prefix="vqueue-run-") as place:
        copy = write_copy(source, columns, ids, Path(place))
        return HandedIn(api.upload(copy).id, _of_copy(wish, table, copy))


def stamp(wish: Wish) -> str:
    """Changes when a local picture of the input does: its size, its time, or whether it is there."""
    if wish.source.kind in (Kind.PREFIX, Kind.JSONL, Kind.ZIP, Kind.FOLDER):
        return ""  # a folder's own fingerprint says as much
    columns = choose_columns(wish, lambda _: None)
    found = find_pictures(wish.source, columns, picture_folder(wish))
    digest = hashlib.sha256(f"{found.missing}".encode())
    for text, path in sorted(found.files.items()):
        state = path.stat()
        digest.update(f"{text}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest() if found.files or found.missing else ""


def _table(wish: Wish, columns: Sequence[str], api: Client) -> Table | None:
    if wish.source.kind is Kind.JSONL:
        return None
    shared = dict(wish.shared)
    if "model" not in shared:
        shared["model"] = api.models()[0]
    table: Table = {"image_columns": list(columns), "body": shared}
    if wish.questions:
        table["questions"] = list(wish.questions)
    optional = {
        "question_column": wish.question_column,
        "id_column": wish.id_column,
        "system": wish.system,
        "delimiter": wish.source.delimiter,
        "encoding": wish.source.encoding,
    }
    for name, value in optional.items():
        if value is not None:
            table[name] = value
    return table


def _of_copy(wish: Wish, table: Table | None, copy: Path) -> Table:
    """A copy as CSV has commas and UTF-8; a folder's pictures are known by their names."""
    assert table is not None
    changed = Table(**table)
    if copy.suffix == ".csv":
        changed.pop("delimiter", None)
        changed.pop("encoding", None)
    if wish.source.kind is Kind.FOLDER:
        changed["id_column"] = NAME
    return changed


def _look_at(wish: Wish, found: Found, columns: Sequence[str], folder: Path, say: Say) -> None:
    """Tell of pictures that are not there; WrongRun if none is."""
    if wish.source.kind is Kind.FOLDER and not found.files:
        raise WrongRun(f"{wish.source.text}: there is no picture in this folder, or below it")
    if not found.missing:
        return
    named = ", ".join(map(repr, columns))
    several = found.missing != 1
    are = (
        f"images of {named} are neither URLs nor files"
        if several
        else f"image of {named} is neither a URL nor a file"
    )
    what = f"{found.missing:,} {are} below {folder}"
    if not found.files and not found.elsewhere:
        raise WrongRun(f"{what}, such as {found.example}: --image-folder says where they lie")
    say(f"{what}, such as {found.example}: {'their rows' if several else 'its row'} will fail")
