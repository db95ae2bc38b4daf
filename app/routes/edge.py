"""What surrounds every request: its id, log line and metric, and the answer to errors nobody expected."""

import secrets
import time

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import telemetry, tracing
from app.actor import acting
from app.errors import RequestError, Unavailable
from app.routes.errors import Answering, as_request_error

# The status under which web servers log a client that went away.
CLIENT_GONE = 499
# These are asked every few seconds by machines and would drown the rest.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
# Requests answered at a time, held lines and streams among them; connections that ask nothing are none.
MOST_AT_ONCE = 1000
BUSY_S = 1
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

log = structlog.get_logger()


class Edge:
    """The outermost layer of the app, as plain ASGI so that bodies stream through it untouched."""

    def __init__(self, app: ASGIApp, answering: Answering, *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._app = app
        self._answering = answering
        self._most = most_at_once
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        with (
            structlog.contextvars.bound_contextvars(request_id=exchange.id),
            acting(exchange.id),
            exchange.followed() as step,
        ):
            self._open += 1
            try:
                await self._run(scope, receive, exchange)
            finally:
                self._open -= 1
                exchange.report(step)

    async def _run(self, scope: Scope, receive: Receive, exchange: "Exchange") -> None:
        try:
            if "\x00" in scope["path"] or b"%00" in scope.get("query_string", b""):
                raise RequestError("The URL must not contain NUL characters.", code="invalid_url")
            if self._open > self._most and scope["path"] not in QUIET:
                raise Unavailable(
                    f"More than {self._most:,} requests are being answered. Please try again.",
                    code="unavailable",
                    retry_after_s=BUSY_S,
                )
            await self._app(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = CLIENT_GONE
        except Exception as error:
            refusal = as_request_error(error)
            if exchange.answered:
                raise  # the server cuts the connection: a half-sent body must not look whole
            await self._answering.answer(Request(scope), refusal)(scope, receive, exchange.send)


class Exchange:
    """One request and its response, watched while they pass."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id = f"req_{secrets.token_hex(16)}"
        self.status = 500
        self.answered = False
        self._scope = scope
        self._send = send
        self._started = time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.answered = message["status"], True
            rate = self._scope.get("state", {}).get("rate_headers", ())
            own = (b"x-request-id", self.id.encode())
            message = {**message, "headers": [*message["headers"], own, *rate]}
            self._observe()
        await self._send(message)

    def followed(self) -> tracing.Stepping:
        """The request in its trace, if it has one."""
        if self._scope["path"] in QUIET:
            return tracing.NOTHING
        given = (value for name, value in self._scope["headers"] if name == b"traceparent")
        return tracing.request(next(given, b"").decode("latin-1") or None)

    def report(self, step: tracing.Step) -> None:
        if self._scope["path"] in QUIET:
            return
        if step.strands:
            self._trace(step)
        log.info(
            "request",
            method=self._scope["method"],
            route=self._route(),
            status=self.status,
            tenant=self._scope.get("state", {}).get("tenant"),
            ms=round((time.perf_counter() - self._started) * 1000, 1),
        )

    def _trace(self, step: tracing.Step) -> None:
        method, route = self._method(), self._route()
        step.rename(f"{method} {route}")
        step.note(
            http__request__method=method,
            http__route=route,
            http__response__status_code=self.status,
            request=self.id,
        )
        if tenant := self._scope.get("state", {}).get("tenant"):
            step.note(tenant=tenant)
        if self.status >= 500:
            step.fail(str(self.status))

    def _observe(self) -> None:
        seconds = time.perf_counter() - self._started
        method = self._method()
        telemetry.HTTP_SECONDS.labels(method, self._route(), str(self.status)).observe(seconds)

    def _method(self) -> str:
        """A made-up one must not make a series of its own."""
        return self._scope["method"] if self._scope["method"] in METHODS else "other"

    def _route(self) -> str:
        """The route's pattern, so that ids neither fill the metrics nor stand in the logs."""
        return getattr(self._scope.get("route"), "path", "unknown")
