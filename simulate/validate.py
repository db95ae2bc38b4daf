"""Holds the simulator to real runs: it learns what a job costs from some, and foretells others."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from app.states import Priority
from simulate.loop import Setup, Simulation
from simulate.policies import fixed_fleet
from simulate.runs import RealRun, read_runs
from simulate.steps import DATA, Question, StepTimes, read_question, read_steps
from simulate.world import Plant, QueueRules, Traffic

# One worker, five questions a picture and one; before the others and after them, as what a job costs in CPU
# seconds depends on what else the machine does.
LEARNT_FROM = ("calibrate", "one-question", "calibrate-after", "one-question-after")
STEP_S = 0.1
NEAR = 0.2  # what counts as agreement
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Machine:
    """CPU seconds of everything but the engine's thread, as learnt: for a job, for a picture, for a worker's
    start, and the cores that all processes use while they only look around.
    """

    job_s: float
    picture_s: float
    load_s: float
    base_cores: float


@dataclass(frozen=True)
class Forecast:
    run: RealRun
    makespan_s: float
    mean_wait_s: float
    cpu_s: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Foretold over real: makespan, mean wait, CPU seconds."""
        real = self.run
        return self.makespan_s / real.makespan_s, self.mean_wait_s / real.mean_wait_s, self.cpu_s / real.cpu_s

    @property
    def is_near(self) -> bool:
        return all(abs(ratio - 1) <= NEAR for ratio in self.ratios[:2])


def validate(folder: Path) -> str:
    """A table of the held-out runs, and the line for scripts."""
    runs = {run.trial.name: run for run in read_runs(folder)}
    steps, question = read_steps(DATA / "demo-cpu.json"), read_question(DATA / "demo-cpu.json")
    machine = learn([run for name, run in runs.items() if name in LEARNT_FROM], steps, question)
    held_out = [
        foretell(run, machine, steps, question) for name, run in runs.items() if name not in LEARNT_FROM
    ]
    return "\n".join([_learnt(machine), _table(held_out), "", last_line(held_out)])


def learn(runs: Sequence[RealRun], steps: StepTimes, question: Question) -> Machine:
    """What is left of the CPU seconds of runs without the engine's; they ask few and many about a picture."""
    base = mean(map(_base_cores, runs))
    costs: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        costs[run.trial.per_picture].append(_cost_s(run, base))
    few, many = sorted(costs)
    rest = {each: mean(costs[each]) - engine_s(replace(question, per_picture=each), steps) for each in costs}
    picture_s = max(0.0, (rest[few] - rest[many]) / (1 / few - 1 / many))
    return Machine(
        job_s=max(0.0, rest[many] - picture_s / many),
        picture_s=picture_s,
        load_s=mean(life.load_cpu_s for run in runs for life in run.lives),
        base_cores=base,
    )


def _cost_s(run: RealRun, base: float) -> float:
    """CPU seconds of a job, all processes together."""
    ready_s, end_s = run.lives[0].ready_s, run.samples[-1].at_s
    return (run.cpu_s - run.ours_at(ready_s) - base * (end_s - ready_s)) / run.trial.jobs


def _base_cores(run: RealRun) -> float:
    """While the first worker loads there is nothing else to do."""
    life = run.lives[0]
    return max(0.0, run.ours_at(life.ready_s) - life.load_cpu_s) / life.ready_s


def engine_s(question: Question, steps: StepTimes) -> float:
    """Of the engine's thread, for a job among many."""
    return 1 / steps.jobs_s(steps.rows, question)


def foretell(run: RealRun, machine: Machine, steps: StepTimes, question: Question) -> Forecast:
    """Knows of the run what was asked, when workers were to come and go, and what others left of the CPU."""
    asked = replace(question, per_picture=run.trial.per_picture)
    side_s = machine.job_s + machine.picture_s / run.trial.per_picture
    traffic = Traffic("batch", Priority.STANDARD, asked, run.trial.jobs, 0.0, STEP_S, LONGEST_S)
    plant = Plant(
        provision_s=0.0,
        pull_s=0.0,
        load_s=machine.load_s,
        jitter=0.0,
        node_idle_s=0.0,
        cores=run.free_cores,
        base_cores=machine.base_cores,
        side_cpu_s=side_s,
    )
    simulation = Simulation(
        Setup(
            (traffic,),
            fixed_fleet(0),
            most=len(run.trial.starts),
            steps=steps,
            rules=QueueRules(),
            plant=plant,
            step_s=STEP_S,
            few_step_s=STEP_S,
            until_s=0.0,
        )
    )
    _play(simulation, run)
    batch = simulation.streams["batch"]
    cpu_s = (
        machine.base_cores * batch.last_done_s
        + machine.load_s * len(run.trial.starts)
        + run.trial.jobs * (side_s + engine_s(asked, steps))
    )
    return Forecast(run, batch.last_done_s, batch.claimed.mean_s, cpu_s)


def _play(simulation: Simulation, run: RealRun) -> None:
    """Start workers as the trial did, one when the last is up, and stop the last of them."""
    starts, stop_s = list(run.trial.starts), run.trial.stop_s
    wanted = 0
    while simulation.now_s < LONGEST_S:
        is_up = simulation.fleet.replicas == simulation.fleet.station.pods
        if is_up and starts and simulation.now_s >= starts[0]:
            starts.pop(0)
            wanted += 1
        elif is_up and not starts and stop_s is not None and simulation.now_s >= stop_s:
            stop_s = None
            wanted -= 1
        simulation.scaler.policy = fixed_fleet(wanted)
        simulation.step()
        if not starts and simulation.is_over():
            return


def _learnt(machine: Machine) -> str:
    return (
        f"learnt from runs with one worker: beside the engine {1000 * machine.job_s:.1f} ms of CPU for a job "
        f"and {1000 * machine.picture_s:.1f} for a picture, {machine.load_s:.1f} s for a worker's start, "
        f"{machine.base_cores:.2f} cores always"
    )


def _table(forecasts: Iterable[Forecast]) -> str:
    rows = [f"{'held out':<16}{'jobs':>6}{'free':>6}{'makespan s':>18}{'mean wait s':>18}{'CPU s':>18}"]
    for one in forecasts:
        real = one.run
        pairs = zip(
            (one.makespan_s, one.mean_wait_s, one.cpu_s),
            (real.makespan_s, real.mean_wait_s, real.cpu_s),
            one.ratios,
            strict=True,
        )
        told = "".join(f"{f'{mine:.1f}/{theirs:.1f}={ratio:.2f}':>18}" for mine, theirs, ratio in pairs)
        rows.append(f"{real.trial.name:<16}{real.trial.jobs:>6}{real.mean_free_cores:>6.2f}{told}")
    return "\n".join(rows)


def last_line(forecasts: Sequence[Forecast]) -> str:
    names = ("makespan", "wait", "cpu")
    spans = [sorted(one.ratios[place] for one in forecasts) for place in range(len(names))]
    parts = [f"{name}_ratio={span[0]:.2f}-{span[-1]:.2f}" for name, span in zip(names, spans, strict=True)]
    near = sum(one.is_near for one in forecasts)
    return f"simulate: held_out={len(forecasts)} {' '.join(parts)} within_20_percent={near}/{len(forecasts)}"
