"""Whether what scales an installation fits what it scales: targets, logins, queues, numbers, drains."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from app.config import Settings
from app.queue import held_key, queue_name
from app.states import Priority
from deploy.findings import Finding, Tree, title
from deploy.keda import TYPES, is_reached
from deploy.scaled import Question, ScaledObject, scaled_objects

OTHER_MODEL = "another-model"  # whose queues no trigger of a model may count
# By the scheme of VQUEUE_BROKER_URL, who is asked for its queues.
ASKED = {"amqp": "rabbitmq", "amqps": "rabbitmq", "redis": "redis", "rediss": "redis"}
FUNCTIONS = re.compile(r"SELECT vqueue_(demand\('[\w.-]+'.*\)|fetch_demand\(.*\))")
# To read 17.5 GB of weights takes as long at 100 MB/s (docs/scaling.md#why-each-number).
GPU, GPU_START_S = "nvidia.com/gpu", 180


def check_scaling(file: str, manifests: Sequence[Tree]) -> Iterator[Finding]:
    """What is wrong of the ScaledObjects among all manifests of an installation, each valid by itself."""
    found = scaled_objects(manifests)
    deployments = {one["metadata"]["name"]: one for one in manifests if one.get("kind") == "Deployment"}
    targets = [scaled.target for scaled in found]
    yield from _check_unscaled(file, deployments, targets)
    for scaled in found:
        field = f"ScaledObject/{scaled.name}"
        if scaled.target not in deployments:
            yield Finding(
                file, f"{field}.spec.scaleTargetRef", f"no Deployment {scaled.target}", "correct it"
            )
            continue
        if targets.count(scaled.target) > 1:
            yield Finding(file, f"{field}.spec.scaleTargetRef", "another has the same target", "join them")
        yield from _check_numbers(file, field, scaled)
        yield from _check_deployment(file, deployments[scaled.target])
        yield from _check_start(file, field, scaled, deployments[scaled.target])
        yield from _check_broker(file, field, scaled, manifests)
        for question in scaled.questions:
            yield from _check_login(file, field, question, manifests)
        if models := _models(deployments[scaled.target]):
            yield from _check_model(file, field, scaled, models)


def _check_numbers(file: str, field: str, scaled: ScaledObject) -> Iterator[Finding]:
    fallback = scaled.scaling.fallback
    if fallback is None or fallback.replicas == 0:
        problem = (
            "without a fallback to one at least, servers that do not answer scale it to zero or freeze it"
        )
        yield Finding(file, f"{field}.spec.fallback", problem, "replicas: 1")
    if scaled.scaling.down.stabilization_s == 0:
        problem = "every dip of a queue ends workers"
        yield Finding(file, f"{field}.spec.advanced", problem, "give scaleDown a stabilization window")


def _check_unscaled(file: str, deployments: Mapping[str, Tree], targets: Sequence[str]) -> Iterator[Finding]:
    """Where KEDA scales anything, it scales all who work: who is forgotten stays one for ever."""
    for name, deployment in deployments.items():
        labels: Mapping[str, str] = deployment["spec"]["template"].get("metadata", {}).get("labels", {})
        role = labels.get("app.kubernetes.io/component")
        if targets and name not in targets and role in ("worker", "fetcher"):
            yield Finding(file, title(deployment), "no ScaledObject has it as its target", "give it one")


def _check_start(file: str, field: str, scaled: ScaledObject, deployment: Tree) -> Iterator[Finding]:
    """Who loads for minutes is not sent away for a lull of seconds."""
    containers: Sequence[Mapping[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    if not any(GPU in one.get("resources", {}).get("limits", {}) for one in containers):
        return
    waits = {
        "cooldownPeriod": scaled.scaling.cooldown_s,
        "advanced.scaleDown.stabilizationWindowSeconds": scaled.scaling.down.stabilization_s,
    }
    for name, given_s in waits.items():
        if given_s < GPU_START_S:
            problem = f"{given_s:g} s are less than its model takes to load"
            yield Finding(file, f"{field}.spec.{name}", problem, f"at least {GPU_START_S}")


def _check_broker(
    file: str, field: str, scaled: ScaledObject, manifests: Sequence[Tree]
) -> Iterator[Finding]:
    """That the broker which is used is the one that is asked, and Postgres for what it can answer."""
    secret = _named(manifests, "Secret", "vqueue") or {}
    url = urlsplit(secret.get("stringData", {}).get("VQUEUE_BROKER_URL", ""))
    for question in scaled.questions:
        where = f"{field}.spec.triggers[{question.name}]"
        query = question.metadata.get("query", "SELECT vqueue_fetch_demand()")
        if not FUNCTIONS.fullmatch(query):
            yield Finding(
                file, where, f"there is no such function: {query}", "vqueue_demand or vqueue_fetch_demand"
            )
        if question.type not in ASKED.values() or not url.scheme:
            continue
        if question.type != ASKED.get(url.scheme):
            yield Finding(
                file, where, f"the broker is {url.scheme}, and {question.type} is asked", "take its component"
            )
        base = url.path.strip("/") or "0"
        if question.type == "redis" and question.metadata.get("databaseIndex", "0") != base:
            problem = f"VQUEUE_BROKER_URL has its queues in database {base}"
            yield Finding(file, f"{where}.databaseIndex", problem, f'databaseIndex: "{base}"')


def _check_deployment(file: str, deployment: Tree) -> Iterator[Finding]:
    if "replicas" in deployment["spec"]:
        problem = "every apply would set it against the autoscaler"
        yield Finding(file, f"{title(deployment)}.spec.replicas", problem, "leave it out")


def _check_login(file: str, field: str, question: Question, manifests: Sequence[Tree]) -> Iterator[Finding]:
    """That a TriggerAuthentication is there, that it gives what is missing, and the Secrets that it names."""
    where = f"{field}.spec.triggers[{question.name}]"
    if question.login is None:
        return
    login = _named(manifests, "TriggerAuthentication", question.login)
    if login is None:
        yield Finding(file, where, f"no TriggerAuthentication {question.login}", "correct its name")
        return
    references: Sequence[Mapping[str, str]] = login["spec"].get("secretTargetRef", [])
    given = {one["parameter"]: one["key"] for one in references}
    known = TYPES[question.type]
    for name in sorted(given.keys() - known.parameters):
        yield Finding(file, title(login), f"{name} is no parameter of {question.type}", "leave it out")
    if not is_reached(known, {**question.metadata, **given}):
        yield Finding(file, title(login), "it does not say where the server is", "add the parameter")
    for one in references:
        secret = _named(manifests, "Secret", one["name"])
        if secret is not None and one["key"] not in secret.get("stringData", {}):
            yield Finding(file, title(login), f"Secret {one['name']} has no {one['key']}", "add the key")


def _check_model(file: str, field: str, scaled: ScaledObject, models: Sequence[str]) -> Iterator[Finding]:
    """That all queues of the models and the work behind them are asked for, and nobody else's."""
    where = f"{field}.spec.triggers"
    asked = {name for question in scaled.questions for name in _queues(question, models)}
    wanted = {queue_name(model, priority) for model in models for priority in Priority}
    if any(question.type == "redis" for question in scaled.questions):
        wanted.add(held_key(models))
    for name in sorted(wanted - asked):
        yield Finding(file, where, f"none reads {name}", "add one, or correct a name")
    for question in scaled.questions:
        if _queues(question, [OTHER_MODEL, *(f"{model}-2" for model in models)]):
            yield Finding(file, where, f"{question.name} counts other models' queues", "anchor its pattern")
        if question.type == "rabbitmq":
            yield from _check_rabbitmq(file, f"{where}[{question.name}]", question)
    for model in models:
        if not any(f"vqueue_demand('{model}'" in one.metadata.get("query", "") for one in scaled.questions):
            problem = f"none asks for what waits in Postgres for {model}"
            yield Finding(file, where, problem, f"SELECT vqueue_demand('{model}')")


