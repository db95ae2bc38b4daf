"""What goes wrong in an engine, as the errors that a job may end with."""

import traceback

from app.errors import FatalWork, TransientWork, WorkError

OUT_OF_MEMORY = "out_of_memory"


def out_of_memory() -> WorkError:
    return TransientWork(OUT_OF_MEMORY, "the model ran out of memory")


def prepare_failed(cause: BaseException) -> WorkError:
    return _failure("prepare_failed", "the request could not be prepared", cause)


def step_failed(cause: BaseException) -> WorkError:
    return _failure("step_failed", "the model failed on this request", cause)


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
