"""What autoscalers ask: chunks a minute that a model's waiting jobs need, and fetches that could run at once.

Functions, so that a role may be granted these and no table (docs/scaling.md). None reads more for a million
jobs than for some thousands: batches are counted up to a limit and estimated from a sample beyond.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

COUNTED = 4_096  # ready jobs of a batch that are counted one by one: two windows
PROBES = 256  # of a larger batch: lines, evenly spread, whose states stand for all
SAMPLED = 512  # jobs whose images stand for those of all: eight chunks
DIRECT_COUNTED = 65_536  # direct jobs of a tenant and class; there is nothing to sample them by
TOKEN_PIXELS = 1_024  # of a visual token: 32 x 32
MIN_PIXELS = 65_536  # smaller pictures are enlarged to that
# Images that one thread of a fetcher gets in a minute: from the web, and from our own store.
WEB_IMAGES = 60
OWN_IMAGES = 600
LANES = 10_000  # hosts of a tenant that are looked at

# They run with their owner's rights: on a fixed path, lest a caller's own tables stand in for ours.
# An autoscaler's connection lives long and keeps its plans: one made while there were no jobs must be as good
# when there are millions, so ordered indexes serve everything. min() and max() read a whole batch then.
SETTINGS = """
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
"""
BACKLOG = f"""
CREATE FUNCTION vqueue_backlog(served text, chunk_jobs int, chunk_visual_tokens int, max_pixels int)
RETURNS TABLE (batch_id text, jobs bigint, chunks float8, left_s float8, is_patient boolean)
{{settings}} AS $$
    WITH RECURSIVE direct AS (
        (SELECT tenant_id, model, priority FROM jobs WHERE state = 'ready' AND batch_id IS NULL
         ORDER BY tenant_id, model, priority LIMIT 1)
        UNION ALL
        SELECT further.* FROM direct d CROSS JOIN LATERAL (
            SELECT tenant_id, model, priority FROM jobs
            WHERE state = 'ready' AND batch_id IS NULL
              AND (tenant_id, model, priority) > (d.tenant_id, d.model, d.priority)
            ORDER BY tenant_id, model, priority LIMIT 1) AS further),
    of_batches AS MATERIALIZED (
        SELECT b.id, seen.jobs AS seen, head.*,
               CAST(extract(epoch FROM b.expires_at - now()) AS float8) AS left_s,
               b.priority = 'background' AND now() <= b.expires_at - (b.expires_at - b.created_at) / 4
                   AS is_patient,
               CASE WHEN seen.jobs <= {COUNTED} THEN seen.jobs ELSE (
                   SELECT greatest(seen.jobs, CAST(round(b.total * avg(CAST(found.waits AS int))) AS bigint))
                   FROM (SELECT (SELECT line FROM jobs WHERE batch_id = b.id
                                 ORDER BY line LIMIT 1) AS first,
                                (SELECT line FROM jobs WHERE batch_id = b.id
                                 ORDER BY line DESC LIMIT 1) AS last) AS lines,
                        generate_series(0, {PROBES - 1}) AS probe
                        CROSS JOIN LATERAL (
                            SELECT state = 'ready' AND model = served AS waits FROM jobs
                            WHERE batch_id = b.id
                              AND line >= lines.first + probe * CAST(lines.last - lines.first AS bigint)
                                          / {PROBES - 1}
                            ORDER BY line LIMIT 1) AS found) END AS jobs
        FROM batches b
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                SELECT FROM jobs WHERE state = 'ready' AND batch_id = b.id AND model = served
                ORDER BY image_group, id LIMIT {COUNTED + 1}) AS counted) AS seen
        CROSS JOIN LATERAL (
            WITH head AS MATERIALIZED (
                SELECT image_ids FROM jobs WHERE state = 'ready' AND batch_id = b.id AND model = served
                ORDER BY image_group, id LIMIT {SAMPLED})
            SELECT (SELECT count(*) FROM head) AS sampled,
                   (SELECT coalesce(sum(
                        ceil(greatest(least(CAST(i.width AS bigint) * i.height, max_pixels), {MIN_PIXELS})
                             / {TOKEN_PIXELS}.0)), 0)
                    FROM images i WHERE i.id IN (SELECT unnest(image_ids) FROM head)) AS tokens) AS head
        WHERE b.status = 'in_progress' AND b.completed + b.failed < b.total AND b.expires_at > now()
          AND b.deleted_at IS NULL AND seen.jobs > 0)
    SELECT id, jobs, greatest(ceil(jobs / CAST(chunk_jobs AS float8)),
                              ceil(jobs * CAST(tokens AS float8) / sampled / chunk_visual_tokens)),
           left_s, is_patient
    FROM of_batches
    UNION ALL
    SELECT NULL, seen.jobs,
           CASE d.priority WHEN 'interactive' THEN seen.jobs
                           ELSE ceil(seen.jobs / CAST(chunk_jobs AS float8)) END,
           CAST(extract(epoch FROM seen.deadline - now()) AS float8), d.priority = 'background'
    FROM direct d CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(deadline) AS deadline FROM (
            SELECT deadline FROM jobs
            WHERE state = 'ready' AND batch_id IS NULL AND tenant_id = d.tenant_id
              AND model = d.model AND priority = d.priority
            ORDER BY image_group, id LIMIT {DIRECT_COUNTED}) AS counted) AS seen
    WHERE d.model = served
