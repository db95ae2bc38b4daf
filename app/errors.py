"""The errors of vqueue: request errors know their HTTP status, work errors know whether to try again."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class RequestError(Exception):
    """Something a client asked for that cannot be done; rendered by one handler as OpenAI's error JSON."""

    status: ClassVar[int] = 400
    type: ClassVar[str] = "invalid_request_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    def content(self) -> dict[str, str | None]:
        """The value of `error` in a body."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


class Unauthorized(RequestError):
    status = 401


class Forbidden(RequestError):
    """The key is good, but not for this."""

    status = 403


class NotFound(RequestError):
    status = 404


class Conflict(RequestError):
    """The object is in a state that forbids this; the stock SDK is told not to retry."""

    status = 409


class TooLarge(RequestError):
    status = 413


class Overloaded(RequestError):
    """Backlog, quota or disk is past its limit; the client should come back later."""

    status = 429
    type = "rate_limit_error"


class Unavailable(RequestError):
    """A server that we stand on does not answer."""

    status = 503
    type = "server_error"


class Fault(RequestError):
    """Ours, not the request's."""

    status = 500
    type = "server_error"


class TooLate(RequestError):
    """Time ran out on our side; trying again at once would only add to the load."""

    status = 504
    type = "server_error"


# Of answers of 4xx and 5xx: those that may be another one the next time, and those that will not.
_PASSING, _LASTING = frozenset({408, 425, 429}), frozenset({501, 505})


def status_may_pass(status: int) -> bool:
    """Whether another server that answered so may well answer otherwise later."""
    return status in _PASSING or (500 <= status < 600 and status not in _LASTING)


class Retry(StrEnum):
    """What a work error means for the job's next attempt."""

    NEVER = "never"  # the job's own fault: it would fail again
    LATER = "later"  # the world's fault: try again with backoff
    ALARM = "alarm"  # our fault: try again, and tell somebody


class WorkError(Exception):
    """A job could not be done. `code` is stable and documented; `message` is for the client."""

    retry: ClassVar[Retry] = Retry.ALARM

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class InvalidWork(WorkError):
    """The input is wrong and will stay wrong: never tried again."""

    retry = Retry.NEVER


class TransientWork(WorkError):
    """A server or the network failed: tried again with backoff."""

    retry = Retry.LATER

    def __init__(self, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


class FatalWork(WorkError):
    """A bug or a broken machine of ours."""

    retry = Retry.ALARM


class ImageError(InvalidWork):
    """An image that cannot be used. Codes are listed in docs/images.md."""


@dataclass(frozen=True)
class LineError:
    """One row of a batch's `errors.data`: what is wrong, in which line (1-based) and which field."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None
