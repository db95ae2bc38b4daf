"""Dry runs: reads a batch as ingest does, runs none of it, and ends it with a report."""

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import structlog

from app.ahead import ahead
from app.blocks import BLOCK_LINES, Block, read_blocks
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork, LineError
from app.estimates import Evidence, make_report
from app.images import ImageInfo, image_limits, inspect
from app.inputs import Inputs, nothing_in, without_repeats
from app.lines import BadLine, ParsedLine
from app.references import ImageReference, RefKind, ref_hash
from app.store import checks as store
from app.store import events
from app.store.checks import CUSTOM_IDS, IMAGES, Known, Probe
from app.store.images import ImageWish, want_images
from app.store.ingest import IngestTask, LostBatch, pause_batch
from app.tables.base import InputError
from app.tally import Picture, Tally, read_tally

log = structlog.get_logger()

LOOK_AGAIN_S = 0.5
ENDED = ("stored", "failed")


class Checker:
    """A turn of one dry run at a time. What was counted is kept with every block, whoever dies."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        inputs: Inputs,
        settings: Settings,
        block_lines: int = BLOCK_LINES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = sessions
        self._inputs = inputs
        self._settings = settings
        self._block_lines = block_lines
        self._clock = clock
        self._limits = image_limits(settings)
        self._most = {name: settings.for_model(name).max_new_tokens for name in settings.served_models}

    def turn(self, task: IngestTask, *, is_over: Callable[[], bool]) -> bool:
        """Count on, or look whether the sample is there; True once it has ended.

        InputError where the batch itself would be refused.
        """
        tally = read_tally(task.report)
        tally.began_at = tally.began_at or self._clock()
        if tally.probe_ids is None:
            counted = self._count(task, tally, is_over)
            if counted is None:
                return False
            task = counted
            self._check(task, tally)
            self._ask_for_sample(task, tally)
        return self._look(task, tally)

    def _count(self, task: IngestTask, tally: Tally, is_over: Callable[[], bool]) -> IngestTask | None:
        """Add block after block; None where the turn is over first."""
        with (
            closing(self._inputs.entries(task)) as entries,
            closing(ahead(read_blocks(entries, most_lines=self._block_lines))) as blocks,
        ):
            for block in blocks:
                if error := self._inputs.too_many(task, task.jobs + len(block.lines)):
                    raise InputError(error)
                task = self._add(task, tally, block)
                if is_over():
                    with transaction(self._sessions) as session:
                        pause_batch(session, task)
                    return None
        return task

    def _add(self, task: IngestTask, tally: Tally, block: Block) -> IngestTask:
        inspected: dict[str, ImageInfo | InvalidWork] = {}
        block = self._without_unusable(block, inspected)
        ids = {_digest(line.custom_id): line.line for line in block.lines if line.custom_id is not None}
        with transaction(self._sessions) as session:
            seen = store.add_seen(session, task.id, CUSTOM_IDS, ids)
            lines = store.find_seen(session, task.id, CUSTOM_IDS, seen) if seen else {}
            standing = {one: lines[key] for one in block.custom_ids() if (key := _digest(one)) in lines}
            block = without_repeats(task, block, standing) or block
            pictures = _first_lines(block)
            new = pictures.keys() - store.add_seen(session, task.id, IMAGES, pictures)
            known = store.find_known(session, task.tenant_id, new, reuse_s=self._settings.fetch_reuse_s)
            tally.add_pictures([_picture(key, known.get(key), inspected.get(key)) for key in new])
            tally.add(block, sample=self._settings.check_images, max_new_tokens=self._most)
            if not store.advance(
                session,
                task,
                size=block.bytes,
                lines=block.count,
                jobs=len(block.lines),
                tally=tally.as_json(),
                lease_s=self._settings.lease_s,
            ):
                raise LostBatch
        return replace(
            task,
            bytes=task.bytes + block.bytes,
            lines=task.lines + block.count,
            jobs=task.jobs + len(block.lines),
        )

    def _without_unusable(self, block: Block, found: dict[str, ImageInfo | InvalidWork]) -> Block:
        """With the lines made bad ones whose data URLs are no images that we take; `found` is filled."""
        lines = [self._checked(line, found) if isinstance(line, ParsedLine) else line for line in block.lines]
        return replace(block, lines=lines)

    def _checked(self, line: ParsedLine, found: dict[str, ImageInfo | InvalidWork]) -> ParsedLine | BadLine:
        request = line.request
        for image, param in zip(request.images, request.image_params, strict=True):
            if image.kind is not RefKind.DATA:
                continue
            key = ref_hash(image)
            if key not in found:
                found[key] = self._inspected(image)
            if isinstance(refused := found[key], InvalidWork):
                error = line.image_error(param, refused.code, refused.message)
                return BadLine(line.custom_id, error, line.line, request.model)
        return line

    def _inspected(self, image: ImageReference) -> ImageInfo | InvalidWork:
        try:
            return inspect(image.data, self._limits)
        except InvalidWork as error:
            return error

    def _check(self, task: IngestTask, tally: Tally) -> None:
        """InputError where the batch would end as failed."""
        if not task.jobs:
            raise InputError(nothing_in(task))
        if not tally.requests or (task.is_strict and tally.bad):
            raise InputError(
                *[LineError(code, one.message, one.line, one.param) for code, one in tally.bad.items()]
            )

    def _ask_for_sample(self, task: IngestTask, tally: Tally) -> None:
        """Have the fetchers bring the sample, as they would for the batch itself."""
        wishes = [ImageWish(RefKind(one.kind), one.ref_hash, one.ref) for one in tally.sample]
        with transaction(self._sessions) as session:
            reuse_s = self._settings.fetch_reuse_s
            wanted = want_images(session, task.tenant_id, wishes, reuse_s=reuse_s) if wishes else {}
            tally.probe_ids = sorted(one.id for one in wanted.values())
            tally.probe_until = self._clock() + self._settings.check_wait_s
            if not store.hold(session, task, tally.as_json(), seconds=self._settings.lease_s):
                raise LostBatch

    def _look(self, task: IngestTask, tally: Tally) -> bool:
        with transaction(self._sessions) as session:
            probes = store.read_probes(session, tally.probe_ids or ())
            if not all(one.state in ENDED for one in probes) and self._clock() < tally.probe_until:
                store.hold(session, task, tally.as_json(), seconds=LOOK_AGAIN_S)
                return False
        self._end(task, tally, probes)
        return True

    def _end(self, task: IngestTask, tally: Tally, probes: list[Probe]) -> None:
        model = tally.model or self._settings.served_model
        with transaction(self._sessions) as session:
            evidence = Evidence(
                probes=probes,
                rates=store.read_rates(session, model),
                price=self._settings.prices.get(model),
                max_pixels=self._settings.for_model(model).max_pixels,
                now=self._clock(),
            )
            report = make_report(tally, evidence)
            if not store.end_check(session, task, report.model_dump()):
                raise LostBatch
            store.forget_seen(session, task.id)
            events.tell_end(session, task.id)
        log.info("batch_checked", batch=task.id, lines=tally.rows, bad=tally.bad_lines)


def _digest(custom_id: str) -> str:
    return hashlib.sha256(custom_id.encode()).hexdigest()[:32]


def _first_lines(block: Block) -> dict[str, int]:
    """The images of a block by their hashes, with the first line that names each."""
    found: dict[str, int] = {}
    for line in block.lines:
        if isinstance(line, ParsedLine):
            for image in line.request.images:
                found.setdefault(ref_hash(image), line.line)
    return found


def _picture(key: str, known: Known | None, inspected: ImageInfo | InvalidWork | None) -> Picture:
    """An image that the batch had not named before. `inspected` is what came along, if it did."""
    size = None
    if isinstance(inspected, ImageInfo):
        size = inspected.width, inspected.height
    elif known is not None and known.width is not None and known.height is not None:
        size = known.width, known.height
    return Picture(
        key,
        is_inline=inspected is not None,
        is_stored=known is not None and known.state == "stored",
        is_failed=known is not None and known.state == "failed",
        size=size,
    )
