"""API keys: made, hashed, and turned back into the tenant they belong to."""

import hashlib
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy.orm import Session

from app.actor import actor
from app.db import Sessions, transaction
from app.errors import Forbidden, NotFound, Unauthorized
from app.ids import new_tenant_id
from app.store import audit
from app.store import keys as store

KEY_MARK = "vq_"
KEY_BYTES = 32
DAY = timedelta(days=1)
# How much of a key is kept readable, so that its owner can tell two keys apart: the mark and 6 characters.
PREFIX_LENGTH = 9
MISSING = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."


ALL = "*"


class Scope(StrEnum):
    """What a key may be used for."""

    READ = "read"  # look at everything of the tenant
    WRITE = "write"  # files, batches and direct jobs: made, cancelled, deleted; answers reviewed
    REVIEW = "review"  # answers reviewed, and nothing else changed
    CHAT = "chat"  # requests that are answered on the line
    ADMIN = "admin"  # keys, webhooks, usage and the audit log


# Scopes that another one holds.
WITHIN: Mapping[str, Sequence[str]] = {Scope.REVIEW: (Scope.WRITE,)}


@dataclass(frozen=True)
class Tenant:
    """Who asks: the tenant whose objects are in view, and the key that opened the door."""

    id: str
    key_id: str
    scopes: frozenset[str] = frozenset({ALL})
    requests_per_minute: int | None = None  # None and 0 set no limit


@dataclass(frozen=True)
class NewKey:
    """A key just made. `secret` is shown once and never stored."""

    id: str
    tenant_id: str
    secret: str


class Keys:
    """Makes keys and recognises them. A key is 256 random bits, so a plain hash is enough to store it."""

    def __init__(self, *, sessions: Sessions, requests_per_minute: int = 0) -> None:
        """`requests_per_minute` is what tenants may ask who have no limit of their own; 0 sets none."""
        self._sessions = sessions
        self._requests_per_minute = requests_per_minute

    def create(
        self,
        *,
        tenant: str,
        name: str,
        expires_days: int | None = None,
        scopes: Sequence[str] = (ALL,),
    ) -> NewKey:
        """A new key of the tenant of this name, who is made if there is none."""
        with transaction(self._sessions) as session:
            tenant_id = store.ensure_tenant(session, new_id=new_tenant_id(), name=tenant)
            return _add_key(session, tenant_id, name=name, expires_days=expires_days, scopes=scopes)

    def create_for(
        self, owner: Tenant, *, name: str, expires_days: int | None, scopes: Sequence[str]
    ) -> tuple[store.KeyRow, str]:
        """A new key of the caller's tenant, which opens no more than the caller's own."""
        _check_may_give(owner, scopes)
        with transaction(self._sessions) as session:
            made = _add_key(session, owner.id, name=name, expires_days=expires_days, scopes=scopes)
            row = store.read_key(session, owner.id, made.id)
        assert row is not None
        return row, made.secret

    def rotate_of(self, owner: Tenant, key_id: str, *, keep_s: float) -> tuple[store.KeyRow, str]:
        """A key of the same name and scopes, which lasts as long; the old one holds for `keep_s` more.

        `NotFound` for a key that is not the tenant's or is closed, `Forbidden` for one that may do more.
        """
        with transaction(self._sessions) as session:
            old = store.read_key(session, owner.id, key_id)
            if old is None or old.revoked_at is not None:
                raise NotFound(f"No open key has the id {key_id!r}.", param="key_id", code="key_not_found")
            _check_may_give(owner, old.scopes)
            days = math.ceil((old.expires_at - old.created_at) / DAY) if old.expires_at else None
            made = _add_key(session, owner.id, name=old.name, expires_days=days, scopes=old.scopes)
            if keep_s:
                store.expire_key(session, key_id, in_s=keep_s)
            else:
                store.revoke_key(session, key_id)
            details = {"new_key": made.id, "kept_s": keep_s}
            audit.note(session, actor(), "key.rotated", key_id, details, tenant_id=owner.id)
            row = store.read_key(session, owner.id, made.id)
        assert row is not None
        return row, made.secret

    def list_of(self, tenant_id: str) -> Sequence[store.KeyRow]:
        with transaction(self._sessions) as session:
            return store.list_keys(session, tenant_id)

    def read_of(self, tenant: Tenant) -> store.KeyRow:
        """The caller's own key."""
        with transaction(self._sessions) as session:
            row = store.read_key(session, tenant.id, tenant.key_id)
            if row is None:
                raise NotFound(f"No such key: {tenant.key_id}", param="key_id")
            return row

    def revoke_of(self, tenant_id: str, key_id: str) -> store.KeyRow:
        """Close a key of this tenant; `NotFound` for any other."""
        with transaction(self._sessions) as session:
            row = store.read_key(session, tenant_id, key_id)
            if row is None:
                raise NotFound(f"No key has the id {key_id!r}.", param="key_id", code="key_not_found")
            store.revoke_key(session, key_id)
            audit.note(session, actor(), "key.revoked", key_id)
            return store.read_key(session, tenant_id, key_id) or row

    def list(self) -> list[store.KeyRow]:
        with transaction(self._sessions) as session:
            return list(store.list_keys(session))

    def revoke(self, key_id: str) -> bool:
        """Whether there was such a key; from now on it opens nothing."""
        with transaction(self._sessions) as session:
            found = store.revoke_key(session, key_id)
            if found is not None:
                audit.note(session, actor(), "key.revoked", key_id, tenant_id=found)
            return found is not None

    def recognise(self, secret: str | None, scope: Scope | None = None) -> Tenant:
        """The tenant whose key this is; `Unauthorized` for no key, a wrong or revoked or expired one.

        `Forbidden` for one without the scope; None is whatever it has.
        """
        if not secret:
            raise Unauthorized(MISSING, code="missing_api_key")
        with transaction(self._sessions) as session:
            owner = store.find_owner(session, hash_key(secret))
            if owner is not None and owner.is_use_stale:
                store.note_use(session, owner.key_id)
        if owner is None or owner.revoked:
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        if owner.expired:
            raise Unauthorized("This API key has expired.", code="expired_api_key")
        if scope is not None and not has_scope(owner.scopes, scope):
            raise Forbidden(
                f"This API key has no scope '{scope}', only {', '.join(sorted(owner.scopes)) or 'none'}.",
                code="insufficient_scope",
            )
        limit = self.limit_of(owner.requests_per_minute)
        return Tenant(owner.tenant_id, owner.key_id, owner.scopes, limit)

    def limit_of(self, own: int | None) -> int:
        """What a tenant may ask a minute whose own limit is this; 0 sets none."""
        return self._requests_per_minute if own is None else own


