"""What is run, and what came of it: both are kept in the plan's folder, so that it can be resumed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class RunPlan:
    """What to run: at least so many jobs, and `strikes` on each role and server."""

    broker: str
    engine: str
    jobs: int
    strikes: int
    seed: int
    lease_s: float = 6.0
    job_ms: float = 50.0  # on average
    pause_s: float = 3.0  # at the longest, between two strikes
    within_s: float = 3300.0

    @property
    def name(self) -> str:
        return f"{self.engine}-{self.broker}"

    @property
    def per_batch(self) -> int:
        return max(20, min(500, self.jobs // 20))


@dataclass
class Report:
    """What came of a run. It went well if nothing is in `problems`."""

    name: str
    jobs: int = 0
    kills: int = 0
    lost: int = 0
    duplicated: int = 0
    longest_recovery_s: float = 0.0
    lease_s: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Progress:
    """The runs of a plan, and the reports of those that are done."""

    plans: list[RunPlan]
    reports: dict[str, Report]

    def left(self) -> list[RunPlan]:
        return [plan for plan in self.plans if plan.name not in self.reports]

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1))


def read_progress(file: Path) -> Progress:
    stored = json.loads(file.read_text())
    reports = {name: Report(**report) for name, report in stored["reports"].items()}
    return Progress([RunPlan(**plan) for plan in stored["plans"]], reports)


def last_line(reports: Sequence[Report]) -> str:
    return (
        f"chaos: runs={len(reports)} kills={sum(report.kills for report in reports)}"
        f" jobs={sum(report.jobs for report in reports)} lost={sum(report.lost for report in reports)}"
        f" duplicated={sum(report.duplicated for report in reports)}"
        f" longest_recovery_s={max(report.longest_recovery_s for report in reports):.1f}"
        f" lease_s={max(report.lease_s for report in reports):g}"
    )
