"""A tenant's kept answers: how many there are, and forgetting them."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from app.actor import actor
from app.answer_keys import question_id
from app.db import Sessions, transaction
from app.errors import RequestError
from app.store import answer_cache as store
from app.store import audit

log = structlog.get_logger()

TOLD_CHARS = 200  # of a question, in the audit log


@dataclass(frozen=True)
class Forgetting:
    """Which answers to forget: of a model, to a question in its very words, both, or `all`."""

    model: str | None = None
    question: str | None = None
    all: bool = False


class KeptAnswers:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def count(self, tenant_id: str) -> Mapping[str, tuple[int, float]]:
        """By model: how many are kept, and the model time that they took."""
        with transaction(self._sessions) as session:
            return store.count_kept(session, tenant_id)

    def forget(self, tenant_id: str, wish: Forgetting) -> int:
        """How many were forgotten. RequestError where the wish says nothing, or all and less than all."""
        chosen = {name: value for name, value in vars(wish).items() if value and name != "all"}
        if bool(chosen) == wish.all:
            raise RequestError(
                "Say which answers to forget: by 'model', by 'question', by both, or {\"all\": true} alone.",
                param="all" if wish.all else "model",
                code="invalid_request",
            )
        words = question_id(wish.question) if wish.question else None
        with transaction(self._sessions) as session:
            forgotten = store.forget(session, tenant_id, model=wish.model, question_id=words)
            details = {**{name: _told(value) for name, value in chosen.items()}, "answers": forgotten}
            audit.note(
                session, actor(), "answer_cache.forgotten", wish.model or "", details, tenant_id=tenant_id
            )
        log.info("answers_forgotten", answers=forgotten)
        return forgotten


def _told(text: str) -> str:
    """As the audit log can keep it: a question may hold a NUL, and be long."""
    return text[:TOLD_CHARS].replace("\0", "\ufffd")
