"""The API keeps to what /openapi.json says of it, whatever it is sent, and never fails itself."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from openai import OpenAI

from app.loops import Loop
from tests.chatting import working
from tests.contract.explore import explore
from tests.contract.objects import make_objects
from tests.desk import Desk
from workers.engine.fake import FakeEngine

CASES = 25  # of each operation


@contextmanager
def fetching(desk: Desk) -> Iterator[None]:
    """A fetcher for whom every download goes well, and a worker that is heard of, while the block runs."""

    def step() -> bool:
        desk.execute("UPDATE workers SET heartbeat_at = now()")
        return bool(desk.fetch())

    loop = Loop("fetch", step, idle_s=0.05)
    loop.start()
    yield
    loop.stop()
    assert loop.join(10)


def test_every_operation_keeps_to_its_description(
    client: OpenAI,
    api_url: str,
    api_key: str,
    desk: Desk,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with working(desk.sessions, desk.settings, FakeEngine()), fetching(desk):
        known = make_objects(client)
        desk.execute("UPDATE batches SET status = 'completed' WHERE id = :id", id=known["batch_id"][0])
        found = explore(api_url, api_key, known, examples=CASES)
    with capsys.disabled():
        sys.stdout.write(f"\n{found.line()}\n")
    assert found.problems == []
    assert found.server_errors == 0
