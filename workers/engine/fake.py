"""An engine without a model, for tests of everything around it."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from app.errors import TransientWork
from workers.engine.base import Answer, Request, Times, Usage, texts


def echo(request: Request) -> str:
    """The last piece of text and the first eight characters of every image's hash."""
    question = next(reversed(texts(request.turns)), "")
    return " ".join([question, *(image.content_hash[:8] for image in request.images)]).strip()


def words(text: str) -> list[str]:
    """Word by word, each with the blanks after it."""
    return re.findall(r"\S+\s*|\s+", text)


class FakeEngine:
    """Answers `answer(request)`, which may raise; what has joined waits for `gate`, where one is given.

    Whoever listens is told the answer in `pieces`, whose iterator may wait between two of them.

    Every picture is decoded, so that one that cannot be fails its request as it would with a model.

    At most `rows` requests have joined at once; the others can still be cancelled or time out. `submitted`
    and `joined` list the requests in the order in which they came that far.
    """

    def __init__(
        self,
        *,
        model: str = "fake",
        revision: str = "fake-1",
        number_format: str = "none",
        answer: Callable[[Request], str | Answer] = echo,
        gate: threading.Event | None = None,
        pieces: Callable[[str], Iterable[str]] = words,
        rows: int = 1,
    ) -> None:
        self.model = model
        self.revision = revision
        self.number_format = number_format
        self.submitted: list[Request] = []
        self.joined: list[Request] = []
        self._answer = answer
        self._gate = gate
        self._pieces = pieces
        self._closed = False
        self._pool = ThreadPoolExecutor(max_workers=rows, thread_name_prefix="fake-engine")

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._closed:
            future.set_exception(TransientWork("engine_closed", "the engine is closed"))
            return future
        self.submitted.append(request)
        self._pool.submit(self._run, request, future, time.monotonic())
        return future

    def close(self) -> None:
        """Open the gate, end what has joined, fail the rest."""
        self._closed = True
        if self._gate is not None:
            self._gate.set()
        self._pool.shutdown()

    def _run(self, request: Request, future: Future[Answer], arrived: float) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self._closed:
            future.set_exception(
                TransientWork("engine_closed", "the engine was closed before the request joined")
            )
        elif request.is_late(time.monotonic()):
            future.set_exception(
                TransientWork("job_timeout", "the deadline passed before the request joined")
            )
        else:
            self._join(request, future, arrived)

    def _join(self, request: Request, future: Future[Answer], arrived: float) -> None:
        joined = time.monotonic()
        self.joined.append(request)
        if self._gate is not None:
            self._gate.wait()
        try:
            for image in request.images:
                image.load()
            found = self._answer(request)
            answer = found if isinstance(found, Answer) else _stopped(request, found)
            first = time.monotonic()
            if request.on_text is not None:
                for piece in self._pieces(answer.text):
                    request.on_text(piece)
        except Exception as error:  # whatever a test wants to see raised travels to the caller
            future.set_exception(error)
        else:
            times = Times(arrived, time.monotonic(), first, joined)
            future.set_result(replace(answer, times=times))


def _stopped(request: Request, text: str) -> Answer:
    words = sum(len(piece.split()) for piece in texts(request.turns))
    return Answer(text, "stop", Usage(words + len(request.images), len(text.split())))
