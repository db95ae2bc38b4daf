"""Lines of a batch's file in blocks, and a block's lines as job rows. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
class Block:
    """Some lines in a row, the blank ones left out, and how many bytes and lines of the file they are."""

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

    def custom_ids(self) -> list[str]:
        return [line.custom_id for line in self.lines if line.custom_id is not None]


def read_blocks(
    lines: Iterable[RawLine], rules: LineRules, *, most_lines: int = BLOCK_LINES
) -> Iterator[Block]:
    """Parse lines and gather them until a block is full."""
    found: list[ParsedLine | BadLine] = []
    size = count = 0
    for raw in lines:
        size, count = size + raw.size, count + 1
        if not raw.is_blank:
            found.append(parse_line(raw.data, raw.number, rules))
        if count >= most_lines or size >= BLOCK_BYTES:
            yield Block(found, size, count)
            found, size, count = [], 0, 0
    if count:
        yield Block(found, size, count)


def job_rows(
    block: Block,
    job_ids: Sequence[int],
    images: Mapping[str, WantedImage],
    unusable: Mapping[str, InvalidWork],
) -> list[JobRow]:
    """One row per line. `images` has a row for every reference (by ref_hash) that is not `unusable`."""
    return [
        _bad_row(job_id, line) if isinstance(line, BadLine) else _row(job_id, line, images, unusable)
        for job_id, line in zip(job_ids, block.lines, strict=True)
    ]


def duplicates(block: Block, standing: Mapping[str, int]) -> list[LineError]:
    """The lines of a block whose custom_id stands in an earlier line; `standing` are those before it."""
    first = dict(standing)
    found: list[LineError] = []
    for line in block.lines:
        if line.custom_id is None:
            continue
        earlier = first.setdefault(line.custom_id, line.line)
        if earlier != line.line:
            message = f"Line {line.line} has the same custom_id as line {earlier}: each must be used once."
            found.append(LineError("duplicate_custom_id", message, line.line, "custom_id"))
    return found


def _bad_row(job_id: int, line: BadLine) -> JobRow:
    return JobRow(job_id, line.line, line.custom_id, line.model or "", EMPTY, EMPTY, error=line.error)


def _row(
    job_id: int,
    line: ParsedLine,
    images: Mapping[str, WantedImage],
    unusable: Mapping[str, InvalidWork],
) -> JobRow:
    request = line.request
    keys = [ref_hash(image) for image in request.images]
    for key, param in zip(keys, request.image_params, strict=True):
        if (refused := unusable.get(key)) is not None:
            error = LineError(refused.code, refused.message, line.line, f"body.{param}")
            return JobRow(job_id, line.line, line.custom_id, request.model, EMPTY, EMPTY, error=error)
    wanted = [images[key] for key in keys]
    return JobRow(
        id=job_id,
        line=line.line,
        custom_id=line.custom_id,
        model=request.model,
        prompt=_JSON.encode(request.prompt),
        params=_JSON.encode(request.params) if request.params else EMPTY,
        image_ids=[image.id for image in wanted],
        waiting_on=frozenset(image.id for image in wanted if not image.stored),
    )
