"""Every metric of vqueue in one list, and how logs are written: JSON events with ids, never contents."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import structlog
from prometheus_client import Counter, Gauge, Histogram, start_http_server

# Fine enough at both ends to read a P99 of a cached answer (ms) and of a cold start (minutes).
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
SHARE = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

HTTP_SECONDS = Histogram(
    "vqueue_http_seconds",
    "Time from request to response, streamed bodies excluded.",
    ["method", "route", "status"],
    buckets=SECONDS,
)
STAGE_SECONDS = Histogram(
    "vqueue_stage_seconds",
    "Time of one stage of a job's way: queue (created to claimed), claim, read, engine, record, fetch, look, "
    "ingest, dispatch, finalize; of the engine: engine_wait, encode, step.",
    ["stage"],
    buckets=SECONDS,
)
CHATS_HELD = Gauge("vqueue_chats_held", "Chat completions whose callers hold the line.")
FIRST_TEXT_SECONDS = Histogram(
    "vqueue_first_text_seconds",
    "Time from a streamed chat completion's request to its first text.",
    buckets=SECONDS,
)
TEXT_FAULTS = Counter("vqueue_text_faults", "Times that text on its way could not be published on Redis.")
JOBS = Gauge("vqueue_jobs", "Jobs that have not ended, by state.", ["state"])
IMAGES = Gauge("vqueue_images", "Images that are not stored yet, by state.", ["state"])
BATCHES = Gauge("vqueue_batches", "Batches that have not ended, by status.", ["status"])
BATCH_STILL_SECONDS = Gauge(
    "vqueue_batch_still_seconds", "Longest time for which an open batch has not moved, by status.", ["status"]
)
BATCHES_AT_RISK = Gauge(
    "vqueue_batches_at_risk", "Batches that will not be done by their deadline, by their pace."
)
LOOKED_AT_SECONDS = Gauge(
    "vqueue_looked_at_seconds",
    "Unix time at which the dispatcher last read what it tells of a server: database, broker.",
    ["server"],
)
MODEL_WORKERS = Gauge(
    "vqueue_model_workers", "Workers that serve a model and were heard of lately.", ["model"]
)
QUEUED_JOBS = Gauge(
    "vqueue_queued_jobs", "Jobs on the broker or before their turn at a worker.", ["model", "priority"]
)
QUEUE_MESSAGES = Gauge("vqueue_queue_messages", "Chunks that wait on the broker.", ["queue"])
DEAD_CHUNKS = Gauge("vqueue_dead_chunks", "Chunks that RabbitMQ has put aside after too many deliveries.")
CHUNKS_SENT = Counter("vqueue_chunks_sent", "Chunks published and confirmed.", ["queue"])
CHUNK_JOBS = Histogram("vqueue_chunk_jobs", "Jobs in a chunk.", buckets=(1, 2, 4, 8, 16, 32, 64, 128))
JOBS_ENDED = Counter("vqueue_jobs_ended", "Jobs that ended, with their error code.", ["outcome", "code"])
ANSWERS_CACHED = Counter("vqueue_answers_cached", "Jobs that were given an answer which was kept.")
MODEL_SECONDS = Counter(
    "vqueue_model_seconds", "Model time of recorded answers; time that requests share is divided among them."
)
MODEL_SECONDS_SAVED = Counter(
    "vqueue_model_seconds_saved", "Model time that answers from the answer cache once took."
)
JOBS_ESCALATED = Counter(
    "vqueue_jobs_escalated", "Jobs of cascades that went on to the large model, as the small one was unsure."
)
JOBS_RETURNED = Counter("vqueue_jobs_returned", "Jobs that went back to ready, by reason.", ["reason"])
OBJECTS_DELETED = Counter("vqueue_objects_deleted", "Objects of the store that were deleted.")
ORPHANS = Counter("vqueue_orphans", "Objects of the store that no row knew.")
ROWS_DELETED = Counter(
    "vqueue_rows_deleted", "Rows that retention and deletion removed, by table.", ["table"]
)
IMAGES_LOOKED_AT = Counter(
    "vqueue_images_looked_at", "Images that were hashed, or why they have no hash.", ["outcome"]
)
ANSWERS_NEAR = Counter(
    "vqueue_answers_near", "Jobs that were given the answer about an image that looks the same."
)
FETCHES = Counter("vqueue_fetches", "Image fetches that ended, by outcome or error code.", ["outcome"])
RATES_UNCOUNTED = Counter(
    "vqueue_rates_uncounted", "Times that Redis could not be asked how often a tenant has called."
)
SWEEP_RUNS = Counter("vqueue_sweep_runs", "Runs of sweeps that ended, by their last state.", ["state"])
SWEEP_OPEN = Gauge("vqueue_sweep_open", "Runs of sweeps that have not ended, by state.", ["state"])
SWEEP_IMAGES = Counter(
    "vqueue_sweep_images",
    "Images that sweeps have gone through: new, changed, unchanged, deleted.",
    ["change"],
)
SWEEP_STALLED = Gauge("vqueue_sweep_stalled", "Runs of sweeps that stand still for longer than they may.")
SHADOW_ANSWERS = Counter(
    "vqueue_shadow_answers",
    "Questions that two models were asked, by whether their answers are alike but for case and space.",
    ["model", "other", "alike"],
)
SHADOW_MODEL_SECONDS = Counter(
    "vqueue_shadow_model_seconds",
    "Model seconds of questions that two models were asked, by which of the two it took (`model`, `other`).",
    ["model", "other", "side"],
)
WEBHOOKS = Counter(
    "vqueue_webhooks", "Tries to send an event to an endpoint, by what came of them.", ["outcome"]
)
STEP_FILL = Histogram(
    "vqueue_step_fill", "Rows of a step over the most it may have.", ["model"], buckets=SHARE
)
STEPS = Counter(
    "vqueue_steps", "Forward passes of the model; each gives every running row a token.", ["model"]
)
ROWS_JOINED = Counter("vqueue_rows_joined", "Requests that joined a step.", ["model"])
TOKENS = Counter(
    "vqueue_tokens",
    "Tokens by kind: prompt (computed), cached (of prompts, computed before), completion, visual (encoded).",
    ["model", "kind"],
)
FEATURE_READS = Counter("vqueue_feature_reads", "Look-ups of an image's features.", ["tier"])
FEATURE_BYTES = Counter("vqueue_feature_bytes", "Bytes of features read.", ["tier"])
FEATURE_SECONDS = Counter("vqueue_feature_seconds", "Seconds spent reading features.", ["tier"])
FEATURE_FAULTS = Counter("vqueue_feature_faults", "Features refused, or a tier that failed.", ["reason"])
FEATURE_SECONDS_SPARED = Counter(
    "vqueue_feature_seconds_spared",
    "Encoding that the cache made unnecessary, its reading not taken off.",
    ["model"],
)
# A gauge, as it can fall: reading costs more than encoding where the network is slow.
FEATURE_SECONDS_SAVED = Gauge(
    "vqueue_feature_seconds_saved",
    "Encoding that the cache made unnecessary, less its reading, in seconds.",
    ["model"],
)
FEATURE_WAITS = Counter(
    "vqueue_feature_waits",
    "Images that another worker was encoding: found after a wait, or encoded.",
    ["end"],
)
FEATURE_WAIT_SECONDS = Counter("vqueue_feature_wait_seconds", "Seconds of preparing spent in such waits.")
FEATURES_STORED = Counter("vqueue_features_stored", "Images whose features a tier took.", ["tier"])
FEATURES_STORED_BYTES = Counter(
    "vqueue_features_stored_bytes", "Bytes of features that a tier took.", ["tier"]
)
FEATURES_EVICTED = Counter("vqueue_features_evicted", "Images whose features left Redis for others.")
FEATURE_CHECKS = Counter("vqueue_feature_checks", "Sampled hits that were encoded anew.", ["outcome"])
IMAGES_ENCODED = Counter("vqueue_images_encoded", "Images that the vision tower worked through.")
OUT_OF_MEMORY = Counter("vqueue_out_of_memory", "Steps that ran out of memory.", ["model"])
OUT_OF_MEMORY_ROWS = Histogram(
    "vqueue_out_of_memory_rows", "Rows of a step that ran out of memory.", buckets=(1, 2, 4, 8, 16, 32, 64)
)
GPU_UTILISATION = Gauge("vqueue_gpu_utilisation", "Share of time the GPU was busy, by NVML.", ["gpu"])
GPU_MEMORY = Gauge("vqueue_gpu_memory_bytes", "GPU memory, by NVML.", ["gpu", "kind"])
LOOP_FAULTS = Counter("vqueue_loop_faults", "Steps of a loop that raised.", ["loop"])
UP_SINCE = Gauge("vqueue_up_since_seconds", "Unix time at which the process was ready.", ["role"])


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time one stage, failed or not."""
    started = time.perf_counter()
    try:
        yield
    finally:
        STAGE_SECONDS.labels(name).observe(time.perf_counter() - started)


def serve_metrics(port: int, *, role: str) -> None:
    """Answer /metrics on a port of its own; port 0 leaves it out."""
    UP_SINCE.labels(role).set_to_current_time()
    if port:
        start_http_server(port)


def configure_logs(*, log_format: Literal["json", "console"], level: str, **process: str) -> None:
    """Send our events and other libraries' warnings to standard error, one per line.

    `process` (role, worker) stands in every event, whichever thread it comes from.
    A newline or control character inside a value cannot start a record of its own: JSON escapes it, and the
    console form prints values by repr.
    """

    def add_process(
        _: structlog.typing.WrappedLogger, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {**event, **process}

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_process,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # Libraries speak only when something is wrong: their chatter holds URLs.
    for library in ("boto3", "botocore", "urllib3", "celery", "kombu", "amqp", "alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
