"""Sessions of the console, by the hash of their tokens, and the secret that signs what pages link to."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session


@dataclass(frozen=True)
class SessionRow:
    """A session that is open, with the key that opened it."""

    key_id: str
    key_name: str
    tenant_id: str
    tenant_name: str
    scopes: Sequence[str]
    requests_per_minute: int | None  # of its tenant
    csrf: str


def insert_session(session: Session, *, token_hash: bytes, key_id: str, csrf: str, lasts_s: int) -> None:
    session.execute(
        text(
            """
            INSERT INTO console_sessions (token_hash, key_id, csrf, expires_at)
            VALUES (:hash, :key, :csrf, now() + make_interval(secs => :lasts))
            """
        ),
        {"hash": token_hash, "key": key_id, "csrf": csrf, "lasts": lasts_s},
    )


def find_session(session: Session, token_hash: bytes) -> SessionRow | None:
    """None also where its key has been revoked or has expired since."""
    row = session.execute(
        text(
            """
            SELECT k.id, k.name, t.id, t.name, k.scopes, t.requests_per_minute, s.csrf
            FROM console_sessions s JOIN api_keys k ON k.id = s.key_id JOIN tenants t ON t.id = k.tenant_id
            WHERE s.token_hash = :hash AND s.expires_at > now() AND k.revoked_at IS NULL
              AND coalesce(k.expires_at > now(), true)
            """
        ),
        {"hash": token_hash},
    ).one_or_none()
    return SessionRow(*row) if row else None


def delete_session(session: Session, token_hash: bytes) -> None:
    session.execute(text("DELETE FROM console_sessions WHERE token_hash = :hash"), {"hash": token_hash})


def delete_over(session: Session) -> None:
    """Forget the sessions whose time is over."""
    session.execute(text("DELETE FROM console_sessions WHERE expires_at <= now()"))


def ensure_secret(session: Session, *, name: str, new: bytes) -> bytes:
    """The secret of this name, which is `new` if there was none: all API processes share it."""
    session.execute(
        text("INSERT INTO secrets (name, value) VALUES (:name, :new) ON CONFLICT DO NOTHING"),
        {"name": name, "new": new},
    )
    return bytes(
        session.execute(text("SELECT value FROM secrets WHERE name = :name"), {"name": name}).scalar_one()
    )
