"""One child process on a leash: it dies with its parent, and stops within a bound."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG_MAX_BYTES = 20 * 2**20  # a larger log is set aside (as NAME.log.1) when its program starts
TAIL_BYTES = 2_000
ERROR_BYTES = 20_000  # how much of a log is searched for its last error
ERROR_CHARACTERS = 400  # how much of that is shown
POLL_S = 0.05
ERROR_WORD = re.compile(r"(Error|Exception)\b|\b(?i:error|fatal|panic)\b")


def _ready_at_once() -> bool:
    return True


def _nothing() -> None:
    return


@dataclass(frozen=True)
class Program:
    """What to run, and how it is asked to stop. `env` is the whole environment."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path | None = None
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_within_s: float = 10.0
    # What the kernel sends when the parent dies. Nobody is left then to kill what hangs on a gentler signal.
    orphan_signal: signal.Signals = signal.SIGKILL
    is_ready: Callable[[], bool] = _ready_at_once
    ready_within_s: float = 60.0
    # The exit code that says that another start would end the same way.
    final_code: int | None = None
    tidy: Callable[[], None] = _nothing  # removes what it leaves outside its folder, once it has ended


class Process:
    """A running program. Its log is appended to; `keep_fd` stays open in it (the folder's lock)."""

    def __init__(self, program: Program, *, log: Path, keep_fd: int = -1) -> None:
        self.program = program
        self.log = log
        _set_aside(log)
        with log.open("ab") as output:
            self._log_start = output.tell()
            # A session of its own keeps a terminal's Ctrl-C for the supervisor, which stops things in order.
            self._popen = subprocess.Popen(
                [*_leash(program), *program.command],
                env=dict(program.env),
                cwd=program.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(keep_fd,) if keep_fd >= 0 else (),
            )
        self.pid = self._popen.pid

    def exit_code(self) -> int | None:
        return self._popen.poll()

    def ask_to_stop(self) -> None:
        if self.exit_code() is None:
            self._popen.send_signal(self.program.stop_signal)

    def wait(self, within_s: float) -> bool:
        """Whether it has ended within the bound."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(within_s, 0.0))
        return self.exit_code() is not None

    def kill(self) -> None:
        """End it and everything it started, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self.program.tidy()

    def tail(self) -> str:
        """The end of its log, for an error message."""
        return self._end_of_log(TAIL_BYTES)

    def last_error(self) -> str:
        """The last line of its own log that tells of an error; empty where none does."""
        return last_error(self._end_of_log(ERROR_BYTES))

    def _end_of_log(self, size: int) -> str:
        """At most so many bytes, and nothing of earlier runs."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - size))
            return log.read().decode(errors="replace").strip()


def last_error(log: str) -> str:
    """The last line of a log that tells of an error: an event of ours at that level, or a plain line."""
    told = (_error_in(line) for line in reversed(log.splitlines()))
    return next((line[:ERROR_CHARACTERS] for line in told if line), "")


def _error_in(line: str) -> str:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        return line.strip() if ERROR_WORD.search(line) else ""
    if event.get("level") not in ("error", "critical"):
        return ""
    trace = str(event.get("exception", "")).strip().splitlines()
    said = [event.get("event"), event.get("code"), event.get("reason"), *trace[-1:]]
    return ": ".join(str(part) for part in said if part)


def _leash(program: Program) -> list[str]:
    """util-linux's setpriv: the kernel's parent-death signal, and another user where one is asked for."""
    leash = ["setpriv", "--pdeathsig", program.orphan_signal.name.removeprefix("SIG")]
    if program.user is not None:
        leash += ["--reuid", program.user, "--regid", program.user, "--clear-groups"]
    return [*leash, "--"]


def _set_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_MAX_BYTES:
        log.rename(log.with_suffix(".log.1"))
