"""Where every simulated job is: cohorts that came together, in lines from arrival to answer."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulate.world import Traffic


@dataclass
class Cohort:
    """Jobs that came at one moment and are due at another."""

    arrived_s: float
    due_s: float
    jobs: int


class Line:
    """First come, first served."""

    def __init__(self) -> None:
        self.jobs = 0
        self._cohorts: deque[Cohort] = deque()

    def __iter__(self) -> Iterator[Cohort]:
        return iter(self._cohorts)

    def put(self, cohorts: Iterable[Cohort]) -> None:
        for cohort in cohorts:
            if cohort.jobs > 0:
                self._cohorts.append(cohort)
                self.jobs += cohort.jobs

    def put_back(self, cohorts: Iterable[Cohort]) -> None:
        """To the head of the line, in their order."""
        for cohort in reversed(list(cohorts)):
            if cohort.jobs > 0:
                self._cohorts.appendleft(cohort)
                self.jobs += cohort.jobs

    def take(self, jobs: int) -> list[Cohort]:
        """The first so many, or all where there are fewer."""
        taken: list[Cohort] = []
        while jobs > 0 and self._cohorts:
            first = self._cohorts[0]
            some = min(jobs, first.jobs)
            taken.append(Cohort(first.arrived_s, first.due_s, some))
            first.jobs -= some
            self.jobs -= some
            jobs -= some
            if first.jobs == 0:
                self._cohorts.popleft()
        return taken

    def take_late(self, now_s: float) -> list[Cohort]:
        """Those at the head whose time is over."""
        late: list[Cohort] = []
        while self._cohorts and self._cohorts[0].due_s <= now_s:
            late += self.take(self._cohorts[0].jobs)
        return late


@dataclass
class Waits:
    """Seconds that jobs waited, with how many did."""

    pairs: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    jobs: int = 0
    total_s: float = 0.0

    def add(self, seconds: float, jobs: int) -> None:
        self.pairs.append((seconds, jobs))
        self.jobs += jobs
        self.total_s += seconds * jobs

    @property
    def mean_s(self) -> float:
        return self.total_s / self.jobs if self.jobs else 0.0

    def quantile(self, share: float) -> float:
        """The wait that this share of jobs did not exceed; 0 where there was none."""
        ordered = sorted(self.pairs)
        counts: list[int] = []
        for _, jobs in ordered:
            counts.append((counts[-1] if counts else 0) + jobs)
        return ordered[bisect_left(counts, share * counts[-1])][0] if counts else 0.0


@dataclass
class Stream:
    """The jobs of one stream by where they are: ready in Postgres, queued on the broker, running, ended."""

    traffic: Traffic
    chunk_jobs: int
    ready: Line = field(default_factory=Line)
    queued: Line = field(default_factory=Line)
    came: int = 0
    running: int = 0
    lapsed: int = 0  # with a dead worker, until their lease runs out
    done: int = 0
    expired: int = 0
    late: int = 0
    known: int = 0  # of those done, by the answer cache
    last_done_s: float = 0.0
    claimed: Waits = field(default_factory=Waits)
    answered: Waits = field(default_factory=Waits)
    _known_owed: float = 0.0

    @property
    def waiting(self) -> int:
        return self.ready.jobs + self.queued.jobs + self.lapsed

    @property
    def open_jobs(self) -> int:
        return self.waiting + self.running

    @property
    def missed(self) -> int:
        """Jobs without an answer by their deadline."""
        return self.expired + self.late

    def arrive(self, cohort: Cohort) -> None:
        self.came += cohort.jobs
        self.ready.put([cohort])

    def send(self, now_s: float, jobs: int) -> None:
        """The dispatcher takes so many: what the answer cache knows ends, the rest is queued."""
        for cohort in self.ready.take(jobs):
            self._known_owed += cohort.jobs * self.traffic.known
            known = min(cohort.jobs, int(self._known_owed))
            self._known_owed -= known
            self.known += known
            self.end(now_s, [Cohort(cohort.arrived_s, cohort.due_s, known)])
            self.queued.put([Cohort(cohort.arrived_s, cohort.due_s, cohort.jobs - known)])

    def claim(self, now_s: float, jobs: int) -> list[Cohort]:
        taken = self.queued.take(jobs)
        for cohort in taken:
            self.running += cohort.jobs
            self.claimed.add(max(0.0, now_s - cohort.arrived_s), cohort.jobs)
        return taken

    def answer(self, now_s: float, cohorts: Iterable[Cohort], answer_s: float) -> None:
        some = list(cohorts)
        self.running -= sum(cohort.jobs for cohort in some)
        self.end(now_s, some, answer_s)

    def end(self, now_s: float, cohorts: Iterable[Cohort], answer_s: float = 0.0) -> None:
        for cohort in cohorts:
            if cohort.jobs == 0:
                continue
            self.done += cohort.jobs
            self.late += cohort.jobs if now_s > cohort.due_s else 0
            self.last_done_s = max(self.last_done_s, now_s)
            self.answered.add(max(0.0, now_s - cohort.arrived_s) + answer_s, cohort.jobs)

    def hand_back(self, cohorts: Iterable[Cohort]) -> None:
        """A drained worker's: ready again at once."""
        some = list(cohorts)
        self.running -= sum(cohort.jobs for cohort in some)
        self.ready.put_back(some)

    def lose(self, cohorts: Iterable[Cohort]) -> list[Cohort]:
        """A dead worker's: nobody has them until the lease is over."""
        some = list(cohorts)
        lost = sum(cohort.jobs for cohort in some)
        self.running -= lost
        self.lapsed += lost
        return some

    def find(self, cohorts: Iterable[Cohort]) -> None:
        """The reaper takes lost ones back."""
        some = list(cohorts)
        self.lapsed -= sum(cohort.jobs for cohort in some)
        self.ready.put_back(some)

    def expire(self, now_s: float) -> None:
        if self.traffic.expires:
            for line in (self.ready, self.queued):
                self.expired += sum(cohort.jobs for cohort in line.take_late(now_s))
