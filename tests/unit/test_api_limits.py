"""Values that are measured now and then."""

from dataclasses import dataclass, field

import pytest

from app.limits import Measured


@dataclass
class Meter:
    """Counts how often it was read; each reading takes `takes_s` of its own time."""

    now: float = 100.0
    takes_s: float = 0.0
    readings: int = 0
    faults: list[Exception] = field(default_factory=list)

    def measure(self) -> int:
        if self.faults:
            raise self.faults.pop()
        self.now += self.takes_s
        self.readings += 1
        return self.readings

    def measured(self) -> Measured:
        return Measured(self.measure, clock=lambda: self.now)


def test_a_value_is_believed_for_a_second() -> None:
    meter = Meter()
    value = meter.measured()
    assert (value.read(), value.read()) == (1, 1)
    meter.now += 1
    assert value.read() == 2


def test_a_value_that_is_dear_is_believed_longer() -> None:
    meter = Meter(takes_s=2)
    value = meter.measured()
    value.read()
    meter.now += 39
    assert value.read() == 1
    meter.now += 1
    assert value.read() == 2


def test_a_fault_is_told_and_tried_again() -> None:
    meter = Meter(faults=[OSError("away")])
    value = meter.measured()
    with pytest.raises(OSError, match="away"):
        value.read()
    assert value.read() == 1
