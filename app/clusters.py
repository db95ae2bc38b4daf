"""A tenant's images that look the same: looked at on wish, found by one of them, listed by cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from app.actor import actor
from app.db import Sessions, transaction
from app.errors import NotFound
from app.pages import Page, page_of
from app.store import audit, looks
from app.store import clusters as store
from app.store.clusters import Cluster
from app.store.looks import NearImage

log = structlog.get_logger()


@dataclass(frozen=True)
class Near:
    """`seen` is false until somebody has looked at the image; `error` says why it cannot be compared."""

    seen: bool
    error: str | None
    images: Sequence[NearImage]
    references: Mapping[str, str]


class Clusters:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def near(self, tenant_id: str, content_hash: str, *, within: int) -> Near:
        """The tenant's images that look like this one, in all but so many bits; `NotFound` without it."""
        with transaction(self._sessions) as session:
            if not store.is_known(session, tenant_id, content_hash):
                raise NotFound(
                    f"No image has the content hash '{content_hash}'.",
                    param="content_hash",
                    code="image_not_found",
                )
            content = (tenant_id, content_hash)
            seen, error = store.read_look(session, *content)
            found = looks.find_near(session, {content: within})[content]
            names = store.read_references(session, tenant_id, [one.content_hash for one in found])
        return Near(seen, error, found, names)

    def list(self, tenant_id: str, *, limit: int, after: str | None) -> Page[Cluster]:
        with transaction(self._sessions) as session:
            found = store.list_clusters(session, tenant_id, limit=limit + 1, after=after)
        return page_of(found, limit)

    def look(self, tenant_id: str) -> int:
        """Have all stored images of the tenant looked at; how many have not been yet, nor were wanted."""
        with transaction(self._sessions) as session:
            wanted = looks.want_all(session, tenant_id)
            audit.note(session, actor(), "image_clusters.looked", "", {"images": wanted}, tenant_id=tenant_id)
        log.info("looks_wanted", images=wanted)
        return wanted
