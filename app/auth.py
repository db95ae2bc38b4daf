"""API keys: made, hashed, and turned back into the tenant they belong to."""

import hashlib
import secrets
from dataclasses import dataclass

from app.db import Sessions, transaction
from app.errors import Unauthorized
from app.ids import new_tenant_id
from app.store import keys as store

KEY_MARK = "vq_"
KEY_BYTES = 32
# How much of a key is kept readable, so that its owner can tell two keys apart: the mark and 6 characters.
PREFIX_LENGTH = 9
MISSING = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."


@dataclass(frozen=True)
class Tenant:
    """Who asks: the tenant whose objects are in view, and the key that opened the door."""

    id: str
    key_id: str


@dataclass(frozen=True)
class NewKey:
    """A key just made. `secret` is shown once and never stored."""

    id: str
    tenant_id: str
    secret: str


class Keys:
    """Makes keys and recognises them. A key is 256 random bits, so a plain hash is enough to store it."""

    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def create(self, *, tenant: str, name: str, expires_days: int | None = None) -> NewKey:
        """A new key of the tenant of this name, who is made if there is none."""
        key_id, secret = f"key_{secrets.token_hex(8)}", KEY_MARK + secrets.token_urlsafe(KEY_BYTES)
        with transaction(self._sessions) as session:
            tenant_id = store.ensure_tenant(session, new_id=new_tenant_id(), name=tenant)
            store.insert_key(
                session,
                key_id=key_id,
                tenant_id=tenant_id,
                name=name,
                prefix=secret[:PREFIX_LENGTH],
                key_hash=hash_key(secret),
                expires_days=expires_days,
            )
        return NewKey(key_id, tenant_id, secret)

    def list(self) -> list[store.KeyRow]:
        with transaction(self._sessions) as session:
            return list(store.list_keys(session))

    def revoke(self, key_id: str) -> bool:
        """Whether there was such a key; from now on it opens nothing."""
        with transaction(self._sessions) as session:
            return store.revoke_key(session, key_id)

    def recognise(self, secret: str | None) -> Tenant:
        """The tenant whose key this is; `Unauthorized` for no key, a wrong or revoked or expired one."""
        if not secret:
            raise Unauthorized(MISSING, code="missing_api_key")
        with transaction(self._sessions) as session:
            owner = store.find_owner(session, hash_key(secret))
        if owner is None or owner.revoked:
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        if owner.expired:
            raise Unauthorized("This API key has expired.", code="expired_api_key")
        return Tenant(owner.tenant_id, owner.key_id)


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
