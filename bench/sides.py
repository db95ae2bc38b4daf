"""One side of a comparison: a way to answer a workload, measured in a fresh process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
Kind = Literal["ours", "generate", "vllm"]
# The file of each kind's process; vLLM's runs in an environment that has no vqueue.
CHILDREN = {"ours": "bench.child", "generate": "bench.child", "vllm": "bench.vllm_child"}


class SideFailed(Exception):
    """A side's process ended badly; the text is the end of what it said."""


@dataclass(frozen=True)
class Side:
    """How to answer. `warm` is a workload folder answered before the clock starts.

    `batch` hands in so many questions at a time and waits for them all; `features` is a folder with the
    vision tower's output, for the side that is handed it.
    """

    name: str
    kind: Kind
    checkpoint: str
    workload: str
    dtype: str = "float32"
    threads: int = 1
    rows: int = 16
    batch: int | None = None
    warm: str | None = None
    features: str | None = None


@dataclass(frozen=True)
class Measure:
    """What a side took: CPU seconds of its process and those it started, and seconds by the clock."""

    questions: int
    cpu_s: float
    wall_s: float
    answers: dict[str, str]

    @property
    def cpu_each(self) -> float:
        return self.cpu_s / self.questions


def measure(side: Side, *, vllm: Path | None = None) -> Measure:
    """Run the side in a process of its own; raises SideFailed."""
    python = sys.executable if side.kind != "vllm" else str(Path(vllm or ".") / "bin" / "python")
    done = subprocess.run(
        [python, "-m", CHILDREN[side.kind]],
        input=json.dumps(asdict(side)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | _environment(side),
    )
    if done.returncode != 0:
        raise SideFailed(f"{side.name}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return Measure(**json.loads(done.stdout.splitlines()[-1]))


def _environment(side: Side) -> dict[str, str]:
    """Threads that wait must not spin: their CPU seconds would count, and the machine may be shared."""
    threads = {
        "OMP_NUM_THREADS": str(side.threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if side.kind != "vllm":
        return threads
    return threads | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{side.threads - 1}" if side.threads > 1 else "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }


def least(measures: Sequence[Measure]) -> Measure:
    """Of repeated runs the one that was disturbed least."""
    return min(measures, key=lambda measure: measure.cpu_s)
