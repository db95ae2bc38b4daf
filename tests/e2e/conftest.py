"""A whole vqueue in processes of its own, around the fake engine, on each kind of broker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from openai import OpenAI
from pydantic import SecretStr

from app.auth import Keys
from app.config import Settings
from app.db import Sessions
from app.local.probes import http_status
from demo.web import serve_folder
from tests.processes import Process, free_port
from tests.rows import Rows
from tests.waiting import eventually

MODULES = {
    "api": "app.main",
    "dispatcher": "app.dispatcher",
    "fetcher": "workers.fetcher",
    "worker": "tests.fake_worker",
}


@dataclass
class Cluster:
    """The processes of one vqueue; each can be killed and started anew."""

    settings: Settings
    folder: Path
    key: str
    rows: Rows
    pictures: Path
    pictures_url: str
    processes: dict[str, Process] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self, *roles: str) -> None:
        for role in roles:
            log = self.folder / f"{role}.log"
            self.processes[role] = self._stack.enter_context(Process(MODULES[role], self.settings, log))
        if "api" in roles:
            eventually(lambda: http_status(f"{self.url}/healthz") == 200, within_s=120)

    def kill(self, role: str) -> None:
        self.processes.pop(role).kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def client(self, key: str | None = None) -> OpenAI:
        """Closed with the cluster: a socket that is left to the garbage collector is a warning."""
        client = OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, max_retries=0)
        self._stack.callback(client.close)
        return client

    def close(self) -> None:
        self._stack.close()

    def logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in self.folder.glob("*.log")
        )


@pytest.fixture
def make_cluster(
    settings: Settings, broker_url: str, db: Sessions, tmp_path: Path
) -> Iterator[Callable[..., Cluster]]:
    stack = ExitStack()

    def make(**changes: object) -> Cluster:
        pictures = tmp_path / "pictures"
        pictures.mkdir(exist_ok=True)
        port = stack.enter_context(serve_folder(pictures))
        chosen = settings.model_copy(
            update={
                "broker_url": SecretStr(broker_url),
                "model_name": f"m{uuid4().hex[:8]}",
                "port": free_port(),
                "lease_s": 3.0,
                "heartbeat_s": 0.5,
                "resend_s": 2.0,
                "dispatch_poll_s": 0.05,
                "fetch_allow_hosts": ("127.0.0.1",),
                "fetch_ports": (port,),
                **changes,
            }
        )
        key = Keys(sessions=db).create(tenant="tenant_a", name="e2e").secret
        cluster = Cluster(chosen, tmp_path, key, Rows(db), pictures, f"http://127.0.0.1:{port}")
        stack.callback(cluster.close)
        return cluster

    yield make
    stack.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """All roles running."""
    cluster = make_cluster()
    cluster.start("api", "dispatcher", "fetcher", "worker")
    return cluster
