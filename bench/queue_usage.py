"""CPU seconds and memory of processes, those that they started included."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 2**20


@dataclass(frozen=True)
class Meter:
    """CPU seconds by role since it was started; `pids` are the heads of process trees."""

    pids: Mapping[str, int]
    before: Mapping[str, float]

    @classmethod
    def start(cls, pids: Mapping[str, int]) -> "Meter":
        return cls(dict(pids), {role: cpu_s(pid) for role, pid in pids.items()})

    def read(self) -> dict[str, float]:
        return {role: cpu_s(pid) - self.before[role] for role, pid in self.pids.items()}


def cpu_s(pid: int) -> float:
    """Of a process and all below it, the ended ones among them."""
    head = psutil.Process(pid)
    total = 0.0
    for process in [head, *head.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it ended just now, and its parent has its time
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def peaks_mib(pids: Mapping[str, int]) -> dict[str, float]:
    """The most memory that each process ever had, its children left out."""
    return {role: _peak_mib(pid) for role, pid in pids.items()}


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024 / MIB


def per_1000(cpu: Mapping[str, float], jobs: int, *, own: Collection[str]) -> str:
    """CPU seconds per 1,000 jobs in words; `own` are the roles that are no servers."""
    each = {role: 1000 * seconds / jobs for role, seconds in cpu.items()}
    parts = "  ".join(f"{role} {seconds:.3f}" for role, seconds in each.items())
    ours = sum(seconds for role, seconds in each.items() if role in own)
    return f"CPU s per 1,000 jobs: {ours:.3f}, with servers {sum(each.values()):.3f}: {parts}"
