"""How images look: wanted, looked at under a lease, searched within a few bits, in clusters."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.looks import BANDS, Looks, bands, flips, same_colours, signed

# A bucket of a band that holds more is read no further: a search must not become a scan.
BUCKET = 1_000
# Nobody is waited for longer, where no image at all was looked at for so long.
PATIENCE_S = 60
# Of one image, the nearest; of one search for what another looks like.
MOST_NEAR = 50

Content = tuple[str, str]  # tenant, content hash


@dataclass(frozen=True)
class LookTask:
    tenant_id: str
    content_hash: str
    attempt: int


@dataclass(frozen=True)
class Seen:
    """What came of looking at an image; `error` says why it has no looks."""

    task: LookTask
    looks: Looks | None = None
    error: str | None = None


@dataclass(frozen=True)
class NearImage:
    content_hash: str
    distance: int


def want(session: Session, contents: Collection[Content]) -> int:
    """Have these images looked at, unless they were or are about to be; how many are new."""
    ordered = sorted(set(contents))
    added = session.execute(
        text(
            """
            INSERT INTO image_looks (tenant_id, content_hash)
            SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[])) ON CONFLICT DO NOTHING
            RETURNING 1
            """
        ),
        {"tenants": [tenant for tenant, _ in ordered], "hashes": [name for _, name in ordered]},
    )
    return len(added.all())


def want_all(session: Session, tenant_id: str) -> int:
    """The same for all stored images of a tenant."""
    added = session.execute(
        text(
            """
            INSERT INTO image_looks (tenant_id, content_hash)
            SELECT DISTINCT tenant_id, content_hash FROM images
            WHERE tenant_id = :tenant AND state = 'stored' ORDER BY 1, 2 ON CONFLICT DO NOTHING RETURNING 1
            """
        ),
        {"tenant": tenant_id},
    )
    return len(added.all())


def find_unseen(session: Session, contents: Collection[Content]) -> set[Content]:
    """Those of the images that are worth waiting for: nobody has looked at them yet, but somebody looks.

    Once a wish is old and no image at all was looked at lately, nobody is there to look.
    """
    rows = session.execute(
        text(
            """
            SELECT tenant_id, content_hash
            FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[])) AS w(tenant_id, content_hash)
            JOIN image_looks USING (tenant_id, content_hash)
            WHERE seen_at IS NULL AND (
                wanted_at > now() - :patience * interval '1 second' OR EXISTS (
                    SELECT FROM image_looks s WHERE s.seen_at > now() - :patience * interval '1 second'))
            """
        ),
        {
            "tenants": [tenant for tenant, _ in contents],
            "hashes": [name for _, name in contents],
            "patience": PATIENCE_S,
        },
    )
    return {(row.tenant_id, row.content_hash) for row in rows}


def claim_looks(session: Session, *, limit: int, lease_s: float) -> list[LookTask]:
    """Take images to look at, those of dead processes among them, under a lease."""
    rows = session.execute(
        text(
            """
            UPDATE image_looks SET due_at = now() + :lease * interval '1 second', attempt = attempt + 1
            WHERE (tenant_id, content_hash) IN (
                SELECT tenant_id, content_hash FROM image_looks WHERE seen_at IS NULL AND due_at <= now()
                ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING tenant_id, content_hash, attempt
            """
        ),
        {"limit": limit, "lease": lease_s},
    )
    return [LookTask(*row) for row in rows]


def put_back(session: Session, task: LookTask, *, after_s: float) -> None:
    """Have an image looked at later, as if it had not been tried: what was in the way is not its fault."""
    session.execute(
        text(
            """
            UPDATE image_looks SET attempt = attempt - 1, due_at = now() + :after * interval '1 second'
            WHERE tenant_id = :tenant AND content_hash = :name AND attempt = :attempt AND seen_at IS NULL
            """
        ),
        {
            "tenant": task.tenant_id,
            "name": task.content_hash,
            "attempt": task.attempt,
            "after": after_s,
        },
    )


def record_looks(session: Session, tenant_id: str, seen: Sequence[Seen], *, cluster_distance: int) -> None:
    """Note how a tenant's images look; each joins the nearest cluster's first image, or begins a cluster.

    One transaction at a time for a tenant: two that look the same must not begin two clusters.
    """
    session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": f"looks\n{tenant_id}"}
    )
    for one in seen:
        _record(session, one)
        if one.looks is None:
            continue
        content = (tenant_id, one.task.content_hash)
        leaders = find_near(session, {content: cluster_distance}, leaders=True, most=1)[content]
        session.execute(
            text(
                """
                UPDATE image_looks SET leader = :leader WHERE tenant_id = :tenant AND content_hash = :name
                """
            ),
            {
                "tenant": tenant_id,
                "name": one.task.content_hash,
                "leader": leaders[0].content_hash if leaders else one.task.content_hash,
            },
        )


def _record(session: Session, one: Seen) -> None:
    pieces: Sequence[int | None] = bands(one.looks.phash) if one.looks else [None] * BANDS
    session.execute(
        text(
            """
            UPDATE image_looks SET phash = :phash, band0 = :band0, band1 = :band1, band2 = :band2,
                                   band3 = :band3, colours = :colours, error = :error,
                                   seen_at = clock_timestamp()
            WHERE tenant_id = :tenant AND content_hash = :name AND seen_at IS NULL
            """
        ),
        {
            "tenant": one.task.tenant_id,
            "name": one.task.content_hash,
            "phash": signed(one.looks.phash) if one.looks else None,
            "colours": one.looks.colours if one.looks else None,
            "error": one.error,
            **{f"band{number}": piece for number, piece in enumerate(pieces)},
        },
    )


def find_near(
    session: Session, wanted: dict[Content, int], *, leaders: bool = False, most: int = MOST_NEAR
) -> dict[Content, list[NearImage]]:
    """Each image's near duplicates within its own distance, the nearest first, of its tenant alone.

    `leaders`: only those that a cluster began with. Images that nobody has looked at have none.
    """
    found: dict[Content, list[NearImage]] = {content: [] for content in wanted}
    if not wanted:
        return found
    kind = "AND l.leader = l.content_hash" if leaders else ""
    buckets = "\nUNION ALL\n".join(_bucket(number, kind) for number in range(BANDS))
    rows = session.execute(
        text(
            f"""
            SELECT a.tenant_id, a.content_hash, a.colours AS mine, near.content_hash AS other,
                   near.colours AS theirs, near.distance
            FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[]), CAST(:distances AS int[]))
                 AS w(tenant_id, content_hash, most)
            JOIN image_looks a USING (tenant_id, content_hash)
            CROSS JOIN LATERAL (
                SELECT DISTINCT content_hash, colours,
                       bit_count(CAST(bucket.phash # a.phash AS bit(64))) AS distance
                FROM ({buckets}) AS bucket
                WHERE bit_count(CAST(bucket.phash # a.phash AS bit(64))) <= w.most
                  AND bucket.content_hash <> a.content_hash) AS near
            WHERE a.phash IS NOT NULL
            ORDER BY near.distance, near.content_hash
            """  # noqa: S608 - pieces of our own
        ),
        {
            "tenants": [tenant for tenant, _ in wanted],
            "hashes": [name for _, name in wanted],
            "distances": list(wanted.values()),
            "flips": flips(max(wanted.values())),
            "bucket": BUCKET,
        },
    )
    for row in rows:
        its = found[row.tenant_id, row.content_hash]
        if len(its) < most and same_colours(bytes(row.mine), bytes(row.theirs)):
            its.append(NearImage(row.other, row.distance))
    return found


def _bucket(number: int, kind: str) -> str:
    """Images that share a band with `a`, or all of it but a bit."""
    return f"""
        SELECT same.* FROM unnest(CAST(:flips AS int[])) AS flip CROSS JOIN LATERAL (
            SELECT l.content_hash, l.phash, l.colours FROM image_looks l
            WHERE l.tenant_id = a.tenant_id AND l.band{number} = (a.band{number} # flip)
              AND l.phash IS NOT NULL {kind} LIMIT :bucket) AS same"""  # noqa: S608 - a number


def forget(session: Session, contents: Sequence[Content]) -> None:
    """Drop how images look that no row names any more."""
    session.execute(
        text(
            """
            DELETE FROM image_looks USING unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[]))
                AS gone(tenant_id, content_hash)
            WHERE image_looks.tenant_id = gone.tenant_id AND image_looks.content_hash = gone.content_hash
              AND NOT EXISTS (SELECT FROM images i WHERE i.tenant_id = gone.tenant_id
                              AND i.content_hash = gone.content_hash)
            """
        ),
        {"tenants": [tenant for tenant, _ in contents], "hashes": [name for _, name in contents]},
    )
