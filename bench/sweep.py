"""A nightly sweep: 10,000 images, then a hundredth changed, added and deleted, and what the next run asks."""

import argparse
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from app.config import Settings
from app.local.seaweed import ACCESS_KEY_ID
from app.local.servers import Broker
from app.objects import ObjectStore
from bench import cascade, repeats
from bench.queue_site import MODULES, Servers, Site, open_servers, open_site
from bench.sweep_pictures import COLOURS, colour_of, name, picture

IMAGES, SHARE, JOBS = 10_000, 0.01, 20_000
SOURCES, PREFIX = "photos", "incoming/"
ROLES = ("api", "dispatcher", "fetcher", "worker")
POLL_S, LONGEST_S = 0.5, 1_800.0
ENDED = ("completed", "failed", "cancelled")
WORKER = {**MODULES, "worker": "bench.sweep_worker"}
QUESTION = {"name": "colour", "ask": "Which colour is it?", "choices": sorted(COLOURS)}
PAGE = 1000


@dataclass(frozen=True)
class SecondRun:
    """What the run after the changes has asked and taken of the model; ratios are of the first run's."""

    asked: int
    ratio: float
    model_s_ratio: float
    first_s: float
    second_s: float
    expected: int
    labels: int  # of the pictures that there are now, all of them right


@dataclass(frozen=True)
class Bucket:
    """The source's bucket, whose pictures change."""

    store: ObjectStore

    def put(self, number: int, version: int) -> None:
        self.store.put(PREFIX + name(number), picture(number, version), content_type="image/png")

    def fill(self, numbers: Iterator[int] | range, *, version: int = 0) -> None:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: self.put(number, version), numbers))

    def remove(self, numbers: range) -> None:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: self.store.delete(PREFIX + name(number)), numbers))


def measure_second_run(servers: Servers, *, images: int = IMAGES, share: float = SHARE) -> SecondRun:
    """Two runs of one sweep on processes of their own, whose engine names the colour of a picture."""
    part = max(1, round(images * share))
    with (
        open_source(servers) as bucket,
        open_site(servers, Broker.REDIS, ROLES, WORKER, s3_source_buckets=SOURCES) as site,
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
            labels = check_labels(read_labels(http, site), wanted_labels(images, part))
            taken = model_s(http, site)
    asked, before = second["request_counts"]["asked"], first["request_counts"]["asked"]
    return SecondRun(
        asked=asked,
        ratio=asked / before,
        model_s_ratio=taken[second["id"]] / taken[first["id"]],
        first_s=first_s,
        second_s=second_s,
        expected=2 * part,
        labels=labels,
    )


def create(http: httpx.Client, site: Site) -> str:
    """The path of a sweep over the pictures."""
    wish = {
        "name": "nightly",
        "source": {"kind": "bucket", "prefix": f"s3://{SOURCES}/{PREFIX}"},
        "questions": [QUESTION],
        "policy_version": "1",
    }
    return f"{site.url}/sweeps/{answered(http.post(f'{site.url}/sweeps', json=wish))['id']}"


def run(http: httpx.Client, path: str) -> tuple[dict[str, Any], float]:
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


def wanted_labels(images: int, part: int) -> dict[str, str]:
    """What the pictures show that there are after the changes."""
    found = {name(number): colour_of(number, int(number < part)) for number in range(images - part)}
    return found | {name(number): colour_of(number, 0) for number in range(images, images + part)}


def read_labels(http: httpx.Client, site: Site) -> dict[str, str]:
    """The newest label of every picture that was ever asked about."""
    found: dict[str, str] = {}
    after: dict[str, str] = {}
    while True:
        query = {"question": QUESTION["name"], "limit": PAGE, **after}
        page = answered(http.get(f"{site.url}/answers", params=query))
        for one in page["data"]:
            found.setdefault(one["item"].removeprefix(PREFIX), one["label"])
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


def check_labels(found: Mapping[str, str], wanted: Mapping[str, str]) -> int:
    """Every picture must have the label of what it shows now; how many there are."""
    wrong = [one for one, label in wanted.items() if found.get(one) != label]
    if wrong:
        raise SystemExit(
            f"{len(wrong)} labels are wrong, the first that of {wrong[0]}: {found.get(wrong[0])}"
        )
    return len(wanted)


def model_s(http: httpx.Client, site: Site) -> dict[str, float]:
    """What the batches of each run took of the model's time."""
    found: dict[str, float] = {}
    after: dict[str, str] = {}
    while True:
        page = answered(http.get(f"{site.url}/batches", params=after))
        for batch in page["data"]:
            of_run = batch["metadata"]["vqueue_sweep_run"]
            found[of_run] = found.get(of_run, 0.0) + batch["vqueue"]["model_seconds"]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


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


def answered(answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        raise SystemExit(f"{answer.request.url} answered {answer.status_code}: {answer.text}")
    return answer.json()


def line(found: SecondRun) -> str:
    return f"second_run_asked={found.asked} second_run_ratio={found.ratio:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--jobs", type=int, default=JOBS, help="of the batch that repeats its questions")
    parser.add_argument("--sample", type=int, default=cascade.SAMPLE, help="labelled, for the cascade")
    parser.add_argument("--questions", type=int, default=cascade.QUESTIONS, help="that judge the cascade")
    options = parser.parse_args()
    with open_servers([Broker.REDIS]) as servers:
        found = measure_second_run(servers, images=options.images)
        days = repeats.measure(servers, options.jobs)
        both = cascade.measure(servers, sample=options.sample, questions=options.questions)
    print(f"first run {found.first_s:.1f} s, second run {found.second_s:.1f} s, of {options.images:,} images")
    print(f"asked {found.asked} where {found.expected} had to be asked")
    print(f"model seconds of the second run, of the first one's: {found.model_s_ratio:.4f}")
    print(f"labels: {found.labels:,} pictures, all right after the second run")
    print(f"repeats: {repeats.told(*days)}")
    print("\n".join([both.calibrated, *cascade.table(both)]))
    runs = "/".join(f"{day.runs / day.jobs:.3f}" for day in days)
    print(f"sweep: {line(found)} repeat_model_runs={runs} {cascade.told(both, before='cascade_')}")


if __name__ == "__main__":
    main()
