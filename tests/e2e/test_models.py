"""Several models, end to end: clients ask by name or alias, each job is answered by the model it is for."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from openai import NotFoundError, OpenAI

from app.config import read_option
from app.model_list import read_models
from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import codes, ended, line, rows_of, submit, text
from tests.waiting import eventually


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two models in one worker. Their names are the run's own, as queues stay on the broker."""
    run = uuid4().hex[:8]
    cluster = make_cluster(
        models=read_models(f"small-{run}=/models/4b max_new_tokens=64,large-{run}=/models/8b", read_option),
        model_aliases={"gpt-4o-mini": f"small-{run}", "org/large": f"large-{run}", "default": f"large-{run}"},
    )
    cluster.start("api", "dispatcher", "worker")
    return cluster


def asked(custom_id: str, cluster: Cluster, model: str, **params: object) -> dict[str, object]:
    row = line(custom_id, cluster, text(f"{custom_id}?"))
    return {**row, "body": {**row["body"], "model": model, **params}}


def fingerprints(cluster: Cluster, file_id: str | None) -> dict[str, tuple[str, str]]:
    """Of each answer the model that it names, and the checkpoint that made it."""
    bodies = {row["custom_id"]: row["response"]["body"] for row in rows_of(cluster, file_id)}
    return {name: (body["model"], body["system_fingerprint"]) for name, body in bodies.items()}


def test_one_batch_asks_two_models_by_names_and_aliases(cluster: Cluster) -> None:
    small, large = cluster.settings.served_models
    by = {"a": small, "b": large, "c": "gpt-4o-mini", "d": "org/large", "e": "gpt-5"}
    rows = [asked(custom_id, cluster, model) for custom_id, model in by.items()]
    rows.append(asked("f", cluster, "gpt-4o-mini", max_tokens=65))
    rows.append(asked("g", cluster, "org/large", max_tokens=65))
    batch = ended(cluster, submit(cluster, rows))
    ours, theirs = (small, "of /models/4b"), (large, "of /models/8b")
    found = fingerprints(cluster, batch.output_file_id)
    assert found == {"a": ours, "b": theirs, "c": ours, "d": theirs, "g": theirs}
    assert codes(cluster, batch) == {"e": "model_not_found", "f": "invalid_request"}
    assert batch.model == small


def test_the_models_are_listed_with_their_aliases(cluster: Cluster) -> None:
    small, large = cluster.settings.served_models
    client = cluster.client()
    names = [small, large, "gpt-4o-mini", "org/large", "default"]
    assert [model.id for model in client.models.list()] == names
    assert client.models.retrieve("org/large").model_dump()["root"] == large
    with pytest.raises(NotFoundError, match=rf"there are {', '.join(names)}"):
        client.models.retrieve("gpt-5")


def test_a_job_goes_to_the_model_that_it_names_or_to_the_default(cluster: Cluster) -> None:
    small, large = cluster.settings.served_models
    client = cluster.client()
    assert answered_by(client) == {"model": large, "revision": "of /models/8b"}
    assert answered_by(client, model="gpt-4o-mini") == {"model": small, "revision": "of /models/4b"}
    with pytest.raises(NotFoundError, match="use small-") as refused:
        answered_by(client, model="gpt-5")
    assert refused.value.code == "model_not_found"


def answered_by(client: OpenAI, **wish: object) -> dict[str, str]:
    """Post a job, wait for its answer, and say which model gave it."""
    body = {"question": "Who are you?", **wish}
    job = client.post("/jobs", cast_to=dict[str, object], body=body)

    def answered() -> dict[str, str] | None:
        now = client.get(f"/jobs/{job['id']}", cast_to=dict[str, object])
        answer = now["answer"]
        return (
            {"model": str(now["model"]), "revision": answer["revision"]} if isinstance(answer, dict) else None
        )

    found = eventually(answered, within_s=30)
    assert found is not None
    return found
