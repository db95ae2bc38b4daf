"""A notebook of pictures that were sent: each only once, also when a run is broken off and taken up again."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

# A picture of an earlier run is sent again if it would not outlive the reading of the table.
SPARE_S = 86_400


@dataclass(frozen=True)
class Sent:
    """A picture's file here, what the table calls it, and its id there until a time."""

    path: str
    size: int
    mtime_ns: int
    text: str
    id: str
    until: int


class Notebook:
    """Lines of a file beside the output; without a file it lasts as long as the process. Threads share it."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = Lock()
        self._all = [*_read(file)]
        self._sent = {(one.path, one.size, one.mtime_ns): one for one in self._all}

    def find(self, path: Path) -> str | None:
        """The id under which this very file was sent."""
        found = self._sent.get(_state(path))
        return found.id if found and found.until > time.time() + SPARE_S else None

    def sent(self) -> dict[str, Sent]:
        """All that was ever sent, by id."""
        return {one.id: one for one in self._all}

    def add(self, path: Path, text: str, *, id: str, until: int) -> None:
        sent = Sent(*_state(path), text, id, until)
        with self._lock:
            self._all.append(sent)
            self._sent[sent.path, sent.size, sent.mtime_ns] = sent
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps(asdict(sent)) + "\n")


def _state(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    return str(path), stat.st_size, stat.st_mtime_ns


def _read(file: Path | None) -> Iterator[Sent]:
    """What can be read: the last line may be half written."""
    if file is None or not file.exists():
        return
    with file.open() as lines:
        for line in lines:
            try:
                yield Sent(**json.loads(line))
            except (ValueError, TypeError):
                continue
