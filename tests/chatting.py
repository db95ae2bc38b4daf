"""A worker without a broker, for tests of held lines: it runs whatever job is ready in Postgres."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from sqlalchemy import text

from app.config import Settings
from app.db import Sessions, transaction
from app.loops import Loop
from app.store import workers
from workers.engine.base import Engine, Image
from workers.hangups import HangUps
from workers.leases import Leases
from workers.pool import EnginePool, Resident
from workers.runner import Runner
from workers.telling import Teller, connect

READY = "UPDATE jobs SET state = 'queued' WHERE state = 'ready' RETURNING id"


@contextmanager
def working(db: Sessions, settings: Settings, engine: Engine) -> Iterator[None]:
    """A live worker around an engine while the block runs, each job on a thread of its own."""
    teller = Teller(connect(settings.redis_url.get_secret_value()))
    hang_ups = HangUps(db)
    with ThreadPoolExecutor(8) as threads, ThreadPoolExecutor(2) as readers:
        runner = Runner(
            sessions=db,
            pool=EnginePool({"demo": Resident(engine, settings)}),
            leases=Leases(sessions=db, worker="w1", settings=settings),
            read_image=lambda row: Image.of(row.content_hash, np.zeros((4, 4, 3), np.uint8)),
            readers=readers,
            urgent_readers=readers,
            settings=settings,
            worker="w1",
            teller=teller,
            hang_ups=hang_ups,
        )

        def step() -> bool:
            hang_ups.step()
            with transaction(db) as session:
                ready = list(session.execute(text(READY)).scalars())
            for job_id in ready:
                threads.submit(runner.run, [job_id])
            return bool(ready)

        with transaction(db) as session:
            workers.register(session, worker="w1", role="worker", model="demo", revision="r1")
        loop = Loop("work", step, idle_s=0.01)
        loop.start()
        try:
            yield
        finally:
            loop.stop()
            assert loop.join(10)
            engine.close()
    teller.close()
