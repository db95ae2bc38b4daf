"""Starts `vqueue up` for the demo, waits until it answers, and stops it again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from openai import OpenAI

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "demo"
START_S = 180.0
STOP_S = 90.0


class NotStarted(Exception):
    """`vqueue up` ended or did not answer in time; the text is the end of its output."""


@dataclass(frozen=True)
class System:
    """A running vqueue: where it answers, and by which key."""

    url: str
    key: str
    data: Path

    def client(self) -> OpenAI:
        return OpenAI(base_url=self.url, api_key=self.key)


@contextmanager
def running(data: Path, *, variables: Mapping[str, str]) -> Iterator[System]:
    """`vqueue up` with its data in a folder, stopped cleanly when the block ends.

    `variables` are the settings that it needs besides those in the environment.
    """
    data.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [sys.executable, "-m", "app.cli.main", "up", "--data", str(data), "--port", str(port)]
    environment = {"VQUEUE_MODEL": str(MODEL), **os.environ, **variables}
    log = data / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=ROOT)
    try:
        yield _await(process, f"http://127.0.0.1:{port}/v1", data, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", url: str, data: Path, log: Path) -> System:
    until = time.monotonic() + START_S
    while b"vqueue is up" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            raise NotStarted(log.read_text(errors="replace")[-2000:])
        time.sleep(0.1)
    return System(url, (data / "api-key").read_text().strip(), data)


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
