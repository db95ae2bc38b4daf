"""What a worker tells of its engines with each heartbeat: how full steps are, what their cache saves."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase

from app import telemetry

# Long enough for steps of every kind of work that is on board, short enough to see it change.
WINDOW_S = 60.0


@dataclass(frozen=True)
class Reading:
    """What the counters said at a moment: steps by model, and the sum of their shares."""

    at: float
    steps: Mapping[str, float]
    fill: Mapping[str, float]


class Reports:
    """A report by model, of this process's own counters."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings = deque([self._read()])

    def take(self) -> dict[str, dict[str, float]]:
        """What stands in `workers.report`, by model; a value that there is nothing to say of is left out.

        `step_fill` is the mean over the steps of the last minute, a share. `feature_s_saved` are the seconds
        of encoding that the feature cache has saved since the process began, less those of its look-ups.
        """
        now = self._read()
        while len(self._readings) > 1 and self._readings[1].at <= now.at - WINDOW_S:
            self._readings.popleft()
        reports = {
            model: {"feature_s_saved": round(saved, 3)}
            for model, saved in _by_model(telemetry.FEATURE_SECONDS_SAVED, "").items()
        }
        for model, fill in mean_fill(self._readings[0], now).items():
            reports.setdefault(model, {})["step_fill"] = round(fill, 4)
        self._readings.append(now)
        return reports

    def _read(self) -> Reading:
        steps, fill = (_by_model(telemetry.STEP_FILL, end) for end in ("_count", "_sum"))
        return Reading(self._clock(), steps, fill)


def mean_fill(before: Reading, now: Reading) -> dict[str, float]:
    """Of the steps between two readings, by the models that had some."""
    steps = {model: count - before.steps.get(model, 0.0) for model, count in now.steps.items()}
    return {
        model: (now.fill[model] - before.fill.get(model, 0.0)) / count
        for model, count in steps.items()
        if count > 0
    }


def _by_model(metric: MetricWrapperBase, end: str) -> dict[str, float]:
    return {
        sample.labels["model"]: sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name == f"{family.name}{end}"
    }
