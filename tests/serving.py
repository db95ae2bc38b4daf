"""Our web app on a real server and a free port, in a thread of the test run."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn
from openai import OpenAI
from starlette.types import ASGIApp

from app.auth import Keys
from app.db import Sessions
from tests.waiting import eventually


@contextmanager
def serving(app: ASGIApp, **options: Any) -> Iterator[str]:
    """The base URL of the app while it is served; `options` are uvicorn's."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, **options))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive())
        host, port = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def new_key(sessions: Sessions, tenant: str = "Ada") -> str:
    return Keys(sessions=sessions).create(tenant=tenant, name="test").secret


def sdk(url: str, key: str, *, max_retries: int = 0) -> OpenAI:
    """The official SDK, unchanged; without its retries unless a test is about them."""
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=max_retries, timeout=60)
