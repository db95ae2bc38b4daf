"""`scripts/trace`: one job through `vqueue up` with the demonstration model, and its trace as a tree."""

import argparse
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from app.local.probes import http_status
from app.local.rabbitmq import installed
from demo.pictures import as_jpeg, draw, product_for
from demo.web import serve_folder
from tests.collector import drawn, of_trace, spans
from tests.processes import free_port
from tests.receiver import Receiver, receiving
from tests.waiting import eventually

QUESTION = "What colour is it?"
UP_S, ANSWER_S, SENT_S, STOP_S = 180.0, 120.0, 20.0, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/trace", description=__doc__)
    brokers = ["redis", "rabbitmq"] if installed() else ["redis"]
    parser.add_argument("--broker", choices=brokers, default="redis")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="vqueue-trace-") as name, receiving() as receiver:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's own user has to pass through
        pictures = folder / "pictures"
        pictures.mkdir()
        (pictures / "product.jpg").write_bytes(as_jpeg(draw(product_for(1, held_out=False), 1)))
        with serve_folder(pictures) as port, up(folder, options.broker, receiver, port) as http:
            ask(
                http, f"http://127.0.0.1:{port}/product.jpg", secrets.token_hex(16)
            )  # the first is never typical
            trace_id = secrets.token_hex(16)
            job = ask(http, f"http://127.0.0.1:{port}/product.jpg?again", trace_id)
            eventually(partial(is_whole, receiver, trace_id), within_s=SENT_S)
            print(f"{QUESTION} {job['answer']['text']}\n{job['id']} in trace {trace_id}\n")
            print(drawn(of_trace(spans(receiver), trace_id)))


@contextmanager
def up(folder: Path, broker: str, receiver: Receiver, pictures: int) -> Iterator[httpx.Client]:
    """A client of a `vqueue up`, which follows only who asks for it."""
    port = free_port()
    variables = {
        "VQUEUE_TRACES_ENDPOINT": receiver.url,
        "VQUEUE_TRACES_SHARE": "0",
        "VQUEUE_FETCH_ALLOW_HOSTS": "127.0.0.1",
        "VQUEUE_FETCH_PORTS": str(pictures),
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    data = folder / "data"
    command = [sys.executable, "-m", "app.cli.main", "up", "--data", str(data), "--port", str(port)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--broker", broker], env=_environment(variables), stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: http_status(f"{url}/readyz") == 200 or process.poll() is not None, within_s=UP_S)
        key = (data / "api-key").read_text().strip()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
            yield http
    except BaseException:
        print((folder / "up.log").read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)


def ask(http: httpx.Client, image: str, trace_id: str) -> Any:
    """The job, once it has ended, followed in this trace."""
    headers = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}
    body = {"question": QUESTION, "image": image, "cache": "off"}
    job = http.post("/v1/jobs", json=body, headers=headers).raise_for_status().json()
    return eventually(partial(_ended, http, job["id"]), within_s=ANSWER_S)


def is_whole(receiver: Receiver, trace_id: str) -> bool:
    """Whether it has the span that ends last."""
    return any(span.name == "run chunk" for span in of_trace(spans(receiver), trace_id))


def _ended(http: httpx.Client, job_id: str) -> Any:
    job = http.get(f"/v1/jobs/{job_id}").json()
    return job if job["status"] in ("completed", "failed") else None


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VQUEUE_")}
    return {**kept, **variables}


if __name__ == "__main__":
    main()
