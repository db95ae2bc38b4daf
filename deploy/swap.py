"""Changes the broker while jobs wait and run, and changes it back while every process goes on."""

from collections.abc import Mapping, Sequence

from pydantic import SecretStr
from sqlalchemy import make_url

from app.config import Settings
from deploy.drill import Drill, Ground, Report, Step
from deploy.fleet import ORDER, Fleet, Version, names
from deploy.trees import NEW
from tests.chaos.verdict import Files

TAKE_PART = names(("worker", "dispatcher"))  # whoever knows the broker; the API only tells of it


def drill(place: Ground, quiet: Mapping[str, Files]) -> Report:
    """Away by stopping and starting, where a worker of the old broker comes later; back one by one."""
    first = place.version(NEW, "broker")
    redis = make_url(place.servers.redis_url).set(database="0").render_as_string(hide_password=False)
    second = Version(NEW, _over(first.settings, redis))
    held = Drill(place, "broker", first)

    def change() -> None:
        held.fleet.stop(TAKE_PART)
        left = held.books.one("SELECT count(*) FROM jobs WHERE state = 'queued'")
        place.say(f"          {left} jobs are on the broker that nobody asks any more")
        held.fleet.start(second, TAKE_PART)

    steps: list[Step] = [
        ("workers and dispatchers are on the other broker", change),
        ("a worker has come back on the old broker", lambda: held.fleet.start(first, ["worker-3"])),
        ("it has stopped", lambda: held.fleet.stop(["worker-3"])),
        *_back(held.fleet, first),
    ]
    return held.go(steps, quiet)


def _back(fleet: Fleet, version: Version) -> Sequence[Step]:
    return [(f"back: {told}", act) for told, act in fleet.rolling(version, ORDER)]


def _over(settings: Settings, broker_url: str) -> Settings:
    return settings.model_copy(update={"broker_url": SecretStr(broker_url)})
