"""Settings of every vqueue process: typed, frozen, read once from `VQUEUE_*` or secret files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.model_list import ModelEntry, check_aliases, read_aliases, read_models
from app.prices import Price, read_prices
from app.shadow_list import Shadow, read_shadows

MIB = 2**20
DAY_S = 86_400
# An image's last use is known to the hour.
LEAST_IMAGES_S = 3600
# The settings that each model of `models` may have for itself.
PER_MODEL = (
    "device",
    "dtype",
    "max_pixels",
    "step_rows",
    "step_tokens",
    "kv_bytes",
    "prefix_cache_bytes",
    "max_wait_ms",
    "max_new_tokens",
    "prompt_max_chars",
    "feature_cache_bytes",
    "feature_cache_format",
    "engine",
    "engine_mode",
    "remote_url",
    "remote_revision",
    "remote_concurrency",
)


class Settings(BaseSettings):
    """One value per `VQUEUE_<NAME>` variable; a file `vqueue_<name>` in the secrets folder serves as well.

    The secrets folder is `VQUEUE_SECRETS_DIR` (default `/run/secrets`, ignored where it is missing).
    """

    model_config = SettingsConfigDict(env_prefix="VQUEUE_", frozen=True, extra="ignore")

    # Servers. Passwords and TLS travel in the URLs (sslmode=, amqps://, rediss://, https://).
    database_url: SecretStr = SecretStr("postgresql://vqueue:vqueue@127.0.0.1:5432/vqueue")
    broker_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/1")
    s3_endpoint_url: str | None = None
    s3_region: str = "us-east-1"
    s3_bucket: str = "vqueue"
    s3_access_key_id: SecretStr | None = None
    s3_secret_access_key: SecretStr | None = None
    s3_source_buckets: Annotated[tuple[str, ...], NoDecode] = ()
    database_pool_size: int = Field(default=5, ge=1)

    # The model. `model` is a folder or a hub id; clients call it `model_name`.
    model: str = "models/demo"
    model_name: str | None = None
    # Several models instead: `name=source option=value ...` each, options being those of PER_MODEL.
    models: Annotated[tuple[ModelEntry, ...], NoDecode] = ()
    model_aliases: Annotated[Mapping[str, str], NoDecode] = Field(default_factory=dict)
    # A share of one model's answers is asked of another, for a tenant of this name.
    shadows: Annotated[tuple[Shadow, ...], NoDecode] = ()
    shadow_tenant: str = Field(default="shadow", min_length=1)
    worker_models: Annotated[tuple[str, ...], NoDecode] = ()  # what a worker loads; all where it is empty
    engine: Literal["transformers", "vllm", "remote"] = "transformers"
    engine_mode: Literal["batched", "single"] = "batched"  # single: the fallback, one request at a time
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    torch_threads: int = Field(default=0, ge=0)  # 0 leaves torch's own choice
    max_pixels: int = Field(default=1_003_520, ge=1024)  # 980 visual tokens of 32 x 32 pixels
    step_rows: int = Field(default=128, ge=1)
    step_tokens: int = Field(default=2048, ge=1)  # prompt tokens that one step computes
    kv_bytes: int | None = Field(default=None, ge=1)  # of prefixes; 2 GiB, on a GPU 60 % of what is free
    prefix_cache_bytes: int | None = Field(default=None, ge=0)  # kept while unused; half of kv_bytes
    stall_s: float = Field(default=300.0, ge=0)  # a step longer than this ends the worker; 0 never does
    max_wait_ms: int = Field(default=10, ge=0)
    max_new_tokens: int = Field(default=1024, ge=1)
    # About what fits Qwen3-VL's largest context of 262,144 tokens.
    prompt_max_chars: int = Field(default=1_000_000, ge=1)
    feature_cache_bytes: int = Field(default=256 * MIB, ge=0)  # memory tier, per worker
    feature_cache_redis_bytes: int = Field(default=512 * MIB, ge=0)  # Redis tier, all workers together
    feature_cache_ttl_s: int = Field(default=86_400, ge=1)  # Redis tier
    feature_cache_format: Literal["native", "int8"] = "native"
    feature_check_share: float = Field(default=0.0, ge=0, le=1)  # hits that are encoded anew and compared
    answer_cache: Literal["on", "off", "read", "write"] = "on"  # where a batch or job does not say
    answer_cache_ttl_s: int = Field(default=30 * 86_400, ge=1)
    shared_cache_tenants: Annotated[tuple[str, ...], NoDecode] = ()  # names or ids that share one cache
    worker_threads: int = Field(default=4, ge=1)
    turn_kept_s: float = Field(default=0.2, ge=0)

    # The vLLM engine, where `engine` chooses it.
    vllm_tensor_parallel: int = Field(default=1, ge=1)
    vllm_expert_parallel: bool = False
    vllm_mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    vllm_async_scheduling: bool | None = None  # vLLM's own choice
    vllm_gpu_memory_share: float = Field(default=0.9, gt=0, le=1)
    vllm_kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    vllm_max_model_len: int = Field(default=0, ge=0)  # 0: the checkpoint's context

    # The remote engine: `model` is the server's name of it.
    remote_url: str | None = None  # ends in /v1
    remote_api_key: SecretStr | None = None
    remote_revision: str | None = None
    remote_concurrency: int = Field(default=32, ge=1)

    # Images.
    image_max_bytes: int = Field(default=20 * MIB, ge=1)
    image_max_pixels: int = Field(default=50_000_000, ge=1, le=89_478_485)  # width x height
    images_per_job: int = Field(default=16, ge=1)
    fetch_connect_s: float = 5.0
    fetch_total_s: float = 30.0
    fetch_attempts: int = Field(default=4, ge=1)
    fetch_redirects: int = Field(default=5, ge=0)
    fetch_reuse_s: int = Field(default=3600, ge=0)  # how long a downloaded URL serves later jobs
    fetch_threads: int = Field(default=16, ge=1)
    fetch_per_host: int = Field(default=4, ge=1)
    # A URL or an address of mail that hosts are told; without parentheses, as it stands in such.
    fetch_contact: str | None = Field(default=None, pattern=r"^[!-'*-~]{1,200}$")
    fetch_ports: Annotated[tuple[int, ...], NoDecode] = (80, 443, 8080, 8443)
    fetch_allow_hosts: Annotated[tuple[str, ...], NoDecode] = ()  # private hosts that may be fetched from

    # Files and batches. Sizes and counts are the defaults of OpenAI's Batch API.
    file_max_bytes: int = Field(default=200 * 10**6, ge=1)
    batch_max_lines: int = Field(default=50_000, ge=1)
    table_max_bytes: int = Field(default=5 * 10**9, ge=1)  # of a table that is uploaded for a batch
    table_max_jobs: int = Field(default=5_000_000, ge=1, le=2**31 - 1)  # rows times questions
    # Stop a batch of which this share has failed once so many have ended; 0 lets all run to their end.
    brake_share: float = Field(default=0.0, ge=0, le=1)
    brake_after: int = Field(default=100, ge=1)
    # What a tenant may use unless it has limits of its own; 0 sets none.
    requests_per_minute: int = Field(default=0, ge=0)
    quota_queued_jobs: int = Field(default=0, ge=0)
    quota_bytes: int = Field(default=0, ge=0)
    quota_images_day: int = Field(default=0, ge=0)
    check_images: int = Field(default=20, ge=0)  # that a dry run fetches to see whether they are there
    check_wait_s: float = Field(default=30.0, ge=0)  # for these
    # `model input=0.20 cached=0.05 output=0.60 currency=USD, ...`, per million tokens.
    prices: Annotated[Mapping[str, Price], NoDecode] = Field(default_factory=dict)
    backlog_max_jobs: int = Field(default=5_000_000, ge=1)  # over this, new work is answered 429
    disk_min_free_bytes: int = Field(default=0, ge=0)  # of `data_dir`; 0 switches the check off
    data_dir: Path | None = None

    # Sweeps: databases that they may read (`name=url name=url`), and buckets that they may write answers to.
    sweep_sources: Annotated[Mapping[str, SecretStr], NoDecode] = Field(default_factory=dict)
    sweep_buckets: Annotated[tuple[str, ...], NoDecode] = ()

    # How long things are kept; 0 is for ever.
    retention_files_s: int = Field(default=0, ge=0)  # uploaded files, whatever their clients ask for
    retention_batches_s: int = Field(default=30 * DAY_S, ge=0)  # after their end; direct jobs too
    retention_images_s: int = Field(default=30 * DAY_S, ge=0)  # after their last use
    retention_audit_s: int = Field(default=365 * DAY_S, ge=0)  # the audit log
    retention_sweep_runs_s: int = Field(default=90 * DAY_S, ge=0)  # never the newest of a sweep
    retention_events_s: int = Field(default=30 * DAY_S, ge=0)  # webhooks and the log of them

    # The queue.
    lease_s: float = Field(default=60.0, gt=0)
    heartbeat_s: float = Field(default=10.0, gt=0)
    job_attempts: int = Field(default=5, ge=1)
    crash_attempts: int = Field(default=3, ge=1)
    job_timeout_s: float = Field(default=300.0, gt=0)
    chunk_jobs: int = Field(default=64, ge=1)
    chunk_visual_tokens: int = Field(default=16_384, ge=1)
    window_jobs: int = Field(default=2_048, ge=1)  # jobs that wait on the broker at once
    # A message that was taken from its queue and not heard of for so long is lost; half of lease_s.
    resend_s: float | None = Field(default=None, gt=0)
    dispatch_poll_s: float = Field(default=0.2, gt=0)
    interactive_max: int = Field(default=256, ge=1)  # chat completions of one model that are open at once
    interactive_timeout_s: float = Field(default=120.0, gt=0)  # to the end of a chat completion
    drain_s: float = Field(default=30.0, gt=0)

    # The console. Its links to Flower and Grafana are shown where they are set.
    console_session_s: int = Field(default=12 * 3600, ge=60)
    console_flower_url: str | None = Field(default=None, pattern=r"^https?://")
    console_grafana_url: str | None = Field(default=None, pattern=r"^https?://")

    # The API and metrics.
    host: str = "127.0.0.1"
    port: int = 8000
    metrics_port: int = 0  # of dispatcher, fetcher and worker; 0 switches it off
    traces_endpoint: str = Field(default="", pattern=r"^(https?://.+)?$")  # OTLP over HTTP; empty is off
    traces_share: float = Field(default=0.001, ge=0, le=1)  # of requests and of batches' jobs
    log_format: Literal["json", "console"] = "json"
    log_level: str = "INFO"

    @field_validator("models", mode="before")
    @classmethod
    def _read_models(cls, value: object) -> object:
        return read_models(value, read_option) if isinstance(value, str) else value

    @field_validator("model_aliases", mode="before")
    @classmethod
    def _read_aliases(cls, value: object) -> object:
        return read_aliases(value) if isinstance(value, str) else value

    @field_validator("prices", mode="before")
    @classmethod
    def _read_prices(cls, value: object) -> object:
        return read_prices(value) if isinstance(value, str) else value

    @field_validator("shadows", mode="before")
    @classmethod
    def _read_shadows(cls, value: object) -> object:
        return read_shadows(value) if isinstance(value, str) else value

    @field_validator("shadows")
    @classmethod
    def _check_shadows(cls, value: tuple[Shadow, ...], info: ValidationInfo) -> tuple[Shadow, ...]:
        _check_served([name for shadow in value for name in (shadow.model, shadow.other)], info)
        return value

    @field_validator("sweep_sources", mode="before")
    @classmethod
    def _read_sources(cls, value: object) -> object:
        return read_sources(value) if isinstance(value, str) else value

    @field_validator("model_aliases")
    @classmethod
    def _check_aliases(cls, value: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
        if served := _served(info):
            check_aliases(value, served)
        return value

    @field_validator("worker_models")
    @classmethod
    def _check_worker_models(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check_served(value, info)
        return value

    @field_validator(
        "s3_source_buckets",
        "fetch_allow_hosts",
        "fetch_ports",
        "worker_models",
        "shared_cache_tenants",
        "sweep_buckets",
        mode="before",
    )
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @model_validator(mode="after")
    def _check_heartbeat(self) -> Self:
        if 3 * self.heartbeat_s > self.lease_s:
            raise ValueError(
                f"VQUEUE_HEARTBEAT_S is {self.heartbeat_s:g}: it must be at most a third of VQUEUE_LEASE_S, "
                f"which is {self.lease_s:g}"
            )
        return self

    @model_validator(mode="after")
    def _check_retention(self) -> Self:
        if 0 < self.retention_images_s < LEAST_IMAGES_S:
            raise ValueError(
                f"VQUEUE_RETENTION_IMAGES_S is {self.retention_images_s}: it must be at least "
                f"{LEAST_IMAGES_S}, or 0 to keep images for ever"
            )
        return self

    @property
    def rows_at_once(self) -> int:
        """Requests that the engine has in one step at most."""
        return 1 if self.engine_mode == "single" else self.step_rows

    @property
    def lost_after_s(self) -> float:
        return self.resend_s if self.resend_s is not None else self.lease_s / 2

    @property
    def served_model(self) -> str:
        """The name by which clients ask for the model, the first where there are several."""
        return self.served_models[0]

    @property
    def served_models(self) -> tuple[str, ...]:
        """The models' own names: those of `models`, else `model_name`, else the last part of its path."""
        return _names(self.models, self.model_name, self.model)

    @property
    def resident_models(self) -> tuple[str, ...]:
        """The models that a worker with these settings loads."""
        return self.worker_models or self.served_models

    @property
    def model_names(self) -> Mapping[str, str]:
        """Every name that clients may use, aliases last, and the model behind it."""
        return {name: name for name in self.served_models} | dict(self.model_aliases)

    @property
    def default_model(self) -> str:
        """The model of a job that names none: the alias `default`, else the first."""
        return self.model_aliases.get("default", self.served_model)

    def for_model(self, name: str) -> Self:
        """These settings as they hold for one of the models, as if it were the only one."""
        entry = next((entry for entry in self.models if entry.name == name), None)
        if entry is None:
            return self
        own = {"model": entry.source, "model_name": entry.name, "models": (), **entry.options}
        return self.model_copy(update=own)


