"""A sample producer: one question about each pair of pictures, as one batch, by the official SDK alone.

    export VQUEUE_URL=http://127.0.0.1:8000/v1 VQUEUE_API_KEY=vq_...
    .venv/bin/python docs/examples/producer.py pairs.csv --question "Do both pictures show the same item?"

pairs.csv has the columns id, first, second. A picture is an https:// URL or a path beside the CSV; files are
uploaded once and named by their id. A row whose file cannot be read is reported and left out. The answers go
to standard output as CSV: id, answer, error. The demo model cannot compare pictures: it answers, but not the
question. Real models can.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from openai import OpenAI
from openai.types import Batch

ENDED = {"completed", "failed", "expired", "cancelled"}
POLL_S = 2.0


def main() -> int:
    arguments = read_arguments()
    client = make_client()
    model = arguments.model or next(iter(client.models.list())).id
    lines = "".join(batch_lines(client, arguments.pairs, model, arguments.question))
    if not lines:
        sys.exit(f"{arguments.pairs} has no row that can be asked about")
    file = client.files.create(file=("pairs.jsonl", lines.encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"source": arguments.pairs.name},
    )
    batch = wait(client, batch)
    for error in (batch.errors and batch.errors.data) or ():
        print(f"line {error.line}: {error.code}: {error.message}", file=sys.stderr)
    results = csv.writer(sys.stdout)
    results.writerow(("id", "answer", "error"))
    results.writerows(read_results(client, batch))
    return 0 if batch.status == "completed" else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask one question about pairs of pictures.")
    parser.add_argument("pairs", type=Path, help="CSV with the columns id, first, second")
    parser.add_argument("--question", default="Do both pictures show the same item? Answer yes or no.")
    parser.add_argument("--model", help="default: the first that the server lists")
    return parser.parse_args()


def make_client() -> OpenAI:
    url, key = os.environ.get("VQUEUE_URL"), os.environ.get("VQUEUE_API_KEY")
    if not url or not key:
        sys.exit(
            "set VQUEUE_URL and VQUEUE_API_KEY, such as http://127.0.0.1:8000/v1 and $(cat .vqueue/api-key)"
        )
    return OpenAI(base_url=url, api_key=key)


def batch_lines(client: OpenAI, pairs: Path, model: str, question: str) -> Iterator[str]:
    """One line of the Batch API for each row: two pictures, then the question."""
    uploaded: dict[Path, str] = {}

    def reference(picture: str) -> str:
        if "://" in picture:
            return picture
        path = pairs.parent / picture
        if path not in uploaded:
            uploaded[path] = client.files.create(file=path, purpose="vision").id
        return uploaded[path]

    with pairs.open(newline="", encoding="utf-8-sig") as table:
        for number, row in enumerate(csv.DictReader(table), 1):
            try:
                urls = [reference(row[column]) for column in ("first", "second")]
            except OSError as error:
                print(f"row {number} ({row['id']}) is left out: {error}", file=sys.stderr)
                continue
            images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            content = [*images, {"type": "text", "text": question}]
            body = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": content}]}
            line = {"custom_id": row["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}
            yield json.dumps(line) + "\n"


def wait(client: OpenAI, batch: Batch) -> Batch:
    while batch.status not in ENDED:
        time.sleep(POLL_S)
        batch = client.batches.retrieve(batch.id)
        if counts := batch.request_counts:
            done = counts.completed + counts.failed
            print(f"{batch.status}: {done} of {counts.total}, {counts.failed} failed", file=sys.stderr)
    return batch


def read_results(client: OpenAI, batch: Batch) -> Iterator[tuple[str, str, str]]:
    """Answers, then failures; each file is in the order of the input."""
    for file_id in (batch.output_file_id, batch.error_file_id):
        for line in client.files.content(file_id).text.splitlines() if file_id else ():
            row = json.loads(line)
            body = row["response"]["body"] if row["response"] else {"error": row["error"]}
            if "error" in body:
                yield row["custom_id"], "", f"{body['error']['code']}: {body['error']['message']}"
            else:
                yield row["custom_id"], body["choices"][0]["message"]["content"], ""


if __name__ == "__main__":
    sys.exit(main())
