"""Streamed chat completions at a steady rate, timed from before the connection to the first and last text."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from bench.load import percentile
from bench.queue_site import Site

Body = dict[str, Any]  # of a chat completion
LONGEST_S = 180.0


@dataclass(frozen=True)
class Call:
    """How one call went; seconds are None where there was no text."""

    status: int
    first_s: float | None
    last_s: float | None


@dataclass(frozen=True)
class Times:
    """Percentiles of the calls that were answered."""

    answered: int
    first: Sequence[float]
    last: Sequence[float]

    def first_s(self, share: float) -> float:
        return percentile(self.first, share)

    def told(self, name: str) -> str:
        shown = [
            f"{what} p50 {percentile(times, 0.5):.3f} p95 {percentile(times, 0.95):.3f} "
            f"p99 {percentile(times, 0.99):.3f} s"
            for what, times in (("first token", self.first), ("last token", self.last))
        ]
        return f"{name}: {self.answered} calls; {'; '.join(shown)}"


def times_of(calls: Sequence[Call]) -> Times:
    """RuntimeError for a call that got no answer."""
    if refused := [call.status for call in calls if call.first_s is None or call.last_s is None]:
        raise RuntimeError(f"{len(refused)} of {len(calls)} calls were not answered: {sorted(set(refused))}")
    return Times(
        len(calls),
        [call.first_s for call in calls if call.first_s is not None],
        [call.last_s for call in calls if call.last_s is not None],
    )


def ask_steadily(site: Site, bodies: Sequence[Body], *, rate: float) -> list[Call]:
    """One call every 1/rate seconds, whether those before have been answered or not."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        started = time.perf_counter()
        return list(
            threads.map(
                lambda numbered: _at(started + numbered[0] / rate, lambda: ask(site, numbered[1])),
                enumerate(bodies),
            )
        )


def ask_at_once(site: Site, bodies: Sequence[Body]) -> list[Call]:
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: ask(site, body), bodies))


def ask(site: Site, body: Body) -> Call:
    url = urlsplit(site.url)
    payload = json.dumps({**body, "stream": True})
    headers = {"Authorization": f"Bearer {site.key}", "Content-Type": "application/json"}
    started = time.perf_counter()
    with closing(HTTPConnection(url.hostname or "", url.port, timeout=LONGEST_S)) as connection:
        connection.request("POST", f"{url.path}/chat/completions", payload, headers)
        response = connection.getresponse()
        first_s = _first_text(response, started) if response.status == 200 else None
        response.read()
        return Call(response.status, first_s, None if first_s is None else time.perf_counter() - started)


def _first_text(response: HTTPResponse, started: float) -> float | None:
    for line in response:
        if line.startswith(b"data: {"):
            event = json.loads(line.removeprefix(b"data: "))
            if any(choice["delta"].get("content") for choice in event.get("choices", ())):
                return time.perf_counter() - started
    return None


def _at(moment: float, act: Callable[[], Call]) -> Call:
    time.sleep(max(0.0, moment - time.perf_counter()))
    return act()
