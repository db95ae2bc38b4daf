"""Drills: jobs run without an end while something is done to the whole service, and none may be lost.

The jobs are those of the chaos suite: texts, pictures by URL and in the line, lines that must fail, batches
that are cancelled and that expire. What a quiet run of them answers is what every drill must answer.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.local.folder import DataFolder
from app.local.rabbitmq import RabbitMQ
from deploy.fleet import Fleet, Version
from deploy.trees import Tree
from tests.chaos.aftermath import leftovers
from tests.chaos.books import Away, Books
from tests.chaos.customer import Customer, Ordered
from tests.chaos.inputs import Fate, Input, Maker, make_inputs
from tests.chaos.pace import Pace
from tests.chaos.pictures import Host, serving_pictures
from tests.chaos.plan import RunPlan
from tests.chaos.service import MODEL, service, settings_for
from tests.chaos.units import Servers, start_servers
from tests.chaos.verdict import Files, judge
from tests.waiting import eventually

TENANTS = ("Ada", "Grace")
TICK_S = 0.1
STEP_S = 300.0  # how long jobs may take to pass between two steps
END_S = 900.0  # how long the jobs of the last step may take
LEFT_OVER_S = 60.0
JOB_MS = 20.0  # what the fake engine takes for a job on average
Step = tuple[str, Callable[[], None]]
Say = Callable[[str], None]


@dataclass
class Report:
    """What came of a drill; it went well if nothing is in `problems`."""

    name: str
    jobs: int = 0
    lost: int = 0
    doubled: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        return (
            f"{self.name}: jobs={self.jobs} lost={self.lost} doubled={self.doubled}"
            f" problems={len(self.problems)} seconds={self.seconds:.0f}"
        )


@dataclass
class Ground:
    """Servers, a host of pictures and a folder: what drills are held on."""

    plan: RunPlan
    data: DataFolder
    servers: Servers
    host: Host
    say: Say
    inputs: Sequence[Input]

    def version(self, tree: Tree, name: str) -> Version:
        """That checkout with a database and a bucket of that name."""
        return Version(tree, settings_for(self.plan, self.servers, self.host, name))

    @property
    def rabbitmq(self) -> RabbitMQ:
        return RabbitMQ(self.data)

    def quietly(self) -> dict[str, Files]:
        """Each batch's files when nothing is done to the service and none is ended early."""
        calm = [
            given if given.fate is Fate.FAILED else replace(given, fate=Fate.COMPLETED)
            for given in self.inputs
        ]
        self.host.hurried = True
        with (
            service(self.plan, self.servers, self.host, "quiet", self.data, job_ms=0) as quiet,
            quiet.customer(calm) as customer,
        ):
            eventually(lambda: customer.done or customer.complaints, within_s=END_S)
            assert not customer.complaints, customer.complaints
            return {order.given.name: order.files for order in customer.orders}


