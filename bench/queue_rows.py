"""Tables as they are after so many jobs, filled by SQL: ended batches, and one that runs."""

from contextlib import closing

import psycopg2

from bench.queue_lines import MODEL
from bench.queue_site import Site

MOST_IN_BATCH = 1_000_000
JOBS_PER_SMALL_BATCH = 100  # of those that are only there to be listed
CHUNK = 32
DONE = 0.2  # share of the running batch that has ended
ROWS_AT_ONCE = 500_000

BATCH = """
INSERT INTO batches (id, tenant_id, status, endpoint, input_file_id, completion_window, request_hash, model,
                     total, completed, ingested_lines, created_at, in_progress_at, expires_at)
VALUES (%(batch)s, %(tenant)s, %(status)s, '/v1/chat/completions', 'file-x', '24h', 'x', %(model)s,
        %(jobs)s, %(done)s, %(jobs)s, now(), now(), now() + interval '1 day')
"""
SMALL_BATCHES = """
INSERT INTO batches (id, tenant_id, status, endpoint, input_file_id, completion_window, request_hash, model,
                     total, completed, created_at, in_progress_at, completed_at, ended_at, expires_at)
SELECT 'batch_small' || n, %(tenant)s, 'completed', '/v1/chat/completions', 'file-x', '24h', 'x', %(model)s,
       1, 1, now() - n * interval '1 second', now(), now(), now(), now() + interval '1 day'
FROM generate_series(1, %(count)s) AS n
"""
JOBS = """
INSERT INTO jobs (id, tenant_id, batch_id, line, custom_id, model, state, prompt, params, image_ids, attempt,
                  deadline, sent_at, started_at, finished_at)
SELECT %(before)s + n, %(tenant)s, %(batch)s, n, 'product-' || lpad(n::text, 8, '0'), %(model)s,
       CASE WHEN n <= %(done)s THEN 'completed' ELSE 'ready' END, CAST(%(prompt)s AS json), '{}', '{}',
       CASE WHEN n <= %(done)s THEN 1 ELSE 0 END, now() + interval '1 day',
       CASE WHEN n <= %(done)s THEN now() END, CASE WHEN n <= %(done)s THEN now() END,
       CASE WHEN n <= %(done)s THEN now() END
FROM generate_series(%(first)s, %(last)s) AS n
"""
ANSWERS = """
INSERT INTO answers (job_id, text, finish_reason, prompt_tokens, completion_tokens, model, revision)
SELECT %(before)s + n, 'dark blue', 'stop', 320, 3, %(model)s, 'instant'
FROM generate_series(%(first)s, least(%(last)s, %(done)s)) AS n
"""
RESULTS = """
INSERT INTO results (batch_id, seq, job_ids)
SELECT %(batch)s, least(n + %(chunk)s - 1, %(done)s),
       ARRAY(SELECT generate_series(%(before)s + n, %(before)s + least(n + %(chunk)s - 1, %(done)s)))
FROM generate_series(1, %(done)s, %(chunk)s) AS n
"""
PROMPT = (
    '{"turns": [{"role": "user", "parts": [{"text": "Product: cotton shirt with long sleeves for men and '
    "women in five sizes, cotton shirt with long sleeves for men and women in five sizes. What is the main "
    'colour of the item?"}]}]}'
)


def fill(site: Site, rows: int) -> tuple[str, int]:
    """Make `rows` jobs in batches of at most a million; the last one, which runs, and its ended jobs."""
    with closing(psycopg2.connect(site.database_url)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SET synchronous_commit = off")
        batch, done, filled = "", 0, 0
        while filled < rows:
            jobs = min(MOST_IN_BATCH, rows - filled)
            batch = f"batch_{filled:024x}"
            done = int(jobs * DONE) if filled + jobs == rows else jobs
            _fill_batch(cursor, site, batch, before=filled, jobs=jobs, done=done)
            filled += jobs
        small = {"tenant": site.tenant_id, "model": MODEL, "count": rows // JOBS_PER_SMALL_BATCH}
        cursor.execute(SMALL_BATCHES, small)
        cursor.execute("SELECT setval('jobs_id_seq', %s)", (rows,))
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    return batch, done


def _fill_batch(
    cursor: "psycopg2.extensions.cursor", site: Site, batch: str, *, before: int, jobs: int, done: int
) -> None:
    values = {
        "batch": batch,
        "tenant": site.tenant_id,
        "model": MODEL,
        "status": "completed" if done == jobs else "in_progress",
        "jobs": jobs,
        "done": done,
        "before": before,
        "prompt": PROMPT,
        "chunk": CHUNK,
    }
    cursor.execute(BATCH, values)
    for first in range(1, jobs + 1, ROWS_AT_ONCE):
        part = {**values, "first": first, "last": min(first + ROWS_AT_ONCE - 1, jobs)}
        cursor.execute(JOBS, part)
        cursor.execute(ANSWERS, part)
    cursor.execute(RESULTS, values)
