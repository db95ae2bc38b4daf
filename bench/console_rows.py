"""Two batches with results as the console shows them, filled by SQL."""

import json
from contextlib import closing

import psycopg2

QUESTIONS = (("colour", "What colour is the item?"), ("kind", "What kind of item is it? One word, please."))
PER_IMAGE = len(QUESTIONS)
FAILED_EVERY = 50  # one job in so many has failed; one in ten of these of a rare error
RARE_EVERY = 5_000  # one answer in so many has the rare word, and the rare label
DIFFERING_EVERY = 20  # one answer in so many differs in the second batch
RARE_WORD, ABSENT_WORD = "chartreuse", "zzyzx"

TENANT_BATCH = """
INSERT INTO batches (id, tenant_id, status, endpoint, input_file_id, completion_window, request_hash, model,
                     total, completed, failed, created_at, in_progress_at, completed_at, ended_at,
                     ingested_at, expires_at, metadata)
VALUES (%(batch)s, %(tenant)s, 'completed', '/v1/chat/completions', 'file-x', '24h', 'x', 'demo', %(jobs)s,
        %(jobs)s - %(jobs)s / %(failed)s, %(jobs)s / %(failed)s, now(), now(), now(), now(), now(),
        now() + interval '1 day', jsonb_build_object('name', %(batch)s))
"""
IMAGES = """
INSERT INTO images (id, tenant_id, ref_kind, ref_hash, ref, host, state, content_hash, format, width, height,
                    bytes, stored_at)
SELECT n, %(tenant)s, 'url', encode(sha256(n::text::bytea), 'hex'), 'https://shop.example/' || n || '.jpg',
       'shop.example', 'stored', encode(sha256(('content ' || n)::bytea), 'hex'), 'JPEG', 640, 480,
       50000, now()
FROM generate_series(1, %(jobs)s / %(per_image)s) AS n
"""
JOBS = """
INSERT INTO jobs (id, tenant_id, batch_id, line, custom_id, model, state, prompt, params, image_ids,
                  image_group, attempt, error_code, error_message, finished_at)
SELECT %(before)s + n, %(tenant)s, %(batch)s, n,
       'product-' || lpad((n / %(per_image)s)::text, 8, '0') || ':' || n,
       'demo', CASE WHEN n %% %(failed)s = 0 THEN 'failed' ELSE 'completed' END,
       CAST((CAST(%(prompts)s AS text[]))[n %% %(per_image)s + 1] AS json),
       CAST(%(params)s AS json), ARRAY[(n - 1) / %(per_image)s + 1], (n - 1) / %(per_image)s + 1, 1,
       CASE WHEN n %% (10 * %(failed)s) = 0 THEN 'image_too_large'
            WHEN n %% %(failed)s = 0 THEN 'image_not_found' END,
       CASE WHEN n %% %(failed)s = 0 THEN 'The server answered 404 to the request for this picture.' END,
       now()
FROM generate_series(1, %(jobs)s) AS n
"""
# Answers stand in the order in which they came, which is not that of the lines.
ANSWERS = """
INSERT INTO answers (job_id, text, finish_reason, prompt_tokens, completion_tokens, model, revision,
                     confidence)
SELECT %(before)s + n,
       json_build_object('colour', CASE WHEN n %% %(rare)s = 1 THEN %(word)s ELSE
           (ARRAY['red','blue','green','black','white','grey','brown','pink'])
           [(hashint4(n / %(per_image)s + CASE WHEN n %% %(differing)s = 1 THEN %(shift)s ELSE 0 END)
             & 65535) %% 8 + 1] END,
           'kind', (ARRAY['shirt','lamp','chair','shoe'])[(n / 7) %% 4 + 1],
           'note', 'The item lies on a plain ground, seen from above; nothing else is in the picture.')::text,
       'stop', 320, 30, 'demo', 'r1', (hashint4(n) & 65535) / 65536.0
FROM (SELECT n FROM generate_series(1, %(jobs)s) AS n WHERE n %% %(failed)s <> 0
      ORDER BY n / 2000, hashint4(n)) AS given
"""
LABELS = """
INSERT INTO labels (job_id, field, place, value, tenant_id, batch_id, question, item, policy_version, model)
SELECT a.job_id, field, 0, CAST(a.text AS json)->>field, j.tenant_id, j.batch_id, 'q', j.custom_id, 'v1',
       'demo'
FROM answers a JOIN jobs j ON j.id = a.job_id CROSS JOIN unnest(ARRAY['colour', 'kind']) AS field
WHERE j.batch_id = %(batch)s
"""
REVIEWS = """
INSERT INTO reviews (job_id, field, tenant_id, verdict)
SELECT job_id, field, tenant_id, CASE WHEN job_id %% 2 = 0 THEN 'confirm' ELSE 'overturn' END
FROM labels WHERE batch_id = %(batch)s AND job_id %% 997 = 0 AND field = 'colour'
"""
# A policy of some length before the question, as moderation has it.
SYSTEM = "You look at pictures of a shop. Answer as the schema says, and judge by what is seen alone. " * 4
PARAMS = {"max_tokens": 64, "constraint": {"json_schema": '{"type": "object"}'}}


def fill(database_url: str, tenant_id: str, jobs: int) -> tuple[str, str]:
    """Two ended batches of so many jobs about the same images; a twentieth of the answers differ."""
    with closing(psycopg2.connect(database_url)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SET synchronous_commit = off")
        shared = {
            "tenant": tenant_id,
            "jobs": jobs,
            "failed": FAILED_EVERY,
            "per_image": PER_IMAGE,
            "rare": RARE_EVERY,
            "differing": DIFFERING_EVERY,
            "word": RARE_WORD,
            "prompts": [_prompt(question) for _, question in QUESTIONS],
            "params": json.dumps(PARAMS),
        }
        cursor.execute(IMAGES, shared)
        batches = (f"batch_{1:032x}", f"batch_{2:032x}")
        for number, batch in enumerate(batches):
            values = {**shared, "batch": batch, "before": number * jobs, "shift": number}
            for statement in (TENANT_BATCH, JOBS, ANSWERS, LABELS, REVIEWS):
                cursor.execute(statement, values)
        cursor.execute("SELECT setval('jobs_id_seq', %s)", (len(batches) * jobs,))
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    return batches


def _prompt(question: str) -> str:
    turns = [
        {"role": "system", "parts": [{"text": SYSTEM}]},
        {"role": "user", "parts": [{"image": 0}, {"text": question}]},
    ]
    return json.dumps({"turns": turns}, separators=(",", ":"))
