"""Sessions of the console: an API key opens one, and closing the key closes it."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from app.actor import actor
from app.auth import Keys, Scope, Tenant, has_scope
from app.db import Sessions, transaction
from app.errors import Unauthorized
from app.store import audit
from app.store import console_sessions as store

TOKEN_BYTES = 32


class Role(StrEnum):
    """What a session may do, in one word."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    ADMIN = "admin"


@dataclass(frozen=True)
class Viewer:
    """Who looks at a page. `csrf` goes with every form of the session."""

    tenant: Tenant
    tenant_name: str
    key_name: str
    csrf: str

    @property
    def role(self) -> Role:
        return role_of(self.tenant.scopes)

    def may(self, scope: str) -> bool:
        """Whether the page may offer what needs this scope; `ValueError` for a word that is none."""
        return has_scope(self.tenant.scopes, Scope(scope))


@dataclass(frozen=True)
class Opened:
    """A session just made. `token` is for its cookie and is never stored."""

    token: str
    lasts_s: int


def role_of(scopes: Collection[str]) -> Role:
    if has_scope(scopes, Scope.ADMIN):
        return Role.ADMIN
    return Role.REVIEWER if has_scope(scopes, Scope.REVIEW) else Role.VIEWER


class ConsoleSessions:
    def __init__(self, *, sessions: Sessions, keys: Keys, lasts_s: int) -> None:
        """`lasts_s` is how long a session is open at most."""
        self._sessions = sessions
        self._keys = keys
        self._lasts_s = lasts_s

    def open(self, secret: str) -> Opened:
        """A session for the owner of a key; `Unauthorized` or `Forbidden` as for the API."""
        tenant = self._keys.recognise(secret.strip(), Scope.READ)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with transaction(self._sessions) as session:
            store.delete_over(session)
            store.insert_session(
                session,
                token_hash=_hash(token),
                key_id=tenant.key_id,
                csrf=secrets.token_urlsafe(TOKEN_BYTES),
                lasts_s=self._lasts_s,
            )
            acting = actor()
            acting.tenant_id, acting.key_id = tenant.id, tenant.key_id
            audit.note(session, acting, "console.signed_in", tenant.key_id, tenant_id=tenant.id)
        return Opened(token, self._lasts_s)

    def recognise(self, token: str | None) -> Viewer:
        """Whose session this is; `Unauthorized` where it is over, or its key no longer holds."""
        if token:
            with transaction(self._sessions) as session:
                row = store.find_session(session, _hash(token))
            if row is not None:
                tenant = Tenant(
                    row.tenant_id,
                    row.key_id,
                    frozenset(row.scopes),
                    self._keys.limit_of(row.requests_per_minute),
                )
                return Viewer(tenant, row.tenant_name, row.key_name, row.csrf)
        raise Unauthorized("Please sign in.", code="not_signed_in")

    def close(self, token: str | None) -> None:
        """End a session; one that is over stays so."""
        if token:
            with transaction(self._sessions) as session:
                store.delete_session(session, _hash(token))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
