"""The tail of each statement that ends jobs of batches: their numbers among its results, errors by code.

Pieces of SQL for a WITH clause that has `ended` (id, batch_id and, for errors, line, error_code and
error_message: the jobs that it ended) and `counted` (id, seq: the batches that it counted them in, with
completed + failed as they are now). The lock on the batch's row, which `counted` takes, makes the order of
the numbers that of the commits: who has read up to a number misses nothing before it. Errors are read
through `counted`, so that a batch's row is locked before its errors.
"""

ENDED_BY_BATCH = """
    counts AS (
        SELECT batch_id, count(*) AS n, array_agg(id ORDER BY id) AS ids FROM ended
        WHERE batch_id IS NOT NULL GROUP BY batch_id ORDER BY batch_id)"""

COUNT_FAILED = """
    counted AS (
        UPDATE batches SET failed = failed + n FROM counts WHERE batches.id = counts.batch_id
        RETURNING batches.id, completed + failed AS seq)"""

COUNT_UNPICTURED = """
    counted AS (
        UPDATE batches SET failed = failed + n, image_failures = image_failures + n
        FROM counts WHERE batches.id = counts.batch_id
        RETURNING batches.id, completed + failed AS seq)"""

NOTE_RESULTS = """
    noted AS (
        INSERT INTO results (batch_id, seq, job_ids)
        SELECT counted.id, counted.seq, counts.ids
        FROM counted JOIN counts ON counts.batch_id = counted.id)"""

NOTE_ERRORS = """
    explained AS (
        INSERT INTO batch_errors AS known (batch_id, code, jobs, line, message)
        SELECT ended.batch_id, ended.error_code, count(*), min(ended.line),
               (array_agg(ended.error_message ORDER BY ended.line))[1]
        FROM ended JOIN counted ON counted.id = ended.batch_id
        GROUP BY ended.batch_id, ended.error_code ORDER BY ended.batch_id, ended.error_code
        ON CONFLICT (batch_id, code) DO UPDATE SET jobs = known.jobs + EXCLUDED.jobs)"""

# What follows `ended` where all of them failed, and where they did so for want of an image.
FAILED = ",".join((ENDED_BY_BATCH, COUNT_FAILED, NOTE_RESULTS, NOTE_ERRORS))
UNPICTURED = ",".join((ENDED_BY_BATCH, COUNT_UNPICTURED, NOTE_RESULTS, NOTE_ERRORS))
