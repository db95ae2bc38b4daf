"""A whole vqueue in processes of its own with the demo model, of which the console's pages tell."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import httpx

from app.auth import Keys
from app.config import Settings
from app.db import Sessions
from app.local.probes import http_status
from app.objects import ObjectStore, make_objects
from demo.web import serve_folder
from tests.processes import Process, free_port
from tests.receiver import Receiver, receiving
from tests.rows import Rows
from tests.waiting import eventually

ROLES = {
    "api": "app.main",
    "dispatcher": "app.dispatcher",
    "fetcher": "workers.fetcher",
    "worker": "workers.main",
}
# Keys of one tenant: the name of each and what it opens.
PEOPLE = {"admin": ["*"], "viewer": ["read"], "Mei": ["read", "review"], "Tom": ["read", "review"]}
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "black"]
WITHIN_S = 240


@dataclass
class Site:
    """Where it is, the secrets of its keys by their names, and the ids of what stands there."""

    url: str
    settings: Settings
    rows: Rows
    objects: ObjectStore
    pictures: Path  # a folder that is served under `pictures_url`
    pictures_url: str
    receiver: Receiver
    keys: Mapping[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def batch_id(self) -> str:
        return self.ids["batch"]

    def api(self, method: str, path: str, *, by: str = "admin", **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.keys[by]}"}
        answer = httpx.request(method, f"{self.url}/v1{path}", headers=headers, timeout=60, **options)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def wait_for_batch(self, batch_id: str) -> None:
        eventually(
            lambda: self.api("GET", f"/batches/{batch_id}")["status"] == "completed", within_s=WITHIN_S
        )


@contextmanager
def running_site(
    settings: Settings,
    sessions: Sessions,
    folder: Path,
    *,
    metrics_ports: Mapping[str, int] = MappingProxyType({}),
    **variables: str,
) -> Iterator[Site]:
    """Empty: `tests.browser.furniture` says what there is to be seen. `variables` go to its processes."""
    pictures = folder / "pictures"
    pictures.mkdir()
    with ExitStack() as stack:
        port = stack.enter_context(serve_folder(pictures))
        receiver = stack.enter_context(receiving())
        chosen = settings.model_copy(
            update={
                "model": "models/demo",
                "model_name": settings.model_name or f"demo-{uuid4().hex[:4]}",
                "torch_threads": 1,
                "port": free_port(),
                "dispatch_poll_s": 0.05,
                "fetch_allow_hosts": ("127.0.0.1",),
                "fetch_ports": (port, int(receiver.url.rpartition(":")[2])),
                "s3_source_buckets": (settings.s3_bucket,),
            }
        )
        for role, module in ROLES.items():
            own = chosen.model_copy(update={"metrics_port": metrics_ports.get(role, 0)})
            stack.enter_context(Process(module, own, folder / f"{role}.log", **variables))
        url = f"http://127.0.0.1:{chosen.port}"
        eventually(lambda: http_status(f"{url}/healthz") == 200, within_s=120)
        keys = Keys(sessions=sessions)
        made = {name: keys.create(tenant="Ada", name=name, scopes=scopes) for name, scopes in PEOPLE.items()}
        rows = Rows(sessions)
        rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Ada'")
        yield Site(
            url=url,
            settings=chosen,
            rows=rows,
            objects=make_objects(chosen),
            pictures=pictures,
            pictures_url=f"http://127.0.0.1:{port}",
            receiver=receiver,
            keys={name: one.secret for name, one in made.items()},
        )


def submit(
    site: Site,
    table: bytes,
    *,
    name: str,
    questions: Sequence[Mapping[str, Any]] = ({"name": "colour", "ask": "What colour is it?"},),
    policy: str = "1",
) -> str:
    """A batch of a table with the columns `id` and `image_url`; its id."""
    file = site.api("POST", "/files", files={"file": ("catalogue.csv", table)}, data={"purpose": "batch"})
    body = {
        "input_file_id": file["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"name": name, "vqueue_policy_version": policy},
        "table": {
            "image_columns": ["image_url"],
            "id_column": "id",
            "questions": list(questions),
            "body": {"model": site.settings.served_model, "max_tokens": 24, "logprobs": True},
        },
    }
    return site.api("POST", "/batches", json=body)["id"]
