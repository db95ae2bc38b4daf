"""KEDA's objects are judged before a cluster sees them: ours pass, and each mistake is found."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from deploy.keda import CHECKS
from deploy.scaled import scaled_objects
from deploy.scaling import Autoscaler
from deploy.scaling_rules import check_scaling
from tests.triggers.proof import COMPONENTS, manifests

BROKERS = ("rabbitmq", "redis")
MODELS = ("demo", "qwen3-vl-8b")
Tree = dict[str, Any]  # as YAML gives it


def deployment(name: str, model: str | None = None) -> Tree:
    env = [{"name": "VQUEUE_WORKER_MODELS", "value": model}] if model else []
    spec = {"template": {"spec": {"containers": [{"name": "main", "env": env}]}}}
    return {"kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def installation(broker: str = "rabbitmq", model: str = "demo") -> list[Tree]:
    """What scales it, from the files as they are, and what is scaled."""
    scaled: list[Tree] = copy.deepcopy([dict(one) for one in manifests(broker, model)])
    return [*scaled, deployment("vqueue-fetcher"), deployment(f"vqueue-worker-{model}", model)]


def mistakes(found: Sequence[Tree]) -> list[str]:
    """Of each object by itself; of all together where there are none."""
    kinds = [f"{one.get('apiVersion')}/{one['kind']}" for one in found]
    alone = [
        finding
        for kind, one in zip(kinds, found, strict=True)
        if kind in CHECKS
        for finding in CHECKS[kind]("k8s", one)
    ]
    return [str(finding) for finding in alone or check_scaling("k8s", found)]


def named(found: Sequence[Tree], name: str) -> Tree:
    (one,) = (one for one in found if one["metadata"]["name"] == name and one["kind"] != "Deployment")
    return one


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("model", MODELS)
def test_what_scales_our_models_has_no_mistake(broker: str, model: str) -> None:
    found = installation(broker, model)
    assert sum(one["kind"] == "ScaledObject" for one in found) == 2
    assert mistakes(found) == []


def test_every_model_is_scaled_on_every_broker() -> None:
    assert {path.parent.name for path in COMPONENTS.glob("keda-*/*/worker.yaml")} == {*MODELS}
    assert len([*COMPONENTS.glob("keda-*/*/worker.yaml")]) == len(BROKERS) * len(MODELS)


SPEC_MISTAKES: list[tuple[Tree, str]] = [
    ({"cooldownperiod": 5}, "cooldownperiod"),
    ({"pollingInterval": "15"}, "pollingInterval"),
    ({"maxReplicaCount": 0}, "maxReplicaCount"),
    ({"minReplicaCount": 9}, "over 4"),
    ({"idleReplicaCount": 0}, "idleReplicaCount"),
    ({"triggers": []}, "triggers"),
    ({"scaleTargetRef": {"name": "vqueue-workers"}}, "no Deployment vqueue-workers"),
    ({"scaleTargetRef": {"name": "vqueue-fetcher"}}, "another has the same target"),
    ({"fallback": {"failureThreshold": 3, "replicas": 0}}, "fallback"),
    ({"fallback": {"failureThreshold": 3, "replicas": 1, "behavior": "current"}}, "behavior"),
    ({"advanced": {"horizontalPodAutoscalerConfig": {"behaviour": {}}}}, "behaviour"),
]


@pytest.mark.parametrize(("change", "told"), SPEC_MISTAKES)
def test_a_mistake_in_a_scaled_object_is_found(change: Tree, told: str) -> None:
    found = installation()
    named(found, "vqueue-worker-demo")["spec"].update(change)
    assert any(told in mistake for mistake in mistakes(found))


TRIGGER_MISTAKES: list[tuple[Tree, str]] = [
    ({"queuename": "x"}, "queuename"),
    ({"value": "many"}, "'many' cannot be"),
    ({"value": 16}, "not of type 'string'"),
    ({"value": "4"}, "every new one asks for another"),
    ({"mode": "Length"}, "'Length' cannot be"),
    ({"hostsFromEnv": "X"}, "hostsFromEnv"),
    ({"protocol": "amqp"}, "AMQP has no such thing"),
    ({"excludeUnacknowledged": "true"}, "what workers hold"),
    ({"useRegex": "false"}, "had no chunk yet"),
    ({"queueName": "vqueue[.]run[.]"}, "other models' queues"),
    ({"queueName": "^vqueue[.]run[.]demos$"}, "none reads vqueue.run.demo"),
]


@pytest.mark.parametrize(("change", "told"), TRIGGER_MISTAKES)
def test_a_mistake_in_a_trigger_is_found(change: Tree, told: str) -> None:
    found = installation()
    named(found, "vqueue-worker-demo")["spec"]["triggers"][1]["metadata"].update(change)
    assert any(told in mistake for mistake in mistakes(found))


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("broker", BROKERS)
def test_every_trigger_is_needed(broker: str, place: int) -> None:
    found = installation(broker)
    triggers = named(found, "vqueue-worker-demo")["spec"]["triggers"]
    if place < len(triggers):
        del triggers[place]
        assert len(mistakes(found)) == 1


def test_a_login_must_be_there_and_be_of_use() -> None:
    found = installation()
    references = named(found, "vqueue-rabbitmq")["spec"]["secretTargetRef"]
    references[0]["parameter"] = "hosts"
    found = [one for one in found if one["metadata"]["name"] != "vqueue-postgres"]
    secret = {"kind": "Secret", "metadata": {"name": "vqueue-keda"}, "stringData": {}}
    told = "\n".join(mistakes([*found, secret]))
    assert "no TriggerAuthentication vqueue-postgres" in told
    assert "hosts is no parameter of rabbitmq" in told
    assert "does not say where the server is" in told
    assert "Secret vqueue-keda has no RABBITMQ_URL" in told


def test_a_deployment_that_is_scaled_says_no_number_of_replicas() -> None:
    found = installation()
    found[-1]["spec"]["replicas"] = 1
    assert any("spec.replicas" in mistake for mistake in mistakes(found))


def test_the_numbers_in_yaml_are_those_that_are_decided_by() -> None:
    (fetcher, worker) = sorted(scaled_objects(installation()), key=lambda one: one.name)
    assert [trigger.target for trigger in worker.scaling.triggers] == [32, 16, 64, 100]
    assert (fetcher.scaling.maximum, fetcher.scaling.up.stabilization_s) == (8, 30)
    full = {"interactive": 0.0, "standard": 32.0, "background": 0.0, "backlog": 0.0}
    assert Autoscaler(worker.scaling).poll(0, full, 0) == 1
    assert Autoscaler(worker.scaling).sync(0, full, 1) == 2
