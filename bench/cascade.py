"""A cascade of the two demo models, beside asking one of them everything: right answers and model seconds.

`vqueue calibrate` learns on one set of drawn pictures; others are then asked about in three batches, of the
small model, of the large one and of the cascade, through the real API, dispatcher and worker. A model's
seconds are the CPU seconds of the one thread that owns it, with one torch thread.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil

from app.calibration import Point, Trial, curve
from app.cascade import Cascade, probability
from app.local.servers import Broker
from bench.cascade_lines import SAMPLE_SEED, TEST_SEED, write_questions
from bench.cascade_worker import FOLDER
from bench.queue_runs import connect, follow, submit
from bench.queue_site import MODULES, Servers, Site, open_servers, open_site
from bench.queue_usage import cpu_s

ROOT = Path(__file__).resolve().parents[1]
MODELS = f"large={ROOT}/models/demo, small={ROOT}/models/demo-small"
ROLES = ("api", "dispatcher", "worker")
# Nothing is kept from one batch for the next, as each model is to see each picture once.
SETTINGS = {
    "models": MODELS,
    "torch_threads": "1",
    "feature_cache_bytes": "0",
    "feature_cache_redis_bytes": "0",
    "prefix_cache_bytes": "0",
    "answer_cache": "off",
}
SAMPLE, QUESTIONS = 2_000, 3_000
MOST_POINTS = 10


@dataclass(frozen=True)
class Told:
    """What came of one question. `likely` is the probability that the model itself gives its answer."""

    model: str
    text: str
    likely: float


@dataclass(frozen=True)
class Way:
    """All questions, asked in one way. `model_s` are CPU seconds by model, `worker_s` the whole process's."""

    told: Mapping[str, Told]
    model_s: Mapping[str, float]
    worker_s: float
    use: Mapping[str, Any]

    def right(self, labels: Mapping[str, str]) -> float:
        """The share of right answers."""
        return sum(self.told[name].text == label for name, label in labels.items()) / len(labels)

    @property
    def seconds(self) -> float:
        return sum(self.model_s.values())


@dataclass(frozen=True)
class Found:
    """The three ways, and what other thresholds would have done."""

    labels: Mapping[str, str]
    cascade: Cascade
    calibrated: str  # the last line of `vqueue calibrate`
    small: Way
    large: Way
    both: Way

    @property
    def accuracy_drop(self) -> float:
        """In points, against asking the large one everything."""
        return 100 * (self.large.right(self.labels) - self.both.right(self.labels))

    @property
    def model_s_ratio(self) -> float:
        return self.both.seconds / self.large.seconds

    @property
    def points(self) -> list[Point]:
        """Each threshold on the test set, a model's seconds being the same for every question."""
        each = len(self.labels)
        trials = [
            Trial(
                id=name,
                about=name,
                label=label,
                small=self.small.told[name].text,
                probability=self.small.told[name].likely,
                small_s=self.small.seconds / each,
                large=self.large.told[name].text,
                large_s=self.large.seconds / each,
            )
            for name, label in self.labels.items()
        ]
        return curve(trials, self.cascade.steps)


def measure(servers: Servers, *, sample: int, questions: int, per_picture: int = 1) -> Found:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        cascade, said = calibrate(home, sample, per_picture)
        labels = _write_ways(home, questions, per_picture)
        modules = {**MODULES, "worker": "bench.cascade_worker"}
        noted = {FOLDER.removeprefix("VQUEUE_").lower(): folder}
        with open_site(servers, Broker.REDIS, ROLES, modules, **SETTINGS, **noted) as site:
            small = ask(site, home, "small")
            large = ask(site, home, "large")
            both = ask(site, home, "large", cascade=cascade.stored())
    return Found(labels, cascade, said, small, large, both)


def calibrate(home: Path, sample: int, per_picture: int) -> tuple[Cascade, str]:
    """The command's cascade and its last line."""
    lines, out = home / "sample.jsonl", home / "cascade.json"
    write_questions(lines, SAMPLE_SEED, sample, per_picture=per_picture, model="large")
    command = ["calibrate", str(lines), "--small", "small", "--large", "large", "-o", str(out)]
    variables = {f"VQUEUE_{name.upper()}": value for name, value in SETTINGS.items()}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", *command],
        env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Cascade.of(json.loads(out.read_text())), done.stdout.splitlines()[-1]


