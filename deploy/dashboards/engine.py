"""The model's engine, and what need not be computed."""

from deploy.dashboards.queries import mean, quantile, rate, stage
from deploy.grafana_json import Dashboard, Panel, Query, Threshold

BAD_ABOVE_ZERO = (Threshold(0.001, "red"),)
MODELS = {"model": "vqueue_model_workers"}

ENGINE = Dashboard(
    "engine",
    "vqueue: engine",
    "Is the model busy, and what does it wait for?",
    (
        Panel(
            "How full steps are",
            "Rows of a step over VQUEUE_STEP_ROWS. Low while jobs wait: the model is kept waiting.",
            "percentunit",
            (Query(mean("vqueue_step_fill", where='model=~"$model"', by="model"), "{{model}}"),),
            base="text",
            thresholds=(Threshold(0.25, "green"),),
        ),
        Panel(
            "Tokens",
            "Each second: prompts computed, prompts from kept prefixes, answers, pictures.",
            "ops",
            (Query(rate("vqueue_tokens_total", by="kind", where='model=~"$model"'), "{{kind}}"),),
        ),
        Panel(
            "Requests that join",
            "Each second, by model.",
            "ops",
            (Query(rate("vqueue_rows_joined_total", by="model", where='model=~"$model"'), "{{model}}"),),
        ),
        Panel(
            "Time of a step",
            "One forward pass, all models of a worker together.",
            "s",
            (
                Query(quantile(0.5, "vqueue_stage_seconds", where=stage("step")), "half within"),
                Query(quantile(0.99, "vqueue_stage_seconds", where=stage("step")), "99 % within"),
            ),
        ),
        Panel(
            "Where a chunk's time goes",
            "Mean of each stage: claim and record are Postgres, read is the object store.",
            "s",
            (
                Query(
                    mean("vqueue_stage_seconds", where=stage("claim|read|engine|record"), by="stage"),
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "Inside the engine",
            "Mean of encoding a group of pictures, and of the wait before a request joins.",
            "s",
            (
                Query(
                    mean("vqueue_stage_seconds", where=stage("engine_wait|encode"), by="stage"), "{{stage}}"
                ),
            ),
        ),
        Panel(
            "Pictures encoded",
            "Each second, by the vision tower.",
            "ops",
            (Query(rate("vqueue_images_encoded_total"), "pictures"),),
        ),
        Panel(
            "Out of memory",
            "Steps in the last quarter of an hour that did not fit, by model. Each was halved and run again.",
            "short",
            (
                Query(
                    'sum by (model) (increase(vqueue_out_of_memory_total{model=~"$model"}[15m]))', "{{model}}"
                ),
            ),
            thresholds=BAD_ABOVE_ZERO,
        ),
        Panel(
            "GPU",
            "Share of time that it was busy, by NVML.",
            "percentunit",
            (Query("vqueue_gpu_utilisation", "{{instance}} {{gpu}}"),),
            needs_gpu=True,
        ),
        Panel(
            "GPU memory",
            "Used over all, by NVML.",
            "percentunit",
            (
                Query(
                    'max by (instance, gpu) (vqueue_gpu_memory_bytes{kind="used"})'
                    ' / max by (instance, gpu) (vqueue_gpu_memory_bytes{kind="total"})',
                    "{{instance}} {{gpu}}",
                ),
            ),
            thresholds=(Threshold(0.97, "red"),),
            needs_gpu=True,
        ),
    ),
    MODELS,
)


CACHES = Dashboard(
    "caches",
    "vqueue: caches",
    "What work is not done because it was done before, and does remembering pay?",
    (
        Panel(
            "Kept answers",
            "Jobs each second that need no model: the same was answered before, or about its like.",
            "ops",
            (
                Query(rate("vqueue_answers_cached_total"), "kept"),
                Query(rate("vqueue_answers_near_total"), "of a near duplicate"),
            ),
        ),
        Panel(
            "Model time",
            "Seconds each second: spent on answers, and spared by kept ones.",
            "short",
            (
                Query(rate("vqueue_model_seconds_total"), "spent"),
                Query(rate("vqueue_model_seconds_saved_total"), "spared"),
            ),
        ),
        Panel(
            "Prompts from prefixes",
            "Share of prompt tokens that were computed for an earlier question.",
            "percentunit",
            (
                Query(
                    rate("vqueue_tokens_total", where='kind="cached"')
                    + " / "
                    + rate("vqueue_tokens_total", where='kind=~"cached|prompt"'),
                    "share",
                ),
            ),
        ),
        Panel(
            "Look-ups of features",
            "Each second, by where they were found.",
            "ops",
            (Query(rate("vqueue_feature_reads_total", by="tier"), "{{tier}}"),),
            stacked=True,
        ),
        Panel(
            "Seconds saved",
            "Encoding spared each second, less all look-ups. Below zero the cache costs more than it saves.",
            "short",
            (Query("vqueue:features_saved:rate30m", "saved"),),
            signed=True,
        ),
        Panel(
            "Time of a look-up",
            "Mean, by tier. Redis must be well under the time of encoding.",
            "s",
            (
                Query(
                    f"{rate('vqueue_feature_seconds_total', by='tier')}"
                    f" / {rate('vqueue_feature_reads_total', by='tier')}",
                    "{{tier}}",
                ),
            ),
        ),
        Panel(
            "Features stored",
            "Bytes each second that a tier took.",
            "bytes",
            (Query(rate("vqueue_features_stored_bytes_total", by="tier"), "{{tier}}"),),
        ),
        Panel(
            "Pushed out of Redis",
            "Images each second whose features left because the budget was full.",
            "ops",
            (Query(rate("vqueue_features_evicted_total"), "pushed out"),),
        ),
        Panel(
            "Features refused",
            "Each second: damaged, foreign, or Redis failing; and samples that came out otherwise.",
            "ops",
            (
                Query(rate("vqueue_feature_faults_total", by="reason"), "{{reason}}"),
                Query(rate("vqueue_feature_checks_total", where='outcome="mismatch"'), "wrong"),
            ),
            thresholds=BAD_ABOVE_ZERO,
        ),
    ),
)
