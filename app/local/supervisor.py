"""The supervisor: starts programs stage by stage, restarts those that die, stops all in reverse order."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from app.local.process import POLL_S, Process, Program

BACKOFF_FIRST_S = 0.5
BACKOFF_LAST_S = 30.0
STEADY_S = 60.0  # a program that ran this long starts its backoff anew


class StartFailed(Exception):
    """A program did not get ready, or said that it never will; the message ends with its log's end."""


class Interrupted(Exception):
    """Asked to stop while still starting."""


@dataclass
class _Child:
    process: Process
    started_at: float
    failures: int = 0
    restart_at: float | None = None


def backoff_s(failures: int) -> float:
    """How long to wait before the start that follows the `failures`-th death in a row."""
    return min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 10))


class Supervisor:
    """Owns child processes. `clock` (seconds) times the restarts.

    Use it from one thread that outlives the children: the kernel's parent-death signal follows the thread
    that started a child.
    """

    def __init__(
        self,
        *,
        logs: Path,
        say: Callable[[str], None],
        keep_fd: int = -1,
        stopping: Event | None = None,
        hurry: Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logs = logs
        self._say = say
        self._keep_fd = keep_fd
        self._stopping = stopping or Event()
        self._hurry = hurry or Event()
        self._clock = clock
        self._stages: list[list[_Child]] = []
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, *programs: Program) -> None:
        """Start the programs as one stage and wait until each is ready."""
        if self._stopping.is_set():
            raise Interrupted
        stage: list[_Child] = []
        self._stages.append(stage)
        for program in programs:
            stage.append(_Child(self._launch(program), self._clock()))
        for child in stage:
            self._wait_ready(child)

    def pid(self, name: str) -> int:
        """The process that runs under this name now."""
        return next(child.process.pid for child in self._children() if child.process.program.name == name)

    def run(self) -> None:
        """Step until asked to stop. Does not stop the children: call `stop` then, in a `finally`."""
        while not self._stopping.wait(POLL_S * 4):
            self.step()

    def step(self) -> None:
        """Look at every child once; note the dead, restart those whose wait is over.

        Raises StartFailed when one has ended with its final code.
        """
        for child in self._children():
            if child.restart_at is not None:
                if self._clock() >= child.restart_at:
                    self._restart(child)
            elif (code := child.process.exit_code()) is not None:
                self._note_death(child, code)

    def stop(self) -> None:
        """Stop all, last stage first; what does not go within its bound is killed. Harmless when repeated."""
        while self._stages:
            self._stop_stage(self._stages[-1])
            self._stages.pop()

    def _children(self) -> list[_Child]:
        return [child for stage in self._stages for child in stage]

    def _launch(self, program: Program) -> Process:
        return Process(program, log=self._logs / f"{program.name}.log", keep_fd=self._keep_fd)

    def _wait_ready(self, child: _Child) -> None:
        program = child.process.program
        until = time.monotonic() + program.ready_within_s
        while not program.is_ready():
            if self._stopping.is_set():
                raise Interrupted
            if child.process.exit_code() is not None or time.monotonic() > until:
                raise StartFailed(f"{program.name} did not start:\n{child.process.tail()}")
            time.sleep(POLL_S)

    def _note_death(self, child: _Child, code: int) -> None:
        # What it had started itself goes too, before a second one begins.
        child.process.kill()
        program, lasted = child.process.program, self._clock() - child.started_at
        how = f"{program.name} ended ({_how(code)}) after {lasted:.0f} s"
        where = f"  {child.process.log}: {child.process.last_error() or 'no error in it'}"
        if code == program.final_code:
            raise StartFailed(f"{how}, and would again\n{where}")
        child.failures = 1 if lasted >= STEADY_S else child.failures + 1
        wait_s = backoff_s(child.failures)
        child.restart_at = self._clock() + wait_s
        self._say(f"{how}; starting it again in {wait_s:g} s\n{where}")

    def _restart(self, child: _Child) -> None:
        child.process = self._launch(child.process.program)
        child.started_at = self._clock()
        child.restart_at = None

    def _stop_stage(self, stage: list[_Child]) -> None:
        for child in stage:
            child.process.ask_to_stop()
        asked_at = time.monotonic()
        for child in stage:
            until = asked_at + child.process.program.stop_within_s
            while time.monotonic() < until and not self._hurry.is_set():
                if child.process.wait(POLL_S):
                    break
            if child.process.exit_code() is None:
                self._say(f"{child.process.program.name} did not stop in time and is killed")
            child.process.kill()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
