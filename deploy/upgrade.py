"""Upgrades the processes of an older version one by one while jobs run, and takes them back again.

`python -m deploy.drills upgrade` holds the drill; docs/upgrades.md has the same steps for people.
"""

from collections.abc import Mapping
from pathlib import Path

from app.local import rabbitmq
from deploy.drill import Drill, Ground, Report, Say, Step, ground
from deploy.fleet import ORDER, names
from deploy.trees import NEW, OLDEST, old_tree
from tests.chaos.verdict import Files

JOBS = 5_000


def check(folder: Path, *, jobs: int = JOBS, say: Say = print) -> Report | None:
    """The drill, with servers of its own in the folder; None where this clone lacks what is upgraded."""
    broker = "rabbitmq" if rabbitmq.installed() else "redis"
    with ground(folder, jobs=jobs, broker=broker, say=say) as place:
        return drill(place, place.quietly())


def drill(place: Ground, quiet: Mapping[str, Files]) -> Report | None:
    """The schema first, then whoever answers before whoever asks; and the other way round."""
    tree = old_tree(place.data.path / "old")
    if tree is None:
        place.say(f"upgrade: na (this clone has no commit {OLDEST}: git fetch --unshallow)")
        return None
    place.say(f"upgrade: schema {tree.newest_revision()} ({OLDEST[:7]}) to {NEW.newest_revision()}")
    old, new = place.version(tree, "upgrade"), place.version(NEW, "upgrade")
    held = Drill(place, "upgrade", old)
    migrate: Step = ("the schema is new now", lambda: place.say(NEW.command(new.settings, "migrate").strip()))
    there = held.fleet.rolling(new, names(), "is new now")
    back = held.fleet.rolling(old, names(reversed(ORDER)), "is old again")
    return held.go([migrate, *there, *back], quiet)
