"""One job in one trace, from the request to the record, across each kind of broker; a batch in its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.collector import Seen, edges, of_trace, spans
from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import line, picture, submit, text
from tests.receiver import Receiver, receiving
from tests.waiting import eventually

PARENT = "00f067aa0ba902b7"
JOB, BATCH = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
WORK = {
    *(("run chunk", "publish chunk"), ("publish chunk", "create job")),
    *((name, "run chunk") for name in ("claim", "read", "engine", "record")),
    *((name, "engine") for name in ("prepare", "first step", "answer")),
}
JOB_EDGES = WORK | {
    ("POST /v1/jobs", PARENT),
    ("create job", "POST /v1/jobs"),
    ("fetch", "create job"),
}
BATCH_EDGES = {
    ("POST /v1/batches", PARENT),
    ("create batch", "POST /v1/batches"),
    *((name, "create batch") for name in ("ingest", "finalize", "deliver webhook")),
}
FIRST_EDGES = WORK | {("create job", "")}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Of spans and of webhooks."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def traced(make_cluster: Callable[..., Cluster], receiver: Receiver) -> Cluster:
    """All roles running; only who asks for it is followed."""
    cluster = make_cluster(traces_endpoint=receiver.url, traces_share=0.0)
    ports = (*cluster.settings.fetch_ports, int(receiver.url.rsplit(":", 1)[1]))
    cluster.settings = cluster.settings.model_copy(update={"fetch_ports": ports})
    cluster.start("api", "dispatcher", "fetcher", "worker")
    return cluster


def followed(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT}-01"}


def complete(receiver: Receiver, trace_id: str, last: str) -> list[Seen]:
    """A trace, once it has a span of this name."""

    def look() -> list[Seen]:
        trace = of_trace(spans(receiver), trace_id)
        return trace if any(span.name == last for span in trace) else []

    return eventually(look, within_s=30)


def ask_job(traced: Cluster) -> str:
    (traced.pictures / "private.jpg").write_bytes(picture(1))
    body = {"question": "private?", "image": f"{traced.pictures_url}/private.jpg?private"}
    job: Any = traced.client().post("/jobs", body=body, cast_to=object, options={"headers": followed(JOB)})
    return job["id"]


def ask_batch(traced: Cluster, receiver: Receiver) -> None:
    traced.client().webhooks.create(name="mine", url=f"{receiver.url}/hook", event_types=["batch.completed"])
    submit(traced, [line(f"r{number}", traced, text("private?")) for number in range(9)], followed(BATCH))


def test_jobs_and_batches_are_followed_from_request_to_record_across_the_broker(
    traced: Cluster, receiver: Receiver
) -> None:
    job_id = ask_job(traced)
    ask_batch(traced, receiver)
    job = complete(receiver, JOB, "run chunk")
    batch = complete(receiver, BATCH, "deliver webhook")
    (ingest,) = [span for span in batch if span.name == "ingest"]
    (root,) = [span for span in spans(receiver) if ingest.id in span.links]
    first = complete(receiver, root.trace_id, "run chunk")

    assert edges(job) == JOB_EDGES
    assert {span.service for span in job} == {f"vqueue-{role}" for role in traced.processes}
    assert {span.attributes.get("vqueue.job") for span in job if span.name == "run chunk"} == {job_id}
    assert JOB in traced.processes["worker"].output()
    assert edges(batch) == BATCH_EDGES
    assert edges(first) == FIRST_EDGES
    assert {span.trace_id for span in spans(receiver)} == {JOB, BATCH, root.trace_id}
    assert not any(span.failed for span in spans(receiver))
    assert not any(b"private" in one.body for one in receiver.received)
