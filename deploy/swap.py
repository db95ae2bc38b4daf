"""Changes the broker while jobs wait and run, and changes it back while every process goes on."""

from collections.abc import Mapping

from pydantic import SecretStr
from sqlalchemy import make_url

from app.config import Settings
from deploy.drill import Drill, Ground, Report, Step
from deploy.fleet import Version, names
from deploy.trees import NEW
from tests.chaos.verdict import Files
from tests.waiting import eventually

WAITING = "SELECT count(*) FROM jobs WHERE state = 'queued'"
WAIT_S = 60.0
# On either broker there is always somebody who sends and somebody who takes.
ONE_BY_ONE = ("worker-1", "dispatcher-1", "worker-2", "dispatcher-2")
TAKE_PART = names(("worker", "dispatcher"))  # whoever knows the broker; the API only tells of it


def drill(place: Ground, quiet: Mapping[str, Files]) -> Report:
    """Away by stopping and starting, where a worker of the old broker comes later; back one by one."""
    first = place.version(NEW, "broker")
    redis = make_url(place.servers.redis_url).set(database="0").render_as_string(hide_password=False)
    second = Version(NEW, _over(first.settings, redis))
    held = Drill(place, "broker", first)

    def change() -> None:
        held.fleet.stop(names(["worker"]))
        waiting = eventually(lambda: held.books.one(WAITING), within_s=WAIT_S)
        held.fleet.stop(names(["dispatcher"]))
        place.say(f"          {waiting} jobs or more are on the broker that nobody asks any more")
        held.fleet.start(second, TAKE_PART)

    steps: list[Step] = [
        ("workers and dispatchers are on the other broker", change),
        ("a worker has come back on the old broker", lambda: held.fleet.start(first, ["worker-3"])),
        ("it has stopped", lambda: held.fleet.stop(["worker-3"])),
        *held.fleet.rolling(first, ONE_BY_ONE, "is back"),
    ]
    return held.go(steps, quiet)


def _over(settings: Settings, broker_url: str) -> Settings:
    return settings.model_copy(update={"broker_url": SecretStr(broker_url)})
