"""Lines of a batch's file in blocks, and a block's lines as job rows. Pure."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.answer_keys import CacheMode, canonical, is_repeatable, question_hash
from app.cascade import Cascade
from app.checks import Json
from app.config import MIB
from app.errors import InvalidWork, LineError
from app.lines import BadLine, LineRules, ParsedLine, RawLine, parse_line
from app.references import ImageReference, ref_hash
from app.store.images import WantedImage
from app.store.ingest import JobRow

# A block is one transaction: large enough that COPY pays, small enough that memory stays flat.
BLOCK_LINES = 2_000
BLOCK_BYTES = 8 * MIB

EMPTY = "{}"

# Made once: json.dumps makes an encoder for every call that does not want its defaults.
_JSON = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Entry:
    """What one line of a file or one row of a table comes to: its jobs, none where it is blank.

    `size` is how far it brings the reading: in bytes, or in rows. `held` is its weight in memory.
    """

    lines: Sequence[ParsedLine | BadLine]
    size: int
    held: int


@dataclass(frozen=True)
class Block:
    """The jobs of some entries in a row; how far these bring the reading (`bytes`), and how many they are."""

    lines: Sequence[ParsedLine | BadLine]
    bytes: int
    count: int

    @property
    def model(self) -> str | None:
        """The model of the first line that is a request, though its image may be unusable."""
        models = (line.request.model if isinstance(line, ParsedLine) else line.model for line in self.lines)
        return next(filter(None, models), None)

    def references(self) -> list[ImageReference]:
        """The images of all its jobs, each as often as it is named."""
        return [image for line in self.lines if isinstance(line, ParsedLine) for image in line.request.images]

    def params(self) -> Collection[Mapping[str, Json]]:
        """Those of all its jobs, each object once."""
        found = (line.request.params for line in self.lines if isinstance(line, ParsedLine))
        return {id(params): params for params in found}.values()

    def custom_ids(self) -> list[str]:
        return [line.custom_id for line in self.lines if line.custom_id is not None]


@dataclass(frozen=True)
class _Asked:
    """The parameters of jobs: as JSON, and as they are hashed where answers may be kept."""

    stored: str
    hashed: bytes | None


def encoded(value: Mapping[str, Json]) -> str:
    """JSON as it is stored."""
    return _JSON.encode(value)


def read_entries(lines: Iterable[RawLine], rules: LineRules) -> Iterator[Entry]:
    """Parse the lines of a file."""
    for raw in lines:
        parsed = [] if raw.is_blank else [parse_line(raw.data, raw.number, rules)]
        yield Entry(parsed, raw.size, raw.size)


def read_blocks(entries: Iterable[Entry], *, most_lines: int = BLOCK_LINES) -> Iterator[Block]:
    """Gather entries until a block is full."""
    found: list[ParsedLine | BadLine] = []
    size = held = count = 0
    for entry in entries:
        found += entry.lines
        size, held, count = size + entry.size, held + entry.held, count + 1
        if max(count, len(found)) >= most_lines or held >= BLOCK_BYTES:
            yield Block(found, size, count)
            found, size, held, count = [], 0, 0, 0
    if count:
        yield Block(found, size, count)


def job_rows(
    block: Block,
    job_ids: Sequence[int],
    images: Mapping[str, WantedImage],
    unusable: Mapping[str, InvalidWork],
    cache: CacheMode = CacheMode.OFF,
    cascade: Cascade | None = None,
) -> list[JobRow]:
    """One row per line. `images` has a row for every reference (by ref_hash) that is not `unusable`."""
    asked = _asked(block, cache, cascade)
    rows = [
        _bad_row(job_id, line) if isinstance(line, BadLine) else _row(job_id, line, images, unusable, asked)
        for job_id, line in zip(job_ids, block.lines, strict=True)
    ]
    return rows if cascade is None else [_first_of(cascade, row) for row in rows]


def duplicates(block: Block, standing: Mapping[str, int]) -> list[tuple[ParsedLine | BadLine, int]]:
    """The lines of a block whose custom_id stands in an earlier line, and which; `standing` are before it."""
    first = dict(standing)
    found: list[tuple[ParsedLine | BadLine, int]] = []
    for line in block.lines:
        if line.custom_id is None:
            continue
        earlier = first.setdefault(line.custom_id, line.line)
        if earlier != line.line:
            found.append((line, earlier))
    return found


def duplicate_error(line: ParsedLine | BadLine, earlier: int) -> LineError:
    message = f"Line {line.line} has the same custom_id as line {earlier}: each must be used once."
    return LineError("duplicate_custom_id", message, line.line, "custom_id")


def without_ids(block: Block, errors: Mapping[int, LineError]) -> Block:
    """The block with the lines that have an error made bad ones, whose custom_id belongs to others."""
    lines = [
        BadLine(None, errors[line.line], line.line) if line.line in errors else line for line in block.lines
    ]
    return replace(block, lines=lines)


def _first_of(cascade: Cascade, row: JobRow) -> JobRow:
    """The row, to be asked of the cascade's model first; not one that is over, or that names it already."""
    if row.error is not None or row.model == cascade.model:
        return row
    return replace(row, model=cascade.model, final_model=row.model)


def _asked(block: Block, cache: CacheMode, cascade: Cascade | None) -> dict[int, _Asked]:
    """The parameters of all jobs of a block, by the ids of their objects.

    The jobs of a table share their objects question by question, and those of most files look alike: each is
    prepared once. An answer that a cascade gives is not what either of its models would give everywhere.
    """
    also = canonical(cascade.stored()) if cascade is not None else b""
    found: dict[str, _Asked] = {}
    by_id: dict[int, _Asked] = {}
    for one in block.params():
        stored = _JSON.encode(one) if one else EMPTY
        if stored not in found:
            is_hashed = cache is not CacheMode.OFF and is_repeatable(one)
            found[stored] = _Asked(stored, canonical(one) + also if is_hashed else None)
        by_id[id(one)] = found[stored]
    return by_id


def _bad_row(job_id: int, line: BadLine) -> JobRow:
    return JobRow(job_id, line.line, line.custom_id, line.model or "", EMPTY, EMPTY, error=line.error)


def _row(
    job_id: int,
    line: ParsedLine,
    images: Mapping[str, WantedImage],
    unusable: Mapping[str, InvalidWork],
    asked: Mapping[int, _Asked],
) -> JobRow:
    request = line.request
    keys = [ref_hash(image) for image in request.images]
    for key, param in zip(keys, request.image_params, strict=True):
        if (refused := unusable.get(key)) is not None:
            error = line.image_error(param, refused.code, refused.message)
            return JobRow(job_id, line.line, line.custom_id, request.model, EMPTY, EMPTY, error=error)
    wanted = [images[key] for key in keys]
    prompt, params = _JSON.encode(request.prompt), asked[id(request.params)]
    return JobRow(
        id=job_id,
        line=line.line,
        custom_id=line.custom_id,
        model=request.model,
        prompt=prompt,
        params=params.stored,
        image_ids=[image.id for image in wanted],
        waiting_on=frozenset(image.id for image in wanted if not image.stored),
        question_hash=None if params.hashed is None else question_hash(prompt, params.hashed),
    )
