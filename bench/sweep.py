"""A nightly sweep: 10,000 images, then a hundredth changed, added and deleted, and what the next run asks."""

import argparse
import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from random import Random

import httpx
from PIL import Image

from app.config import Settings
from app.local.seaweed import ACCESS_KEY_ID
from app.local.servers import Broker
from app.objects import ObjectStore
from bench import repeats
from bench.queue_site import Servers, Site, open_servers, open_site

IMAGES, SHARE, JOBS = 10_000, 0.01, 20_000
SOURCES, PREFIX = "photos", "incoming/"
ROLES = ("api", "dispatcher", "fetcher", "worker")
POLL_S, LONGEST_S = 0.5, 1_800.0
ENDED = ("completed", "failed", "cancelled")
QUESTION = {"name": "colour", "ask": "Which colour is it?"}


@dataclass(frozen=True)
class SecondRun:
    """What the run after the changes has asked, of what the first one asked, and what it got wrong."""

    asked: int
    ratio: float
    first_s: float
    second_s: float
    expected: int


@dataclass(frozen=True)
class Bucket:
    """The source's bucket, whose pictures change."""

    store: ObjectStore

    def put(self, number: int, version: int) -> None:
        self.store.put(name(number), picture(number, version), content_type="image/png")

    def fill(self, numbers: Iterator[int] | range, *, version: int = 0) -> None:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: self.put(number, version), numbers))

    def remove(self, numbers: range) -> None:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: self.store.delete(name(number)), numbers))


def measure_second_run(servers: Servers, *, images: int = IMAGES, share: float = SHARE) -> SecondRun:
    """Two runs of one sweep on processes of their own, an instant engine behind them."""
    part = max(1, round(images * share))
    with (
        open_source(servers) as bucket,
        open_site(servers, Broker.REDIS, ROLES, s3_source_buckets=SOURCES) as site,
    ):
        bucket.fill(range(images))
        with httpx.Client(headers={"Authorization": f"Bearer {site.key}"}, timeout=60) as http:
            path = create(http, site)
            first, first_s = run(http, path)
            bucket.fill(range(part), version=1)
            bucket.fill(range(images, images + part))
            bucket.remove(range(images - part, images))
            second, second_s = run(http, path)
            check(second["item_counts"], images, part)
    asked, before = second["request_counts"]["asked"], first["request_counts"]["asked"]
    return SecondRun(asked, asked / before, first_s, second_s, expected=2 * part)


def create(http: httpx.Client, site: Site) -> str:
    """The path of a sweep over the pictures."""
    wish = {
        "name": "nightly",
        "source": {"kind": "bucket", "prefix": f"s3://{SOURCES}/{PREFIX}"},
        "questions": [QUESTION],
        "policy_version": "1",
    }
    return f"{site.url}/sweeps/{answered(http.post(f'{site.url}/sweeps', json=wish))['id']}"


def run(http: httpx.Client, path: str) -> tuple[dict[str, dict[str, int]], float]:
    """A run to its end, and the seconds that it took."""
    started = time.monotonic()
    made = answered(http.post(f"{path}/run"))
    while time.monotonic() - started < LONGEST_S:
        found = answered(http.get(f"{path}/runs/{made['id']}"))
        if found["status"] in ENDED:
            if found["status"] != "completed" or found["request_counts"]["failed"]:
                raise SystemExit(f"the run did not end well: {found}")
            return found, time.monotonic() - started
        time.sleep(POLL_S)
    raise SystemExit(f"a run has taken over {LONGEST_S:.0f} s")


def check(counts: dict[str, int], images: int, part: int) -> None:
    """Every image must have been found as what it is."""
    wanted = {"new": part, "changed": part, "unchanged": images - 2 * part, "deleted": part, "listed": images}
    if counts != wanted:
        raise SystemExit(f"the second run found {counts}, not {wanted}")


@contextmanager
def open_source(servers: Servers) -> Iterator[Bucket]:
    """A bucket of its own."""
    store = ObjectStore(
        bucket=SOURCES,
        endpoint_url=servers.seaweed.endpoint_url,
        region=Settings().s3_region,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=servers.seaweed.secret_access_key,
    )
    store.ensure_bucket()
    try:
        yield Bucket(store)
    finally:
        store.close()


def name(number: int) -> str:
    return f"{PREFIX}{number:06d}.png"


def picture(number: int, version: int) -> bytes:
    """A small picture that no other one is like."""
    seed = hashlib.sha256(f"{number} {version}".encode()).digest()
    raster = Image.frombytes("RGB", (8, 8), Random(seed).randbytes(8 * 8 * 3))
    data = BytesIO()
    raster.save(data, "PNG")
    return data.getvalue()


def answered(answer: httpx.Response) -> dict[str, dict[str, int]]:
    if answer.status_code != 200:
        raise SystemExit(f"{answer.request.url} answered {answer.status_code}: {answer.text}")
    return answer.json()


def line(found: SecondRun) -> str:
    return f"second_run_asked={found.asked} second_run_ratio={found.ratio:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--jobs", type=int, default=JOBS, help="of the batch that repeats its questions")
    options = parser.parse_args()
    with open_servers([Broker.REDIS]) as servers:
        found = measure_second_run(servers, images=options.images)
        days = repeats.measure(servers, options.jobs)
    print(f"first run {found.first_s:.1f} s, second run {found.second_s:.1f} s, of {options.images:,} images")
    print(f"asked {found.asked} where {found.expected} had to be asked")
    print(f"repeats: {repeats.told(*days)}")
    runs = "/".join(f"{day.runs / day.jobs:.3f}" for day in days)
    print(f"sweep: {line(found)} repeat_model_runs={runs}")


if __name__ == "__main__":
    main()
