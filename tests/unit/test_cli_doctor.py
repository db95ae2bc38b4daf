"""`vqueue doctor` where only a client is set up."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app
from tests.answering import Api, Reply, reply

MODELS = reply(200, {"data": [{"id": "demo"}]})


def ask(answer: Reply, **by_path: Reply) -> Result:
    """The doctor's findings, of an API that answers this, and else as its paths say."""
    with Api(lambda sent: by_path.get(sent.path.rpartition("/")[2], answer)) as api:
        return CliRunner().invoke(app, ["doctor"], env={"VQUEUE_URL": api.url, "VQUEUE_API_KEY": "k"})


def test_a_client_s_api_and_key_are_looked_at() -> None:
    done = ask(MODELS)
    assert (done.exit_code, [line.split()[:2] for line in done.stdout.splitlines()]) == (
        0,
        [["ok", "settings"], ["ok", "api:"], ["ok", "key:"], ["ok", "models:"]],
    )


def test_a_key_that_opens_nothing_is_told_with_what_to_do() -> None:
    done = ask(reply(401, {"error": {"message": "Incorrect API key provided."}}))
    assert done.exit_code == 1
    assert "WRONG  key: Incorrect API key provided.\n       -> make one: `vqueue keys create" in done.stdout


def test_where_nothing_is_set_up_it_says_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("VQUEUE_URL", "VQUEUE_API_KEY", "VQUEUE_DATABASE_URL", "VQUEUE_S3_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(app, ["doctor"])
    assert (done.exit_code, "no key of a `vqueue up`" in done.stdout) == (1, True)


def test_what_the_api_says_of_its_servers_is_told() -> None:
    frozen = "no answer within 3 seconds"
    checks = {"database": "ok", "broker": frozen, "workers": "no live worker serves demo"}
    done = ask(MODELS, readyz=reply(503, {"status": "ok", "checks": checks}))
    assert "ok     api's database: ok" in done.stdout
    assert f"WRONG  api's broker: {frozen}\n       -> on the API's machine: " in done.stdout
    assert "look   api's workers: no live worker serves demo" in done.stdout
    assert done.exit_code == 1


def test_the_scopes_of_a_key_are_told_and_what_they_do_not_allow() -> None:
    done = ask(MODELS, key=reply(200, {"id": "key_1", "scopes": ["read", "chat"]}))
    assert "look   key: opens it, with the scopes read, chat; not allowed: write (" in done.stdout
    assert "--scope read --scope write" in done.stdout
    done = ask(MODELS, key=reply(200, {"id": "key_1", "scopes": ["*"]}))
    assert "ok     key: opens it, with the scopes *\n" in done.stdout
