"""Writes what a run asks into input files, as many as the limits of a batch make it, with flat memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from app.config import Settings
from app.db import Sessions, transaction
from app.ids import file_key, new_file_id
from app.objects import ObjectStore
from app.store import sweep_items
from app.store.sweep_runs import RunTask, hold_run
from app.sweeps.questions import Asking, to_ask

PAGE_ITEMS = 1_000
BLOCK_BYTES = 256 * 1024
CONTENT_TYPE = "application/jsonl"


@dataclass(frozen=True)
class Part:
    """An input file in the object store."""

    file_id: str
    lines: int
    bytes: int

    def said(self) -> Mapping[str, Any]:
        return {"file_id": self.file_id, "lines": self.lines}


class Writer:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self._sessions = sessions
        self._objects = objects
        self._lease_s = settings.lease_s
        self._most_lines = settings.batch_max_lines
        self._most_bytes = settings.file_max_bytes

    def write(self, task: RunTask, keep_on: Callable[[], None]) -> list[Part]:
        """One line per image and question that has no answer which stands. `LostRun` where it is another's.

        `keep_on` is called between pages, and may raise to end it.
        """
        lines = self._lines(task, keep_on)
        parts: list[Part] = []
        while (first := next(lines, None)) is not None:
            parts.append(self._put(task, _Counted(chain([first], lines), self._most_lines, self._most_bytes)))
        return parts

    def _put(self, task: RunTask, lines: "_Counted") -> Part:
        file_id = new_file_id()
        key = file_key(task.sweep.tenant_id, file_id)
        size = self._objects.put_stream(key, lines.blocks(), content_type=CONTENT_TYPE)
        return Part(file_id, lines.count, size)

    def _lines(self, task: RunTask, keep_on: Callable[[], None]) -> Iterator[bytes]:
        asking = Asking(task.spec)
        after = ""
        while True:
            with transaction(self._sessions) as session:
                hold_run(session, task, lease_s=self._lease_s, mark=1)
                page = sweep_items.read_items(session, task.sweep.id, after=after, limit=PAGE_ITEMS)
            if not page:
                return
            after = page[-1].key
            for item in page:
                for name in to_ask(item.asked, asking.hashes(item.cells)):
                    yield asking.line(item.key, item.ref, item.cells, name)
            keep_on()


class _Counted:
    """Lines up to a limit, in blocks; the rest stays in their iterator."""

    def __init__(self, lines: Iterator[bytes], most_lines: int, most_bytes: int) -> None:
        self._lines = lines
        self._most_lines = most_lines
        self._most_bytes = most_bytes
        self.count = 0

    def blocks(self) -> Iterator[bytes]:
        block, size = bytearray(), 0
        while self.count < self._most_lines and size + len(block) < self._most_bytes - self._margin():
            line = next(self._lines, None)
            if line is None:
                break
            block += line
            self.count += 1
            if len(block) >= BLOCK_BYTES:
                size += len(block)
                yield bytes(block)
                block.clear()
        yield bytes(block)

    def _margin(self) -> int:
        """A part ends before the line that would be one too many: room for the longest that we write."""
        return min(self._most_bytes // 2, 8 * BLOCK_BYTES)
