"""How many replicas KEDA and the HPA behind it want: the rules of one ScaledObject, and the decision. Pure.

After KEDA 2.20 (`pkg/scaling/executor`, `pkg/fallback`) and Kubernetes' HPA controller
(`pkg/controller/podautoscaler`), whose steps are followed in their order: KEDA alone goes between none and
the first replica, when it polls; everything above is the HPA's, when it syncs. Times are in seconds of any
one clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SYNC_S = 15.0  # the controller manager's --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1  # its --horizontal-pod-autoscaler-tolerance
POLLING_S = 30.0  # KEDA's default pollingInterval
COOLDOWN_S = 300.0  # KEDA's default cooldownPeriod
MOST_REPLICAS = 100  # KEDA's default maxReplicaCount

# What each trigger of a ScaledObject read, by its name; None where it could not be read.
Readings = Mapping[str, float | None]


@dataclass(frozen=True)
class Policy:
    """How much may be added or removed within a period: pods, or a percentage of the replicas."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True)
class Rules:
    """One direction of the HPA's behaviour. Of several policies `Max` takes the one that changes most."""

    policies: tuple[Policy, ...]
    stabilization_s: float
    select: Literal["Max", "Min", "Disabled"] = "Max"
    tolerance: float = TOLERANCE


# Kubernetes' defaults, for what a ScaledObject leaves out.
UP = Rules((Policy("Pods", 4, 15), Policy("Percent", 100, 15)), stabilization_s=0)
DOWN = Rules((Policy("Percent", 100, 15),), stabilization_s=300)


@dataclass(frozen=True)
class Trigger:
    """One number that is read: `target` of it for each replica; over `activation` there is one at all."""

    name: str
    target: float
    activation: float = 0.0


@dataclass(frozen=True)
class Fallback:
    """What is assumed of a trigger that could not be read more than `failures` times in a row.

    `behavior` is KEDA's: `static` wants `replicas`, `currentReplicas` as many as there are, and the two
    others the higher or lower of both.
    """

    failures: int
    replicas: int
    behavior: Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"] = (
        "static"
    )


@dataclass(frozen=True)
class Scaling:
    """The numbers of one ScaledObject. A `minimum` of 0 scales to zero."""

    triggers: tuple[Trigger, ...]
    minimum: int = 0
    maximum: int = MOST_REPLICAS
    polling_s: float = POLLING_S
    cooldown_s: float = COOLDOWN_S
    up: Rules = UP
    down: Rules = DOWN
    fallback: Fallback | None = None


def is_active(scaling: Scaling, readings: Readings) -> bool:
    """Whether any trigger reads more than its activation. One that cannot be read does not."""
    values = ((trigger, readings.get(trigger.name)) for trigger in scaling.triggers)
    return any(value is not None and value > trigger.activation for trigger, value in values)


def wanted_for(value: float, target: float, replicas: int, *, up: float, down: float) -> int:
    """Replicas for one metric with an average target: as many as there are, if that is near enough.

    Near is within the tolerances `up` and `down` of the value over what the present replicas are for.
    """
    if replicas > 0 and 1 - down <= value / (target * replicas) <= 1 + up:
        return replicas
    return math.ceil(value / target)


def wanted(scaling: Scaling, readings: Readings, replicas: int) -> int | None:
    """What the HPA recommends before its behaviour and bounds: the most that any trigger asks for.

    While one cannot be read, it may be the one that asks for most: None then, which is to leave all as it
    is, unless the others want more than there are.
    """
    tolerances = {"up": scaling.up.tolerance, "down": scaling.down.tolerance}
    asked: list[int] = []
    for trigger in scaling.triggers:
        value = readings.get(trigger.name)
        if value is not None:
            asked.append(wanted_for(value, trigger.target, replicas, **tolerances))
    most = max(asked, default=0)
    return None if len(asked) < len(scaling.triggers) and most < max(replicas, 1) else most


def fall_back(fallback: Fallback, target: float, replicas: int) -> float:
    """What KEDA says in place of a value that it cannot read, for so many replicas."""
    match fallback.behavior:
        case "static":
            assumed = fallback.replicas
        case "currentReplicas":
            assumed = replicas
        case "currentReplicasIfHigher":
            assumed = max(replicas, fallback.replicas)
        case "currentReplicasIfLower":
            assumed = min(replicas, fallback.replicas)
    return assumed * target


@dataclass(frozen=True)
class Waiting:
    """Chunks that wait in Postgres with one deadline, `left_s` away; None where there is none.

    Patient are those of the background, until three quarters of their time are over.
    """

    chunks: float
    left_s: float | None = None
    is_patient: bool = False


def demand(waiting: Sequence[Waiting], *, within_s: float = 1800) -> float:
    """Chunks a minute that what waits needs, as the SQL function `vqueue_demand` says it.

    Each is done in `within_s`, or in half of the time that it has if that is less; the patient in half of
    theirs, however long. None asks for more than twelve times the speed of the first.
    """
    return sum(60 * one.chunks / max(within_s / 12, _time_for(one, within_s)) for one in waiting)


def _time_for(one: Waiting, within_s: float) -> float:
    if one.left_s is None:
        return within_s
    return one.left_s / 2 if one.is_patient else min(within_s, one.left_s / 2)


@dataclass(frozen=True)
class _Change:
    at_s: float
    replicas: int


