"""What is asked of real runs, and what was seen in them: files that the simulator is compared with."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Trial:
    """`pictures` with `per_picture` questions each. Workers are started so many seconds after all jobs are
    ready, one when the last is up at the earliest; the last of them is asked to stop after `stop_s`."""

    name: str
    pictures: int
    per_picture: int
    starts: tuple[float, ...] = (0.0,)
    stop_s: float | None = None

    @property
    def jobs(self) -> int:
        return self.pictures * self.per_picture


@dataclass(frozen=True)
class Life:
    """Of one worker: when its process was started, when it took chunks, when it was asked to stop."""

    began_s: float
    ready_s: float
    load_cpu_s: float  # of its process until then
    stopped_s: float | None = None


@dataclass(frozen=True)
class Sample:
    """CPU seconds until then: of all processes of ours, and of every other program."""

    at_s: float
    ours: float
    others: float


@dataclass(frozen=True)
class RealRun:
    """Seconds count from when all jobs were ready and no worker was there.

    `ended` is a curve: seconds, jobs so far.
    """

    trial: Trial
    cores: int
    makespan_s: float
    mean_wait_s: float  # until a job is claimed
    ended: tuple[tuple[float, int], ...]
    lives: tuple[Life, ...]
    samples: tuple[Sample, ...]

    @property
    def cpu_s(self) -> float:
        """Of all our processes, from the first worker's start to the end."""
        return self.samples[-1].ours

    @property
    def others_cpu_s(self) -> float:
        return self.samples[-1].others

    @property
    def free_cores(self) -> tuple[tuple[float, float], ...]:
        """What other programs left of the machine, from each of these times on."""
        pairs = zip(self.samples, self.samples[1:], strict=False)
        return tuple(
            (one.at_s, self.cores - (two.others - one.others) / (two.at_s - one.at_s)) for one, two in pairs
        )

    @property
    def mean_free_cores(self) -> float:
        return self.cores - self.others_cpu_s / self.samples[-1].at_s

    def ours_at(self, at_s: float) -> float:
        """Our CPU seconds until then."""
        before = [one for one in self.samples if one.at_s <= at_s] or [self.samples[0]]
        after = next((one for one in self.samples if one.at_s > at_s), before[-1])
        one = before[-1]
        if after.at_s <= one.at_s:
            return one.ours
        return one.ours + (after.ours - one.ours) * (at_s - one.at_s) / (after.at_s - one.at_s)


TRIALS = (
    Trial("calibrate", pictures=400, per_picture=5),
    Trial("more-jobs", pictures=900, per_picture=5),
    Trial("one-question", pictures=900, per_picture=1),
    Trial("two-workers", pictures=900, per_picture=3, starts=(0.0, 0.0)),
    Trial("late-worker", pictures=600, per_picture=5, starts=(0.0, 60.0)),
    Trial("leaving-worker", pictures=700, per_picture=3, starts=(0.0, 0.0), stop_s=55.0),
    Trial("calibrate-after", pictures=400, per_picture=5),
    Trial("one-question-after", pictures=600, per_picture=1),
)


def write_run(run: RealRun, folder: Path) -> None:
    (folder / f"{run.trial.name}.json").write_text(json.dumps(asdict(run), indent=1) + "\n")


def read_runs(folder: Path) -> Iterator[RealRun]:
    """The recorded trials of a folder, in their order."""
    for trial in TRIALS:
        if (path := folder / f"{trial.name}.json").exists():
            yield _run_of(json.loads(path.read_text()))


def _run_of(found: dict[str, Any]) -> RealRun:
    trial = found["trial"]
    return RealRun(
        trial=Trial(**trial | {"starts": tuple(trial["starts"])}),
        cores=found["cores"],
        makespan_s=found["makespan_s"],
        mean_wait_s=found["mean_wait_s"],
        ended=tuple((at_s, jobs) for at_s, jobs in found["ended"]),
        lives=tuple(Life(**one) for one in found["lives"]),
        samples=tuple(Sample(**one) for one in found["samples"]),
    )
