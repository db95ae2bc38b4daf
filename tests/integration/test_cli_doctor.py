"""`vqueue doctor` against real servers, and against ones that are not there."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner, Result

from app import doctor
from app.cli.main import app
from app.config import Settings
from tests.cutting import Cutting, cutting
from tests.processes import environment

AWAY = {
    "VQUEUE_DATABASE_URL": "postgresql://a:secret@127.0.0.1:1/x",
    "VQUEUE_BROKER_URL": "redis://127.0.0.1:1/0",
    "VQUEUE_REDIS_URL": "redis://127.0.0.1:1/1",
    "VQUEUE_S3_ENDPOINT_URL": "http://127.0.0.1:1",
    "VQUEUE_S3_ACCESS_KEY_ID": "a",
    "VQUEUE_S3_SECRET_ACCESS_KEY": "secret",
    "VQUEUE_URL": "http://127.0.0.1:1/v1",
    "VQUEUE_API_KEY": "secret",
}


def ask(given: dict[str, str]) -> Result:
    return CliRunner().invoke(app, ["doctor"], env=given)


def lines(done: Result) -> dict[str, str]:
    """The mark of each thing that was looked at."""
    marked = [line.split(maxsplit=1) for line in done.stdout.splitlines() if "->" not in line]
    return {name.partition(":")[0]: mark for mark, name in marked}


@pytest.fixture
def given(settings: Settings) -> dict[str, str]:
    return {name: value for name, value in environment(settings).items() if name.startswith("VQUEUE_")}


def test_servers_that_are_there_are_fine(given: dict[str, str]) -> None:
    found = lines(ask(given))
    fine = ("settings", "database", "object_store", "broker", "bucket", "redis", "guard")
    assert {name: found[name] for name in fine} == dict.fromkeys(fine, "ok")
    assert found["workers"] == "look"


def test_each_server_that_is_away_has_its_remedy_and_no_password_is_told() -> None:
    done = ask(AWAY)
    found = lines(done)
    missing = ("database", "object_store", "broker", "redis", "api")
    assert {name: found[name] for name in missing} == dict.fromkeys(missing, "WRONG")
    assert done.exit_code == 1
    assert done.stdout.count("->") >= len(missing)
    assert "grant" not in done.stdout, "the rights in a bucket that cannot be asked are not the trouble"
    assert "secret" not in done.stdout


def test_a_guard_that_lets_the_metadata_of_a_cloud_pass_is_wrong(given: dict[str, str]) -> None:
    found = ask({**given, "VQUEUE_FETCH_ALLOW_HOSTS": "169.254.169.254"})
    assert lines(found)["guard"] == "WRONG"


@pytest.fixture
def way(request: pytest.FixtureRequest, given: dict[str, str]) -> Iterator[tuple[Cutting, dict[str, str]]]:
    """A way to the server that a setting names, which lets nothing pass; and the settings with it."""
    target = urlsplit(given[request.param])
    with cutting(f"http://{target.hostname}:{target.port}") as proxy:
        proxy.freeze()
        there = f"{target.hostname}:{target.port}"
        yield proxy, {**given, request.param: given[request.param].replace(there, urlsplit(proxy.url).netloc)}
        proxy.thaw()


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("VQUEUE_DATABASE_URL", "database"),
        ("VQUEUE_BROKER_URL", "broker"),
        ("VQUEUE_REDIS_URL", "redis"),
        ("VQUEUE_S3_ENDPOINT_URL", "object_store"),
    ],
    indirect=["way"],
)
def test_a_frozen_server_is_wrong_and_holds_nothing_up(
    way: tuple[Cutting, dict[str, str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LOOK_S", 0.5)
    done = ask(way[1])
    assert (done.exit_code, f"WRONG  {name}: no answer within 0.5 seconds" in done.stdout) == (1, True)
    assert "guard" in lines(done)
