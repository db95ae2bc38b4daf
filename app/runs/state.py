"""Where a run is, in a file beside its output: the same command goes on there instead of beginning anew."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from app.runs.base import WrongRun

FORMAT = 1


@dataclass(frozen=True)
class RunState:
    """`input` and `asked` are hashes; by `mark` a request that is sent again is known."""

    api: str
    input: str
    asked: str
    mark: str
    batches: tuple[str, ...] = ()  # the batch, then its retries
    done: bool = False

    @property
    def batch(self) -> str | None:
        return self.batches[0] if self.batches else None

    def with_batch(self, batch_id: str) -> "RunState":
        return replace(self, batches=(*self.batches, batch_id), done=False)

    def same_work(self, other: "RunState") -> bool:
        return (self.api, self.input, self.asked) == (other.api, other.input, other.asked)


def begin(*, api: str, input: str, asked: str) -> RunState:
    return RunState(api, input, asked, mark=uuid4().hex)


def state_file(out: Path) -> Path:
    return out.with_name(f".{out.name}.vqueue.json")


def notebook_file(out: Path) -> Path:
    return out.with_name(f".{out.name}.vqueue.images.jsonl")


def load(out: Path) -> RunState | None:
    """The state of the last run that wrote, or was to write, this file."""
    file = state_file(out)
    try:
        told = json.loads(file.read_text())
        if told.pop("format") != FORMAT:
            raise ValueError("another format")
        return RunState(**told | {"batches": tuple(told["batches"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongRun(f"{file} cannot be used ({error}): --fresh starts anew without it") from error


def save(out: Path, state: RunState) -> None:
    file = state_file(out)
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps({"format": FORMAT, **asdict(state)}, indent=1) + "\n")
    part.replace(file)


def take_up(
    last: RunState | None, now: RunState, out: Path, *, fresh: bool, only_failed: bool = False
) -> RunState:
    """The run to go on with: the last if it is the same work, else a new one. WrongRun if that loses it.

    Of one that is over the failed rows can be tried again though its pictures were changed meanwhile.
    """
    if last is None or fresh:
        return now
    if last.same_work(now) or (only_failed and last.done and (last.api, last.asked) == (now.api, now.asked)):
        return last
    if last.done or not last.batches:
        return now
    what = "API" if last.api != now.api else "input" if last.input != now.input else "set of options"
    raise WrongRun(
        f"{out} belongs to a run that is not over, {last.batches[-1]}, and had another {what}: --fresh "
        f"starts anew, another -o leaves it alone, `vqueue cancel {last.batches[-1]}` stops it"
    )


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
