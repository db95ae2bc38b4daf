"""`vqueue doctor` where only a client is set up."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app
from tests.answering import Api, Reply, reply


def ask(answer: Reply) -> Result:
    with Api(lambda _: answer) as api:
        return CliRunner().invoke(app, ["doctor"], env={"VQUEUE_URL": api.url, "VQUEUE_API_KEY": "k"})


def test_a_client_s_api_and_key_are_looked_at() -> None:
    done = ask(reply(200, {"data": [{"id": "demo"}]}))
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
