"""Job and batch states, which may follow which, and what follows an error. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from app.errors import Retry, TransientWork, WorkError

# The code of TransientWork where our own object store does not answer.
OUR_STORE_AWAY = "object_store_unavailable"
# The code of jobs that failed unrun, because too many others of their batch had failed.
BATCH_FAILED = "batch_failed"


class JobState(StrEnum):
    WAITING = "waiting"  # for its images, or for the answer to the same question
    READY = "ready"  # for the dispatcher
    QUEUED = "queued"  # on the broker
    RUNNING = "running"  # under a worker's lease
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Priority(StrEnum):
    """Who goes first: all of one class before any of the next."""

    INTERACTIVE = "interactive"  # somebody waits on the line
    STANDARD = "standard"
    BACKGROUND = "background"  # what nobody else needs


class Endpoint(StrEnum):
    """What the lines of a batch may be requests to."""

    CHAT = "/v1/chat/completions"
    RESPONSES = "/v1/responses"


class BatchStatus(StrEnum):
    """OpenAI's words for where a batch is."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.READY, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED}),
    JobState.READY: frozenset(
        {
            JobState.WAITING,
            JobState.QUEUED,
            JobState.RUNNING,
            JobState.COMPLETED,  # its answer was kept
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.EXPIRED,
        }
    ),
    JobState.QUEUED: frozenset(
        {JobState.READY, JobState.RUNNING, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED}
    ),
    JobState.RUNNING: frozenset({JobState.READY, JobState.COMPLETED, JobState.FAILED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.EXPIRED: frozenset(),
}

BATCH_MOVES: dict[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.VALIDATING: frozenset(
        {BatchStatus.IN_PROGRESS, BatchStatus.FAILED, BatchStatus.CANCELLING, BatchStatus.FINALIZING}
    ),
    BatchStatus.IN_PROGRESS: frozenset({BatchStatus.FINALIZING, BatchStatus.CANCELLING}),
    BatchStatus.FINALIZING: frozenset({BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.FAILED}),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED}),
    BatchStatus.COMPLETED: frozenset(),
    BatchStatus.FAILED: frozenset(),
    BatchStatus.EXPIRED: frozenset(),
    BatchStatus.CANCELLED: frozenset(),
}

ENDED_JOB = frozenset(state for state, moves in JOB_MOVES.items() if not moves)
ENDED_BATCH = frozenset(status for status, moves in BATCH_MOVES.items() if not moves)
CLAIMABLE = frozenset(state for state, moves in JOB_MOVES.items() if JobState.RUNNING in moves)


@dataclass(frozen=True)
class TryAgain:
    """The job goes back to the dispatcher, not before `after_s` seconds from now.

    A try that `counts` not is no step towards giving up: what we stand on was away, and may stay away long.
    """

    after_s: float
    counts: bool = True


@dataclass(frozen=True)
class GiveUp:
    """The job ends as failed."""

    code: str
    message: str


@dataclass(frozen=True)
class RetryPolicy:
    attempts: int
    base_s: float = 1.0
    longest_s: float = 300.0
    outage_s: float = 15.0  # how soon to look again whether our own object store is back


def after_error(error: WorkError, *, attempt: int, policy: RetryPolicy, spread: float) -> TryAgain | GiveUp:
    """What happens to a job whose `attempt`-th try (from 1) ended in `error`.

    `spread` in [0, 1) is the caller's random number: waiting times fall between half and the whole of
    the doubling delay, so that a thousand jobs that failed together do not return together.
    """
    if error.retry is Retry.NEVER:
        return GiveUp(error.code, error.message)
    if error.code == OUR_STORE_AWAY:
        return TryAgain(policy.outage_s * (0.5 + spread / 2), counts=False)
    if attempt >= policy.attempts:
        return GiveUp(error.code, f"{error.message} (tried {attempt} times)")
    delay = min(policy.longest_s, policy.base_s * 2 ** (attempt - 1)) * (0.5 + spread / 2)
    asked = error.retry_after_s if isinstance(error, TransientWork) else None
    return TryAgain(max(delay, min(asked or 0.0, policy.longest_s)))
