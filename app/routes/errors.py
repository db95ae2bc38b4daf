"""Errors as OpenAI's error JSON: one handler for ours, the framework's and those of the servers below."""

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from app.db import is_outage
from app.errors import Fault, NotFound, RequestError, TransientWork, Unavailable, WorkError
from app.objects import ObjectMissing

# The stock SDK waits this long and tries again; a restart of Postgres takes about as long.
RETRY_AFTER_S = 5
# The stock SDK takes a 409 for a lock that will pass: ours are for good. After a 504 it would ask again what
# there was no time for.
NOT_AGAIN = (409, 504)
# How Pydantic ends what it says of a length.
NOT_MORE = re.compile(r" after validation, not \w+$")
# A text that has been through a check of ours is only a value to it, and characters are items.
TEXT_LENGTH = re.compile(r"^(Value should have at (?:most|least) \d+) item(s?)$")
# What an error's message may hold below its first line, such as a failing row, stays out of the logs.
LOGGED_CHARS = 200

log = structlog.get_logger()


class NotAllowed(RequestError):
    status = 405


# How a page tells an error; None where the client is no reader of pages.
ErrorPage = Callable[[Request, RequestError], Response | None]


class Answering:
    """Answers errors: with a page to who reads pages, else as JSON."""

    def __init__(self, page: ErrorPage) -> None:
        self._page = page

    def add_to(self, app: FastAPI) -> None:
        for kind in (RequestError, HTTPException, RequestValidationError, WorkError, SQLAlchemyError):
            app.add_exception_handler(kind, self.handle)

    async def handle(self, request: Request, error: Exception) -> Response:
        headers = error.headers if isinstance(error, HTTPException) else None
        refusal = as_request_error(error, asked=f"{request.method} {request.url.path}")
        return self.answer(request, refusal, headers)

    def answer(
        self, request: Request, error: RequestError, headers: Mapping[str, str] | None = None
    ) -> Response:
        return self._page(request, error) or render(error, headers)


def render(error: RequestError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    headers = dict(headers or {})
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status in NOT_AGAIN:
        headers["x-should-retry"] = "false"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": error.content()}, status_code=error.status, headers=headers)


def as_request_error(error: Exception, *, asked: str = "") -> RequestError:
    """What a client is told about any error at all; our own faults are logged here."""
    match error:
        case RequestError():
            return error
        case RequestValidationError():
            return explain(error.errors())
        case HTTPException(status_code=404):
            return NotFound(f"Unknown request URL: {asked}.", code="unknown_url")
        case HTTPException(status_code=405):
            return NotAllowed(f"Not allowed: {asked}.", code="method_not_allowed")
        case HTTPException() if error.status_code < 500:
            return RequestError(error.detail)
        case ObjectMissing():
            return NotFound("The content of this file is gone.", code="content_gone")
        case TransientWork() | PoolTimeout():
            return _unavailable(error)
        case SQLAlchemyError() if is_outage(error):
            return _unavailable(error)
        case _:
            return _internal(error)


def explain(errors: Sequence[Any]) -> RequestError:
    """The first of Pydantic's complaints, with the field's name as `param`."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return RequestError("We could not parse the JSON body of your request.", code="invalid_json")
    param = _param(first["loc"])
    if first["type"] == "missing":
        return RequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_parameter")
    if first["type"] == "extra_forbidden":
        return RequestError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")
    reason = TEXT_LENGTH.sub(r"\1 character\2", NOT_MORE.sub("", first["msg"].removeprefix("Value error, ")))
    message = f"Invalid '{param}': {reason}" if param else reason
    return RequestError(message, param=param, code="invalid_value")


def _param(loc: Sequence[str | int]) -> str | None:
    """A field as all our messages name it: `table.questions[0].ask`."""
    names = [part for part in loc if part not in ("body", "query", "path", "header")]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in names).lstrip(".") or None


def explain_body(error: ValidationError) -> RequestError:
    return explain(error.errors(include_url=False, include_input=False, include_context=False))


def _unavailable(error: Exception) -> RequestError:
    log.warning("server_unavailable", error=type(error).__name__)
    return Unavailable(
        "The service is not available at the moment. Please try again.",
        code="unavailable",
        retry_after_s=RETRY_AFTER_S,
    )


def _internal(error: Exception) -> RequestError:
    """Our own bug or broken set-up; what went wrong is in the log, not in the answer."""
    log.error(
        "request_failed",
        error=type(error).__name__,
        reason=str(error).partition("\n")[0][:LOGGED_CHARS],
        where=traceback.format_tb(error.__traceback__),
    )
    return Fault("The server had an error while processing your request.")