def read_option(name: str, value: str) -> object:
    """The value of a setting that a model has for itself; ValueError for what is wrong."""
    if name not in PER_MODEL:
        raise ValueError(f"{name!r} is no option of a model; there are {', '.join(PER_MODEL)}")
    field = Settings.model_fields[name]
    option = create_model("Option", **{name: (field.annotation, field)})  # pyright: ignore[reportCallIssue, reportArgumentType]
    try:
        return getattr(option.model_validate({name: value}), name)
    except ValidationError as error:
        raise ValueError(f"{name}={value}: {error.errors()[0]['msg']}") from error


def read_sources(text: str) -> Mapping[str, str]:
    """`name=url name=url` as a mapping; ValueError for what is none, without the URL: it has a password."""
    found: dict[str, str] = {}
    for part in text.split():
        name, _, url = part.partition("=")
        if not name or "://" not in url or name in found:
            raise ValueError("must be name=url, several with spaces between, each name once")
        found[name] = url
    return found


def _names(models: tuple[ModelEntry, ...], model_name: str | None, model: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in models) or (model_name or model.rstrip("/").rsplit("/", 1)[-1],)


def _check_served(names: Sequence[str], info: ValidationInfo) -> None:
    """ValueError for the first that is no model's name."""
    served = _served(info)
    if unknown := [name for name in names if served and name not in served]:
        raise ValueError(f"{unknown[0]!r} is none of the models {', '.join(served)}")


def _served(info: ValidationInfo) -> tuple[str, ...]:
    """The models' names among the fields validated so far; none where one of those was wrong."""
    given = info.data
    if not {"models", "model_name", "model"} <= given.keys():
        return ()
    return _names(given["models"], given["model_name"], given["model"])


def read_settings() -> Settings:
    """Read the environment and the secrets folder; called once per process, by its main."""
    folder = Path(os.environ.get("VQUEUE_SECRETS_DIR", "/run/secrets"))
    return Settings(_secrets_dir=folder if folder.is_dir() else None)  # pyright: ignore[reportCallIssue]
