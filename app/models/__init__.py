"""The tables of vqueue. Migrations build them; store/ is the only place that reads or writes them."""

from app.models.answers import answer_cache, answers, engines, labels, review_claims, review_votes, reviews
from app.models.base import metadata
from app.models.batches import batch_errors, batches, checked, results, shadows
from app.models.console import console_sessions, secrets
from app.models.files import doomed_objects, files
from app.models.images import host_pauses, image_days, image_looks, images
from app.models.jobs import answer_waits, job_waits, jobs
from app.models.sweeps import sweep_changes, sweep_items, sweep_runs, sweeps
from app.models.tenants import api_keys, audit_log, idempotency_keys, tenants, usage
from app.models.webhooks import webhook_deliveries, webhook_endpoints, webhook_events
from app.models.workers import workers

__all__ = [
    "answer_cache",
    "answer_waits",
    "answers",
    "api_keys",
    "audit_log",
    "batch_errors",
    "batches",
    "checked",
    "console_sessions",
    "doomed_objects",
    "engines",
    "files",
    "host_pauses",
    "idempotency_keys",
    "image_days",
    "image_looks",
    "images",
    "job_waits",
    "jobs",
    "labels",
    "metadata",
    "results",
    "review_claims",
    "review_votes",
    "reviews",
    "secrets",
    "shadows",
    "sweep_changes",
    "sweep_items",
    "sweep_runs",
    "sweeps",
    "tenants",
    "usage",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_events",
    "workers",
]