$$
"""  # noqa: S608 - numbers of our own
DEMAND = """
CREATE FUNCTION vqueue_demand(
    served text, chunk_jobs int DEFAULT 64, chunk_visual_tokens int DEFAULT 16384,
    max_pixels int DEFAULT 1003520, within_s int DEFAULT 1800)
RETURNS float8
{settings} AS $$
    SELECT coalesce(sum(60 * chunks / greatest(
        within_s / 12.0,
        CASE WHEN is_patient AND left_s IS NOT NULL THEN left_s / 2
             ELSE least(within_s, left_s / 2) END)), 0)
    FROM vqueue_backlog(served, chunk_jobs, chunk_visual_tokens, max_pixels)
$$
"""
FETCH_DEMAND = f"""
CREATE FUNCTION vqueue_fetch_demand(per_host int DEFAULT 4, images_day int DEFAULT 0)
RETURNS float8
{{settings}} AS $$
    WITH RECURSIVE lanes AS (
        (SELECT host, tenant_id, ref_kind FROM images WHERE state IN ('pending', 'fetching')
         ORDER BY host, tenant_id, ref_kind LIMIT 1)
        UNION ALL
        SELECT further.* FROM lanes CROSS JOIN LATERAL (
            SELECT i.host, i.tenant_id, i.ref_kind FROM images i
            WHERE i.state IN ('pending', 'fetching')
              AND (i.host, i.tenant_id, i.ref_kind) > (lanes.host, lanes.tenant_id, lanes.ref_kind)
            ORDER BY i.host, i.tenant_id, i.ref_kind LIMIT 1) AS further),
    spent AS (
        SELECT d.tenant_id FROM image_days d JOIN tenants t ON t.id = d.tenant_id
        WHERE d.day = (now() AT TIME ZONE 'UTC')::date AND coalesce(t.quota_images_day, images_day) > 0
          AND d.fetched >= coalesce(t.quota_images_day, images_day)),
    wanted AS (
        SELECT seen.host, sum(found.n) AS n FROM (SELECT * FROM lanes LIMIT {LANES}) AS seen
        CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM (
                SELECT FROM images i WHERE i.state IN ('pending', 'fetching') AND i.host = seen.host
                  AND i.tenant_id = seen.tenant_id AND i.ref_kind = seen.ref_kind
                ORDER BY i.due_at
                LIMIT CASE seen.host WHEN '' THEN 100 * {OWN_IMAGES} ELSE per_host * {WEB_IMAGES} END
            ) AS counted) AS found
        WHERE NOT EXISTS (SELECT FROM host_pauses p WHERE p.host = seen.host AND p.until > now())
          AND (seen.ref_kind = 'file' OR seen.tenant_id NOT IN (SELECT tenant_id FROM spent))
        GROUP BY seen.host),
    looks AS (
        SELECT count(*) AS n FROM (
            SELECT FROM image_looks WHERE seen_at IS NULL LIMIT 100 * {OWN_IMAGES}) AS counted)
    SELECT CAST(coalesce(sum(CASE host WHEN '' THEN n / {OWN_IMAGES}.0
                                  ELSE least(per_host, n / {WEB_IMAGES}.0) END), 0)
                + (SELECT n FROM looks) / {OWN_IMAGES}.0 AS float8)
    FROM wanted
$$
"""  # noqa: S608 - numbers of our own
SIGNATURES = (
    "vqueue_backlog(text, int, int, int)",
    "vqueue_demand(text, int, int, int, int)",
    "vqueue_fetch_demand(int, int)",
)


def upgrade() -> None:
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    for function in (BACKLOG, DEMAND, FETCH_DEMAND):
        op.execute(function.format(settings=SETTINGS.format(schema=schema)))
    for signature in SIGNATURES:
        op.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")


def downgrade() -> None:
    for signature in reversed(SIGNATURES):
        op.execute(f"DROP FUNCTION {signature}")
