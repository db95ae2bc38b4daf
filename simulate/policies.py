"""Who decides how many workers there are: nobody, the CPU, the queue's depth, or what vqueue ships."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from deploy.scaled import scaled_objects
from deploy.scaling import SYNC_S, Autoscaler, Scaling, Trigger

# What a policy's triggers may read of the simulated world.
READY_MESSAGES = "ready_messages"  # of the standard queue, without those that workers hold
ALL_MESSAGES = "all_messages"  # with them, by class: all_messages:standard
DEMAND = "demand"  # chunks a minute that what waits in Postgres needs, by its deadlines
CPU = "cpu"  # cores in use over those requested, all pods together
Readings = Mapping[str, float]

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "k8s/components/keda-rabbitmq/qwen3-vl-8b/worker.yaml"
# What a trigger of KEDA reads here; those of queues are named by their class.
READ_BY = {"rabbitmq": ALL_MESSAGES + ":{}", "postgresql": DEMAND}


@dataclass(frozen=True)
class ScalingPolicy:
    """A fixed number of workers, or the rules of one ScaledObject; `reads` has what each trigger reads."""

    name: str
    fixed: int | None = None
    scaling: Scaling | None = None
    reads: Mapping[str, str] = field(default_factory=dict[str, str])
    about: str = ""


@dataclass
class Scaler:
    """A policy at work. `step` gives the number of workers from now on, and looks when it is time to."""

    policy: ScalingPolicy
    events: int = 0
    most: int = 0
    _autoscaler: Autoscaler | None = None
    _next_poll_s: float = 0.0
    _next_sync_s: float = 0.0

    def __post_init__(self) -> None:
        if self.policy.scaling is not None:
            self._autoscaler = Autoscaler(self.policy.scaling)

    def step(self, now_s: float, look: Callable[[], Readings], replicas: int) -> int:
        if self.policy.scaling is None or self._autoscaler is None:
            return self.policy.fixed or 0
        if now_s < min(self._next_poll_s, self._next_sync_s):
            return replicas
        world = look()
        readings = {name: world[source] for name, source in self.policy.reads.items()}
        after = replicas
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + self.policy.scaling.polling_s
            after = self._autoscaler.poll(now_s, readings, after)
        if now_s >= self._next_sync_s:
            self._next_sync_s = now_s + SYNC_S
            after = self._autoscaler.sync(now_s, readings, after)
        self.events += after != replicas
        self.most = max(self.most, after)
        return after


def fixed_fleet(workers: int) -> ScalingPolicy:
    return ScalingPolicy("fixed", fixed=workers, about=f"{workers} workers day and night")


def cpu_hpa(most: int) -> ScalingPolicy:
    """A HorizontalPodAutoscaler on CPU, as charts of other batch queues ship it: 70 %, never none."""
    trigger = Trigger(CPU, target=0.7)
    scaling = Scaling((trigger,), minimum=1, maximum=most, polling_s=15.0)
    return ScalingPolicy("cpu", scaling=scaling, reads={CPU: CPU}, about="70 % of the pods' CPU requests")


def queue_depth(most: int) -> ScalingPolicy:
    """KEDA on the length of the queue, as its own example has it: ready messages, all else by default."""
    trigger = Trigger(READY_MESSAGES, target=5.0)
    scaling = Scaling((trigger,), minimum=0, maximum=most)
    return ScalingPolicy(
        "depth",
        scaling=scaling,
        reads={READY_MESSAGES: READY_MESSAGES},
        about="a worker for every 5 ready messages; KEDA's defaults",
    )


def ours(most: int) -> ScalingPolicy:
    """What k8s/ ships for a GPU model on RabbitMQ, by the numbers of its manifest but for the most."""
    (found,) = scaled_objects(list(yaml.safe_load_all(MANIFEST.read_text())))
    reads = {question.name: READ_BY[question.type].format(question.name) for question in found.questions}
    scaling = replace(found.scaling, maximum=most)
    numbers = ", ".join(f"{trigger.name} {trigger.target:g}" for trigger in scaling.triggers)
    return ScalingPolicy(
        "ours", scaling=scaling, reads=reads, about=f"{MANIFEST.relative_to(ROOT)}: {numbers}"
    )


POLICIES: Mapping[str, Callable[[int], ScalingPolicy]] = {
    "fixed": fixed_fleet,
    "cpu": cpu_hpa,
    "depth": queue_depth,
    "ours": ours,
}


def choose(name: str, most: int) -> ScalingPolicy:
    """A policy by its name, for at most so many GPUs."""
    return POLICIES[name](most)
