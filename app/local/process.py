"""One child process on a leash: it dies with its parent, and stops within a bound."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG_MAX_BYTES = 20 * 2**20  # a larger log is set aside (as NAME.log.1) when its program starts
TAIL_BYTES = 2_000
POLL_S = 0.05


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
    tidy: Callable[[], None] = _nothing  # removes what it leaves outside its folder, once it has ended


class Process:
    """A running program. Its log is appended to; `keep_fd` stays open in it (the folder's lock)."""

    def __init__(self, program: Program, *, log: Path, keep_fd: int = -1) -> None:
        self.program = program
        self.log = log
        _set_aside(log)
        with log.open("ab") as output:
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
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace").strip()


def _leash(program: Program) -> list[str]:
    """util-linux's setpriv: the kernel's parent-death signal, and another user where one is asked for."""
    leash = ["setpriv", "--pdeathsig", program.orphan_signal.name.removeprefix("SIG")]
    if program.user is not None:
        leash += ["--reuid", program.user, "--regid", program.user, "--clear-groups"]
    return [*leash, "--"]


def _set_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_MAX_BYTES:
        log.rename(log.with_suffix(".log.1"))
