"""A client of vqueue's own HTTP API, for commands that put work in from outside."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import urllib3

TIMEOUT = urllib3.Timeout(connect=5.0, read=60.0)
RETRIES = urllib3.Retry(3, raise_on_status=False)  # of refusals, the last one says why
AWAY = frozenset({429, 502, 503, 504})
Json = Any  # answers of any shape; each caller reads the fields that the API promises


class ApiRefused(Exception):
    """What the API, or the way to it, said instead of an answer."""


class ApiAway(ApiRefused):
    """The same, where it may well answer later."""


class ApiClient:
    """`url` ends in /v1; the key says for which tenant."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._http = urllib3.PoolManager(
            headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT, retries=RETRIES
        )

    def models(self) -> list[str]:
        return [model["id"] for model in self._call("GET", "/models")["data"]]

    def upload(self, name: str, lines: Sequence[bytes]) -> str:
        """The id of a new input file."""
        fields = {"purpose": "batch", "file": (name, b"".join(lines), "application/jsonl")}
        return self._call("POST", "/files", fields=fields)["id"]

    def create_batch(self, file_id: str, *, window: str, metadata: Mapping[str, str]) -> Json:
        body = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": window,
            "metadata": dict(metadata),
        }
        return self._call("POST", "/batches", json=body)

    def batch(self, batch_id: str) -> Json:
        return self._call("GET", f"/batches/{batch_id}")

    def results(self, batch_id: str, *, after: int, status: str | None = None) -> Json:
        """A page of a batch's results behind number `after`."""
        fields = {"after": str(after), "limit": "1000"} | ({"status": status} if status else {})
        return self._call("GET", f"/batches/{batch_id}/results", fields=fields)

    def lines(self, file_id: str | None) -> Iterator[Json]:
        """The objects of an output or error file; of none, where it was not written."""
        if file_id is not None:
            data = self._send("GET", f"/files/{file_id}/content").data
            yield from (json.loads(line) for line in data.split(b"\n") if line.strip())

    def close(self) -> None:
        self._http.clear()

    def _call(self, method: str, path: str, **options: Any) -> Json:
        return self._send(method, path, **options).json()

    def _send(self, method: str, path: str, **options: Any) -> urllib3.BaseHTTPResponse:
        try:
            answer = self._http.request(method, self._url + path, **options)
        except urllib3.exceptions.HTTPError as error:
            raise ApiAway(f"{self._url} does not answer: {_cause(error)}") from error
        if answer.status >= 400:
            reason = _reason(answer.data)
            if answer.status == 404 and not self._url.endswith("/v1"):
                reason += f" (the API's URL ends in /v1, and {self._url} does not)"
            refused = ApiAway if answer.status in AWAY else ApiRefused
            raise refused(f"{method} {path} was answered {answer.status}: {reason}")
        return answer


def _cause(error: urllib3.exceptions.HTTPError) -> str:
    """The last words of what went wrong, without the names of urllib3's own objects."""
    inner = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else None
    return str(inner or error).rpartition(": ")[2]


def _reason(data: bytes) -> str:
    try:
        return json.loads(data)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace")
