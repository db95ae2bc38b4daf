"""`vqueue warm` against a whole vqueue: images of a bucket and of a catalog, and instructions."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import picture
from tests.servers import S3Place


def run_warm(cluster: Cluster, place: S3Place, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "VQUEUE_URL": f"{cluster.url}/v1",
        "VQUEUE_API_KEY": cluster.key,
        "VQUEUE_S3_ENDPOINT_URL": place.endpoint_url or "",
        "VQUEUE_S3_ACCESS_KEY_ID": place.access_key_id or "",
        "VQUEUE_S3_SECRET_ACCESS_KEY": place.secret_access_key or "",
    }
    command = [sys.executable, "-m", "app.cli.main", "warm", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_prefix_a_catalog_and_instructions_are_warmed_and_told(
    make_cluster: Callable[..., Cluster], s3: S3Place, tmp_path: Path
) -> None:
    cluster = make_cluster(s3_source_buckets=(s3.bucket,))
    cluster.start("api", "dispatcher", "fetcher", "worker")
    store = s3.store()
    for number in range(2):
        store.put(f"warm/{number}.jpg", picture(number), content_type="image/jpeg")
    store.put("warmer/0.jpg", picture(9), content_type="image/jpeg")
    store.close()
    (cluster.pictures / "2.jpg").write_bytes(picture(2))
    urls = [f"{cluster.pictures_url}/{name}" for name in ("2.jpg", "2.jpg", "none.jpg")]
    catalog, instruction = tmp_path / "catalog.csv", tmp_path / "system.txt"
    catalog.write_text("id,image\n" + "".join(f"{at},{url}\n" for at, url in enumerate(urls)))
    instruction.write_text("You check pictures against a policy.")
    prefix = f"s3://{s3.bucket}/warm/"
    ended = run_warm(
        cluster, s3, "--prefix", prefix, "--catalog", str(catalog), "--instructions", str(instruction)
    )
    assert ended.stdout == "warm: stored=4 encoded=4 there=0 failed=1 (http_404 x 1)\n", cluster.logs()
    assert ended.returncode == 1
    assert set(cluster.rows.all("SELECT metadata->>'vqueue_warm' FROM batches")) == {"on"}


def test_a_prefix_that_matches_nothing_is_told(cluster: Cluster, s3: S3Place) -> None:
    ended = run_warm(cluster, s3, "--model", "tiny", "--prefix", f"s3://{s3.bucket}/nothing/")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"no key in the bucket {s3.bucket!r} begins with 'nothing/'\n"


def test_a_wrong_key_is_told_in_one_line(cluster: Cluster, s3: S3Place, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.jsonl"
    catalog.write_text('"https://a/1.jpg"\n')
    cluster.key = "vq_wrong"
    ended = run_warm(cluster, s3, "--catalog", str(catalog))
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)
    assert "401" in ended.stderr
