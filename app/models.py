"""The tables of vqueue. Migrations build them; store/ is the only place that reads or writes them."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

NOW = text("now()")
ZERO = text("0")
STANDARD = text("'standard'")


def moment(name: str, *, nullable: bool = True, now: bool = False) -> Column[object]:
    """A point in time with its zone."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=NOW if now else None)


def counter(name: str, kind: type[Integer] = Integer) -> Column[int]:
    return Column(name, kind, nullable=False, server_default=ZERO)


tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    # Its part of a busy model, beside the weights of the others.
    Column(
        "weight",
        Float,
        CheckConstraint("weight > 0", name="weight_is_positive"),
        nullable=False,
        server_default=text("1"),
    ),
    # What it may use; where one is null, the settings' own limit holds.
    Column("requests_per_minute", Integer),
    Column("quota_queued_jobs", Integer),
    Column("quota_images_day", Integer),
    Column("quota_bytes", BigInteger),
    moment("created_at", nullable=False, now=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False, server_default=text("'{*}'")),
    moment("last_used_at"),
    moment("created_at", nullable=False, now=True),
    moment("expires_at"),
    moment("revoked_at"),
)

files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("object_key", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    moment("expires_at"),
    Index("ix_files_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index("ix_files_tenant_id_purpose_created_at_id", "tenant_id", "purpose", "created_at", "id"),
    Index("ix_files_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)

images = Table(
    "images",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("ref_kind", Text, nullable=False),
    Column("ref_hash", Text, nullable=False),
    Column("ref", Text, nullable=False),
    # What the limit per host counts by; empty for what our own object store serves.
    Column("host", Text, nullable=False, server_default=text("''")),
    Column("state", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    Column("returns", SmallInteger, nullable=False, server_default=ZERO),
    # When somebody may take it: at once, after a retry's delay, or when the fetcher's lease has run out.
    moment("due_at", nullable=False, now=True),
    Column("content_hash", Text),
    Column("format", Text),
    Column("width", Integer),
    Column("height", Integer),
    Column("bytes", BigInteger),
    Column("error_code", Text),
    Column("error_message", Text),
    moment("created_at", nullable=False, now=True),
    moment("stored_at"),
    # When a job last referred to it: what retention counts from.
    moment("used_at", nullable=False, now=True),
    Index("ix_images_used_at", "used_at", postgresql_where=text("state IN ('stored', 'failed')")),
    Index(
        "ix_images_content", "tenant_id", "content_hash", postgresql_where=text("content_hash IS NOT NULL")
    ),
    Index(
        "uq_images_in_flight",
        "tenant_id",
        "ref_hash",
        unique=True,
        postgresql_where=text("state IN ('pending', 'fetching')"),
    ),
    Index("ix_images_failed", "tenant_id", "ref_hash", postgresql_where=text("state = 'failed'")),
    Index(
        "ix_images_stored", "tenant_id", "ref_hash", "stored_at", postgresql_where=text("state = 'stored'")
    ),
    # Claims look at one lane after the other: what a tenant wants of a host, or of our own store.
    Index(
        "ix_images_due",
        "host",
        "tenant_id",
        "ref_kind",
        "due_at",
        postgresql_where=text("state IN ('pending', 'fetching')"),
    ),
)

# How images look: a row once somebody wants to know, filled in by a fetcher (docs/near-duplicates.md).
image_looks = Table(
    "image_looks",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("content_hash", Text, primary_key=True),
    Column("phash", BigInteger),  # null also of those that have none: `error` says why
    *(Column(f"band{number}", Integer) for number in range(4)),  # its pieces of 16 bits
    Column("colours", LargeBinary),
    Column("leader", Text),  # the content hash of the image that its cluster began with
    Column("error", Text),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    moment("wanted_at", nullable=False, now=True),
    moment("due_at", nullable=False, now=True),  # at once, or when the lease of who looks at it has run out
    moment("seen_at"),
    *(
        Index(
            f"ix_image_looks_band{number}",
            "tenant_id",
            f"band{number}",
            postgresql_where=text("phash IS NOT NULL"),
        )
        for number in range(4)
    ),
    Index("ix_image_looks_leader", "tenant_id", "leader", postgresql_where=text("phash IS NOT NULL")),
    Index("ix_image_looks_due", "due_at", postgresql_where=text("seen_at IS NULL")),
    Index("ix_image_looks_seen_at", "seen_at", postgresql_where=text("seen_at IS NOT NULL")),
)

# Images fetched on a tenant's last day (UTC), and how many it might have: only of those with a limit.
image_days = Table(
    "image_days",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("day", Date, nullable=False),
    Column("fetched", Integer, nullable=False),
    Column("allowed", Integer, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text),  # that submitted it
    Column("status", Text, nullable=False),
    Column("ending", Text),  # completed, cancelled or expired, once it is decided
    Column("endpoint", Text, nullable=False),
    Column("input_file_id", Text, nullable=False),
    Column("cache", Text, nullable=False, server_default=text("'off'")),  # use of the answer cache
    Column("input_table", JSON),  # how rows of a table become requests; null for lines that are requests
    Column("is_dry_run", Boolean, nullable=False, server_default=text("false")),
    Column("is_strict", Boolean, nullable=False, server_default=text("false")),
    Column("report", JSON),  # of a dry run
    counter("told_quarters", SmallInteger),  # of its progress, to those who want to be told
    Column("metered", JSONB),  # the counters as usage last saw them
    Column("completion_window", Text, nullable=False),
    Column("metadata", JSONB),
    Column("model", Text),
    Column("priority", Text, nullable=False, server_default=STANDARD),
    # The batch whose jobs these are, once more.
    Column("retry_of", Text),
    Column("retry_states", ARRAY(Text)),  # which of its jobs
    # Stop when so large a share of the jobs that ended has failed, looked at from so many on.
    Column("brake_share", Float),
    Column("brake_after", Integer),
    Column("errors", JSONB),
    Column("request_hash", Text, nullable=False),
    Column("idempotency_key", Text),
    counter("total"),
    counter("completed"),
    counter("failed"),
    # Of the failed: lines that are no request, and jobs that never ran for want of an image.
    counter("bad_lines"),
    counter("image_failures"),
    counter("prompt_tokens", BigInteger),
    counter("cached_tokens", BigInteger),
    counter("completion_tokens", BigInteger),
    counter("cached_answers"),
    # What its answers took of a model's time, and what those from the answer cache once did.
    Column("model_s", Float, nullable=False, server_default=ZERO),
    Column("saved_model_s", Float, nullable=False, server_default=ZERO),
    # Which model is asked first, as app.cascade reads it, and what came of that: jobs that went on to the
    # large one, those of them that it has answered, and alike; and the first model's seconds.
    Column("cascade", JSON),
    counter("escalated"),
    counter("escalated_answered"),
    counter("agreed"),
    Column("first_model_s", Float, nullable=False, server_default=ZERO),
    # In how many bits of 64 a picture may differ whose answer stands in; null where none may.
    Column("near_distance", SmallInteger),
    counter("near_answers"),
    # Ingest and finalize are taken under a lease; ingest goes on where the last committed block ended.
    counter("ingested_bytes", BigInteger),
    counter("ingested_lines", BigInteger),
    moment("lease_until"),
    moment("ingested_at"),  # all of its lines are there, also of one that was closed meanwhile
    moment("swept_at"),
    # Jobs that end per second, as last measured, and the count of ended ones at that time.
    Column("pace", Float),
    moment("pace_at"),
    Column("pace_ended", Integer),
    Column("output_file_id", Text),
    Column("error_file_id", Text),
    Column("output_expires_after_s", Integer),
    moment("created_at", nullable=False, now=True),
    moment("expires_at", nullable=False),
    moment("in_progress_at"),
    moment("finalizing_at"),
    moment("completed_at"),
    moment("failed_at"),
    moment("expired_at"),
    moment("cancelling_at"),
    moment("cancelled_at"),
    moment("ended_at"),  # whichever way
    # Gone for its owner; its rows and files are being removed.
    moment("deleted_at"),
    Index("ix_batches_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index("ix_batches_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    Index("ix_batches_deleted_at", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    Index("ix_batches_retry_of", "retry_of", postgresql_where=text("retry_of IS NOT NULL")),
    Index(
        "ix_batches_open",
        "expires_at",
        postgresql_where=text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
    ),
    Index(
        "uq_batches_idempotency_key",
        "tenant_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Text),  # of a direct job; a batch's are its batch's
    Column("batch_id", Text),
    Column("line", Integer),
    Column("custom_id", Text(collation="C")),
    Column("model", Text, nullable=False),
    Column("priority", Text, nullable=False, server_default=STANDARD),
    Column("state", Text, nullable=False),
    # json, not jsonb: the text is kept byte for byte, and a NUL inside a string is legal JSON.
    Column("prompt", JSON, nullable=False),
    Column("params", JSON, nullable=False),
    Column("image_ids", ARRAY(BigInteger), nullable=False),
    # Jobs of one image lie together in the ready index: the first image's id, 0 for text alone.
    Column("image_group", BigInteger, nullable=False, server_default=ZERO),
    Column("waiting_on", SmallInteger, nullable=False, server_default=ZERO),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    # Attempts that a drained worker handed back undone; the retry policy does not count them.
    Column("returns", SmallInteger, nullable=False, server_default=ZERO),
    Column("crashes", SmallInteger, nullable=False, server_default=ZERO),
    Column("alone", Boolean, nullable=False, server_default=text("false")),
    Column("worker", Text),
    moment("lease_until"),
    moment("not_before"),
    moment("deadline"),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("error_param", Text),
    moment("created_at", nullable=False, now=True),
    moment("sent_at"),
    moment("started_at"),
    moment("finished_at"),
    # Whether usage has counted a direct job; those of batches are counted by their batches.
    Column("metered", Boolean, nullable=False, server_default=text("false")),
    # How it uses the answer cache (bits of app.answer_keys), what is asked, and of which images, once known.
    Column("cache", SmallInteger, nullable=False, server_default=ZERO),
    Column("question_hash", LargeBinary),
    Column("answer_key", LargeBinary),
    # Of a cascade's job: whom to ask if the first model is unsure, and what that one had said.
    Column("final_model", Text),
    Column("first_answer", JSON),
    Index(
        "ix_jobs_answer_key",
        "answer_key",
        postgresql_where=text("answer_key IS NOT NULL AND state IN ('queued', 'running')"),
    ),
    Index("uq_jobs_batch_id_line", "batch_id", "line", unique=True),
    UniqueConstraint("batch_id", "custom_id"),
    Index(
        "ix_jobs_ready_batch",
        "batch_id",
        "model",
        "image_group",
        "id",
        postgresql_where=text("state = 'ready' AND batch_id IS NOT NULL"),
    ),
    Index(
        "ix_jobs_ready_direct",
        "tenant_id",
        "model",
        "priority",
        "image_group",
        "id",
        postgresql_where=text("state = 'ready' AND batch_id IS NULL"),
    ),
    Index("ix_jobs_lease_until", "lease_until", postgresql_where=text("state = 'running'")),
    Index("ix_jobs_sent_at", "sent_at", postgresql_where=text("state = 'queued'")),
    # Few at any time: counted before one more is let in.
    Index("ix_jobs_ready_alone", "id", postgresql_where=text("state = 'ready' AND alone")),
    Index(
        "ix_jobs_interactive",
        "model",
        postgresql_where=text(
            "priority = 'interactive' AND state IN ('waiting', 'ready', 'queued', 'running')"
        ),
    ),
    Index(
        "ix_jobs_direct_deadline",
        "deadline",
        postgresql_where=text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')"),
    ),
    # Counted where a tenant may have only so many.
    Index(
        "ix_jobs_direct_open",
        "tenant_id",
        postgresql_where=text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued', 'running')"),
    ),
    Index(
        "ix_jobs_direct_unmetered",
        "id",
        postgresql_where=text("batch_id IS NULL AND finished_at IS NOT NULL AND NOT metered"),
    ),
    Index(
        "ix_jobs_direct_finished_at",
        "finished_at",
        postgresql_where=text("batch_id IS NULL AND finished_at IS NOT NULL"),
    ),
)

job_waits = Table(
    "job_waits",
    metadata,
    Column("image_id", BigInteger, primary_key=True),
    Column("job_id", BigInteger, primary_key=True),
)

answers = Table(
    "answers",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("text", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False, server_default=ZERO),
    Column("completion_tokens", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("revision", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    # Null where there are none, and in answers of 0.1.0.
    Column("logprobs", JSON),
    Column("notes", JSON),
    Column("reasoning", Text),  # of a model that thinks aloud before it answers
    Column("model_s", Float),
    Column("confidence", Float),  # of the model that a cascade asks first
)

# Answers by what was asked of which images, under the engine that gave them.
answer_cache = Table(
    "answer_cache",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),  # whose job it was
    Column("model", Text, nullable=False),
    Column("question_id", LargeBinary, nullable=False),  # of the last text alone, to be forgotten by
    Column("text", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("revision", Text, nullable=False),
    Column("logprobs", JSON),
    Column("notes", JSON),
    Column("reasoning", Text),
    Column("model_s", Float, nullable=False),
    Column("confidence", Float),
    moment("created_at", nullable=False, now=True),
    moment("expires_at", nullable=False),
    Index("ix_answer_cache_expires_at", "expires_at"),
    Index("ix_answer_cache_tenant_id_model_question_id", "tenant_id", "model", "question_id"),
)

# Jobs that wait for the answer to the same question, which another job has asked.
answer_waits = Table(
    "answer_waits",
    metadata,
    Column("answer_key", LargeBinary, primary_key=True),
    Column("job_id", BigInteger, primary_key=True),
)

# The engine that answered for a model last: what its answers are kept under.
engines = Table(
    "engines",
    metadata,
    Column("model", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    moment("seen_at", nullable=False, now=True),
)

# What answers under a choice list or a JSON schema say, value by value; with what they are found by.
labels = Table(
    "labels",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),  # '' for the answer as a whole
    Column("place", SmallInteger, primary_key=True),  # in a list of values
    Column("value", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("batch_id", Text),
    Column("question", Text),
    Column("item", Text),
    Column("policy_version", Text),
    Column("model", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    Index("ix_labels_newest", "tenant_id", "created_at", "job_id", "field", "place"),
    Index("ix_labels_question", "tenant_id", "question", "value", "created_at"),
    Index("ix_labels_batch", "batch_id", "created_at", "job_id", "field", "place"),
    Index("ix_labels_item", "tenant_id", "item"),
)

# What people say of a field of an answer.
reviews = Table(
    "reviews",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("verdict", Text, nullable=False),  # confirm or overturn
    Column("label", JSON),  # the right value of what was overturned
    Column("note", Text),
    Column("key_id", Text),
    moment("at", nullable=False, now=True),
    Index("ix_reviews_tenant_id_job_id_field", "tenant_id", "job_id", "field"),
)

# A batch's jobs in the order in which they ended: a row's jobs are its results up to number `seq`.
results = Table(
    "results",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("job_ids", ARRAY(BigInteger), nullable=False),
)

# What a batch's jobs failed of: how many of each code, and the first one's message.
batch_errors = Table(
    "batch_errors",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("code", Text, primary_key=True),
    Column("jobs", Integer, nullable=False),
    Column("line", Integer),
    Column("message", Text, nullable=False),
)

# Objects of the store that nothing needs any more, until they are deleted.
doomed_objects = Table(
    "doomed_objects",
    metadata,
    Column("key", Text, primary_key=True),
    moment("doomed_at", nullable=False, now=True),  # from when on they may be deleted
    # Since when somebody may be deleting it: nobody stores it again before that is over.
    moment("tried_at"),
    Index("ix_doomed_objects_doomed_at", "doomed_at"),
)

# What a dry run has seen by now: its images and custom_ids, each once.
checked = Table(
    "checked",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("hash", Text(collation="C"), primary_key=True),
    Column("line", Integer, nullable=False),
)

# What each key has used on a day (UTC), by model.
usage = Table(
    "usage",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    counter("completed", BigInteger),
    counter("failed", BigInteger),
    counter("prompt_tokens", BigInteger),
    counter("cached_tokens", BigInteger),
    counter("completion_tokens", BigInteger),
)

# Who did what; rows are only ever added, and removed by age.
audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    moment("at", nullable=False, now=True),
    Column("tenant_id", Text),
    Column("key_id", Text),
    Column("action", Text, nullable=False),
    Column("object_id", Text),
    Column("request_id", Text),
    Column("details", JSONB),
    Index("ix_audit_log_tenant_id_id", "tenant_id", "id"),
)

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("event_types", ARRAY(Text), nullable=False),
    Column("secret", Text, nullable=False),
    # Signs beside the new one until then.
    Column("old_secret", Text),
    moment("old_secret_until"),
    # Tries that failed one after the other, and until when nothing is sent because of that.
    counter("failures"),
    moment("resting_until"),
    moment("created_at", nullable=False, now=True),
    moment("updated_at", nullable=False, now=True),
    Index("ix_webhook_endpoints_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
)

webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("body", JSON, nullable=False),
    moment("created_at", nullable=False, now=True),
    Index("ix_webhook_events_created_at", "created_at"),
)

# An event on its way to an endpoint, and then the log of that.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint_id", ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), nullable=False),
    Column("event_id", ForeignKey("webhook_events.id", ondelete="CASCADE"), nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    Column("earlier", SmallInteger, nullable=False, server_default=ZERO),  # tries before it was sent again
    moment("due_at", nullable=False, now=True),
    Column("status_code", SmallInteger),
    Column("error", Text),
    moment("created_at", nullable=False, now=True),
    moment("ended_at"),
    Index("ix_webhook_deliveries_endpoint_id_created_at_id", "endpoint_id", "created_at", "id"),
    Index("ix_webhook_deliveries_event_id", "event_id"),
    Index("ix_webhook_deliveries_due_at", "due_at", postgresql_where=text("state = 'pending'")),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("model", Text),
    Column("revision", Text),
    moment("started_at", nullable=False, now=True),
    moment("heartbeat_at", nullable=False, now=True),
)

# What a client's Idempotency-Key has made: the same request with it makes nothing new for a day.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),  # file or job; batches keep their own
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    Index("ix_idempotency_keys_created_at", "created_at"),
)

# Hosts that asked with Retry-After to be left alone for a while.
host_pauses = Table(
    "host_pauses",
    metadata,
    Column("host", Text, primary_key=True),
    moment("until", nullable=False),
)

# What is gone through again and again: a source, what to ask of each of its images, and when.
sweeps = Table(
    "sweeps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text),  # that made it: its batches are counted on it
    Column("name", Text, nullable=False),
    Column("source", JSON, nullable=False),
    Column("questions", JSON, nullable=False),
    Column("policy_version", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("body", JSON, nullable=False),  # what all its requests share
    Column("cron", Text),  # null: only when somebody says so
    Column("zone", Text, nullable=False),
    Column("destination", JSON),
    Column("completion_window", Text, nullable=False),
    Column("batch", JSON, nullable=False),  # further wishes for its batches
    Column("alert_after_s", Integer, nullable=False),
    moment("paused_at"),
    moment("next_due_at"),
    moment("created_at", nullable=False, now=True),
    moment("updated_at", nullable=False, now=True),
    moment("deleted_at"),
    Index("uq_sweeps_name", "tenant_id", "name", unique=True, postgresql_where=text("deleted_at IS NULL")),
    Index(
        "ix_sweeps_due",
        "next_due_at",
        postgresql_where=text("paused_at IS NULL AND deleted_at IS NULL"),
    ),
)

sweep_runs = Table(
    "sweep_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sweep_id", ForeignKey("sweeps.id"), nullable=False),
    Column("kind", Text, nullable=False),  # scheduled, backfill or manual
    moment("due_at", nullable=False),
    Column("state", Text, nullable=False),
    Column("policy_version", Text),
    Column("spec", JSON),  # what it asks: the sweep's questions, model and body when it began
    counter("attempt"),  # fences: grows whenever somebody takes it
    Column("parts", JSONB, nullable=False, server_default=text("'[]'")),  # its input files
    Column("batch_ids", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("cursor", JSONB),  # how far its answers are noted
    counter("listed"),
    counter("new"),
    counter("changed"),
    counter("unchanged"),
    counter("deleted"),
    counter("asked"),
    counter("completed"),
    counter("failed"),
    counter("differing"),
    Column("error_code", Text),
    Column("error_message", Text),
    # Grows with whatever it gets done, and when that was last seen to grow.
    counter("mark", BigInteger),
    moment("moved_at", nullable=False, now=True),
    moment("stalled_at"),
    moment("lease_until"),
    moment("created_at", nullable=False, now=True),
    moment("started_at"),
    moment("ended_at"),
    # Once per due time, whoever computes it.
    Index(
        "uq_sweep_runs_due",
        "sweep_id",
        "due_at",
        unique=True,
        postgresql_where=text("kind <> 'manual'"),
    ),
    Index("ix_sweep_runs_created_at", "sweep_id", "created_at", "id"),
    Index("ix_sweep_runs_open", "sweep_id", "due_at", postgresql_where=text("ended_at IS NULL")),
)

# The images of a sweep's source, and what is known of each.
sweep_items = Table(
    "sweep_items",
    metadata,
    Column("sweep_id", Text, primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("ref", Text, nullable=False),
    Column("version", Text, nullable=False),  # ETag, or hash of the row
    Column("content_hash", Text),  # of what was asked about
    Column("asked", JSONB, nullable=False, server_default=text("'{}'")),  # question: hash, once answered
    Column("answers", JSONB, nullable=False, server_default=text("'{}'")),  # question: last text
    # Its version differs from that which `asked` is of.
    Column("stale", Boolean, nullable=False, server_default=text("false")),
    Column("change", Text, nullable=False),  # as the last run found it: new, changed or unchanged
    Column("seen_run", Text, nullable=False),
    Column("seen_attempt", Integer, nullable=False),
    moment("deleted_at"),
)

# Answers of a run that differ from those before.
sweep_changes = Table(
    "sweep_changes",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("question", Text(collation="C"), primary_key=True),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
)
