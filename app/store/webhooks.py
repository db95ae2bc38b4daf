"""The endpoints that tenants want to be told at."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.paging import read_page

# Gone is what has answered that it is: it rests for ever.
COLUMNS = """
    id, name, url, event_types, secret, failures, CASE WHEN resting_until = 'infinity' THEN 'gone'
        WHEN resting_until > now() THEN 'resting' ELSE 'active' END AS status, created_at, updated_at
"""


@dataclass(frozen=True)
class EndpointRow:
    """An endpoint as its owner sees it; the status is `active`, `resting` or `gone`."""

    id: str
    name: str
    url: str
    event_types: Sequence[str]
    secret: str
    failures: int
    status: str
    created_at: datetime
    updated_at: datetime


def insert_endpoint(
    session: Session,
    *,
    endpoint_id: str,
    tenant_id: str,
    name: str,
    url: str,
    event_types: Sequence[str],
    secret: str,
    most: int,
) -> EndpointRow | None:
    """A new endpoint; None where the tenant has `most` of them already."""
    session.execute(
        text("SELECT id FROM tenants WHERE id = :tenant FOR NO KEY UPDATE"), {"tenant": tenant_id}
    )
    row = session.execute(
        text(
            f"""
            INSERT INTO webhook_endpoints (id, tenant_id, name, url, event_types, secret)
            SELECT :id, :tenant, :name, :url, CAST(:types AS text[]), :secret
            WHERE (SELECT count(*) FROM webhook_endpoints WHERE tenant_id = :tenant) < :most
            RETURNING {COLUMNS}
            """  # noqa: S608 - names of columns
        ),
        {
            "id": endpoint_id,
            "tenant": tenant_id,
            "name": name,
            "url": url,
            "types": list(event_types),
            "secret": secret,
            "most": most,
        },
    ).one_or_none()
    return None if row is None else EndpointRow(*row)


def read_endpoint(session: Session, tenant_id: str, endpoint_id: str) -> EndpointRow | None:
    row = session.execute(
        text(f"SELECT {COLUMNS} FROM webhook_endpoints WHERE id = :id AND tenant_id = :tenant"),  # noqa: S608
        {"id": endpoint_id, "tenant": tenant_id},
    ).one_or_none()
    return None if row is None else EndpointRow(*row)


def list_endpoints(
    session: Session, tenant_id: str, *, limit: int, after: EndpointRow | None
) -> Sequence[EndpointRow]:
    """Newest first, those behind `after`."""
    query = f"SELECT {COLUMNS} FROM webhook_endpoints WHERE tenant_id = :tenant"  # noqa: S608 - names of columns
    rows = read_page(session, query, {"tenant": tenant_id}, limit=limit, after=after)
    return [EndpointRow(*row) for row in rows]


def update_endpoint(
    session: Session,
    tenant_id: str,
    endpoint_id: str,
    *,
    name: str | None,
    url: str | None,
    event_types: Sequence[str] | None,
) -> EndpointRow | None:
    """Change what is given. Whoever changes an endpoint wants it tried again, if it rested."""
    row = session.execute(
        text(
            f"""
            UPDATE webhook_endpoints SET name = coalesce(:name, name), url = coalesce(:url, url),
                event_types = coalesce(CAST(:types AS text[]), event_types),
                failures = 0, resting_until = NULL,
                updated_at = CASE WHEN coalesce(:name, name) = name AND coalesce(:url, url) = url
                    AND coalesce(CAST(:types AS text[]), event_types) = event_types
                    THEN updated_at ELSE now() END
            WHERE id = :id AND tenant_id = :tenant RETURNING {COLUMNS}
            """  # noqa: S608 - names of columns
        ),
        {
            "id": endpoint_id,
            "tenant": tenant_id,
            "name": name,
            "url": url,
            "types": None if event_types is None else list(event_types),
        },
    ).one_or_none()
    return None if row is None else EndpointRow(*row)


def rotate_secret(
    session: Session, tenant_id: str, endpoint_id: str, *, secret: str, keep_old_s: float
) -> EndpointRow | None:
    """Give it a new secret, beside which the old one signs for so long."""
    row = session.execute(
        text(
            f"""
            UPDATE webhook_endpoints SET secret = :secret,
                old_secret = CASE WHEN :keep > 0 THEN secret END,
                old_secret_until = CASE WHEN :keep > 0 THEN now() + :keep * interval '1 second' END,
                updated_at = now()
            WHERE id = :id AND tenant_id = :tenant RETURNING {COLUMNS}
            """  # noqa: S608 - names of columns
        ),
        {"id": endpoint_id, "tenant": tenant_id, "secret": secret, "keep": keep_old_s},
    ).one_or_none()
    return None if row is None else EndpointRow(*row)


def delete_endpoint(session: Session, tenant_id: str, endpoint_id: str) -> bool:
    """Whether there was one; what was on its way to it goes, too."""
    row = session.execute(
        text("DELETE FROM webhook_endpoints WHERE id = :id AND tenant_id = :tenant RETURNING id"),
        {"id": endpoint_id, "tenant": tenant_id},
    ).one_or_none()
    return row is not None


def read_secrets(session: Session, endpoint_id: str) -> Sequence[str]:
    """Those that sign now, the newest first; none where the endpoint is gone."""
    row = session.execute(
        text(
            """
            SELECT secret, CASE WHEN old_secret_until > now() THEN old_secret END AS old
            FROM webhook_endpoints WHERE id = :id
            """
        ),
        {"id": endpoint_id},
    ).one_or_none()
    return [secret for secret in row or () if secret]
