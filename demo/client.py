"""The demo as a client: a batch file, the official SDK, and the answers joined to the catalog again."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI
from openai.types import Batch

from demo.catalog import Entry, right
from demo.products import KINDS, Kind
from demo.questions import question_for

ENDED = {"completed", "failed", "expired", "cancelled"}
POLL_S = 0.5
MAX_TOKENS = 8


@dataclass(frozen=True)
class Result:
    """What came of one job: an answer, or a code with a message."""

    answer: str | None
    code: str = ""
    message: str = ""


Results = dict[tuple[str, str], Result]  # by catalog id and kind of question


def batch_lines(entries: Sequence[Entry], base_url: str, model: str) -> Iterator[str]:
    """One line of the Batch API for each picture and kind of question."""
    for entry in entries:
        for kind in KINDS:
            content = [
                {"type": "image_url", "image_url": {"url": f"{base_url}/{entry.path}"}},
                {"type": "text", "text": question_for(kind, entry.seed)},
            ]
            body = {
                "model": model,
                "max_tokens": MAX_TOKENS,
                "messages": [{"role": "user", "content": content}],
            }
            line = {
                "custom_id": f"{entry.id}/{kind}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body,
            }
            yield json.dumps(line) + "\n"


def run_batch(client: OpenAI, file: Path, progress: Callable[[Batch], None]) -> Batch:
    """Upload, create, poll to the end; `progress` sees every poll."""
    with file.open("rb") as lines:
        uploaded = client.files.create(file=lines, purpose="batch")
    batch = client.batches.create(
        input_file_id=uploaded.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"name": "demo catalog"},
    )
    try:
        while batch.status not in ENDED:
            progress(batch)
            time.sleep(POLL_S)
            batch = client.batches.retrieve(batch.id)
    except KeyboardInterrupt:
        # Else it would go on beside the next demo.
        client.batches.cancel(batch.id)
        raise
    progress(batch)
    return batch


def read_results(client: OpenAI, batch: Batch) -> Results:
    """Both files of the batch, each line by what it was asked about."""
    results: Results = {}
    for file_id in (batch.output_file_id, batch.error_file_id):
        for line in client.files.content(file_id).text.splitlines() if file_id else []:
            row = json.loads(line)
            entry_id, _, kind = row["custom_id"].partition("/")
            results[entry_id, kind] = _result(row)
    return results


def _result(row: dict[str, dict[str, object]]) -> Result:
    response = json.loads(json.dumps(row["response"] or {}))
    if response.get("status_code") == 200:
        return Result(response["body"]["choices"][0]["message"]["content"])
    error = json.loads(json.dumps(row["error"] or response["body"]["error"]))
    return Result(None, error["code"], error["message"])


def count_right(entries: Sequence[Entry], results: Results) -> tuple[int, int]:
    """(right answers, jobs that count): every job but those of the broken pictures."""
    pairs: list[tuple[Entry, Kind]] = [
        (entry, kind) for entry in entries if not entry.broken for kind in KINDS
    ]
    hits = sum(_same(results.get((entry.id, kind)), right(entry, kind)) for entry, kind in pairs)
    return hits, len(pairs)


def _same(result: Result | None, wanted: str) -> bool:
    return result is not None and (result.answer or "").strip().rstrip(".").lower() == wanted
