"""Fixtures of the crash windows: rows and files of a test, and processes that die where it wants them to."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from app.config import Settings
from app.db import Sessions
from app.objects import ObjectStore, make_objects
from tests.desk import Desk
from tests.processes import Process
from tests.rows import Rows

Start = Callable[..., Process]
MODULES = {"dispatcher": "app.dispatcher", "fetcher": "workers.fetcher", "worker": "tests.fake_worker"}


@pytest.fixture
def hasty(settings: Settings, valkey_url: str) -> Settings:
    """Settings for one test: short leases, and a model of its own."""
    changes = {
        "model_name": f"m{uuid4().hex[:8]}",
        "lease_s": 2.0,
        "heartbeat_s": 0.5,
        "resend_s": 1.0,
        "dispatch_poll_s": 0.05,
        "worker_threads": 2,
    }
    return settings.model_copy(update=changes)


@pytest.fixture
def on_broker(hasty: Settings, broker_url: str) -> Settings:
    """The same on each kind of broker."""
    return hasty.model_copy(update={"broker_url": SecretStr(broker_url)})


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def objects(hasty: Settings) -> Iterator[ObjectStore]:
    store = make_objects(hasty)
    yield store
    store.close()


@pytest.fixture
def desk(db: Sessions, objects: ObjectStore, hasty: Settings) -> Desk:
    return Desk(sessions=db, objects=objects, settings=hasty)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a role; with `at`, one that dies there (see `dying`). All are gone after the test."""
    stack = ExitStack()

    def begin(role: str, settings: Settings, *, at: str = "", on: str = "", by: str = "exit") -> Process:
        log = tmp_path / f"{role}-{uuid4().hex[:6]}.log"
        if role == "slow worker":
            pace = {"CHAOS_ENGINE": "fake", "CHAOS_JOB_MS": "50"}
            return stack.enter_context(Process("tests.chaos.worker", settings, log, **pace))
        if not at:
            return stack.enter_context(Process(MODULES[role], settings, log))
        trap = {"DIE_IN": MODULES[role], "DIE_AT": at, "DIE_ON": on, "DIE_BY": by}
        return stack.enter_context(Process("tests.chaos.dying", settings, log, **trap))

    yield begin
    stack.close()
