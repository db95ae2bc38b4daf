"""Where pictures come from: fetches and sweeps."""

from deploy.dashboards.queries import quantile, rate, stage
from deploy.grafana_json import Dashboard, Panel, Query, Threshold

BAD_ABOVE_ZERO = (Threshold(0.001, "red"),)

FETCH = Dashboard(
    "fetch",
    "vqueue: fetch",
    "Do pictures come, and why not?",
    (
        Panel(
            "Not to be had",
            "Share of the pictures of the last quarter of an hour that were given up.",
            "percentunit",
            (Query("vqueue:fetches_failed:ratio15m", "share"),),
            kind="stat",
            thresholds=(Threshold(0.05, "yellow"), Threshold(0.2, "red")),
        ),
        Panel(
            "On their way",
            "Pictures that wait to be fetched, and that are being fetched.",
            "short",
            (Query("max by (state) (vqueue_images)", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Fetches that end",
            "Each second: stored, to be tried again, or given up by code.",
            "ops",
            (Query(rate("vqueue_fetches_total", by="outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Given up",
            "Pictures in the last hour, by code: docs/images.md.",
            "short",
            (
                Query(
                    'sum by (outcome) (increase(vqueue_fetches_total{outcome!~"stored|retried"}[1h]))',
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Time of a fetch",
            "Download, check and store, failed ones too.",
            "s",
            (
                Query(quantile(0.5, "vqueue_stage_seconds", where=stage("fetch")), "half within"),
                Query(quantile(0.95, "vqueue_stage_seconds", where=stage("fetch")), "95 % within"),
            ),
        ),
        Panel(
            "Looked at",
            "Pictures each second that were compared for near duplicates.",
            "ops",
            (Query(rate("vqueue_images_looked_at_total", by="outcome"), "{{outcome}}"),),
        ),
    ),
)


SWEEPS = Dashboard(
    "sweeps",
    "vqueue: sweeps",
    "Do the nightly runs get on, what do they find, and what is cleared away?",
    (
        Panel(
            "Stalled",
            "Runs in which nothing moved for the alert_after_s of their sweep.",
            "none",
            (Query("max(vqueue_sweep_stalled)", "runs"),),
            kind="stat",
            thresholds=BAD_ABOVE_ZERO,
        ),
        Panel(
            "Open runs",
            "By what they do now.",
            "short",
            (Query("max by (state) (vqueue_sweep_open)", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Runs that ended",
            "In the last day, by how.",
            "short",
            (Query("sum by (state) (increase(vqueue_sweep_runs_total[1d]))", "{{state}}"),),
        ),
        Panel(
            "Images gone through",
            "In the last day, by what was found. Only new and changed ones are asked about.",
            "short",
            (Query("sum by (change) (increase(vqueue_sweep_images_total[1d]))", "{{change}}"),),
        ),
        Panel(
            "Rows cleared away",
            "By age or with what was deleted, each second.",
            "ops",
            (Query(rate("vqueue_rows_deleted_total", by="table"), "{{table}}"),),
        ),
        Panel(
            "Objects cleared away",
            "Each second; orphans are what crashes left.",
            "ops",
            (
                Query(rate("vqueue_objects_deleted_total"), "deleted"),
                Query(rate("vqueue_orphans_total"), "orphans"),
            ),
        ),
    ),
)
