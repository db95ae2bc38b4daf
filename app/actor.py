"""Who does what is being done: the request, and the tenant and key behind it; nobody for a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Actor:
    """Filled in as more is known. Threads that work for a request see the same object."""

    request_id: str | None = None
    tenant_id: str | None = None
    key_id: str | None = None


_acting: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting(request_id: str) -> Iterator[Actor]:
    """While a request is being answered."""
    actor = Actor(request_id)
    token = _acting.set(actor)
    try:
        yield actor
    finally:
        _acting.reset(token)


def actor() -> Actor:
    """Who it is now."""
    return _acting.get() or Actor()
