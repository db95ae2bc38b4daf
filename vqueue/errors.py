"""What can go wrong with a call: no answer, or one that refuses, with all that the API says of it."""

from collections.abc import Sequence
from typing import ClassVar

from vqueue.types import LineError


class VqueueError(Exception):
    """Whatever went wrong with a call."""

    may_pass: ClassVar[bool] = False  # whether the same call may well succeed later


class Unreachable(VqueueError):
    """The API, or the way to it, gave no answer."""

    may_pass = True


class BatchFailed(VqueueError):
    """The batch's file did not pass, and nothing of it ran: `code`, `line`, `param` of the first reason."""

    def __init__(self, batch_id: str, errors: Sequence[LineError]) -> None:
        self.batch_id = batch_id
        self.errors = errors
        first = errors[0] if errors else LineError(code="unknown", message="no reason is known")
        self.code, self.message = first.code, first.message
        self.line, self.param = first.line, first.param
        super().__init__("\n".join([f"{batch_id} did not pass:", *map(str, errors or [first])]))


class ApiError(VqueueError):
    """The API refused: its HTTP status, and what its error JSON says."""

    def __init__(
        self,
        text: str,
        *,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.request_id = request_id


class BadRequest(ApiError):
    """400 or 422: the request itself is wrong; `param` names the field."""


class Unauthorized(ApiError):
    """401: the key opens nothing."""


class Forbidden(ApiError):
    """403: the key lacks the scope."""


class NotFound(ApiError):
    """404: there is no such thing, or it is another tenant's."""


class Conflict(ApiError):
    """409: the object's state forbids it."""


class TooLarge(ApiError):
    """413"""


class RateLimited(ApiError):
    """429, and still so after all tries."""

    may_pass = True


class ServerFault(ApiError):
    """500 and above, and still so after all tries."""

    may_pass = True


KINDS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: BadRequest,
    429: RateLimited,
}


def error_class(status: int) -> type[ApiError]:
    return KINDS.get(status, ServerFault if status >= 500 else ApiError)
