"""Starts vqueue's own processes for tests, with settings handed over as environment variables."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from socket import socket
from types import TracebackType
from typing import Self

from pydantic import SecretStr

from app.config import Settings


def environment(settings: Settings) -> dict[str, str]:
    """The `VQUEUE_*` variables that make a process read these settings."""
    given: dict[str, str] = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, Mapping):
            value = tuple(f"{key}={value[key]}" for key in value)
        if isinstance(value, tuple):
            value = ",".join(str(part) for part in value)
        if value is not None:
            given[f"VQUEUE_{name.upper()}"] = str(value)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VQUEUE_")}
    return {**kept, **given, "PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One child process; its output goes to a file, and it is gone when the block ends."""

    def __init__(self, module: str, settings: Settings, log: Path, **variables: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module],
                env={**environment(settings), **variables},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"--- {self.log.name}\n{self.output()[-4000:]}")

    @property
    def pid(self) -> int:
        return self._popen.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, event: str) -> bool:
        return f'"{event}"' in self.output()

    def running(self) -> bool:
        return self._popen.poll() is None

    def stopped(self) -> bool:
        """Whether it is paused."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def terminate(self, within_s: float = 30) -> int:
        """SIGTERM, and the exit code."""
        self.send_stop()
        return self.ended(within_s)

    def send_stop(self) -> None:
        self._popen.send_signal(signal.SIGTERM)

    def ended(self, within_s: float = 30) -> int:
        """Wait for the end, and the exit code."""
        return self._popen.wait(within_s)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def pause(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._popen.send_signal(signal.SIGCONT)
