"""The sample producer of the docs, as its reader runs it."""

import csv
import os
import subprocess
import sys
from pathlib import Path

from demo.pictures import as_jpeg, draw, product_for
from tests.e2e.conftest import Cluster

PRODUCER = Path(__file__).parents[2] / "docs" / "examples" / "producer.py"


def test_the_sample_producer_asks_about_pairs(cluster: Cluster, tmp_path: Path) -> None:
    for name, seed in (("mug.jpg", 1), ("hat.jpg", 2)):
        (tmp_path / name).write_bytes(as_jpeg(draw(product_for(seed, held_out=False), seed)))
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("id,first,second\na,mug.jpg,hat.jpg\nb,mug.jpg,mug.jpg\nc,ftp://x/y.png,hat.jpg\n")
    environment = {**os.environ, "VQUEUE_URL": f"{cluster.url}/v1", "VQUEUE_API_KEY": cluster.key}
    run = subprocess.run(
        [sys.executable, PRODUCER, pairs], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    rows = {row["id"]: row for row in csv.DictReader(run.stdout.splitlines())}
    assert set(rows) == {"a", "b", "c"}
    assert all(rows[name]["answer"] and not rows[name]["error"] for name in ("a", "b"))
    assert rows["c"]["error"].startswith("blocked_url")
