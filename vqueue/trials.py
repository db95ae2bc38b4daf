"""The tries of one call: what to send, whether to send it again and when, and what a refusal says. No I/O."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from vqueue.calls import Call
from vqueue.errors import ApiError, Unreachable, VqueueError, error_class

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
LONGEST_WAIT_S = 120.0  # a server that asks for more is not waited for
PASSING = frozenset({408, 429, 500, 502, 503, 504})


@dataclass
class Trial:
    """A call on its way to a site whose URL ends in /v1."""

    call: Call[Any]
    url: str
    retries: int
    first_pause_s: float = FIRST_PAUSE_S
    tried: int = 0

    def request(self, http: httpx.Client | httpx.AsyncClient, file: BinaryIO | bytes | None) -> httpx.Request:
        call = self.call
        form = call.upload
        return http.build_request(
            call.method,
            self.url + call.path,
            params=dict(call.params),
            json=call.json,
            data=dict(form.fields) if form else None,
            files={"file": (form.name, file)} if form and file is not None else None,
            headers={"Idempotency-Key": call.idempotency_key} if call.idempotency_key else None,
        )

    def broke(self, error: httpx.RequestError) -> float:
        """Seconds until the next try after one without an answer; `Unreachable` if there is none."""
        if self.tried >= self.retries:
            raise Unreachable(f"{self.url} does not answer: {_cause(error)}") from error
        return self._pause()

    def refused(self, answer: httpx.Response) -> float | None:
        """Seconds until the next try; None where the call was answered, `ApiError` where it is refused."""
        if answer.status_code < 400:
            return None
        asked = asked_pause(answer.headers, now=time.time())
        again = answer.status_code in PASSING and (asked is None or asked <= LONGEST_WAIT_S)
        if not again or self.tried >= self.retries:
            raise self._error(answer)
        pause = self._pause()
        return pause if asked is None else asked

    def read(self, answer: httpx.Response) -> Any:
        """The call's own return value, as its `read` has it."""
        try:
            return self.call.read(answer)
        except (ValueError, KeyError, TypeError) as error:
            raise VqueueError(
                f"{self.call.method} {self.url}{self.call.path} was answered, but not as vqueue does: "
                "is this its API's URL?"
            ) from error

    def _pause(self) -> float:
        self.tried += 1
        longest = min(self.first_pause_s * 2 ** (self.tried - 1), LONGEST_PAUSE_S)
        return longest * (1 - random.random() / 4)

    def _error(self, answer: httpx.Response) -> ApiError:
        told = _error_json(answer)
        message = str(told.get("message") or answer.text[:200])
        text = f"{self.call.method} {self.call.path} was answered {answer.status_code}: {message}"
        if answer.status_code == 404 and not self.url.endswith("/v1"):
            text += f" (the API's URL ends in /v1, and {self.url} does not)"
        return error_class(answer.status_code)(
            text,
            status=answer.status_code,
            message=message,
            code=told.get("code"),
            param=told.get("param"),
            request_id=answer.headers.get("x-request-id"),
        )


def asked_pause(headers: Mapping[str, str], *, now: float) -> float | None:
    """The seconds that an answer asks us to wait, as a number or as a date; None where it asks for none."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except ValueError:
        return None


def part_of(path: Path) -> Path:
    """Where a file is written until it is whole."""
    return path.with_name(f".{path.name}.part")


def _error_json(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        told = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}


def _cause(error: httpx.RequestError) -> str:
    return str(error) or type(error).__name__
