"""Makes a sample for `vqueue calibrate` of the reviewed answers that `vqueue review export` wrote.

    vqueue review export -o corrections.jsonl
    .venv/bin/python docs/examples/calibration_sample.py corrections.jsonl -o labelled.jsonl

Reads each picture where the answer had it from: https:// URLs, and s3:// keys by the AWS variables
(AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY). A line is left out, and its reason told, if its
answer was no choice, its picture is neither of these, or is not the one any more that the reviewer judged.
"""

import argparse
import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.exceptions import BotoCoreError, ClientError


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("corrections", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    lines: list[str] = []
    for row in map(json.loads, given.corrections.read_text("utf-8").splitlines()):
        try:
            lines.append(json.dumps(labelled(row)) + "\n")
        except (ValueError, httpx.HTTPError, BotoCoreError) as error:
            print(f"{row['custom_id']} is left out: {error}", file=sys.stderr)
    given.output.write_text("".join(lines))
    print(f"{len(lines)} labelled questions in {given.output}")
    return 0 if lines else 1


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    """A batch line with the right answer in its metadata."""
    if "choices" not in row:
        raise ValueError("its answer was no choice")
    hashes = row["source"]["content_hashes"]
    parts = [picture(url, hashes) for url in row.get("images", [row["image"]])]
    parts.append({"type": "text", "text": row["question"]})
    system = [{"role": "system", "content": row["system"]}] if "system" in row else []
    body = {
        "messages": [*system, {"role": "user", "content": parts}],
        "guided_choice": row["choices"],
        "metadata": {"label": row["label"]},
    }
    return {"custom_id": row["custom_id"], "body": body}


def picture(url: str | None, hashes: list[str]) -> dict[str, Any]:
    data = read(url or "")
    if hashlib.sha256(data).hexdigest() not in hashes:
        raise ValueError(f"{url} is not the picture any more that was reviewed")
    return {"type": "image_url", "image_url": {"url": f"data:;base64,{base64.b64encode(data).decode()}"}}


def read(url: str) -> bytes:
    if url.startswith("s3://"):
        bucket, _, key = url.removeprefix("s3://").partition("/")
        try:
            return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            raise ValueError(f"{url}: {error}") from error
    if url.startswith(("http://", "https://")):
        return httpx.get(url, follow_redirects=True, timeout=30).raise_for_status().content
    raise ValueError(f"its picture is no URL and no s3:// key: {url or 'null'}")


if __name__ == "__main__":
    sys.exit(main())
