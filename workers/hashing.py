"""Looks at stored images that somebody wants compared: small decodes, a hash and mean colours each."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from app import telemetry
from app.answer_keys import look_key
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork, TransientWork
from app.ids import image_key
from app.images import image_limits, normalise
from app.looks import SIDE, looks_of
from app.objects import ObjectMissing, ObjectStore
from app.store import answer_cache, looks
from app.store.looks import LookTask, Seen

log = structlog.get_logger()

# Decoding holds the picture in memory: few at a time beside the downloads.
THREADS = 2
BLOCK = 32
LEASE_S = 120.0
AGAIN_AFTER_S = 5.0  # the object store is away
# A picture that was in hand at so many ends of processes, or whose bytes could not be had so often.
MOST_ATTEMPTS = 5
# A JPEG is decoded no larger than needed; some room, so that its rounding does not show.
DECODED_SIDE = 4 * SIDE
# How far from a cluster's first image others of it may be: measured in docs/near-duplicates.md.
CLUSTER_DISTANCE = 6

PLAIN, UNREADABLE, GONE = "plain", "unreadable", "gone"


class Hasher:
    """Any number may run. An image that nobody could look at is done with, and like no other."""

    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self._sessions = sessions
        self._objects = objects
        self._limits = image_limits(settings)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="look")

    def step(self) -> bool:
        """Look at a block of images; whether there was any."""
        with transaction(self._sessions) as session:
            tasks = looks.claim_looks(session, limit=BLOCK, lease_s=LEASE_S)
        by_tenant: dict[str, list[Seen]] = defaultdict(list)
        for seen in self._threads.map(self._look, tasks):
            if seen is not None:
                by_tenant[seen.task.tenant_id].append(seen)
        for tenant_id, found in by_tenant.items():
            self._record(tenant_id, found)
        return bool(tasks)

    def close(self) -> None:
        self._threads.shutdown()

    def _look(self, task: LookTask) -> Seen | None:
        """None where it is to be tried again once the lease has run out."""
        if task.attempt > MOST_ATTEMPTS:
            return Seen(task, error=UNREADABLE)
        try:
            with telemetry.stage("look"):
                data = self._objects.get(
                    image_key(task.tenant_id, task.content_hash), max_bytes=self._limits.max_bytes
                )
                found = looks_of(normalise(data, self._limits, small=DECODED_SIDE))
        except ObjectMissing:
            return Seen(task, error=GONE)
        except TransientWork as error:
            log.info("look_retried", code=error.code)
            with transaction(self._sessions) as session:
                looks.put_back(session, task, after_s=AGAIN_AFTER_S)
            return None
        except InvalidWork as error:
            log.info("look_failed", code=error.code)
            return Seen(task, error=UNREADABLE)
        except Exception:  # a bug of ours must not stop the other images
            log.exception("look_faulted", attempt=task.attempt)
            return None
        return Seen(task, found, None if found else PLAIN)

    def _record(self, tenant_id: str, seen: Sequence[Seen]) -> None:
        with transaction(self._sessions) as session:
            looks.record_looks(session, tenant_id, seen, cluster_distance=CLUSTER_DISTANCE)
            answer_cache.release(session, [look_key(tenant_id, one.task.content_hash) for one in seen])
        for one in seen:
            telemetry.IMAGES_LOOKED_AT.labels(one.error or "hashed").inc()
        log.info("images_looked_at", images=len(seen))
