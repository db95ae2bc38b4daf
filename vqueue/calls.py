"""Every call of the API, described once: both clients have each of these functions as a method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from uuid import uuid4

import httpx
from pydantic import BaseModel

from vqueue.inputs import (
    CacheMode,
    Cascade,
    ExportFormat,
    ExportRows,
    FailureBrake,
    Priority,
    Purpose,
    States,
    Table,
)
from vqueue.types import Batch, BatchPage, ErrorCount, File, Job, KeptModel, Key, ResultPage

CHAT = "/v1/chat/completions"
MOST_RESULTS = 1_000  # in a page

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Upload:
    """A file to send, under a name that says its kind."""

    name: str
    source: Path | bytes
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how its answer is read. Called again it is the same request, with the same key."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, str | int] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    upload: Upload | None = None
    idempotency_key: str | None = None
    save_to: Path | None = None  # the answer's body goes there, not into memory


def models() -> Call[list[str]]:
    """The names that a request may give as its model."""
    return Call("GET", "/models", lambda answer: [model["id"] for model in answer.json()["data"]])


def key() -> Call[Key]:
    """The key that is used, with its scopes."""
    return Call("GET", "/key", as_model(Key))


def upload(
    source: Path | bytes,
    *,
    name: str | None = None,
    purpose: Purpose = "batch",
    expires_after_s: int | None = None,
    idempotency_key: str | None = None,
) -> Call[File]:
    """Upload a file, in a stream. The name's ending says what a batch's file is: it is the path's own."""
    fields = {"purpose": purpose}
    if expires_after_s is not None:
        fields |= {"expires_after[anchor]": "created_at", "expires_after[seconds]": str(expires_after_s)}
    named = name or (source.name if isinstance(source, Path) else "input.jsonl")
    return Call(
        "POST",
        "/files",
        as_model(File),
        upload=Upload(named, source, fields),
        idempotency_key=idempotency_key or new_key(),
    )


def create_batch(
    input_file_id: str,
    *,
    table: Table | None = None,
    completion_window: str = "24h",
    metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
    strict: bool = False,
    priority: Priority | None = None,
    failure_brake: FailureBrake | None = None,
    output_expires_after_s: int | None = None,
    cache: CacheMode | None = None,
    cascade: Cascade | None = None,
    near_duplicates: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Batch]:
    """A batch of an uploaded file; with a `table` also of a prefix such as s3://bucket/prefix.

    `near_duplicates` asks about one of the pictures whose hashes differ in at most so many bits of 64.
    """
    body = {
        "input_file_id": input_file_id,
        "endpoint": CHAT,
        "completion_window": completion_window,
        "table": table,
        "metadata": metadata,
        "dry_run": dry_run or None,
        "strict": strict or None,
        "priority": priority,
        "failure_brake": failure_brake,
        "output_expires_after": _expiry(output_expires_after_s),
        "cache": cache,
        "cascade": cascade,
        "near_duplicates": None if near_duplicates is None else {"distance": near_duplicates},
    }
    return post("/batches", body, as_model(Batch), idempotency_key)


def batch(batch_id: str) -> Call[Batch]:
    return Call("GET", f"/batches/{batch_id}", as_model(Batch))


def batches(*, limit: int = 20, after: str | None = None) -> Call[BatchPage]:
    """A page of batches, newest first, behind the one with the id `after`."""
    params: dict[str, str | int] = {"limit": limit} | ({"after": after} if after else {})
    return Call("GET", "/batches", as_model(BatchPage), params=params)


def cancel(batch_id: str) -> Call[Batch]:
    """Stop a batch; what is answered by then stays."""
    return Call("POST", f"/batches/{batch_id}/cancel", as_model(Batch))


def delete_batch(batch_id: str) -> Call[None]:
    """Delete a batch that has ended, with its answers and files."""
    return Call("DELETE", f"/batches/{batch_id}", lambda _: None)


