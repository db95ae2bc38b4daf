"""Ends requests that nobody waits for any more: their callers have hung up, and the books say so."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock

import structlog

from app.db import Sessions, transaction
from app.store import chats
from workers.engine.base import Answer

LOOK_S = 1.0

log = structlog.get_logger()


class HangUps:
    """`step` looks once after all requests that are watched; a loop calls it every LOOK_S."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._lock = Lock()
        self._answers: dict[int, Future[Answer]] = {}

    @contextmanager
    def watching(self, answers: Mapping[int, Future[Answer]]) -> Iterator[None]:
        """Cancel the answer of a job, by its id, whose caller goes while the block runs."""
        with self._lock:
            self._answers.update(answers)
        try:
            yield
        finally:
            with self._lock:
                for job_id in answers:
                    self._answers.pop(job_id, None)

    def step(self) -> bool:
        with self._lock:
            watched = dict(self._answers)
        if watched:
            with transaction(self._sessions) as session:
                left = chats.find_left(session, sorted(watched))
            for job_id in left:
                log.info("caller_left", job=job_id, dropped=watched[job_id].cancel())
        return False
