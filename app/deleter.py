"""Deletes the objects of the store that are doomed: the second half of every deletion.

Whoever removes a row whose bytes lie in the object store dooms their key in the same transaction. No crash
in between can so leave bytes for ever, and no outage of the store holds a deletion up.

Images are stored under their content hash, so somebody may store the same content again at any moment. These
rules keep its bytes:

- Who stores an image commits `spare` before the put, and the row after it. Where the object may be in
  somebody's hands already, it stores nothing for now.
- Who deletes looks for rows that need the object, and notes that it tries, in one transaction with the doomed
  row locked: a `spare` comes before it, and takes the object off the list, or after it, and is told so. What
  was tried stays noted until a deletion is answered, whoever dies in between, since an unanswered one may
  still reach the object store.
- A content is doomed `IMAGE_GRACE_S` ahead. One that is doomed between somebody's `spare` and row has the row
  by the time that it is looked at.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.orm import Session

from app import telemetry
from app.db import Sessions, transaction
from app.errors import TransientWork, WorkError
from app.objects import ObjectStore
from app.states import OUR_STORE_AWAY
from app.store import doomed

# Far longer than from the put of an image to the commit of its row.
IMAGE_GRACE_S = 3600
BLOCK_OBJECTS = 100
THREADS = 8
# Deletions that have not begun by then are left to others: a process that was frozen deletes nothing late.
BEGIN_WITHIN_S = 30
# Others try again after that, when the last one has long been answered or given up (140 s).
TRIED_FOR_S = 300
# An object that could not be deleted; others come first meanwhile.
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
        started = time.monotonic()
        with transaction(self._sessions) as session:
            due = doomed.lock_doomed(session, limit=self._block_objects)
            needed = doomed.find_needed(session, due)
            doomed.forget(session, list(needed), tried=False)
            keys = [key for key in due if key not in needed]
            doomed.mark_tried(session, keys, again_after_s=TRIED_FOR_S)
        failed = self._delete(keys, until=started + BEGIN_WITHIN_S)
        with transaction(self._sessions) as session:
            doomed.forget(session, [key for key in keys if key not in failed], tried=True)
            doomed.mark_tried(session, list(failed), again_after_s=AGAIN_AFTER_S)
        telemetry.OBJECTS_DELETED.inc(len(keys) - len(failed))
        for error in failed.values():
            raise error
        return bool(due)

    def close(self) -> None:
        self._threads.shutdown()

    def _delete(self, keys: Sequence[str], *, until: float) -> dict[str, WorkError]:
        """Delete these objects; the errors of those that could not be."""
        outcomes = self._threads.map(lambda key: self._try_delete(key, until), keys)
        return {key: error for key, error in zip(keys, outcomes, strict=True) if error}

    def _try_delete(self, key: str, until: float) -> WorkError | None:
        if time.monotonic() > until:
            return TransientWork(OUR_STORE_AWAY, "Deleting took too long.")
        try:
            self._objects.delete(key)
        except WorkError as error:
            return error
        return None


def spare(session: Session, keys: Sequence[str]) -> None:
    """Commit this before these objects are put. TransientWork when one of them is being deleted."""
    if doomed.spare(session, keys):
        raise TransientWork(OUR_STORE_AWAY, "The same image is being deleted: try again in a moment.")
