"""The API as a process of its own: its memory under a large upload, its logs, and its end."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from app.config import Settings
from app.local.probes import http_status
from tests.processes import Process, free_port
from tests.waiting import eventually

MB = 10**6
HEAD = b'--X\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
TAIL = b'\r\n--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X--\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=X"}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def api(settings: Settings, port: int, tmp_path: Path) -> Iterator[Process]:
    chosen = settings.model_copy(update={"port": port})
    with Process("app.main", chosen, tmp_path / "api.log") as process:
        eventually(lambda: http_status(f"http://127.0.0.1:{port}/healthz") == 200, within_s=40)
        yield process


@pytest.fixture
def http(api: Process, port: int, api_key: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as http:
        yield http


def form(megabytes: int) -> Iterator[bytes]:
    """A form with an upload of so many megabytes, made as it is sent."""
    yield HEAD
    for _ in range(megabytes):
        yield os.urandom(MB)
    yield TAIL


def peak_memory(process: Process) -> int:
    """The most bytes that the process ever had in memory."""
    status = Path(f"/proc/{process._popen.pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


def send_and_read_back(http: httpx.Client, megabytes: int) -> None:
    file = http.post("/v1/files", content=form(megabytes), headers=FORM).raise_for_status().json()
    with http.stream("GET", f"/v1/files/{file['id']}/content") as content:
        assert sum(len(block) for block in content.iter_bytes()) == megabytes * MB


def test_memory_does_not_grow_with_an_upload(api: Process, http: httpx.Client) -> None:
    send_and_read_back(http, 40)
    before = peak_memory(api)
    send_and_read_back(http, 200)
    # What threads and the allocator keep varies by some 20 MB between runs.
    assert peak_memory(api) - before < 60 * MB


def test_nothing_of_a_request_but_its_route_is_logged(api: Process, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"question": "SECRET-Q", "image": "https://a.example/?sig=SECRET-S"})
    http.get("/v1/batches?after=SECRET-A")
    http.get("/SECRET-P")
    eventually(lambda: api.output().count('"event": "request"') >= 3)
    assert "SECRET" not in api.output()
    assert '"route": "/v1/jobs"' in api.output()


def test_a_stop_lets_a_running_upload_end(api: Process, http: httpx.Client) -> None:
    sent, stopped = Event(), Event()

    def slowly() -> Iterator[bytes]:
        yield HEAD + b"x" * MB
        sent.set()
        stopped.wait(20)
        yield TAIL

    answers: list[httpx.Response] = []
    upload = Thread(
        target=lambda: answers.append(http.post("/v1/files", content=slowly(), headers=FORM)), daemon=True
    )
    upload.start()
    sent.wait(20)
    api.send_stop()
    eventually(lambda: not accepts(http))
    stopped.set()
    upload.join(20)
    assert answers[0].status_code == 200
    assert api.ended() == 0


def accepts(http: httpx.Client) -> bool:
    """Whether the server takes new connections."""
    try:
        httpx.get(f"{http.base_url}/healthz")
    except httpx.TransportError:  # also one that was taken in the moment of the end, and reset
        return False
    return True
