"""What goes wrong in an engine, as the errors that a job may end with."""

import traceback
from concurrent.futures import Future

from app.errors import FatalWork, TransientWork, WorkError
from workers.engine.base import Answer


def out_of_memory() -> WorkError:
    return TransientWork("out_of_memory", "the model ran out of memory")


def prepare_failed(cause: BaseException) -> WorkError:
    return _failure("prepare_failed", "the request could not be prepared", cause)


def step_failed(cause: BaseException) -> WorkError:
    return _failure("step_failed", "the model failed on this request", cause)


def job_timeout() -> WorkError:
    return TransientWork("job_timeout", "the deadline passed before the request was answered")


def engine_closed() -> WorkError:
    return TransientWork("engine_closed", "the engine was closed before the request joined a step")


def fail(future: Future[Answer], error: WorkError) -> None:
    """End a request without an answer, unless it was cancelled."""
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was wanted, in Python's words, a GPU's or the CPU allocator's."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or "not enough memory" in str(error)


def let_go(error: BaseException) -> None:
    """Drop what the frames of a failure hold, such as a half-read picture: a future may keep it for long."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def _failure(code: str, message: str, cause: BaseException) -> WorkError:
    """What a client may read, with the cause for the logs."""
    error = FatalWork(code, f"{message} ({type(cause).__name__})")
    error.__cause__ = cause
    return error
