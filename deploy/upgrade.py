"""Upgrades the processes of an older version one by one while jobs run, and takes them back again.

`python -m deploy.upgrade` is the drill; docs/upgrades.md has the same steps for people.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from app.local import rabbitmq
from deploy.drill import Drill, Report, Say, Step, ground
from deploy.fleet import ORDER
from deploy.trees import NEW, OLDEST, old_tree

JOBS = 5_000


def check(folder: Path, *, jobs: int = JOBS, say: Say = print) -> Report | None:
    """The drill with all its data in the folder; None where this clone lacks the commit that is upgraded."""
    with ground(folder, jobs=jobs, broker="rabbitmq" if rabbitmq.installed() else "redis", say=say) as place:
        tree = old_tree(folder / "old")
        if tree is None:
            say(f"upgrade: na (this clone has no commit {OLDEST}: git fetch --unshallow)")
            return None
        say(f"from schema {tree.newest_revision()} ({OLDEST[:7]}) to {NEW.newest_revision()}, {jobs} jobs")
        quiet = place.quietly()
        old, new = place.version(tree, "upgrade"), place.version(NEW, "upgrade")
        drill = Drill(place, "upgrade", old)
        migrate: Step = ("the schema is new now", lambda: say(NEW.command(new.settings, "migrate").strip()))
        steps = [
            migrate,
            *drill.fleet.rolling(new, ORDER),
            *drill.fleet.rolling(old, reversed(ORDER)),
        ]
        return drill.go(steps, quiet)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.upgrade", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--folder", type=Path, help="where servers and logs lie, and stay; else they go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vqueue-upgrade-") as folder:
        report = check(arguments.folder or Path(folder) / "ground", jobs=arguments.jobs)
    if report is None:
        return 0
    for problem in report.problems:
        print(f"WRONG {problem}")
    print(report.line)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
