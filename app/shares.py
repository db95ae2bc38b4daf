"""Places that tenants share, so that no one of them can take all."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from app.errors import RequestError


def has_share(held: int, *, open: int, most: int) -> bool:
    """Whether a tenant may take one more place: while it holds fewer than are free.

    One alone gets half of them, two that want all a third each, and whoever comes next still finds one.
    """
    return held < most - open


class Places:
    """So many places of one process, shared among tenants. Any thread may take and leave them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, tenant_id: str) -> bool:
        """Whether there was a place for this tenant, which it then leaves once."""
        with self._lock:
            if not has_share(self._held[tenant_id], open=self._held.total(), most=self.most):
                return False
            self._held[tenant_id] += 1
            return True

    @contextmanager
    def held(self, tenant_id: str, refusal: RequestError) -> Iterator[None]:
        """Hold a place while the block runs; raises `refusal` where there is none."""
        if not self.take(tenant_id):
            raise refusal
        try:
            yield
        finally:
            self.leave(tenant_id)

    def leave(self, tenant_id: str) -> None:
        with self._lock:
            self._held[tenant_id] -= 1
            self._held += Counter()  # forgets who holds none