def retry(
    batch_id: str,
    *,
    states: Sequence[States] = ("failed",),
    completion_window: str | None = None,
    metadata: Mapping[str, str] | None = None,
    priority: Priority | None = None,
    failure_brake: FailureBrake | None = None,
    output_expires_after_s: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Batch]:
    """The jobs of an ended batch that have no answer, once more, as a new batch."""
    body = {
        "states": list(states),
        "completion_window": completion_window,
        "metadata": metadata,
        "priority": priority,
        "failure_brake": failure_brake,
        "output_expires_after": _expiry(output_expires_after_s),
    }
    return post(f"/batches/{batch_id}/retry", body, as_model(Batch), idempotency_key)


def errors(batch_id: str) -> Call[list[ErrorCount]]:
    """What the batch's jobs have failed of so far, the commonest first."""
    return Call("GET", f"/batches/{batch_id}/errors", _error_counts)


def results_page(
    batch_id: str, *, after: int = 0, limit: int = MOST_RESULTS, status: str | None = None
) -> Call[ResultPage]:
    """A page of results in the order in which they ended, behind number `after`."""
    params: dict[str, str | int] = {"after": after, "limit": limit} | ({"status": status} if status else {})
    return Call("GET", f"/batches/{batch_id}/results", as_model(ResultPage), params=params)


def export(
    batch_id: str,
    to: Path | str,
    *,
    format: ExportFormat | None = None,
    rows: ExportRows = "all",
    retries: bool = True,
    columns: Literal["all", "answers"] = "all",
) -> Call[Path]:
    """Write a batch's answers to a file, which appears whole or not at all. Its ending says the format.

    With `retries`, the newest answers among the batch and its retries. Of a table whose file is gone there
    are only the answers.
    """
    path = Path(to)
    params: dict[str, str | int] = {
        "format": format or path.suffix.lstrip("."),
        "rows": rows,
        "retries": "true" if retries else "false",
        "columns": columns,
    }
    return Call("GET", f"/batches/{batch_id}/export", lambda _: path, params=params, save_to=path)


def download(file_id: str, to: Path | str) -> Call[Path]:
    """Write a file's bytes to a file here, which appears whole or not at all."""
    path = Path(to)
    return Call("GET", f"/files/{file_id}/content", lambda _: path, save_to=path)


def create_job(
    question: str,
    *,
    image: str | None = None,
    images: Sequence[str] | None = None,
    idempotency_key: str | None = None,
    **settings: Any,
) -> Call[Job]:
    """One question straight; `settings` are those of `POST /v1/jobs`, such as model, max_tokens, priority."""
    body = {"question": question, "image": image, "images": list(images) if images else None, **settings}
    return post("/jobs", body, as_model(Job), idempotency_key)


def job(job_id: str) -> Call[Job]:
    return Call("GET", f"/jobs/{job_id}", as_model(Job))


def delete_job(job_id: str) -> Call[None]:
    return Call("DELETE", f"/jobs/{job_id}", lambda _: None)


def kept_answers() -> Call[list[KeptModel]]:
    """How many answers the answer cache keeps, by model."""
    return Call("GET", "/answer_cache", _kept_models)


def forget_answers(*, model: str | None = None, question: str | None = None, all: bool = False) -> Call[int]:
    """Forget kept answers of a model, to a question (its last text, word for word), or all; how many."""
    body = {"model": model, "question": question, "all": all or None}
    return post("/answer_cache/forget", body, lambda answer: int(answer.json()["forgotten"]), None)


def new_key() -> str:
    return str(uuid4())


def post(
    path: str, body: Mapping[str, Any], read: Callable[[httpx.Response], T], idempotency_key: str | None
) -> Call[T]:
    """What creates something: sent again it creates nothing more. None is left out."""
    given = {name: value for name, value in body.items() if value is not None}
    return Call("POST", path, read, json=given, idempotency_key=idempotency_key or new_key())


def _expiry(seconds: int | None) -> dict[str, Any] | None:
    return None if seconds is None else {"anchor": "created_at", "seconds": seconds}


def as_model(model: type[Model]) -> Callable[[httpx.Response], Model]:
    """Read an answer as this."""
    return lambda answer: model.model_validate_json(answer.content)


def _kept_models(answer: httpx.Response) -> list[KeptModel]:
    return [KeptModel.model_validate(one) for one in answer.json()["data"]]


def _error_counts(answer: httpx.Response) -> list[ErrorCount]:
    return [ErrorCount.model_validate(row) for row in answer.json()["data"]]
