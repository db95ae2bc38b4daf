"""Holds the drills of docs/upgrades.md: `python -m deploy.drills [upgrade|broker|secrets|backup ...]`."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.local import rabbitmq
from deploy import backup, rotation, swap, upgrade
from deploy.drill import Ground, Report, ground
from tests.chaos.verdict import Files

DRILLS: Mapping[str, Callable[[Ground, Mapping[str, Files]], Report | None]] = {
    "upgrade": upgrade.drill,
    "broker": swap.drill,
    "backup": backup.drill,
    "secrets": rotation.drill,  # the last: it closes the logins that the others use
}
JOBS = 2_000


def main(argv: Sequence[str] | None = None) -> int:
    """0 if nothing was lost, doubled or otherwise wrong."""
    parser = argparse.ArgumentParser(prog="python -m deploy.drills", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(DRILLS)}; all unless given")
    parser.add_argument("--jobs", type=int, default=JOBS, help="at least so many, in each")
    parser.add_argument("--folder", type=Path, help="where servers and logs lie, and stay; else they go")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.names) - set(DRILLS):
        parser.error(f"no drill is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="vqueue-drills-") as folder:
        reports = hold(
            arguments.names or list(DRILLS), arguments.folder or Path(folder) / "ground", arguments.jobs
        )
    return 1 if any(report.problems for report in reports) else 0


def hold(names: Sequence[str], folder: Path, jobs: int) -> list[Report]:
    """These drills, on one set of servers; without one that this clone cannot hold."""
    broker = "rabbitmq" if rabbitmq.installed() else "redis"
    with ground(folder, jobs=jobs, broker=broker, say=say) as place:
        quiet = place.quietly()
        reports = [_told(drill(place, quiet)) for name, drill in DRILLS.items() if name in names]
    return [report for report in reports if report]


def _told(report: Report | None) -> Report | None:
    if report is not None:
        for problem in report.problems:
            say(f"WRONG {report.name}: {problem}")
        say(report.line)
    return report


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
