"""Finds objects of the store that no row knows, left by a crash between put and commit, and dooms them."""

import time
from collections.abc import Callable, Sequence

import structlog

from app import telemetry
from app.db import Sessions, transaction
from app.deleter import IMAGE_GRACE_S
from app.ids import key_parts
from app.objects import Listed, ObjectStore
from app.store import doomed

log = structlog.get_logger()

EVERY_S = 86_400
# Younger ones may belong to an upload or a finalize that has not committed yet.
OLD_S = 86_400
PREFIXES = ("files/", "images/")


class Orphans:
    """Lists our bucket once a day, a page per `step`; a new process begins anew.

    An object is an orphan only if its key is one that we make and its tenant is one of ours: another
    installation may keep its objects in the same bucket.
    """

    def __init__(
        self, *, sessions: Sessions, objects: ObjectStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._clock = clock
        self._prefixes = list(PREFIXES)
        self._after = ""
        self._due = clock()

    def step(self) -> bool:
        """Look at one page; always False, so that the next one comes after a pause."""
        if self._clock() < self._due:
            return False
        page = self._objects.page(self._prefixes[0], after=self._after)
        if page:
            self._after = page[-1].key
            self._doom(_old(page, self._clock()))
        else:
            self._turn()
        return False

    def _turn(self) -> None:
        """On to the next prefix; after the last one, to the first, a day later."""
        self._prefixes.append(self._prefixes.pop(0))
        self._after = ""
        if self._prefixes[0] == PREFIXES[0]:
            self._due = self._clock() + EVERY_S
            log.info("bucket_listed")

    def _doom(self, keys: Sequence[str]) -> None:
        parts = {key: found for key in keys if (found := key_parts(key))}
        with transaction(self._sessions) as session:
            ours = doomed.known_tenants(session, [part.tenant_id for part in parts.values()])
            needed = doomed.find_needed(session, list(parts))
            orphans = [key for key, part in parts.items() if part.tenant_id in ours and key not in needed]
            doomed.doom(session, orphans, after_s=IMAGE_GRACE_S)
        if orphans:
            telemetry.ORPHANS.inc(len(orphans))
            log.info("orphans_found", objects=len(orphans))


def _old(page: Sequence[Listed], now: float) -> list[str]:
    return [item.key for item in page if item.changed_at < now - OLD_S]
