"""A TCP proxy that cuts its first connections off in the middle of an answer, or cuts or freezes all."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from urllib.parse import urlsplit


class Cutting:
    """Forwards to `target`; each of the first `cuts` connections ends after `after` bytes of answer."""

    def __init__(self, target: tuple[str, int], *, cuts: int, after: int) -> None:
        self._target = target
        self._cuts = cuts
        self._after = after
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._flowing = Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection that is open now."""
        for client in list(self._open):
            with suppress(OSError):  # it has just ended by itself
                client.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Let nothing pass any more, nor any connection end, as a server does that is stopped."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            limit = self._after if self.connections <= self._cuts else None
            Thread(target=self._serve, args=(client, limit), daemon=True).start()

    def _serve(self, client: socket.socket, limit: int | None) -> None:
        self._open.add(client)
        with client, socket.create_connection(self._target) as server:
            Thread(target=self._pump, args=(client, server, None), daemon=True).start()
            self._pump(server, client, limit)
        self._open.discard(client)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        """Copy until the source ends or `limit` bytes have passed, then end the sink."""
        passed = 0
        try:
            while data := source.recv(65_536):
                self._flowing.wait()
                sink.sendall(data if limit is None else data[: limit - passed])
                passed += len(data)
                if limit is not None and passed >= limit:
                    break
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@contextmanager
def cutting(endpoint_url: str, *, cuts: int = 0, after: int = 0) -> Iterator[Cutting]:
    parts = urlsplit(endpoint_url)
    assert parts.hostname
    proxy = Cutting((parts.hostname, parts.port or 80), cuts=cuts, after=after)
    yield proxy
    proxy.close()
