"""Connections to the API: one that asks for nothing is closed, so that idle ones take no place for long."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# To send a request's first line and headers. Bodies have patience of their own (`bodies.blocks`).
ASK_WITHIN_S = 20.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits only so long for a request to begin and for its headers to end.

    The server itself waits for ever, for all but the next request of a connection that had one.
    """

    ask_within_s = ASK_WITHIN_S
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or self._is_answering():
            self._stop_waiting()  # a request is there, and may be answered by now
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.ask_within_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._is_answering():
            self.transport.close()