def _changed(changes: Sequence[_Change], since_s: float) -> int:
    return sum(change.replicas for change in changes if change.at_s > since_s)


@dataclass
class Autoscaler:
    """KEDA and the HPA of one ScaledObject, with what they remember. Does no I/O; the caller has the clock.

    Call `poll` every `scaling.polling_s` and `sync` every SYNC_S with what the triggers read then; each
    answers with the number of replicas from now on.
    """

    scaling: Scaling
    _recommended: list[_Change] = field(default_factory=list[_Change])
    _added: list[_Change] = field(default_factory=list[_Change])
    _removed: list[_Change] = field(default_factory=list[_Change])
    _failures: dict[str, int] = field(default_factory=dict[str, int])
    _active_at_s: float | None = None

    def poll(self, now_s: float, readings: Readings, replicas: int) -> int:
        """KEDA's part: from none to the first at once, to none when all was quiet for the cooldown."""
        supplied = self._supplied(readings, replicas)
        blind = None in supplied.values()
        if is_active(self.scaling, readings) or self._falls_back():
            if replicas == 0 or not blind:
                self._active_at_s = now_s
            return replicas or max(1, self.scaling.minimum)
        fallback = self.scaling.fallback
        if blind and (fallback is None or fallback.replicas):
            return replicas
        quiet = self._active_at_s is None or now_s - self._active_at_s > self.scaling.cooldown_s
        if self.scaling.minimum == 0 and quiet:
            return 0
        return max(replicas, self.scaling.minimum)

    def sync(self, now_s: float, readings: Readings, replicas: int) -> int:
        """The HPA's part, above the first replica. It does nothing while there is none."""
        if replicas == 0:
            return 0
        least, most = max(1, self.scaling.minimum), self.scaling.maximum
        if not least <= replicas <= most:
            return self._rescaled(now_s, replicas, min(max(replicas, least), most))
        asked = wanted(self.scaling, self._supplied(readings, replicas), replicas)
        if asked is None:
            return replicas
        stable = self._stabilized(now_s, asked, replicas)
        return self._rescaled(now_s, replicas, self._limited(now_s, stable, replicas, least))

    def _supplied(self, readings: Readings, replicas: int) -> Readings:
        """The readings, with what the fallback says for triggers that failed too often in a row.

        Polls and syncs count failures together, as they do in the ScaledObject's status.
        """
        found: dict[str, float | None] = {}
        fallback = self.scaling.fallback
        for trigger in self.scaling.triggers:
            value = readings.get(trigger.name)
            failures = 0 if value is not None else self._failures.get(trigger.name, 0) + 1
            self._failures[trigger.name] = failures
            if fallback is not None and failures > fallback.failures:
                value = fall_back(fallback, trigger.target, replicas)
            found[trigger.name] = value
        return found

    def _falls_back(self) -> bool:
        """A trigger that falls back counts as active, whatever it is made to say."""
        fallback = self.scaling.fallback
        return fallback is not None and any(n > fallback.failures for n in self._failures.values())

    def _stabilized(self, now_s: float, asked: int, replicas: int) -> int:
        """Up to the least that was recommended within its window, down to the most within the other."""
        up, down = self.scaling.up.stabilization_s, self.scaling.down.stabilization_s
        self._recommended = [one for one in self._recommended if one.at_s > now_s - max(up, down)]
        least = min([asked, *(one.replicas for one in self._recommended if one.at_s > now_s - up)])
        most = max([asked, *(one.replicas for one in self._recommended if one.at_s > now_s - down)])
        self._recommended.append(_Change(now_s, asked))
        return min(max(replicas, least), most)

    def _limited(self, now_s: float, asked: int, replicas: int, least: int) -> int:
        if asked > replicas:
            limit = max(replicas, self._limit(now_s, replicas, self.scaling.up, direction=1))
            return min(asked, self.scaling.maximum, limit)
        if asked < replicas:
            limit = min(replicas, self._limit(now_s, replicas, self.scaling.down, direction=-1))
            return max(asked, least, limit)
        return asked

    def _limit(self, now_s: float, replicas: int, rules: Rules, *, direction: Literal[1, -1]) -> int:
        """How far the policies go from where each one's period began; up is rounded up, down is cut off."""
        if rules.select == "Disabled" or not rules.policies:
            return replicas
        proposed: list[int] = []
        for policy in rules.policies:
            since_s = now_s - policy.period_s
            start = replicas - _changed(self._added, since_s) + _changed(self._removed, since_s)
            if policy.kind == "Pods":
                proposed.append(start + direction * policy.value)
            else:
                share = start * (100 + direction * policy.value) / 100
                proposed.append(math.ceil(share) if direction > 0 else int(share))
        furthest = max if (rules.select == "Max") == (direction > 0) else min
        return furthest(proposed)

    def _rescaled(self, now_s: float, before: int, after: int) -> int:
        """Note the change, and forget those that no policy looks at any more."""
        policies = (*self.scaling.up.policies, *self.scaling.down.policies)
        oldest_s = now_s - max([policy.period_s for policy in policies], default=0)
        self._added = [one for one in self._added if one.at_s > oldest_s]
        self._removed = [one for one in self._removed if one.at_s > oldest_s]
        if after > before:
            self._added.append(_Change(now_s, after - before))
        if after < before:
            self._removed.append(_Change(now_s, before - after))
        return after
