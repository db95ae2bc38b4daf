"""Requests that carry an Idempotency-Key: sent twice, they make one thing."""

import hashlib
import json
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.checks import Json
from app.errors import Conflict
from app.store import repeats as store
from app.store.batches import lock_submission


@dataclass(frozen=True)
class Once:
    """A request of a tenant that is to make one object of a kind; `request_hash` is all that it says."""

    tenant_id: str
    kind: str
    key: str
    request_hash: str

    def made(self, session: Session) -> str | None:
        """The id of what this request has made, if it has; others with its key wait meanwhile.

        `Conflict` where the key has made something for another request.
        """
        lock_submission(session, self.tenant_id, f"{self.kind}\n{self.key}")
        found = store.find_made(session, self.tenant_id, self.kind, self.key)
        if found is None:
            return None
        if found.request_hash != self.request_hash:
            raise key_reused()
        return found.object_id

    def note(self, session: Session, object_id: str) -> None:
        store.note_made(
            session,
            self.tenant_id,
            self.kind,
            self.key,
            request_hash=self.request_hash,
            object_id=object_id,
        )


def key_reused() -> Conflict:
    return Conflict(
        "This Idempotency-Key was used before, with another request. Use a key of its own for each.",
        code="idempotency_key_reused",
    )


def hash_request(said: Json) -> str:
    """Hex sha256 of a request as JSON: two with one hash say the same."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