def ask(site: Site, home: Path, model: str, **wish: Any) -> Way:
    """One batch from its upload to its answers."""
    owners = {name: int((home / name).read_text()) for name in ("small", "large")}
    pid = site.pids["worker"]
    with connect(site) as http:
        before, worker = _thread_s(pid), cpu_s(pid)
        batch_id = submit(http, home / f"{model}.jsonl", **wish)["id"]
        list(follow(http, batch_id, ["completed"]))
        after, spent = _thread_s(pid), cpu_s(pid) - worker
        batch = http.get(f"/batches/{batch_id}").raise_for_status().json()
        told = _told(http, batch["output_file_id"])
    model_s = {name: after[owner] - before[owner] for name, owner in owners.items()}
    return Way(told, model_s, spent, batch["vqueue"]["cascade"] or {})


def _told(http: httpx.Client, file_id: str) -> dict[str, Told]:
    found: dict[str, Told] = {}
    with http.stream("GET", f"/files/{file_id}/content") as content:
        for line in content.iter_lines():
            row = json.loads(line)
            body = row["response"]["body"]
            choice = body["choices"][0]
            tokens = [(one["token"], one["logprob"], []) for one in choice["logprobs"]["content"]]
            found[row["custom_id"]] = Told(body["model"], choice["message"]["content"], probability(tokens))
    return found


def _thread_s(pid: int) -> dict[int, float]:
    """CPU seconds of a process by thread."""
    return {one.id: one.user_time + one.system_time for one in psutil.Process(pid).threads()}


def _write_ways(home: Path, questions: int, per_picture: int) -> dict[str, str]:
    """The same questions of either model; the right answers by custom_id."""
    lines = home / "large.jsonl"
    write_questions(lines, TEST_SEED, questions, per_picture=per_picture, model="large", logprobs=True)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    with (home / "small.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps({**row, "body": {**row["body"], "model": "small"}}) + "\n")
    return {row["custom_id"]: row["body"]["metadata"]["label"] for row in rows}


def table(found: Found) -> list[str]:
    """The three ways as they were measured, and the curve beside them."""
    count, use = len(found.labels), found.both.use
    rows = [
        "| asked | right | small, CPU s | large, CPU s | worker, CPU s | model seconds |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, way in (
        ("the large one", found.large),
        ("the small one", found.small),
        ("the cascade", found.both),
    ):
        each = " | ".join(f"{way.model_s[model]:.2f}" for model in ("small", "large"))
        share = way.seconds / found.large.seconds
        rows.append(f"| {name} | {way.right(found.labels):.2%} | {each} | {way.worker_s:.2f} | {share:.3f} |")
    agreed = use["agreed"] / max(1, use["escalated"])
    rows.append(
        f"threshold {found.cascade.threshold:.4f}: {use['escalated']} of {count} questions escalated "
        f"({use['escalated'] / count:.1%}), on {agreed:.1%} of them both agreed"
    )
    points = found.points
    step = max(1, len(points) // MOST_POINTS)
    rows += ["| threshold | escalated | right | model seconds |", "|--:|--:|--:|--:|"]
    for point in [*points[:-1:step], points[-1]]:
        judged = point.judged
        rows.append(
            f"| {point.threshold:.3f} | {judged.escalated:.1%} | {judged.cascade_accuracy:.2%} "
            f"| {judged.model_s_ratio:.3f} |"
        )
    return rows


def told(found: Found, before: str = "") -> str:
    return f"{before}accuracy_drop={found.accuracy_drop:.2f} {before}model_s_ratio={found.model_s_ratio:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="labelled questions to calibrate with")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="others, on which it is judged")
    parser.add_argument("--per-picture", type=int, default=1, help="questions about each picture")
    given = parser.parse_args()
    with open_servers([Broker.REDIS]) as servers:
        found = measure(
            servers, sample=given.sample, questions=given.questions, per_picture=given.per_picture
        )
    print("\n".join([found.calibrated, *table(found)]))
    print(f"cascade: {told(found)}")


if __name__ == "__main__":
    main()
