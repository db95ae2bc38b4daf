"""Serves the kinds http and ssrf: the product's downloader against a picture server or stubs."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.config import Settings
from app.download import Downloader, make_downloader
from app.errors import InvalidWork, WorkError
from app.guard import FetchPolicy, Url
from app.http_exchange import Deadline, Reply
from app.references import RefKind, parse_reference
from app.states import GiveUp, RetryPolicy, after_error
from tests.fieldcases.cases import Case, Did, Outcome, Refused
from tests.fieldcases.pictures import accept

_DEFAULT_DNS = ("93.184.215.14",)
_ATTEMPTS = 3
_LONGEST_PAUSE_S = 1.5
_TOTAL_S = 6.0  # the picture server's slowest routes take minutes
_NEVER_AGAIN = ("retry", "retry a blocked URL")


class PictureServer:
    """The folder's serve.py on a free port of the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def base(self) -> str:
        """Its URL; the first call starts it."""
        if self._process is None:
            self._port = _free_port()
            self._process = subprocess.Popen(
                [sys.executable, "serve.py", str(self._port)], cwd=self._folder, stdout=subprocess.DEVNULL
            )
            _wait_for(self._port)
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port: int) -> None:
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("serve.py did not start within 30 s")


def serve_http(case: Case, server: PictureServer) -> Outcome:
    path = case.payload["path"]
    url = path if "://" in path else server.base() + path
    if "upper-case-scheme" in case.id:
        url = url.replace("http://", "HTTP://", 1)
    settings = Settings(fetch_allow_hosts=(urlsplit(url).netloc,), fetch_total_s=_TOTAL_S)
    started, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return accept(_fetch(make_downloader(settings), url))
        except WorkError as error:
            decision = after_error(error, attempt=tries, policy=RetryPolicy(_ATTEMPTS), spread=0.5)
            asked = getattr(error, "retry_after_s", None) or 0.0
            if isinstance(decision, GiveUp):
                return _given_up(case, decision, tries, time.monotonic() - started)
            assert decision.after_s >= asked, "Retry-After is not honoured"
            time.sleep(min(decision.after_s, max(asked, _LONGEST_PAUSE_S)))


def _given_up(case: Case, decision: GiveUp, tries: int, seconds: float) -> Outcome:
    if tries > 1 and any(reason in _NEVER_AGAIN for reason in case.must_not):
        return Did("tried again", {"tries": tries, "code": decision.code})
    if seconds > _ATTEMPTS * (_TOTAL_S + _LONGEST_PAUSE_S) + 1:
        return Did("hung", {"seconds": seconds, "code": decision.code})
    return Refused(decision.code, decision.message)


def _fetch(downloader: Downloader, text: str) -> bytes:
    """From what a client wrote to bytes, as ingest and fetcher do it."""
    reference = parse_reference(text)
    if reference.kind is not RefKind.URL:
        raise InvalidWork("bad_url", f"This is a reference of kind {reference.kind}.")
    return downloader.fetch(reference.ref)


class StubNet:
    """A resolver and a transport that send nothing: names and redirects are those of the case."""

    def __init__(self, payload: Mapping[str, object]) -> None:
        self._payload = payload
        self._redirects = _texts(payload.get("redirects"))
        self.lookups = 0
        self.visits: list[tuple[str, ...]] = []

    def resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.lookups += 1
        table, sequence = self._payload.get("dns_table"), self._payload.get("dns_sequence")
        if isinstance(table, dict):
            return _texts(table.get(host)) or _DEFAULT_DNS
        if isinstance(sequence, list):
            return _texts(sequence[min(self.lookups, len(sequence)) - 1])
        return _texts(self._payload.get("dns")) or _DEFAULT_DNS

    @contextmanager
    def __call__(
        self,
        url: Url,
        addresses: tuple[str, ...],
        *,
        headers: Mapping[str, str],
        deadline: Deadline,
        body: bytes | None = None,
    ) -> Iterator[Reply]:
        hop = len(self.visits)
        self.visits.append(addresses)
        assert not set("\r\n ") & set(url.target + url.authority), "a header could be injected"
        if hop < len(self._redirects):
            yield Reply(status=302, headers=(("Location", self._redirects[hop]),), pieces=iter(()))
        else:
            yield Reply(status=200, headers=(), pieces=iter((b"picture",)))


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def serve_ssrf(case: Case) -> Outcome:
    net = StubNet(case.payload)
    settings = Settings()
    downloader = Downloader(
        policy=FetchPolicy(ports=settings.fetch_ports),
        max_bytes=1000,
        max_redirects=settings.fetch_redirects,
        total_s=_TOTAL_S,
        transport=net,
        resolver=net.resolve,
    )
    try:
        _fetch(downloader, case.payload["url"])
    except WorkError as error:
        if len(net.visits) > len(_texts(case.payload.get("redirects"))):
            return Did("connected all the same", {"addresses": net.visits, "code": error.code})
        if not isinstance(error, InvalidWork):
            return Did("would be tried again", {"code": error.code})
        return Refused(error.code, error.message)
    return Did("allowed", {"addresses": net.visits})
