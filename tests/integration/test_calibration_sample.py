"""docs/examples/calibration_sample.py makes of reviewed answers what `vqueue calibrate` reads."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from app.objects import ObjectStore
from tests.drawn import product, saved
from workers.calibrate import read_labelled

CHOICES = ["red", "blue"]


@pytest.fixture(autouse=True)
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.s3_endpoint_url
    assert settings.s3_access_key_id
    assert settings.s3_secret_access_key
    monkeypatch.setenv("AWS_ENDPOINT_URL", settings.s3_endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", settings.s3_access_key_id.get_secret_value())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", settings.s3_secret_access_key.get_secret_value())
    monkeypatch.setenv("AWS_DEFAULT_REGION", settings.s3_region)


def correction(number: int, image: str, content: bytes, **changes: Any) -> dict[str, Any]:
    source = {"content_hashes": [hashlib.sha256(content).hexdigest()]}
    row = {"custom_id": f"job_{number}", "image": image, "question": "Which colour?", "choices": CHOICES}
    return row | {"label": "blue", "model_answer": "red", "source": source} | changes


def test_reviewed_answers_become_a_sample_with_its_pictures(objects: ObjectStore, tmp_path: Path) -> None:
    content = saved(product(1))
    objects.put("reviewed/a b.png", content, content_type="image/png")
    place = f"s3://{objects.bucket}/reviewed/a b.png"
    rows = [
        correction(1, place, content, system="Be brief."),
        correction(2, place, b"what it was once"),
        correction(3, f"s3://{objects.bucket}/gone.png", content),
        correction(4, "file-1", content),
    ]
    corrections, out = tmp_path / "corrections.jsonl", tmp_path / "labelled.jsonl"
    corrections.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "docs/examples/calibration_sample.py", str(corrections), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (asked,) = read_labelled(out, Settings())
    assert (asked.question.id, asked.question.label, done.returncode) == ("job_1", "blue", 0)
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["job_2", "job_3", "job_4"]
