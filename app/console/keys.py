"""Keys as their page shows them. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from app.auth import ALL, Scope, may_give
from app.store.keys import KeyRow

SOON = timedelta(days=14)
PAGE = 100  # keys; closed ones are kept, and may be many where keys are rotated often
# In the order in which they are offered.
SCOPES = (Scope.READ, Scope.WRITE, Scope.REVIEW, Scope.CHAT, Scope.ADMIN, ALL)
EXPIRIES = (7, 30, 90, 365)  # days


class KeyState(StrEnum):
    ACTIVE = "active"
    ENDING = "ending"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True)
class KeyView:
    key: KeyRow
    state: KeyState
    is_own: bool
    can_rotate: bool

    @property
    def is_open(self) -> bool:
        return self.state in (KeyState.ACTIVE, KeyState.ENDING)


def key_views(
    keys: Sequence[KeyRow], *, own_id: str, own_scopes: Collection[str], now: datetime
) -> list[KeyView]:
    """The newest first; `own_id` is the key by which the viewer has signed in."""
    views = [
        KeyView(
            key,
            state := key_state(key, now),
            is_own=key.id == own_id,
            can_rotate=state is not KeyState.REVOKED and may_give(own_scopes, key.scopes),
        )
        for key in keys
    ]
    return views[::-1]


def key_page(views: Sequence[KeyView], after: str | None) -> tuple[Sequence[KeyView], str | None]:
    """A page behind the key `after` (the first one where it is none), and what the next goes on behind.

    Open keys come before closed ones.
    """
    ordered = sorted(views, key=lambda view: not view.is_open)
    start = next((at for at, view in enumerate(ordered, start=1) if view.key.id == after), 0)
    shown = ordered[start : start + PAGE]
    return shown, shown[-1].key.id if start + PAGE < len(ordered) else None


def key_state(key: KeyRow, now: datetime) -> KeyState:
    if key.revoked_at is not None:
        return KeyState.REVOKED
    if key.expires_at is None:
        return KeyState.ACTIVE
    if key.expires_at <= now:
        return KeyState.EXPIRED
    return KeyState.ENDING if key.expires_at - now < SOON else KeyState.ACTIVE


def offered_scopes(own: Collection[str]) -> list[str]:
    """Those that the viewer can give away."""
    return [str(scope) for scope in SCOPES if may_give(own, [scope])]
