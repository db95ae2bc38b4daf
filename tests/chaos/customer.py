"""A client that submits batches over HTTP while everything dies around it, and never stops looking."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from threading import Event, Thread
from typing import Any

import urllib3

from tests.chaos.inputs import Fate, Input
from tests.chaos.pace import Pace

ENDED = {"completed", "failed", "expired", "cancelled"}
TIMEOUT = urllib3.Timeout(connect=2.0, read=20.0)
PAUSE_S = 0.2
CANCEL_AFTER_S = 20.0  # at the latest, if none of the batch's jobs is done by then
EXPECTED = {0, 408, 429, 503}  # answers of a service whose servers are away; 0 is none at all

Json = Any


@dataclass
class Ordered:
    """A batch as the client knows it."""

    given: Input
    id: str
    since: float
    told: Json = None  # the latest batch object
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, int, int]:
        counts = self.told["request_counts"] if self.told else {"total": 0, "completed": 0, "failed": 0}
        return counts["total"], counts["completed"], counts["failed"]

    @property
    def ended(self) -> bool:
        return self.told is not None and self.told["status"] in ENDED


class Stopped(Exception):
    """The run is over before the client had all it wanted."""


class Customer:
    """Works through the inputs in a thread of its own, as `pace` allows; `done` once all files are here.

    Of several APIs each call asks the next one.
    """

    def __init__(
        self, *, urls: Sequence[str], keys: Sequence[str], inputs: Sequence[Input], pace: Pace
    ) -> None:
        self.orders: list[Ordered] = []
        self.complaints: list[str] = []
        self.odd_answers: Counter[str] = Counter()
        self.polls = 0
        self.done = False
        self._urls = cycle(urls)
        self._inputs = list(inputs)
        self._again = cycle([given for given in inputs if given.fate is Fate.COMPLETED])
        self._pace = pace
        self._stopping = Event()
        self._http = urllib3.PoolManager(timeout=TIMEOUT, retries=False)
        self._headers = [{"Authorization": f"Bearer {key}"} for key in keys]
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._http.clear()

    def fetch(self, order: Ordered) -> dict[str, bytes]:
        """The bytes of the batch's files, by `output` and `error`."""
        batch = self._get(order, f"/batches/{order.id}").json()
        named = {part: batch[f"{part}_file_id"] for part in ("output", "error")}
        return {
            part: self._get(order, f"/files/{file_id}/content").data
            for part, file_id in named.items()
            if file_id
        }

    def _run(self) -> None:
        try:
            while not self.done:
                self._submit_next()
                for order in self.orders:
                    if not order.ended:
                        self._look(order)
                self.done = self._has_all()
                self._stopping.wait(PAUSE_S)
                if self._stopping.is_set():
                    raise Stopped
        except Stopped:
            return
        except Exception as error:  # a thread that dies in silence would look like a service that hangs
            self.complaints.append(f"the client gave up: {error!r}")
            raise

    def _has_all(self) -> bool:
        return not self._inputs and self._pace.over and all(order.ended for order in self.orders)

    def _submit_next(self) -> None:
        open_orders = sum(not order.ended for order in self.orders)
        if self._pace.allows(given=len(self.orders), left=len(self._inputs), open=open_orders):
            self.orders.append(self._submit(self._inputs.pop(0) if self._inputs else next(self._again)))

    def _submit(self, given: Input) -> Ordered:
        fields = {"purpose": "batch", "file": (f"{given.name}.jsonl", given.content, "application/jsonl")}
        file = self._call(given.tenant, "POST", "/files", fields=fields).json()
        body = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": given.window,
        }
        # The same key for every try: an answer that got lost must not make a second batch.
        key = {"Idempotency-Key": f"{given.name}-{len(self.orders)}"}
        batch = self._call(given.tenant, "POST", "/batches", json=body, more=key).json()
        return Ordered(given, batch["id"], time.monotonic())

    def _look(self, order: Ordered) -> None:
        """One poll: the counts add up and never fall."""
        before = order.counts
        order.told = self._get(order, f"/batches/{order.id}").json()
        self.polls += 1
        total, completed, failed = order.counts
        if completed < before[1] or failed < before[2] or (before[0] and total != before[0]):
            self.complaints.append(f"{order.given.name}: counts went from {before} to {order.counts}")
        if total and completed + failed > total:
            self.complaints.append(f"{order.given.name}: {order.counts} is more than all")
        if order.given.fate is Fate.CANCELLED and self._is_time_to_cancel(order):
            self._call(order.given.tenant, "POST", f"/batches/{order.id}/cancel")
        if order.ended:
            order.files = self.fetch(order)

    def _is_time_to_cancel(self, order: Ordered) -> bool:
        waited = time.monotonic() - order.since > CANCEL_AFTER_S
        return order.told["status"] == "in_progress" and (order.counts[1] > 0 or waited)

    def _get(self, order: Ordered, path: str) -> urllib3.BaseHTTPResponse:
        return self._call(order.given.tenant, "GET", path)

    def _call(
        self, tenant: int, method: str, path: str, *, more: Mapping[str, str] | None = None, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """Until it is answered; whatever is no plain outage is noted."""
        headers = {**self._headers[tenant], **(more or {})}
        while not self._stopping.is_set():
            try:
                answer = self._http.request(
                    method, f"{next(self._urls)}/v1{path}", headers=headers, **options
                )
            except urllib3.exceptions.HTTPError:
                self._stopping.wait(PAUSE_S)
                continue
            if answer.status >= 400 and answer.status not in EXPECTED:
                self.odd_answers[f"{method} {path.split('/')[1]}: {answer.status} {_code(answer.data)}"] += 1
            if answer.status < 500 and answer.status not in EXPECTED:
                return answer
            self._stopping.wait(PAUSE_S)
        raise Stopped


def _code(data: bytes) -> str:
    try:
        return json.loads(data)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return data[:60].decode(errors="replace")
