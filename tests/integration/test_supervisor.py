"""The supervisor, with small stand-in programs."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import psutil
import pytest

from app.local.process import Program
from app.local.supervisor import Interrupted, StartFailed, Supervisor, backoff_s
from tests.waiting import eventually

SAY_GOODBYE = """
import signal, sys, time
def goodbye(*_):
    open(sys.argv[2], "a").write(sys.argv[1] + "\\n")
    sys.exit()
signal.signal(signal.SIGTERM, goodbye)
print("ready", flush=True)
time.sleep(1000)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""
WITH_CHILD = """
import subprocess, sys, time
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
time.sleep(1000)
"""
SUPERVISE = """
import sys
from pathlib import Path
from app.local.process import Program
from app.local.supervisor import Supervisor
supervisor = Supervisor(logs=Path(sys.argv[1]), say=print)
supervisor.start(Program("sleeper", ("sleep", "1000")), Program("another", ("sleep", "1000")))
print(supervisor.pid("sleeper"), supervisor.pid("another"), flush=True)
supervisor.run()
"""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A supervisor at work in a folder, its clock and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.said: list[str] = []
        self.stopping = Event()
        self.hurry = Event()
        self.supervisor = Supervisor(
            logs=folder, say=self.said.append, clock=self.clock, stopping=self.stopping, hurry=self.hurry
        )

    def python(self, name: str, code: str, *arguments: str, stop_within_s: float = 10.0) -> Program:
        """A stand-in that is ready once it has printed something."""
        log = self.folder / f"{name}.log"
        return Program(
            name,
            (sys.executable, "-c", code, *arguments),
            stop_within_s=stop_within_s,
            is_ready=lambda: log.stat().st_size > 0,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.hurry.set()
    stage.supervisor.stop()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_program_that_dies_is_started_again_after_a_pause(stage: Stage) -> None:
    stage.supervisor.start(Program("sleeper", ("sleep", "1000")))
    first = stage.supervisor.pid("sleeper")
    psutil.Process(first).kill()
    eventually(lambda: stage.supervisor.step() or stage.said)
    assert stage.said == [
        "sleeper ended (signal 9) after 0 s; starting it again in 0.5 s\n"
        f"  {stage.folder}/sleeper.log: no error in it"
    ]
    stage.supervisor.step()
    assert not is_running(stage.supervisor.pid("sleeper"))
    stage.clock.now += 0.5
    stage.supervisor.step()
    assert is_running(stage.supervisor.pid("sleeper"))


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    assert [backoff_s(failures) for failures in (1, 2, 3, 7, 100)] == [0.5, 1, 2, 30, 30]


def test_a_program_that_ran_for_long_is_started_again_with_the_first_pause(stage: Stage) -> None:
    stage.supervisor.start(Program("brief", ("sleep", "0")))
    for pause_s in (0.5, 1.0, 2.0):
        eventually(lambda: stage.supervisor.step() or stage.said)
        assert f"again in {pause_s:g} s\n" in stage.said.pop()
        stage.clock.now += pause_s
        stage.supervisor.step()
    stage.clock.now += 60
    eventually(lambda: stage.supervisor.step() or stage.said)
    assert stage.said.pop().startswith("brief ended (exit code 0) after 60 s; starting it again in 0.5 s\n")


def test_the_error_of_a_program_that_died_is_shown_and_none_of_an_earlier_run(stage: Stage) -> None:
    stage.supervisor.start(Program("broken", ("sh", "-c", "echo ValueError: no; echo bye; exit 3")))
    eventually(lambda: stage.supervisor.step() or stage.said)
    assert stage.said.pop().endswith(f"\n  {stage.folder}/broken.log: ValueError: no")
    (stage.folder / "brief.log").write_text("Error: long ago\n")
    stage.supervisor.start(Program("brief", ("sleep", "0")))
    eventually(lambda: stage.supervisor.step() or stage.said)
    assert stage.said.pop().endswith("/brief.log: no error in it")


def test_a_program_that_says_that_it_never_will_run_is_not_started_again(stage: Stage) -> None:
    program = Program("broken", ("sh", "-c", "echo fatal: no model; exit 78"), final_code=78)
    stage.supervisor.start(program)
    with pytest.raises(StartFailed, match=r"broken ended \(exit code 78\).*\n.*broken.log: fatal: no model"):
        eventually(lambda: stage.supervisor.step())
    assert stage.said == []


def test_programs_stop_in_reverse_order(stage: Stage, tmp_path: Path) -> None:
    goodbyes = tmp_path / "goodbyes"
    for name in ("servers", "worker", "api"):
        stage.supervisor.start(stage.python(name, SAY_GOODBYE, name, str(goodbyes)))
    stage.supervisor.stop()
    assert goodbyes.read_text().split() == ["api", "worker", "servers"]
    assert stage.said == []


def test_a_program_that_will_not_stop_is_killed_within_its_bound(stage: Stage) -> None:
    stage.supervisor.start(stage.python("deaf", DEAF, stop_within_s=0.3))
    pid = stage.supervisor.pid("deaf")
    stage.supervisor.stop()
    assert not is_running(pid)
    assert stage.said == ["deaf did not stop in time and is killed"]


def test_being_asked_again_kills_at_once(stage: Stage) -> None:
    stage.supervisor.start(stage.python("deaf", DEAF, stop_within_s=1000))
    pid = stage.supervisor.pid("deaf")
    stage.hurry.set()
    stage.supervisor.stop()
    assert not is_running(pid)


def test_what_a_program_started_goes_with_it(stage: Stage, tmp_path: Path) -> None:
    stage.supervisor.start(stage.python("parent", WITH_CHILD))
    child = int((tmp_path / "parent.log").read_text())
    stage.supervisor.stop()
    eventually(lambda: not is_running(child))


def test_a_program_that_ends_instead_of_getting_ready_fails_the_start_with_its_log(stage: Stage) -> None:
    program = Program("broken", ("sh", "-c", "echo no such port; exit 3"), is_ready=lambda: False)
    with pytest.raises(StartFailed, match="broken did not start:\nno such port"):
        stage.supervisor.start(program)


def test_a_program_that_never_gets_ready_fails_the_start(stage: Stage) -> None:
    program = Program("silent", ("sleep", "1000"), is_ready=lambda: False, ready_within_s=0.2)
    with pytest.raises(StartFailed, match="silent did not start"):
        stage.supervisor.start(program)


def test_a_start_can_be_interrupted(stage: Stage) -> None:
    def interrupt() -> bool:
        stage.stopping.set()
        return False

    with pytest.raises(Interrupted):
        stage.supervisor.start(Program("silent", ("sleep", "1000"), is_ready=interrupt))


def test_running_ends_when_asked_to_stop(stage: Stage) -> None:
    stage.supervisor.start(Program("sleeper", ("sleep", "1000")))
    stage.stopping.set()
    stage.supervisor.run()
    assert is_running(stage.supervisor.pid("sleeper"))


def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUPERVISE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
        # The leash is put on a moment after the start, before the program itself takes over.
        eventually(lambda: all(psutil.Process(pid).name() == "sleep" for pid in pids))
        supervisor.send_signal(signal.SIGKILL)
    eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_log_that_grew_too_large_is_set_aside(stage: Stage, tmp_path: Path) -> None:
    with (tmp_path / "echo.log").open("wb") as log:
        log.truncate(30 * 2**20)
    stage.supervisor.start(Program("echo", ("echo", "hello")))
    eventually(lambda: (tmp_path / "echo.log").read_text() == "hello\n")
    assert (tmp_path / "echo.log.1").stat().st_size == 30 * 2**20
