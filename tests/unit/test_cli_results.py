"""`vqueue results` against an API that comes and goes, and where it finds one."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner, Result

from app.api_client import ApiAway, ApiClient
from app.cli import results
from app.cli.main import app

Serve = Callable[..., str]
AWAY = 503, {"error": {"message": "The database is away."}}
GONE = 404, {"error": {"message": "No batch found."}}


def page(*numbers: int, ended: bool = False) -> tuple[int, object]:
    data = [{"seq": number} for number in numbers]
    return 200, {"data": data, "last_seq": numbers[-1], "has_more": False, "ended": ended}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """An API that gives these answers, one after the other; its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: tuple[int, object]) -> str:
        left = iter(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = next(left, GONE)  # an end to all waiting
                self.send_response(status)
                content = json.dumps(body).encode()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "POLL_S", 0.0)
    for name in ("VQUEUE_URL", "VQUEUE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, *options: str) -> Result:
    environment = {"VQUEUE_URL": url, "VQUEUE_API_KEY": "k"}
    return CliRunner().invoke(app, ["results", "batch_1", *options], env=environment)


def test_following_waits_for_an_api_that_is_away_and_says_so_once(serve: Serve) -> None:
    done = ask(serve(page(1, 2), AWAY, AWAY, page(3, ended=True)), "--follow")
    assert done.exit_code == 0
    assert done.stdout == '{"seq":1}\n{"seq":2}\n{"seq":3}\n'
    assert done.stderr.count("waiting") == 1
    assert "The database is away." in done.stderr


def test_what_ends_it_says_where_to_go_on(serve: Serve) -> None:
    done = ask(serve(page(1, 2), AWAY, GONE), "--follow")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "go on with --after 2")


@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_an_api_that_never_answered_is_not_waited_for(serve: Serve, options: tuple[str, ...]) -> None:
    assert ask(serve(AWAY), *options).exit_code == 1


def test_an_api_that_is_not_there_is_said_so_in_plain_words() -> None:
    with closing(ApiClient("http://127.0.0.1:1/v1", "k")) as api, pytest.raises(ApiAway) as refused:
        api.models()
    assert str(refused.value) == "http://127.0.0.1:1/v1 does not answer: [Errno 111] Connection refused"


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
