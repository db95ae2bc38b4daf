"""What is simulated: the queue's rules, pods and nodes, prices and traffic, each number with its source."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from app.states import Priority
from simulate.steps import Question

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
FIRST_HOUR = 18  # the clock's hour at second 0, so that a night lies in one piece


@dataclass(frozen=True)
class QueueRules:
    """The settings of docs/operations.md by their defaults, and what docs/benchmarks.md measured."""

    window_jobs: int = 2048  # VQUEUE_WINDOW_JOBS
    chunk_jobs: int = 64  # VQUEUE_CHUNK_JOBS
    chunk_visual_tokens: int = 16_384  # VQUEUE_CHUNK_VISUAL_TOKENS
    seats: int = 4  # VQUEUE_WORKER_THREADS: chunks of a model that a worker runs at once
    poll_s: float = 0.2  # VQUEUE_DISPATCH_POLL_S
    dispatch_jobs_s: float = 6_000.0  # measured: a batch's middle, on two cores
    lease_s: float = 60.0  # VQUEUE_LEASE_S: until jobs of a dead worker are ready again
    drain_s: float = 30.0  # VQUEUE_DRAIN_S: what has no answer then is handed back

    def chunk_of(self, question: Question) -> int:
        """Jobs in a chunk of such questions, an image counted once."""
        by_images = self.chunk_visual_tokens / max(1.0, question.visual_tokens) * question.per_picture
        return max(1, min(self.chunk_jobs, int(by_images)))


@dataclass(frozen=True)
class Plant:
    """Pods and the nodes below them. Times vary evenly by `jitter` either way."""

    provision_s: float = 180.0  # assumed: a GPU node from the request until it takes pods; paid for
    pull_s: float = 60.0  # assumed: the worker's image on a new node, weights baked in or on a volume
    load_s: float = 90.0  # assumed: process start, imports, 17.5 GB of weights
    jitter: float = 0.2
    node_idle_s: float = 600.0  # cluster-autoscaler's default --scale-down-unneeded-time
    cpu_busy: float = 2.0  # assumed: cores that a busy GPU worker uses
    cpu_request: float = 4.0  # of the pod; what the HPA compares with
    spot_loss_per_hour: float = 0.0  # of each node
    spot_notice_s: float = 120.0
    # Where all pods share one machine: the cores that are free, from each of these seconds on; what is used
    # of them always; and CPU seconds of a job beside the engine's thread.
    cores: Sequence[tuple[float, float]] = ()
    base_cores: float = 0.0
    side_cpu_s: float = 0.0

    def free_cores(self, now_s: float) -> float | None:
        """None where nothing is shared."""
        before = bisect_right(self.cores, (now_s, float("inf"))) - 1
        return self.cores[max(0, before)][1] if self.cores else None


@dataclass(frozen=True)
class Prices:
    """US dollars per GPU-hour. Assumed: published prices of an H200 lay between 2.5 and 8 in 2026."""

    on_demand: float = 4.0
    spot: float = 2.0


@dataclass(frozen=True)
class Traffic:
    """One stream of jobs of one tenant and class.

    `jobs` come within `over_s` from `start_s` on, evenly or by the weights of the 24 hours of a clock, at
    random where `random` is set. `within_s` is the time that each has. Those that `expire` leave then, as
    nobody waits any more; others are done late. `known` is the share that the answer cache answers, `cached`
    that of pictures whose features are known.
    """

    name: str
    priority: Priority
    question: Question
    jobs: int
    start_s: float
    over_s: float
    within_s: float
    hours: Sequence[float] = ()
    random: bool = False
    expires: bool = False
    known: float = 0.0
    cached: float = 0.0
    due_s: float | None = None  # one deadline for all, in place of `within_s`


# Weights of the hours of a working day, from midnight on; assumed.
OFFICE_HOURS = (1, 1, 1, 1, 1, 1, 2, 4, 7, 9, 10, 10, 9, 9, 10, 10, 9, 8, 6, 4, 3, 2, 2, 1)


def clock_s(hour: float) -> float:
    """Seconds from the simulation's beginning until the clock shows this hour."""
    return (hour - FIRST_HOUR) % 24 * HOUR_S


def night(*, images: int, day_jobs: int, interactive: float, question: Question) -> tuple[Traffic, ...]:
    """A sweep from 22:00 that is due at 06:00, and a day of batches and chat completions around it."""
    standard = Traffic(
        "day",
        Priority.STANDARD,
        question,
        jobs=round(day_jobs * (1 - interactive)),
        start_s=0,
        over_s=DAY_S,
        within_s=2 * HOUR_S,
        hours=OFFICE_HOURS,
        random=True,
        known=0.1,
        cached=0.1,
    )
    chats = Traffic(
        "interactive",
        Priority.INTERACTIVE,
        question,
        jobs=round(day_jobs * interactive),
        start_s=0,
        over_s=DAY_S,
        within_s=120.0,  # VQUEUE_INTERACTIVE_TIMEOUT_S
        hours=OFFICE_HOURS,
        random=True,
        expires=True,
        known=0.0,
        cached=0.1,
    )
    sweep = Traffic(
        "sweep",
        Priority.STANDARD,
        question,
        jobs=images,
        start_s=clock_s(22),
        over_s=images / SWEEP_IMAGES_S,
        within_s=8 * HOUR_S,
        due_s=clock_s(6),
        known=0.02,
        cached=0.01,
    )
    return sweep, standard, chats


# Assumed: images listed, fetched from the bucket and ready per second; fetchers scale by themselves.
SWEEP_IMAGES_S = 5_000.0
