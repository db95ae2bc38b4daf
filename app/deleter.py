"""Deletes the objects of the store that are doomed: the second half of every deletion.

Whoever removes a row whose bytes lie in the object store dooms their key in the same transaction. No crash
in between can so leave bytes for ever, and no outage of the store holds a deletion up.

Images are stored under their content hash, so somebody may store the same content again at any moment. These
rules keep its bytes:

- Who stores an image commits `spare` before the put, and the row after it.
- Who deletes holds the doomed row locked from before the look for rows that need the object until after the
  object is gone. A `spare` so comes before the deletion, which then leaves the object alone, or waits for its
  end, and the put brings the bytes back.
- A content is doomed `IMAGE_GRACE_S` ahead. One that is doomed between somebody's `spare` and row has the row
  by the time that it is looked at.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from app import telemetry
from app.db import Sessions, transaction
from app.errors import WorkError
from app.objects import ObjectStore
from app.store import doomed

log = structlog.get_logger()

# Far longer than from the put of an image to the commit of its row.
IMAGE_GRACE_S = 3600
# Objects of one transaction: its locks hold up who stores one of them again.
BLOCK_OBJECTS = 100
THREADS = 8
# When an object that could not be deleted is tried again; others come first meanwhile.
AGAIN_AFTER_S = 60


class Deleter:
    """Several may run at once: an object is deleted twice at worst."""

    def __init__(
        self, *, sessions: Sessions, objects: ObjectStore, block_objects: int = BLOCK_OBJECTS
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._block_objects = block_objects
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="delete-object")

    def step(self) -> bool:
        """Delete a block of what is due; whether there was any. Raises what the object store raises."""
        with transaction(self._sessions) as session:
            keys = doomed.lock_doomed(session, limit=self._block_objects)
            needed = doomed.find_needed(session, keys)
            failed = self._delete([key for key in keys if key not in needed])
            doomed.postpone(session, list(failed), after_s=AGAIN_AFTER_S)
            doomed.forget(session, [key for key in keys if key not in failed])
        telemetry.OBJECTS_DELETED.inc(len(keys) - len(needed) - len(failed))
        for error in failed.values():
            raise error
        return bool(keys)

    def close(self) -> None:
        self._threads.shutdown()

    def _delete(self, keys: Sequence[str]) -> dict[str, WorkError]:
        """Delete these objects; the errors of those that could not be."""
        outcomes = self._threads.map(self._try_delete, keys)
        return {key: error for key, error in zip(keys, outcomes, strict=True) if error}

    def _try_delete(self, key: str) -> WorkError | None:
        try:
            self._objects.delete(key)
        except WorkError as error:
            return error
        return None
