"""Clusters of near duplicates as their tenant sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.looks import distance

MOST_MEMBERS = 100  # that are told of one cluster


@dataclass(frozen=True)
class Member:
    """`distance` is that from the cluster's representative, in bits; `reference` is where it came from."""

    content_hash: str
    distance: int
    reference: str | None


@dataclass(frozen=True)
class Cluster:
    """Its first member is its representative."""

    id: str
    size: int
    members: Sequence[Member]


def is_known(session: Session, tenant_id: str, content_hash: str) -> bool:
    """Whether the tenant has such an image."""
    found = session.execute(
        text(
            """
            SELECT EXISTS (SELECT FROM images WHERE tenant_id = :tenant AND content_hash = :name
                           AND state = 'stored')
            """
        ),
        {"tenant": tenant_id, "name": content_hash},
    )
    return found.scalar_one()


def read_look(session: Session, tenant_id: str, content_hash: str) -> tuple[bool, str | None]:
    """Whether an image was looked at, and why it has no hash, if it has none."""
    row = session.execute(
        text(
            """
            SELECT seen_at IS NOT NULL AS seen, error FROM image_looks
            WHERE tenant_id = :tenant AND content_hash = :name
            """
        ),
        {"tenant": tenant_id, "name": content_hash},
    ).one_or_none()
    return (row.seen, row.error) if row else (False, None)


def read_references(session: Session, tenant_id: str, hashes: Sequence[str]) -> Mapping[str, str]:
    """Where these images came from: one URL, key or file each; images that came along have none."""
    rows = session.execute(
        text(
            """
            SELECT DISTINCT ON (content_hash) content_hash, ref FROM images
            WHERE tenant_id = :tenant AND content_hash = ANY(:hashes) AND state = 'stored' AND ref <> ''
            ORDER BY content_hash, id
            """
        ),
        {"tenant": tenant_id, "hashes": list(hashes)},
    )
    return {row.content_hash: row.ref for row in rows}


def list_clusters(session: Session, tenant_id: str, *, limit: int, after: str | None) -> list[Cluster]:
    """A page of the clusters of more than one image, by their ids, from behind `after` on."""
    rows = session.execute(
        text(
            """
            WITH page AS (
                SELECT leader, count(*) AS size FROM image_looks
                WHERE tenant_id = :tenant AND phash IS NOT NULL
                  AND leader > coalesce(CAST(:after AS text), '')
                GROUP BY leader HAVING count(*) > 1 ORDER BY leader LIMIT :limit)
            SELECT page.leader, page.size, one.content_hash, one.phash
            FROM page CROSS JOIN LATERAL (
                SELECT content_hash, phash FROM image_looks l
                WHERE l.tenant_id = :tenant AND l.leader = page.leader AND l.phash IS NOT NULL
                ORDER BY l.content_hash <> page.leader, l.seen_at, l.content_hash LIMIT :most) AS one
            """
        ),
        {"tenant": tenant_id, "after": after, "limit": limit, "most": MOST_MEMBERS},
    ).all()
    named = read_references(session, tenant_id, [row.content_hash for row in rows])
    found: dict[str, Cluster] = {}
    first: dict[str, int] = {}
    for row in rows:
        start = first.setdefault(row.leader, row.phash)
        cluster = found.setdefault(row.leader, Cluster(row.leader, row.size, []))
        member = Member(row.content_hash, distance(start, row.phash), named.get(row.content_hash))
        found[row.leader] = Cluster(cluster.id, cluster.size, [*cluster.members, member])
    return [found[name] for name in sorted(found)]
