"""Jobs and images in the tables, as many as wanted: text, pictures, three classes, near and far deadlines."""

from pathlib import Path

from tests.rows import Rows

HOSTS = 50
BATCH = """
    INSERT INTO batches (id, tenant_id, status, endpoint, input_file_id, completion_window, request_hash,
                         model, total, priority, ingested_at, expires_at)
    VALUES (:id, 'tenant_a', 'in_progress', '/v1/chat/completions', 'file-x', '24h', :id,
            'demo', 0, :priority, now(), now() + :hours * interval '1 hour')
    ON CONFLICT DO NOTHING
"""
IMAGES = """
    INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, state, content_hash, format, width, height, bytes)
    SELECT 'tenant_a', 'data', 'h' || n, '', 'stored', md5(n::text), 'PNG', 640 + n % 5 * 160, 512, 100
    FROM generate_series(1, 1000) AS n ON CONFLICT DO NOTHING
"""
JOBS = """
    WITH added AS (
        INSERT INTO jobs (tenant_id, batch_id, line, model, priority, state, prompt, params,
                          image_ids, image_group)
        SELECT 'tenant_a', :batch, old.n + new.n, 'demo', :priority, 'ready', CAST(:prompt AS json),
               '{"max_tokens": 8}',
               CASE WHEN :pictures THEN ARRAY[(SELECT min(id) FROM images) + new.n % 1000] ELSE '{}' END,
               CASE WHEN :pictures THEN (SELECT min(id) FROM images) + new.n % 1000 ELSE 0 END
        FROM (SELECT coalesce(max(line), 0) AS n FROM jobs WHERE batch_id = :batch) AS old,
             generate_series(1, :count) AS new(n)
        RETURNING 1)
    UPDATE batches SET total = total + (SELECT count(*) FROM added) WHERE id = :batch
"""
PENDING = """
    INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, host, state)
    SELECT 'tenant_a', 'url', 'u' || :before + n, '', 'h' || n % :hosts || '.example', 'pending'
    FROM generate_series(1, :count) AS n
"""


def add_work(rows: Rows, gate: Path, *, before: int, count: int) -> None:
    """`count` more jobs, which wait in a worker for a file, and as many images to be fetched.

    Of the jobs a half are texts, a quarter is about pictures (no worker reads those: they stay waiting until
    the end), a quarter of the background. A single one is a text.
    """
    rows.add_tenant()
    rows.run(IMAGES)
    prompt = '{"turns": [{"role": "user", "parts": [{"text": "wait for %s"}]}]}' % gate  # noqa: UP031 - braces
    shares = {"pictures": count // 4, "patient": count // 4}
    for batch, hours in (("text", 1.0), ("pictures", 24.0), ("patient", 12.0)):
        priority = "background" if batch == "patient" else "standard"
        rows.run(BATCH, id=batch, priority=priority, hours=hours)
        rows.run(
            JOBS,
            batch=batch,
            priority=priority,
            prompt=prompt,
            pictures=batch == "pictures",
            count=shares.get(batch, count - sum(shares.values())),
        )
    rows.run(PENDING, before=before, hosts=HOSTS, count=count)
