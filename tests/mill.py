"""A mill for tests: batches go through ingest, a dispatcher and a runner, without a broker between them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from threading import Lock

import numpy as np

from app.config import Settings
from app.db import Sessions, transaction
from app.dispatch import Dispatcher
from app.finalize import Finalize
from app.ingest import Ingest
from app.objects import ObjectStore
from app.store import answer_cache, workers
from app.store.images import ImageRow
from tests.broker import Broker
from workers.engine.base import Engine, Image, Request
from workers.engine.fake import FakeEngine
from workers.leases import Leases
from workers.pool import EnginePool, Resident
from workers.recording import engine_fingerprint
from workers.runner import Runner

MOST_ROUNDS = 1_000
PIXELS = np.zeros((4, 4, 3), np.uint8)


class Mill:
    """One dispatcher and one worker, each step asked for. `engine` may be another one later."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        settings: Settings,
        read_image: Callable[[ImageRow], Image] = lambda row: Image.of(row.content_hash, PIXELS),
    ) -> None:
        self.sessions = sessions
        self.settings = settings
        self._read_image = read_image
        self.broker = Broker()
        self.dispatcher = Dispatcher(sessions=sessions, sender=self.broker, settings=settings)
        self._stack = ExitStack()
        self.ingest = Ingest(sessions=sessions, objects=objects, settings=settings)
        self._stack.enter_context(closing(self.ingest))
        self.finalize = Finalize(sessions=sessions, objects=objects, settings=settings)
        self._readers = self._stack.enter_context(ThreadPoolExecutor(2))
        self.use(FakeEngine(model="demo", answer=Counted(), rows=4))

    def use(self, engine: FakeEngine, *others: FakeEngine) -> None:
        """The worker starts anew, with this engine, and others for further models."""
        self.engine = engine
        self.install(engine, *others)

    def install(self, *engines: Engine) -> None:
        """The same with engines of any kind, whose requests are not counted."""
        for one in engines:
            self._stack.callback(one.close)
        residents = {one.model: Resident(one, self.settings) for one in engines}
        self.runner = Runner(
            sessions=self.sessions,
            pool=EnginePool(residents),
            leases=Leases(sessions=self.sessions, worker="w1", settings=self.settings),
            read_image=self._read_image,
            readers=self._readers,
            urgent_readers=self._readers,
            settings=self.settings,
            worker="w1",
            spread=lambda: 0.0,
            pause=lambda _: None,
        )
        with transaction(self.sessions) as session:
            for model, resident in residents.items():
                name = engine_fingerprint(resident)
                workers.register(session, worker="w1", role="worker", model=model, revision="1")
                answer_cache.note_engine(session, model=model, fingerprint=name)

    def read(self) -> None:
        """Ingest all that was handed in."""
        while self.ingest.step():
            pass

    def send(self) -> int:
        """One look of the dispatcher; how many jobs it dealt with."""
        return self.dispatcher.send()

    def work(self) -> None:
        """Run what lies on the broker."""
        chunks, self.broker.chunks = self.broker.chunks, []
        for chunk in chunks:
            self.runner.run(chunk.job_ids)

    def grind(self) -> None:
        """Everything, until nothing is left to do; then write the files."""
        self.read()
        for _ in range(MOST_ROUNDS):
            if not self.send() and not self.broker.chunks:
                break
            self.work()
        else:
            raise AssertionError("the dispatcher finds the same jobs again and again")
        while self.finalize.step():
            pass

    @property
    def runs(self) -> int:
        """How often the model was asked."""
        return len(self.engine.submitted)

    def close(self) -> None:
        self._stack.close()


class Counted:
    """Answers that differ from run to run: one that comes twice was kept."""

    def __init__(self) -> None:
        self._numbers = count()
        self._lock = Lock()

    def __call__(self, request: Request) -> str:
        with self._lock:
            return f"{next(self._numbers)}"
