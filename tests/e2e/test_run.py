"""`vqueue run` against a whole vqueue: a table of one's own, answered, broken off, taken up, tried again."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import picture
from tests.waiting import eventually

# The command sees the API only: what carries the messages behind it is nothing to it.
pytestmark = pytest.mark.parametrize("broker_url", ["redis"], indirect=True)


def start(cluster: Cluster, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "VQUEUE_URL": f"{cluster.url}/v1", "VQUEUE_API_KEY": cluster.key}
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    # A shell lets what it puts in the background ignore interrupts; so would the command of such a test run.
    kept = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, kept)


def run(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    with start(cluster, "run", *arguments) as process:
        told, said = process.communicate(timeout=120)
    return process.returncode, told, said


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("sku", "title", "photo"), *rows])
    return path


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_is_answered_broken_off_and_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "mug.jpg").write_bytes(picture(1))
    rows = [("a", "mug", "mug.jpg"), ("b", "cup", f"{cluster.pictures_url}/cup.jpg"), ("c", "pot", "mug.jpg")]
    table, out, gate = write_table(tmp_path / "shop.csv", rows), tmp_path / "out.csv", tmp_path / "gate"
    asks = ("--ask", "name=What is the {title}?", "--ask", f"hold=wait for {gate}", "--id-column", "sku")
    command = (str(table), *asks, "-o", str(out))
    with start(cluster, "run", *command) as process:
        eventually(lambda: cluster.rows.all("SELECT id FROM batches"), within_s=60)
        eventually(lambda: '"batch_' in (tmp_path / ".out.csv.vqueue.json").read_text())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "goes on by itself" in said) == (130, True), said
    gate.touch()
    code, told, said = run(cluster, *command)
    assert (code, told) == (1, f"run: jobs=6 answered=4 failed=2 (http_404 x 2) out={out}\n"), said
    (cluster.pictures / "cup.jpg").write_bytes(picture(2))
    code, told, said = run(cluster, *command, "--only-failed")
    assert (code, told) == (0, f"run: jobs=6 answered=6 failed=0 out={out}\n"), said
    found = read_table(out)
    assert [(row["sku"], row["title"], row["photo"]) for row in found] == rows
    assert all(row["name"] and row["hold"] for row in found)
    assert len(cluster.rows.all("SELECT id FROM batches")) == 2


def test_a_folder_of_pictures_becomes_a_parquet_of_answers(cluster: Cluster, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "top").mkdir(parents=True)
    for number, name in enumerate(("1.jpg", "top/2.jpg")):
        (shelf / name).write_bytes(picture(number))
    code, told, said = run(cluster, str(shelf), "--ask", "What is {name}?", "-o", str(tmp_path / "o.parquet"))
    assert (code, told[:36]) == (0, "run: jobs=2 answered=2 failed=0 out="), said
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [(row["name"], row["image"]) for row in rows] == [("1.jpg", "1.jpg"), ("top/2.jpg", "top/2.jpg")]
    assert all(row["answer"] for row in rows)


def test_a_check_tells_beforehand_what_a_run_would_find(cluster: Cluster, tmp_path: Path) -> None:
    (cluster.pictures / "mug.jpg").write_bytes(picture(1))
    rows = [(name, name, f"{cluster.pictures_url}/{name}.jpg") for name in ("mug", "cup")] + [
        ("", "", "ftp:")
    ]
    table = write_table(tmp_path / "shop.csv", rows)
    with start(cluster, "check", str(table), "--ask", "What is it?", "--ask", "And where?") as process:
        told, said = process.communicate(timeout=120)
    report = json.loads(told)["report"]
    images, tokens = report["images"], report["tokens"]
    assert (process.returncode, report["requests"], report["bad_lines"]) == (1, 4, 2), said
    assert (images["distinct"], images["sample"]["stored"], images["sample"]["failed"]) == (2, 1, 1), said
    assert [one["code"] for one in images["sample"]["errors"]] == ["http_404"]
    assert 0 < tokens["cached"] < tokens["visual"]
    assert cluster.rows.all("SELECT id FROM jobs") == []
