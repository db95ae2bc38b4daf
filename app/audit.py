"""The audit log, read page by page."""

from app.db import Sessions, transaction
from app.errors import RequestError
from app.pages import Page, page_of
from app.store import audit as store
from app.store.audit import AuditRow

MARK = "audit_"
MOST_DIGITS = 18


class AuditLog:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def read(self, tenant_id: str | None, *, limit: int, after: str | None) -> Page[AuditRow]:
        """The newest first, of a tenant or of all; those behind the entry `after`."""
        before = _number(after) if after else None
        with transaction(self._sessions) as session:
            rows = store.read_log(session, tenant_id, limit=limit + 1, before=before)
        return page_of(rows, limit)


def entry_name(number: int) -> str:
    return f"{MARK}{number}"


def _number(name: str) -> int:
    digits = name.removeprefix(MARK)
    if not name.startswith(MARK) or not digits.isascii() or not digits.isdigit() or len(digits) > MOST_DIGITS:
        raise RequestError(f"{name!r} is the id of no audit entry.", param="after", code="invalid_after")
    return int(digits)