def has_scope(scopes: Collection[str], wanted: str) -> bool:
    """Whether these open a door: the scope itself does, and one that holds it."""
    return bool({ALL, wanted, *WITHIN.get(wanted, ())} & set(scopes))


def may_give(own: Collection[str], wanted: Collection[str]) -> bool:
    """Whether a key with scopes `own` may make one with those that are wanted."""
    return ALL in own or all(one != ALL and has_scope(own, one) for one in wanted)


def _check_may_give(owner: Tenant, scopes: Collection[str]) -> None:
    if not may_give(owner.scopes, scopes):
        raise Forbidden(
            "A key can be given only scopes that your own has: "
            f"{', '.join(sorted(owner.scopes))}, not {', '.join(scopes)}.",
            param="scopes",
            code="insufficient_scope",
        )


def _add_key(
    session: Session, tenant_id: str, *, name: str, expires_days: int | None, scopes: Sequence[str]
) -> NewKey:
    key_id, secret = f"key_{secrets.token_hex(8)}", KEY_MARK + secrets.token_urlsafe(KEY_BYTES)
    store.insert_key(
        session,
        key_id=key_id,
        tenant_id=tenant_id,
        name=name,
        prefix=secret[:PREFIX_LENGTH],
        key_hash=hash_key(secret),
        expires_days=expires_days,
        scopes=list(dict.fromkeys(scopes)),
    )
    details = {"name": name, "scopes": list(scopes)}
    audit.note(session, actor(), "key.created", key_id, details, tenant_id=tenant_id)
    return NewKey(key_id, tenant_id, secret)


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
