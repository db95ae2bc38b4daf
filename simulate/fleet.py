"""Pods on nodes: provisioned, loading, ready, draining, lost."""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from simulate.books import Line, Stream
from simulate.world import HOUR_S, Plant


@dataclass
class Station:
    """Ready pods that share the work evenly, and the jobs that they have in hand, stream by stream."""

    pods: int = 0
    hands: dict[str, Line] = field(default_factory=dict[str, Line])
    left_s: float = 0.0  # of a step's time, which was too little for one more job

    def hand(self, stream: Stream) -> Line:
        return self.hands.setdefault(stream.traffic.name, Line())

    @property
    def jobs(self) -> int:
        return sum(line.jobs for line in self.hands.values())


@dataclass
class Leaving:
    """A pod that was told to stop: it ends what it has until `until_s`. A lost one loses its node with it."""

    station: Station
    until_s: float
    lost: bool = False


@dataclass
class Starting:
    """A pod whose node is there at `node_s`; then its process has `load_s` to go."""

    node_s: float
    load_s: float


@dataclass
class Fleet:
    """At most `most` nodes of one GPU each. `wanted` is what the Deployment says; pods follow it."""

    plant: Plant
    most: int
    rng: random.Random
    drain_s: float
    wanted: int = 0
    station: Station = field(default_factory=Station)
    starting: list[Starting] = field(default_factory=list[Starting])
    leaving: list[Leaving] = field(default_factory=list[Leaving])
    idle_until_s: list[float] = field(default_factory=list[float])  # nodes without a pod, a heap
    node_s: float = 0.0  # seconds of all nodes
    lost: int = 0

    @property
    def replicas(self) -> int:
        return self.station.pods + len(self.starting)

    @property
    def nodes(self) -> int:
        return self.replicas + len(self.leaving) + len(self.idle_until_s)

    @property
    def loading(self) -> int:
        return len(self.starting)

    def stations(self) -> Iterator[Station]:
        yield self.station
        for one in self.leaving:
            yield one.station

    def open_at_once(self, pods: int) -> None:
        """Pods that were there before the simulation began."""
        self.wanted = pods
        self.station.pods += pods

    def start_pod(self, now_s: float) -> None:
        """On an idle node, whose image is there, or on a new one."""
        if self.idle_until_s:
            heapq.heappop(self.idle_until_s)
            self.starting.append(Starting(now_s, self._vary(self.plant.load_s)))
        else:
            node_s = now_s + self._vary(self.plant.provision_s) + self._vary(self.plant.pull_s)
            self.starting.append(Starting(node_s, self._vary(self.plant.load_s)))

    def follow(self, now_s: float) -> None:
        """Start and stop pods until there are as many as wanted; those not running yet are stopped first."""
        while self.replicas < self.wanted and (self.nodes < self.most or self.idle_until_s):
            self.start_pod(now_s)
        while self.replicas > self.wanted:
            if self.starting:
                self.starting.pop()
                self._leave_idle(now_s)
            else:
                self.leaving.append(self._split(now_s + self.drain_s))

    def advance(self, now_s: float, step_s: float, *, speed: float = 1.0) -> None:
        """Nodes come, processes load (as fast as `speed` lets them), idle nodes go."""
        self.node_s += self.nodes * step_s
        still: list[Starting] = []
        for pod in self.starting:
            if pod.node_s <= now_s:
                pod.load_s -= step_s * speed
            if pod.load_s <= 0 and pod.node_s <= now_s:
                self.station.pods += 1
            else:
                still.append(pod)
        self.starting = still
        while self.idle_until_s and self.idle_until_s[0] <= now_s:
            heapq.heappop(self.idle_until_s)

    def gone(self, now_s: float) -> list[Leaving]:
        """Those that have nothing left, or no time; their nodes stay for a while, if they were not lost."""
        ended = [one for one in self.leaving if one.station.jobs == 0 or one.until_s <= now_s]
        self.leaving = [one for one in self.leaving if one not in ended]
        for one in ended:
            if not one.lost:
                self._leave_idle(now_s)
        return ended

    def lose_spot(self, now_s: float, step_s: float) -> None:
        """Each node may be taken away; its pod hears of it `spot_notice_s` before."""
        chance = self.plant.spot_loss_per_hour * step_s / HOUR_S
        if not chance:
            return
        for _ in range(sum(self.rng.random() < chance for _ in range(self.station.pods))):
            notice_s = min(self.plant.spot_notice_s, self.drain_s)
            self.leaving.append(self._split(now_s + notice_s, lost=True))
            self.lost += 1
        for _ in range(sum(self.rng.random() < chance for _ in range(len(self.starting)))):
            self.starting.pop(self.rng.randrange(len(self.starting)))
            self.lost += 1

    def _split(self, until_s: float, *, lost: bool = False) -> Leaving:
        """One of the ready pods, with its share of what all have in hand."""
        pods = self.station.pods
        hands: dict[str, Line] = {}
        for name, line in self.station.hands.items():
            hands[name] = Line()
            hands[name].put(line.take(-(-line.jobs // pods)))
        self.station.pods -= 1
        return Leaving(Station(1, hands), until_s, lost)

    def _leave_idle(self, now_s: float) -> None:
        if self.plant.node_idle_s > 0:
            heapq.heappush(self.idle_until_s, now_s + self.plant.node_idle_s)

    def _vary(self, seconds: float) -> float:
        jitter = self.plant.jitter
        return seconds * (1 + self.rng.uniform(-jitter, jitter)) if jitter else seconds
