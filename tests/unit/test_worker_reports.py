"""What a worker tells with its heartbeat: means of the last minute, by model."""

from workers.engine.base import FeatureTier
from workers.observe import EngineMetrics
from workers.reports import Reports


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def step(model: str, rows: int) -> None:
    EngineMetrics(model).stepped(
        rows=rows, row_limit=8, joined=0, prompt_tokens=0, cached_tokens=0, seconds=0.01
    )


def test_steps_are_told_for_a_minute_and_by_model() -> None:
    clock = Clock()
    reports = Reports(clock=clock)
    told: list[tuple[float | None, float | None]] = []
    for rows in (8, 4, None, None, None):
        if rows:
            step("small", rows)
        clock.now += 30
        report = reports.take()
        told.append((report.get("small", {}).get("step_fill"), report.get("large", {}).get("step_fill")))
    assert told == [(1.0, None), (0.75, None), (0.5, None), (None, None), (None, None)]


def test_what_was_counted_before_the_worker_began_is_not_told() -> None:
    step("earlier", 8)
    assert "earlier" not in Reports().take()


def test_seconds_saved_are_told_from_the_beginning_on() -> None:
    metrics = EngineMetrics("saving")
    metrics.encoded(images=1, visual_tokens=100, seconds=2.0)
    metrics.features_read(tier=FeatureTier.MEMORY, size=1, visual_tokens=100, seconds=0.5)
    assert Reports().take()["saving"] == {"feature_s_saved": 1.5}
