"""Puts jobs through tables, dispatcher, broker and worker, and compares every trigger with the truth."""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from app.config import Settings
from app.db import Sessions
from app.dispatch import Dispatcher
from app.queue import ChunkSender, held_key, is_amqp, make_celery
from deploy.scaled import Manifest, Question, login_parameters, scaled_objects
from deploy.triggers import Unreadable, read
from tests.processes import Process
from tests.rows import Rows
from tests.triggers.books import CountingSender, chunks_on_board, true_demand, true_fetch_demand
from tests.triggers.work import add_work
from tests.waiting import eventually

COMPONENTS = Path(__file__).resolve().parents[2] / "k8s" / "components"
# RabbitMQ tells its management of a queue every 5 s.
WITHIN_S = 30.0
# An estimate of chunks, by jobs and tokens instead of cutting them; queues are counted.
NEAR = 0.1
Secrets = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Line:
    """A trigger's number beside the truth, and after how long it was right."""

    broker: str
    jobs: int
    when: str
    trigger: str
    read: float | None
    true: float
    after_s: float

    @property
    def is_right(self) -> bool:
        near = NEAR if self.trigger.endswith("backlog") else 1e-6
        return self.read is not None and abs(self.read - self.true) <= near * self.true

    def __str__(self) -> str:
        said = "unreadable" if self.read is None else f"{self.read:.4g}"
        return (
            f"{self.broker:9} {self.jobs:>7,} {self.when:8} {self.trigger:28} read {said:>10} "
            f"true {self.true:>8.4g}  after {self.after_s:4.1f} s{'' if self.is_right else '  WRONG'}"
        )


@dataclass
class Site:
    """A database, a broker, and the Secrets by which KEDA would read both."""

    sessions: Sessions
    settings: Settings
    secrets: Secrets
    folder: Path
    say: Callable[[Line], None] = lambda _: None
    lines: list[Line] = field(default_factory=list[Line])

    def __post_init__(self) -> None:
        url = self.settings.broker_url.get_secret_value()
        self.broker = "rabbitmq" if is_amqp(url) else "redis"
        self.rows = Rows(self.sessions)
        self.gate = self.folder / f"gate-{self.broker}"
        celery = make_celery(self.settings)
        self._line = ChunkSender(celery=celery, amqp=is_amqp(url))
        self.sender = CountingSender(self._line)
        self.dispatcher = Dispatcher(sessions=self.sessions, sender=self.sender, settings=self.settings)
        self.manifests = manifests(self.broker)

    def close(self) -> None:
        self._line.close()


def manifests(broker: str, model: str = "demo") -> Sequence[Manifest]:
    """What KEDA is given for a model on a broker, from the files as they are."""
    folders = ("keda", f"keda-{broker}", f"keda-{broker}/{model}")
    files = [path for folder in folders for path in (COMPONENTS / folder).glob("*.yaml")]
    found = [one for path in files for one in yaml.safe_load_all(path.read_text())]
    return [one for one in found if one["kind"] != "Component"]


def prove(site: Site, levels: Sequence[int], *, held: Collection[int]) -> list[Line]:
    """Every trigger at each number of waiting jobs, and while a worker has some at those of `held`."""
    before = 0
    for jobs in levels:
        if jobs > before:
            add_work(site.rows, site.gate, before=before, count=jobs - before)
        while site.dispatcher.send():
            pass
        compare(site, jobs, "waiting")
        if jobs in held:
            with _holding(site):
                compare(site, jobs, "held")
        before = jobs
    return site.lines


def compare(site: Site, jobs: int, when: str) -> None:
    for scaled in scaled_objects(site.manifests):
        for question in scaled.questions:
            name = f"{scaled.name}/{question.name}"
            found, true, after_s = _wait_for(site, question)
            line = Line(site.broker, jobs, when, name, found, true, after_s)
            site.lines.append(line)
            site.say(line)


def _wait_for(site: Site, question: Question) -> tuple[float | None, float, float]:
    """What it reads, what is true, and the time until both were the same: statistics come late."""
    began = time.monotonic()
    login = login_parameters(question, site.manifests, site.secrets)
    while True:
        found, true = _asked(question, login), _truth(site, question)
        after_s = time.monotonic() - began
        if after_s > WITHIN_S or Line("", 0, "", question.name, found, true, 0).is_right:
            return found, true, after_s
        time.sleep(0.2)


def _asked(question: Question, login: Mapping[str, str]) -> float | None:
    try:
        return read(question, login)
    except Unreadable:
        return None


def _truth(site: Site, question: Question) -> float:
    waiting, held = chunks_on_board(site.rows, site.sender.chunks)
    match question.type:
        case "rabbitmq":
            pattern = re.compile(question.metadata["queueName"])
            return float(sum(n for name, n in (waiting + held).items() if pattern.search(name)))
        case "redis" if question.metadata["listName"] == held_key(site.settings.resident_models):
            return float(held.total())
        case "redis":
            return float(waiting[question.metadata["listName"]])
        case _ if "fetch" in question.metadata["query"]:
            return true_fetch_demand(site.rows, site.settings)
        case _:
            return true_demand(site.rows, site.settings)


@contextmanager
def _holding(site: Site) -> Iterator[None]:
    """While the block runs, a worker holds as many chunks as it can; then it hands them back."""
    with Process("tests.fake_worker", site.settings, site.folder / f"worker-{site.broker}.log") as worker:
        eventually(lambda: _holds(site), within_s=60)
        yield
        worker.send_stop()
        eventually(lambda: worker.says("worker_gives_up"), within_s=60)
        site.gate.touch()  # its threads still stand before it
        assert worker.ended() == 0
    site.gate.unlink()


def _holds(site: Site) -> bool:
    waiting, held = chunks_on_board(site.rows, site.sender.chunks)
    most = site.settings.worker_threads
    return held.total() > 0 and all(not waiting[name] or held[name] >= most for name in waiting)
