"""The service as a whole, and its batches."""

from deploy.dashboards.queries import mean, quantile, rate, stage
from deploy.grafana_json import Dashboard, Panel, Query, Threshold

BAD_ABOVE_ZERO = (Threshold(0.001, "red"),)
MODELS = {"model": "vqueue_model_workers"}

OVERVIEW = Dashboard(
    "overview",
    "vqueue: overview",
    "Is it well, how much waits, and how fast does it go?",
    (
        Panel(
            "Alarms that ring",
            "What to do about each: docs/alerts.md.",
            "none",
            (Query('count(ALERTS{alertstate="firing",alertname=~"Vqueue.*"}) or vector(0)', "alarms"),),
            kind="stat",
            thresholds=BAD_ABOVE_ZERO,
        ),
        Panel(
            "Workers",
            "Live workers of each model: those that were heard of within the lease.",
            "none",
            (Query('vqueue:model_workers{model=~"$model"}', "{{model}}"),),
            kind="stat",
            base="red",
            thresholds=(Threshold(1, "green"),),
        ),
        Panel(
            "Not looked at for",
            "Seconds since a dispatcher last read from Postgres and from the broker what these pages show.",
            "s",
            (Query("time() - max by (server) (vqueue_looked_at_seconds)", "{{server}}"),),
            kind="stat",
            thresholds=(Threshold(60, "yellow"), Threshold(120, "red")),
        ),
        Panel(
            "Open jobs",
            "Jobs that have not ended: in Postgres, on the broker, in a worker.",
            "short",
            (Query("max by (state) (vqueue_jobs)", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Jobs that end",
            "Each second, by how they end.",
            "ops",
            (Query("vqueue:jobs_ended:rate5m", "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "On the broker",
            "Jobs in the window of each model and class. It is full while more waits in Postgres.",
            "short",
            (
                Query(
                    'max by (model, priority) (vqueue_queued_jobs{model=~"$model"})', "{{model}} {{priority}}"
                ),
            ),
        ),
        Panel(
            "From made to taken up",
            "How long jobs waited until a worker claimed them.",
            "s",
            (
                Query(quantile(0.5, "vqueue_stage_seconds", where=stage("queue")), "half within"),
                Query(quantile(0.99, "vqueue_stage_seconds", where=stage("queue")), "99 % within"),
            ),
        ),
        Panel(
            "Requests to the API",
            "Each second, by status.",
            "reqps",
            (Query(rate("vqueue_http_seconds_count", by="status"), "{{status}}"),),
            stacked=True,
        ),
        Panel(
            "Time of requests",
            "From request to answer; chat completions, which wait for the model, are left out.",
            "s",
            (
                Query(
                    quantile(0.5, "vqueue_http_seconds", where='route!="/v1/chat/completions"'), "half within"
                ),
                Query(
                    quantile(0.99, "vqueue_http_seconds", where='route!="/v1/chat/completions"'),
                    "99 % within",
                ),
            ),
        ),
        Panel(
            "Chat: first text",
            "From the request of a streamed chat completion to its first text.",
            "s",
            (
                Query(quantile(0.5, "vqueue_first_text_seconds"), "half within"),
                Query(quantile(0.95, "vqueue_first_text_seconds"), "95 % within"),
            ),
        ),
        Panel(
            "Chat: lines held",
            "Callers who wait for an answer now.",
            "short",
            (Query("sum(vqueue_chats_held)", "held"),),
        ),
        Panel(
            "Jobs that came back",
            "Each second, by reason; `lapsed`: a worker died with them.",
            "ops",
            (Query(rate("vqueue_jobs_returned_total", by="reason"), "{{reason}}"),),
        ),
    ),
    MODELS,
)


BATCHES = Dashboard(
    "batches",
    "vqueue: batches",
    "Do batches get on, will they be in time, and does their owner hear of it?",
    (
        Panel(
            "At risk",
            "Batches that their pace does not bring to their end before their deadline.",
            "none",
            (Query("max(vqueue_batches_at_risk)", "batches"),),
            kind="stat",
            thresholds=BAD_ABOVE_ZERO,
        ),
        Panel(
            "Standing still",
            "The longest time for which an open batch has not moved though it could.",
            "s",
            (Query("max by (status) (vqueue_batch_still_seconds)", "{{status}}"),),
            thresholds=(Threshold(900, "red"),),
        ),
        Panel(
            "Open batches",
            "By status.",
            "short",
            (Query("max by (status) (vqueue_batches)", "{{status}}"),),
            stacked=True,
        ),
        Panel(
            "Failures",
            "Jobs that fail each second, by code.",
            "ops",
            (Query(rate("vqueue_jobs_ended_total", by="code", where='outcome="failed"'), "{{code}}"),),
        ),
        Panel(
            "Chunks",
            "Sent to the broker each second, by queue.",
            "ops",
            (Query(rate("vqueue_chunks_sent_total", by="queue"), "{{queue}}"),),
        ),
        Panel(
            "Jobs in a chunk",
            "On average. Near one: jobs come one by one, or travel alone after a death.",
            "short",
            (Query(mean("vqueue_chunk_jobs"), "jobs"),),
        ),
        Panel(
            "Time of the dispatcher's work",
            "The mean of a turn of reading a file, of sending, of writing result files.",
            "s",
            (
                Query(
                    mean("vqueue_stage_seconds", where=stage("ingest|dispatch|finalize"), by="stage"),
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "Webhooks",
            "Tries each second, by what came of them.",
            "ops",
            (Query(rate("vqueue_webhooks_total", by="outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Loops that fail",
            "Steps each second that raised: nearly always a server that is away.",
            "ops",
            (Query(rate("vqueue_loop_faults_total", by="job, loop"), "{{job}} {{loop}}"),),
        ),
    ),
)
