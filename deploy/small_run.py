"""A small vqueue in processes of its own with the demo model, and enough work to move every metric."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config import Settings
from app.db import Sessions
from app.local.probes import http_status
from demo.pictures import as_jpeg, draw, product_for
from tests.browser.site import ROLES, Site, running_site
from tests.processes import free_port
from tests.receiver import Received
from tests.serving import sdk
from tests.waiting import eventually

PICTURES = 12
PREFIX = "monitored/"
# What the worker finds in place of NVML: a GPU that is half busy, so that panels about it have something.
NVML = """
from types import SimpleNamespace
def nvmlInit(): ...
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUtilizationRates(handle): return SimpleNamespace(gpu=50)
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(used=70 * 2**30, total=140 * 2**30)
"""
QUESTIONS = ({"name": "colour", "ask": "What colour is it?"}, {"name": "kind", "ask": "What is it?"})


@dataclass(frozen=True)
class SmallRun:
    """Where it is, and the metrics port of each role."""

    site: Site
    ports: Mapping[str, int]

    def work(self, rounds: int) -> None:
        """Batches, one of them twice, a failing image, a chat, webhooks and a sweep, one after the other.

        So many `rounds` ask something new about images that are known.
        """
        for name in ("taken", "refused"):
            self.site.api("POST", "/webhook_endpoints", json=endpoint(f"{self.site.receiver.url}/{name}"))
        table = draw_catalog(self.site)
        self._ask(table, QUESTIONS, near_duplicates={"distance": 4})
        self._ask(table, QUESTIONS)  # kept answers
        for number in range(rounds):  # kept features
            self._ask(table, ({"name": "count", "ask": f"Are there more than {number}?"},))
            self._chat()
        self._sweep()
        self.site.api("DELETE", f"/files/{self._upload(table)}")

    def _upload(self, table: bytes) -> str:
        files = {"file": ("catalog.csv", table)}
        return self.site.api("POST", "/files", files=files, data={"purpose": "batch"})["id"]

    def _ask(self, table: bytes, questions: Sequence[Mapping[str, str]], **wishes: object) -> None:
        """A batch, to its end."""
        form = {
            "image_columns": ["image_url"],
            "id_column": "id",
            "questions": questions,
            "body": {"model": self.site.settings.served_model, "max_tokens": 8},
        }
        body = {
            "input_file_id": self._upload(table),
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "table": form,
            **wishes,
        }
        self.site.wait_for_batch(self.site.api("POST", "/batches", json=body)["id"])

    def _chat(self) -> None:
        with sdk(self.site.url, self.site.keys["admin"]) as client:
            stream = client.chat.completions.create(
                model=self.site.settings.served_model,
                messages=[{"role": "user", "content": "What colour is a tomato?"}],
                max_tokens=8,
                stream=True,
            )
            assert list(stream)

    def _sweep(self) -> None:
        for picture in sorted(self.site.pictures.glob("*.jpg"))[:3]:
            key = f"{PREFIX}{picture.name}"
            self.site.objects.put(key, picture.read_bytes(), content_type="image/jpeg")
        wish = {
            "name": "nightly",
            "source": {"kind": "bucket", "prefix": f"s3://{self.site.settings.s3_bucket}/{PREFIX}"},
            "questions": [{"name": "safe", "ask": "Is it safe?", "choices": ["yes", "no"]}],
            "policy_version": "1",
            "model": self.site.settings.served_model,
        }
        sweep = self.site.api("POST", "/sweeps", json=wish)["id"]
        run = self.site.api("POST", f"/sweeps/{sweep}/run")["id"]

        def ended() -> bool:
            return self.site.api("GET", f"/sweeps/{sweep}/runs/{run}")["status"] == "completed"

        eventually(ended, within_s=120)


def draw_catalog(site: Site) -> bytes:
    """A table of drawn products, the last of which has no picture."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "image_url"])
    for seed in range(PICTURES):
        picture = draw(product_for(seed, held_out=False), seed)
        (site.pictures / f"{seed}.jpg").write_bytes(as_jpeg(picture))
        writer.writerow([f"p{seed}", f"{site.pictures_url}/{seed}.jpg"])
    writer.writerow(["gone", f"{site.pictures_url}/gone.jpg"])
    return table.getvalue().encode()


def endpoint(url: str) -> dict[str, object]:
    return {"name": url[-7:], "url": url, "event_types": ["batch.completed"]}


def answer_webhook(received: Received) -> int:
    return 204 if received.path == "/taken" else 500


@contextmanager
def small_run(settings: Settings, sessions: Sessions, folder: Path) -> Iterator[SmallRun]:
    """The processes, up; nothing is done yet."""
    stub = folder / "stub"
    stub.mkdir()
    (stub / "pynvml.py").write_text(NVML)
    changes: dict[str, Any] = {
        "heartbeat_s": 0.5,
        "feature_check_share": 0.5,
        "prefix_cache_bytes": 0,  # else no image's features are wanted a second time
    }
    ports = {role: free_port() for role in ROLES if role != "api"}
    chosen, path = settings.model_copy(update=changes), f"{stub}:{Path.cwd()}"
    with running_site(chosen, sessions, folder, metrics_ports=ports, PYTHONPATH=path) as site:
        site.receiver.answer = answer_webhook
        ports["api"] = site.settings.port
        for port in ports.values():
            eventually(lambda port=port: http_status(f"http://127.0.0.1:{port}/metrics") == 200, within_s=120)
        yield SmallRun(site, ports)