def _queues(question: Question, models: Sequence[str]) -> set[str]:
    """Which queues and hashes of these models a trigger counts."""
    names = {queue_name(model, priority) for model in models for priority in Priority}
    match question.type:
        case "rabbitmq":
            wanted = question.metadata["queueName"]
            if question.metadata.get("useRegex") == "true":
                return {name for name in names if re.search(wanted, name)}
            return names & {wanted}
        case "redis":
            return {*names, held_key(models)} & {question.metadata["listName"]}
        case _:
            return set()


def _check_rabbitmq(file: str, where: str, question: Question) -> Iterator[Finding]:
    metadata = question.metadata
    if metadata.get("protocol") != "http" or metadata.get("excludeUnacknowledged") == "true":
        problem = "it does not count what workers hold, so busy ones are scaled in"
        yield Finding(file, where, problem, "protocol: http, without excludeUnacknowledged")
    if metadata.get("useRegex") != "true":
        problem = "a queue that had no chunk yet is not found, and the fallback starts workers"
        yield Finding(file, where, problem, "a pattern and useRegex")
    held = Settings.model_fields["worker_threads"].default
    if float(metadata["value"]) <= held:
        problem = f"each worker holds {held} chunks, so every new one asks for another"
        yield Finding(file, f"{where}.value", problem, f"a value over {held}")


def _models(deployment: Tree) -> tuple[str, ...]:
    """Those that the workers of a Deployment load, where it says so itself."""
    containers: Sequence[Mapping[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    for container in containers:
        for variable in container.get("env", []):
            if variable["name"] == "VQUEUE_WORKER_MODELS" and "value" in variable:
                return tuple(name.strip() for name in variable["value"].split(","))
    return ()


def _named(manifests: Sequence[Tree], kind: str, name: str) -> Tree | None:
    same = [one for one in manifests if one.get("kind") == kind and one["metadata"]["name"] == name]
    return same[0] if same else None
