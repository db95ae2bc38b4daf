"""When jobs come: evenly, by the hours of a clock, or at random; the same for a seed. Pure."""

import math
import random
from collections.abc import Sequence

from simulate.books import Cohort
from simulate.world import FIRST_HOUR, HOUR_S, Traffic

SMALL = 50.0  # a mean below which Poisson numbers are drawn one by one


class Arrivals:
    """The arrivals of one stream, step after step; all have come after `over_s`, and never more."""

    def __init__(self, traffic: Traffic, rng: random.Random) -> None:
        self.left = traffic.jobs
        self._traffic = traffic
        self._rng = rng
        self._owed = 0.0
        self._weight = _weight(traffic.hours, traffic.start_s, traffic.over_s)

    def step(self, now_s: float, step_s: float) -> Cohort | None:
        """Those of `now_s` to `now_s + step_s`, which count as having come at its end."""
        traffic = self._traffic
        end_s = traffic.start_s + traffic.over_s
        begin, end = max(now_s, traffic.start_s), min(now_s + step_s, end_s)
        if self.left == 0 or (end <= begin and now_s < end_s):
            return None
        jobs = self.left if now_s + step_s >= end_s else self._jobs(begin, end)
        if jobs == 0:
            return None
        self.left -= jobs
        due_s = now_s + traffic.within_s if traffic.due_s is None else traffic.due_s
        return Cohort(now_s, due_s, jobs)

    def _jobs(self, begin: float, end: float) -> int:
        mean = self._traffic.jobs * _weight(self._traffic.hours, begin, end - begin) / self._weight
        if self._traffic.random:
            return min(self.left, poisson(mean, self._rng))
        self._owed += mean
        whole = min(self.left, int(self._owed))
        self._owed -= whole
        return whole


def _weight(hours: Sequence[float], start_s: float, over_s: float) -> float:
    """The weight of a time: its seconds, each by its hour."""
    if not hours:
        return max(over_s, 1e-9)
    total, now = 0.0, start_s
    while now < start_s + over_s - 1e-9:
        hour = int(now // HOUR_S)
        end = min(start_s + over_s, (hour + 1) * HOUR_S)
        total += (end - now) * hours[(hour + FIRST_HOUR) % 24]
        now = end
    return total


def poisson(mean: float, rng: random.Random) -> int:
    """A Poisson number; for large means the nearest normal one, which differs by less than its own noise."""
    if mean > SMALL:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count
