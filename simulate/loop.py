"""The closed loop, step after step: jobs come, are sent and answered; pods and nodes follow the scaler."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from app.states import Priority
from deploy.scaling import Waiting, demand
from simulate.arrivals import Arrivals
from simulate.books import Cohort, Stream
from simulate.fleet import Fleet, Station
from simulate.policies import ALL_MESSAGES, CPU, DEMAND, READY_MESSAGES, Scaler, ScalingPolicy
from simulate.steps import StepTimes
from simulate.world import HOUR_S, Plant, QueueRules, Traffic

ORDER = {priority: place for place, priority in enumerate(Priority)}
FEW_PODS = 8
LEAST_CORES = 0.02
ROUNDS = 8  # of claiming and answering within a step
LONGEST_S = 40 * 24 * HOUR_S


@dataclass(frozen=True)
class Setup:
    """All that a simulation depends on."""

    traffic: Sequence[Traffic]
    policy: ScalingPolicy
    most: int  # GPUs
    steps: StepTimes
    rules: QueueRules = field(default_factory=QueueRules)
    plant: Plant = field(default_factory=Plant)
    step_s: float = 5.0
    few_step_s: float = 15.0  # with few pods
    seed: int = 1
    until_s: float = 24 * HOUR_S  # at least; and until all is done


@dataclass(frozen=True)
class Outcome:
    """What came of it. Seconds count from the beginning."""

    policy: str
    most: int
    ended_s: float
    streams: Mapping[str, Stream]
    node_s: float
    busy_s: float  # of pods, at work
    pod_s: float  # of pods, ready
    events: int
    highest: int
    lost: int

    @property
    def gpu_hours(self) -> float:
        return self.node_s / HOUR_S

    @property
    def utilisation(self) -> float:
        """The share of the paid time in which a GPU worked."""
        return self.busy_s / self.node_s if self.node_s else 0.0

    @property
    def missed(self) -> int:
        """Jobs without an answer by their deadline, those that have none when it gives up included."""
        return sum(stream.missed + stream.open_jobs for stream in self.streams.values())

    def makespan_s(self, name: str) -> float:
        """From a stream's first arrival to its last answer."""
        stream = self.streams[name]
        return max(0.0, stream.last_done_s - stream.traffic.start_s)


