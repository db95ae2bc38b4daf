"""`vqueue results` against an API that comes and goes, and where it finds one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import results
from app.cli.main import app
from tests.answering import Api, Reply, reply

Serve = Callable[..., str]
AWAY = reply(503, {"error": {"message": "The database is away."}}, **{"Retry-After": "0"})


def page(*numbers: int, ended: bool = False) -> Reply:
    data = [{"seq": number} for number in numbers]
    return reply(200, {"data": data, "last_seq": numbers[-1], "has_more": False, "ended": ended})


@pytest.fixture
def serve() -> Iterator[Serve]:
    """An API that gives these answers, one after the other; its URL. An end to all waiting comes last."""
    with Api() as api:

        def start(*answers: Reply) -> str:
            api.answers(*answers)
            return api.url

        yield start


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "POLL_S", 0.0)
    for name in ("VQUEUE_URL", "VQUEUE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, *options: str) -> Result:
    environment = {"VQUEUE_URL": url, "VQUEUE_API_KEY": "k"}
    return CliRunner().invoke(app, ["results", "batch_1", *options], env=environment)


def test_following_waits_for_an_api_that_is_away_and_says_so_once(serve: Serve) -> None:
    done = ask(serve(page(1, 2), *[AWAY] * 8, page(3, ended=True)), "--follow")
    assert done.exit_code == 0
    assert done.stdout == '{"seq":1}\n{"seq":2}\n{"seq":3}\n'
    assert done.stderr.count("waiting") == 1
    assert "The database is away." in done.stderr


def test_what_ends_it_says_where_to_go_on(serve: Serve) -> None:
    done = ask(serve(page(1, 2), *[AWAY] * 4), "--follow")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "go on with --after 2")


@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_an_api_that_never_answered_is_not_waited_for(serve: Serve, options: tuple[str, ...]) -> None:
    assert ask(serve(*[AWAY] * 4), *options).exit_code == 1


def test_without_variables_the_data_folder_says_where_the_api_is(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "api-url").write_text(serve(page(1, ended=True)))
    (tmp_path / "api-key").write_text("k")
    done = CliRunner().invoke(app, ["results", "batch_1", "--data", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, '{"seq":1}\n')


@pytest.mark.parametrize("given", [{}, {"VQUEUE_URL": "http://a/v1"}, {"VQUEUE_API_KEY": "k"}])
def test_half_an_address_is_none(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if given:
        (tmp_path / ".vqueue").mkdir()
        (tmp_path / ".vqueue" / "api-key").write_text("k")
    done = CliRunner().invoke(app, ["results", "batch_1"], env=given)
    assert (done.exit_code, "VQUEUE_" in done.stderr) == (2, True)


def test_a_batch_whose_file_did_not_pass_is_told_with_its_reasons(serve: Serve) -> None:
    nothing = {"data": [], "last_seq": 0, "has_more": False, "ended": True}
    error = {"code": "invalid_json", "message": "No JSON.", "line": 3, "param": "body"}
    batch = {"id": "batch_1", "status": "failed", "errors": {"data": [error]}}
    done = ask(serve(reply(200, nothing), reply(200, batch)), "--follow")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "line 3, body: invalid_json: No JSON." in done.stderr
