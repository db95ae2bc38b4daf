"""One run: the same batches quietly and then under strikes, and what came of them."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.local.folder import DataFolder
from tests.chaos.aftermath import leftovers, write_again
from tests.chaos.books import Books
from tests.chaos.conductor import Conductor, deal
from tests.chaos.customer import Customer
from tests.chaos.inputs import Fate, Input, Maker, make_inputs
from tests.chaos.pace import Pace
from tests.chaos.pictures import Host, serving_pictures
from tests.chaos.plan import Report, RunPlan
from tests.chaos.service import MODEL, Service, service
from tests.chaos.strikes import TICK_S, Field, Strike, blackout, kinds
from tests.chaos.units import Servers, Unit, start_servers
from tests.chaos.verdict import Files, judge
from tests.waiting import eventually

RECOVERY_SPARE_S = 5.0  # what a recovery may take over the lease
LEFT_OVER_S = 60.0  # what may still be going on when the last batch has ended
ROUNDS_OF_A_BLACKOUT = 5
Say = Callable[[str], None]


def perform(plan: RunPlan, folder: Path, say: Say) -> Report:
    """Do the run with all its data in the folder, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o711)  # PostgreSQL's own user has to pass through
    started = time.monotonic()
    report = Report(plan.name, lease_s=plan.lease_s)
    say(f"{plan.name}: {plan.jobs} jobs, {plan.strikes} strikes of each kind, seed {plan.seed}")
    with (
        DataFolder(folder) as data,
        serving_pictures() as host,
        closing(start_servers(data, broker=plan.broker)) as servers,
    ):
        maker = Maker(MODEL, host.url, plan.engine == "fake", random.Random(f"{plan.seed} inputs"))
        inputs = make_inputs(maker, jobs=plan.jobs, per_batch=plan.per_batch)
        run = _Run(plan, servers, host, inputs, data, report, say)
        quiet = run.quietly()
        say(f"{plan.name}: the quiet run took {time.monotonic() - started:.0f} s; now the strikes")
        run.struck(quiet)
    report.seconds = time.monotonic() - started
    return report


@dataclass(frozen=True)
class _Run:
    plan: RunPlan
    servers: Servers
    host: Host
    inputs: Sequence[Input]
    data: DataFolder
    report: Report
    say: Say

    def quietly(self) -> dict[str, Files]:
        """Each batch's files when nothing is struck, none is cancelled and none expires."""
        self.host.hurried = True
        calm = [
            given if given.fate is Fate.FAILED else replace(given, fate=Fate.COMPLETED)
            for given in self.inputs
        ]
        with (
            service(self.plan, self.servers, self.host, "quiet", self.data, job_ms=0) as quiet,
            quiet.customer(calm) as customer,
        ):
            _wait(customer, [*self.servers.units.values(), *quiet.units], self.plan.within_s / 2)
            return {order.given.name: order.files for order in customer.orders}

    def struck(self, quiet: Mapping[str, Files]) -> None:
        self.host.hurried = False
        job_ms = self.plan.job_ms
        with service(self.plan, self.servers, self.host, "struck", self.data, job_ms=job_ms) as ours:
            field, pace = ours.field(self.plan.lease_s), Pace()
            blackouts = [blackout(field)] * -(-self.plan.strikes // ROUNDS_OF_A_BLACKOUT)
            deck = deal(kinds(field), blackouts, self.plan)
            conductor = Conductor(field, deck, pace=pace, say=self.say)
            with ours.customer(self.inputs, pace) as customer:
                self._strike(conductor, customer)
                self._look_round(ours, field.books, customer, quiet)
            self._tell_oddities(field, customer)
            self._judge_strikes(conductor.strikes, field)

    def _strike(self, conductor: Conductor, customer: Customer) -> None:
        until = time.monotonic() + self.plan.within_s
        while not (customer.done or customer.complaints) and time.monotonic() < until:
            conductor.tick()
            time.sleep(TICK_S)
        conductor.settle()
        self.report.problems += customer.complaints
        if not customer.done:
            self.report.problems.append(f"not all batches ended within {self.plan.within_s:.0f} s")

    def _look_round(
        self, ours: Service, books: Books, customer: Customer, quiet: Mapping[str, Files]
    ) -> None:
        with suppress(AssertionError):
            eventually(lambda: not leftovers(books), within_s=LEFT_OVER_S)
        self.report.problems += leftovers(books)
        if customer.done:
            self.report.problems += write_again(books, customer, ours.place)
            self._judge_batches(customer, quiet)

    def _judge_batches(self, customer: Customer, quiet: Mapping[str, Files]) -> None:
        for order in customer.orders:
            verdict = judge(order.given, order.told["status"], order.files, quiet[order.given.name])
            self.report.lost += verdict.lost
            self.report.duplicated += verdict.duplicated
            self.report.problems += verdict.problems
            if order.given.fate is Fate.FAILED:
                continue
            lines, (total, completed, failed) = len(order.given.lines), order.counts
            self.report.jobs += lines
            if not lines == total == completed + failed:
                self.report.problems.append(f"{order.given.name}: {lines} lines, but counts {order.counts}")

    def _tell_oddities(self, field: Field, customer: Customer) -> None:
        for answer, count in customer.odd_answers.items():
            self.say(f"  an odd answer, {count} times: {answer}")
        for death in (death for unit in field.units for death in unit.own_deaths):
            self.say(f"  {death}")
        extra = field.books.one("SELECT coalesce(sum(attempt - 1), 0) FROM jobs WHERE attempt > 0")
        self.say(f"  {customer.polls} polls; {extra} attempts more than jobs that ran")

    def _judge_strikes(self, strikes: Sequence[Strike], field: Field) -> None:
        counted = Counter(strike.kind for strike in strikes if strike.counts)
        self.report.kills = counted.total()
        for kind in kinds(field):
            self.say(f"  {kind.name}: {counted[kind.name]} strikes under leases{_times(kind.name, strikes)}")
            if counted[kind.name] < self.plan.strikes:
                self.report.problems.append(f"{kind.name} was struck {counted[kind.name]} times only")
        limit = self.plan.lease_s + RECOVERY_SPARE_S
        for strike in (strike for strike in strikes if strike.judged):
            took = float("inf") if strike.recovery_s is None else strike.recovery_s
            self.report.longest_recovery_s = max(self.report.longest_recovery_s, took)
            if took > limit:
                self.report.problems.append(
                    f"{strike.kind} of {strike.target}: back after {took:.1f} s, over {limit:g} s"
                )


def _times(kind: str, strikes: Sequence[Strike]) -> str:
    times = sorted(s.recovery_s for s in strikes if s.kind == kind and s.recovery_s is not None)
    if not times:
        return ""
    return f", back after {times[len(times) // 2]:.1f} s (median), {times[-1]:.1f} s at the longest"


def _wait(customer: Customer, units: Sequence[Unit], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not (customer.done or customer.complaints) and time.monotonic() < until:
        for unit in units:
            unit.keep_up()
        time.sleep(TICK_S)
    deaths = [death for unit in units for death in unit.own_deaths]
    assert customer.done, f"the quiet run did not end: {customer.complaints} {deaths}"