class Simulation:
    """`run` goes to the end; `step` makes one step, for whoever wants to look in between."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now_s = 0.0
        self._step_s = setup.step_s
        rng = random.Random(f"arrivals {setup.seed}")
        self.streams = {
            traffic.name: Stream(traffic, _chunk(setup.rules, traffic))
            for traffic in sorted(setup.traffic, key=lambda traffic: ORDER[traffic.priority])
        }
        self._classes = [
            (priority, [one for one in self.streams.values() if one.traffic.priority is priority])
            for priority in Priority
        ]
        self._seated = [
            one for one in self.streams.values() if one.traffic.priority is not Priority.INTERACTIVE
        ]
        self.arrivals = {traffic.name: Arrivals(traffic, rng) for traffic in setup.traffic}
        self.fleet = Fleet(setup.plant, setup.most, random.Random(f"fleet {setup.seed}"), setup.rules.drain_s)
        self.fleet.open_at_once(setup.policy.fixed or 0)
        self.scaler = Scaler(setup.policy, most=self.fleet.replicas)
        self.busy_s = 0.0
        self.pod_s = 0.0
        self._load = 0.0  # busy pods of the last step
        self._lapsing: list[tuple[float, Stream, list[Cohort]]] = []
        self._sendable = 0.0
        self._costs: dict[tuple[str, int], float] = {}

    def run(self) -> Outcome:
        while not self.is_over() and self.now_s < LONGEST_S:
            self.step()
        return self.outcome()

    def is_over(self) -> bool:
        left = any(one.left for one in self.arrivals.values())
        waits = any(stream.open_jobs for stream in self.streams.values())
        return self.now_s >= self.setup.until_s and not left and not waits

    def outcome(self) -> Outcome:
        return Outcome(
            policy=self.setup.policy.name,
            most=self.setup.most,
            ended_s=self.now_s,
            streams=self.streams,
            node_s=self.fleet.node_s,
            busy_s=self.busy_s,
            pod_s=self.pod_s,
            events=self.scaler.events,
            highest=self.scaler.most,
            lost=self.fleet.lost,
        )

    def step(self) -> None:
        step_s, fleet = self._next_step_s(), self.fleet
        self._step_s = step_s
        self._arrive()
        self._find_lapsed()
        fleet.lose_spot(self.now_s, step_s)
        fleet.wanted = self.scaler.step(self.now_s, self.readings, fleet.wanted)
        fleet.follow(self.now_s)
        speed = self._speed()
        fleet.advance(self.now_s, step_s, speed=speed)
        self._work(step_s * speed)
        self._end_leaving()
        self.now_s += step_s

    def _next_step_s(self) -> float:
        """Few pods are looked at less often."""
        few = self.fleet.station.pods <= FEW_PODS
        return max(self.setup.step_s, self.setup.few_step_s) if few else self.setup.step_s

    def _arrive(self) -> None:
        for name, stream in self.streams.items():
            stream.expire(self.now_s)
            cohort = self.arrivals[name].step(self.now_s, self._step_s)
            if cohort is not None:
                stream.arrive(cohort)

    def _find_lapsed(self) -> None:
        for until_s, stream, cohorts in self._lapsing:
            if until_s <= self.now_s:
                stream.find(cohorts)
        self._lapsing = [one for one in self._lapsing if one[0] > self.now_s]

    def _speed(self) -> float:
        """What is left of a core for each that wants one, where pods share a machine."""
        cores = self.setup.plant.free_cores(self.now_s)
        if cores is None:
            return 1.0
        pods = min(self.fleet.station.pods, self._load or self.fleet.station.pods)
        wants = self._cores_of(pods) + self.fleet.loading
        # What only looks around now and then is let in at once by the kernel, before those that never sleep.
        left = max(LEAST_CORES, cores - self.setup.plant.base_cores)
        return min(1.0, left / wants) if wants else 1.0

    def _cores_of(self, pods: float) -> float:
        """Cores that so many busy pods and what works for them would use."""
        stream = next(iter(self.streams.values()))
        seats = self.setup.rules.seats - 0.5
        cost = self._cost(stream, seats * stream.chunk_jobs)
        return pods * (1 + self.setup.plant.side_cpu_s / cost)

    def _work(self, engine_s: float) -> None:
        """Claim and answer on all ready pods, and answer on those that leave."""
        self._sendable = self.setup.rules.dispatch_jobs_s * self._step_s
        busy_s = self._serve(self.fleet.station, engine_s, claims=True)
        self._load = busy_s / engine_s if engine_s else 0.0
        for one in self.fleet.leaving:
            busy_s += self._serve(one.station, engine_s, claims=False)
        self.busy_s += busy_s
        self.pod_s += (self.fleet.station.pods + len(self.fleet.leaving)) * self._step_s

    def _serve(self, station: Station, engine_s: float, *, claims: bool) -> float:
        """Seconds that pods were busy. `engine_s` is what each of them has."""
        left = used = station.pods * engine_s
        for _ in range(ROUNDS):
            if claims:
                self._dispatch()
                self._claim(station)
            busy = self._busy(station)
            if not busy:
                break
            # A pod that is idle now cannot give its time to another.
            share = left * busy / station.pods
            spent = self._answer(station, share, busy)
            left -= spent
            if spent <= 0 or left <= 0.01 * used or not claims:
                break
        return used - left

    def _dispatch(self) -> None:
        """Fill the windows: the interactive have their own, the background gets what standard jobs leave.

        Streams of one class are tenants of one weight, and share as the dispatcher shares.
        """
        standard = 0
        for priority, streams in self._classes:
            used = sum([one.queued.jobs for one in streams])
            standard = used if priority is Priority.STANDARD else standard
            ready = [one.ready.jobs for one in streams]
            if not any(ready):
                continue
            below = standard if priority is Priority.BACKGROUND else 0
            room = min(self.setup.rules.window_jobs - used - below, int(self._sendable))
            shares = fair_shares(room, [one.queued.jobs for one in streams], ready)
            self._sendable -= sum(shares)
            for stream, jobs in zip(streams, shares, strict=True):
                if jobs:
                    stream.send(self.now_s, jobs)

    def _claim(self, station: Station) -> None:
        """Interactive jobs always, chunks as seats are free, each stream by its part of the queue."""
        if not station.pods:
            return
        free = self._free_seats(station)
        for priority, streams in self._classes:
            waiting = [stream for stream in streams if stream.queued.jobs]
            if priority is Priority.INTERACTIVE:
                for stream in waiting:
                    station.hand(stream).put(stream.claim(self.now_s, stream.queued.jobs))
                continue
            wanted = sum([stream.queued.jobs / stream.chunk_jobs for stream in waiting])
            part = min(1.0, free / wanted) if wanted else 0.0
            for stream in waiting:
                jobs = min(stream.queued.jobs, ceil(stream.queued.jobs * part))
                free -= jobs / stream.chunk_jobs
                station.hand(stream).put(stream.claim(self.now_s, jobs))

    def _free_seats(self, station: Station) -> float:
        """Of each pod's seats half a chunk is done already, on average: a seat is free when all of it is."""
        taken = sum([station.hand(s).jobs / s.chunk_jobs for s in self._seated])
        return max(0.0, station.pods * (self.setup.rules.seats - 0.5) - taken)

    def _busy(self, station: Station) -> int:
        chunks = sum(-(-station.hand(s).jobs // s.chunk_jobs) for s in self.streams.values())
        return min(station.pods, chunks)

    def _answer(self, station: Station, engine_s: float, busy: int) -> float:
        """Work off the hands, the interactive first, other streams alike; seconds that it took."""
        engine_s += station.left_s
        before = engine_s
        rows = max(1, round(station.jobs / busy))
        # What came within the step did not come all at once: a chat meets as many rows as the step was full.
        work_s = sum([station.hand(s).jobs * self._cost(s, rows) for s in self.streams.values()])
        met = rows * min(1.0, work_s / engine_s) if engine_s > 0 else rows
        for _, streams in self._classes:
            some = [(s, hand, self._cost(s, rows)) for s in streams if (hand := station.hand(s)).jobs]
            wanted = sum([hand.jobs * cost for _, hand, cost in some])
            part = min(1.0, engine_s / wanted) if wanted else 0.0
            for stream, hand, cost in some:
                jobs = min(hand.jobs, int(hand.jobs * part + 1e-9))
                self._finish(station, stream, jobs, met)
                engine_s -= jobs * cost
        spent = before - engine_s
        carried = station.left_s
        # What was too little for a job is kept for the next step, if there is one to do.
        station.left_s = max(0.0, min(engine_s, self._most_cost(rows))) if station.jobs else 0.0
        return max(0.0, spent - carried + station.left_s)

    def _finish(self, station: Station, stream: Stream, jobs: int, rows: float) -> None:
        answer_s = 0.0
        if stream.traffic.priority is Priority.INTERACTIVE:
            question, cached = stream.traffic.question, stream.traffic.cached
            answer_s = self.setup.steps.answer_s(rows, question, cached=cached)
        stream.answer(self.now_s, station.hand(stream).take(jobs), answer_s)

    def _most_cost(self, rows: int) -> float:
        return max(self._cost(stream, rows) for stream in self.streams.values())

    def _cost(self, stream: Stream, rows: float) -> float:
        """Engine seconds of a job beside so many rows."""
        key = (stream.traffic.name, max(1, round(rows)))
        if key not in self._costs:
            traffic = stream.traffic
            jobs_s = self.setup.steps.jobs_s(key[1], traffic.question, cached=traffic.cached)
            self._costs[key] = 1 / jobs_s
        return self._costs[key]

    def _end_leaving(self) -> None:
        for one in self.fleet.gone(self.now_s + self._step_s):
            for name, line in one.station.hands.items():
                stream, rest = self.streams[name], line.take(line.jobs)
                if not rest:
                    continue
                if one.lost and self.setup.plant.spot_notice_s < self.setup.rules.drain_s:
                    lapse_s = self.now_s + self.setup.rules.lease_s
                    self._lapsing.append((lapse_s, stream, stream.lose(rest)))
                else:
                    stream.hand_back(rest)

    def readings(self) -> Mapping[str, float]:
        """What a scaler may read of this moment."""
        found: dict[str, float] = {}
        for priority, streams in self._classes:
            ready = sum(ceil(one.queued.jobs / one.chunk_jobs) for one in streams)
            held = sum(ceil(one.running / one.chunk_jobs) for one in streams)
            found[f"{READY_MESSAGES}:{priority}"] = ready
            found[f"{ALL_MESSAGES}:{priority}"] = ready + held
        found[READY_MESSAGES] = sum(found[f"{READY_MESSAGES}:{priority}"] for priority in Priority)
        found[DEMAND] = demand(
            [self._waiting(stream) for stream in self.streams.values() if stream.ready.jobs]
        )
        plant = self.setup.plant
        found[CPU] = self._load * plant.cpu_busy / plant.cpu_request
        return found

    def _waiting(self, stream: Stream) -> Waiting:
        first = next(iter(stream.ready))
        left_s = first.due_s - self.now_s
        patient = stream.traffic.priority is Priority.BACKGROUND and left_s > stream.traffic.within_s / 4
        return Waiting(-(-stream.ready.jobs // stream.chunk_jobs), left_s, patient)


def _chunk(rules: QueueRules, traffic: Traffic) -> int:
    return 1 if traffic.priority is Priority.INTERACTIVE else rules.chunk_of(traffic.question)


def fair_shares(room: int, queued: Sequence[int], ready: Sequence[int]) -> list[int]:
    """How many each of some tenants of one weight may send: whoever has least on the broker first.

    As `app.planner.share` does it job by job, and without going through them one by one.
    """
    shares = [0] * len(queued)
    while room > 0:
        hungry = [place for place in range(len(queued)) if shares[place] < ready[place]]
        if not hungry:
            break
        levels = sorted({queued[place] + shares[place] for place in hungry})
        lowest = [place for place in hungry if queued[place] + shares[place] == levels[0]]
        up = levels[1] - levels[0] if len(levels) > 1 else room
        each = max(1, min(up, room // len(lowest), min(ready[p] - shares[p] for p in lowest)))
        for place in lowest[: room if each == 1 else None]:
            shares[place] += each
            room -= each
    return shares
