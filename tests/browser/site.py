"""A whole vqueue in processes of its own with the demo model, and something to look at."""

import csv
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from app.auth import Keys
from app.config import Settings
from app.db import Sessions
from app.local.probes import http_status
from demo.pictures import as_jpeg, draw, product_for
from demo.web import serve_folder
from tests.processes import Process, free_port
from tests.rows import Rows
from tests.waiting import eventually

ROLES = {
    "api": "app.main",
    "dispatcher": "app.dispatcher",
    "fetcher": "workers.fetcher",
    "worker": "workers.main",
}
PICTURES = 12
COLOURS = ["red", "green", "blue", "yellow", "black", "white"]
QUESTIONS = [
    {"name": "colour", "ask": "What colour is the {kind}?", "schema": {"enum": COLOURS}},
    {"name": "evil", "ask": "<script>document.title = 'broken'</script> What is it?"},
]


@dataclass
class Site:
    """Where it is, and keys of one tenant for each role."""

    url: str
    settings: Settings
    admin: str
    viewer: str
    batch_id: str = ""
    image: str = ""  # the content hash of one of the catalog's

    def api(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.admin}"}
        answer = httpx.request(method, f"{self.url}/v1{path}", headers=headers, timeout=60, **options)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def has_answers(self) -> bool:
        return self.api("GET", f"/batches/{self.batch_id}")["status"] == "completed"


@contextmanager
def running_site(settings: Settings, sessions: Sessions, folder: Path) -> Iterator[Site]:
    """With a finished batch of a small catalog, one picture of which is missing."""
    pictures = folder / "pictures"
    pictures.mkdir()
    with ExitStack() as stack:
        port = stack.enter_context(serve_folder(pictures))
        chosen = settings.model_copy(
            update={
                "model": "models/demo",
                "model_name": f"demo-{uuid4().hex[:4]}",
                "torch_threads": 1,
                "port": free_port(),
                "dispatch_poll_s": 0.05,
                "fetch_allow_hosts": ("127.0.0.1",),
                "fetch_ports": (port,),
            }
        )
        for role, module in ROLES.items():
            stack.enter_context(Process(module, chosen, folder / f"{role}.log"))
        url = f"http://127.0.0.1:{chosen.port}"
        eventually(lambda: http_status(f"{url}/healthz") == 200, within_s=120)
        keys = Keys(sessions=sessions)
        made = [keys.create(tenant="Ada", name=name, scopes=scopes).secret for name, scopes in ROLE_SCOPES]
        site = Site(url, chosen, *made)
        site.batch_id = submit(site, draw_catalog(pictures, f"http://127.0.0.1:{port}"))
        eventually(site.has_answers, within_s=240)
        site.image = Rows(sessions).one("SELECT min(content_hash) FROM images")
        yield site


ROLE_SCOPES = (("admin", ["*"]), ("viewer", ["read"]))


def draw_catalog(folder: Path, url: str) -> bytes:
    """A table of drawn products, the last of which has no picture."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "kind", "image_url"])
    for seed in range(PICTURES):
        product = product_for(seed, held_out=False)
        (folder / f"{seed}.jpg").write_bytes(as_jpeg(draw(product, seed)))
        writer.writerow([f"p{seed}", "product", f"{url}/{seed}.jpg"])
    writer.writerow(["gone", "product", f"{url}/gone.jpg"])
    return table.getvalue().encode()


def submit(site: Site, table: bytes, name: str = "catalog") -> str:
    file = site.api("POST", "/files", files={"file": ("catalog.csv", table)}, data={"purpose": "batch"})
    body = {
        "input_file_id": file["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"name": name},
        "table": {
            "image_columns": ["image_url"],
            "id_column": "id",
            "questions": QUESTIONS,
            "body": {"model": site.settings.served_model, "max_tokens": 16},
        },
    }
    return site.api("POST", "/batches", json=body)["id"]