@contextmanager
def ground(folder: Path, *, jobs: int, broker: str, say: Say, seed: int = 8) -> Iterator[Ground]:
    """Start the servers with all data in the folder, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o711)  # PostgreSQL's own user has to pass through
    plan = RunPlan(broker=broker, engine="fake", jobs=jobs, strikes=0, seed=seed)
    with (
        DataFolder(folder) as data,
        serving_pictures() as host,
        closing(start_servers(data, broker=broker)) as servers,
    ):
        maker = Maker(MODEL, host.url, True, random.Random(f"{seed} inputs"))
        inputs = make_inputs(maker, jobs=jobs, per_batch=plan.per_batch)
        place = Ground(plan, data, servers, host, say, inputs)
        try:
            yield place
        finally:
            place.servers.close()  # others than the first ones, where a drill has lost those


class Drill:
    """One service on a ground, and the customer who never stops asking it."""

    def __init__(self, ground: Ground, name: str, first: Version, *, job_ms: float = JOB_MS) -> None:
        self.ground = ground
        self.settings = first.settings
        self.report = Report(name)
        self.books = Books(first.settings.database_url.get_secret_value())
        variables = {"CHAOS_JOB_MS": str(job_ms), "CHAOS_ENGINE": "fake"}
        self.fleet = Fleet(ground.data.subfolder(f"logs-{name}"), variables)
        self._first = first
        self._pace = Pace()
        self._keys: list[str] = []
        self._customer: Customer | None = None

    @property
    def customer(self) -> Customer:
        assert self._customer is not None
        return self._customer

    def go(self, steps: Sequence[Step], quiet: Mapping[str, Files]) -> Report:
        """Do step after step, with jobs that pass in between, and judge all answers at the end."""
        started = time.monotonic()
        try:
            self._open()
            share = len(self.ground.inputs) * self.ground.plan.per_batch * 0.8 / (len(steps) + 1)
            self.wait_for_jobs(share)
            for number, (told, act) in enumerate(steps, 1):
                act()
                self.ground.say(
                    f"  {time.monotonic() - started:6.1f} s  {told}; {self.ended()} jobs have ended"
                )
                self._pace.struck = number / len(steps)
                self.wait_for_jobs(share)
            self._settle()
            self._judge(quiet)
        finally:
            self.let_go()
            self.fleet.kill()
            self.books.close()
        self.report.seconds = time.monotonic() - started
        return self.report

    def ended(self) -> int:
        """How many jobs have; 0 where the database does not answer."""
        try:
            return self.books.one("SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL")
        except Away:
            return 0

    def wait_for_jobs(self, jobs: float) -> None:
        """Until so many more have ended, or all are done."""
        aim = self.ended() + jobs
        until = time.monotonic() + STEP_S
        while self.ended() < aim and not (self.customer.done or self.customer.complaints):
            assert time.monotonic() < until, (
                f"{self.ended()} of {aim:.0f} jobs have ended: {self.fleet.deaths}"
            )
            self.fleet.keep_up()
            time.sleep(TICK_S)

    def let_go(self) -> None:
        """The customer asks nothing more. What was handed in goes on."""
        if self._customer is not None:
            self._customer.close()

    def come_again(self) -> None:
        """The customer asks again, for every batch from its beginning."""
        before = self._customer.orders if self._customer else []
        given = {order.given.name for order in before}
        self._customer = Customer(
            urls=self.fleet.urls,
            keys=self._keys,
            inputs=[one for one in self.ground.inputs if one.name not in given],
            pace=self._pace,
        )
        self._customer.orders += [Ordered(order.given, order.id, time.monotonic()) for order in before]
        self._customer.start()

    def _open(self) -> None:
        """Make database, bucket and keys, and start all processes of the first version."""
        settings, tree = self._first.settings, self._first.tree
        self.ground.servers.postgres.create_database(settings.s3_bucket)
        self.ground.servers.s3(settings.s3_bucket).create()
        self.ground.host.hurried = False
        tree.command(settings, "migrate")
        for name in TENANTS:
            key = tree.command(settings, "keys", "create", "--tenant", name, "--name", "drill")
            self._keys.append(key.split()[-1])
        self.fleet.start(self._first)
        self.come_again()

    def _settle(self) -> None:
        until = time.monotonic() + END_S
        while not (self.customer.done or self.customer.complaints) and time.monotonic() < until:
            self.fleet.keep_up()
            time.sleep(TICK_S)
        self.report.problems += [*self.customer.complaints, *self.fleet.deaths]
        if not self.customer.done:
            self.report.problems.append(f"not all batches ended within {END_S:.0f} s")
        try:
            eventually(lambda: not leftovers(self.books), within_s=LEFT_OVER_S)
        except AssertionError:
            self.report.problems += leftovers(self.books)

    def _judge(self, quiet: Mapping[str, Files]) -> None:
        for order in self.customer.orders:
            if not order.ended:
                continue
            verdict = judge(order.given, order.told["status"], order.files, quiet[order.given.name])
            self.report.lost += verdict.lost
            self.report.doubled += verdict.duplicated
            self.report.problems += verdict.problems
            self.report.jobs += len(order.given.lines)
        told = [*self.customer.odd_answers.items(), *self.fleet.errors().items()]
        self.report.problems += [f"{count} times {what}" for what, count in told]
