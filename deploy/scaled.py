"""ScaledObjects of KEDA as they stand in YAML: what they ask, of whom, with which numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy import scaling
from deploy.scaling import Fallback, Policy, Rules, Scaling, Trigger

# By the type of a trigger: the metadata that say what is a replica's, and from when on there is one.
TARGETS = {
    "rabbitmq": ("value", "activationValue"),
    "redis": ("listLength", "activationListLength"),
    "postgresql": ("targetQueryValue", "activationTargetQueryValue"),
}
Manifest = Mapping[str, Any]  # as YAML gives it


@dataclass(frozen=True)
class Question:
    """One trigger: a type with its metadata, and the TriggerAuthentication that says how to log in."""

    name: str
    type: str
    metadata: Mapping[str, str]
    login: str | None


@dataclass(frozen=True)
class ScaledObject:
    name: str
    target: str  # the Deployment's name
    questions: tuple[Question, ...]
    scaling: Scaling


def scaled_objects(manifests: Sequence[Manifest]) -> list[ScaledObject]:
    """Those among some manifests. KeyError or ValueError for what `deploy.keda` would refuse."""
    return [_scaled_object(one) for one in manifests if one.get("kind") == "ScaledObject"]


def login_parameters(
    question: Question, manifests: Sequence[Manifest], secrets: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """What a trigger logs in with, from Secrets by their names and keys. KeyError for what is missing."""
    for manifest in manifests:
        if manifest.get("kind") == "TriggerAuthentication" and manifest["metadata"]["name"] == question.login:
            references = manifest["spec"].get("secretTargetRef", [])
            return {one["parameter"]: secrets[one["name"]][one["key"]] for one in references}
    raise KeyError(question.login)


def _scaled_object(manifest: Manifest) -> ScaledObject:
    spec = manifest["spec"]
    questions = tuple(_questions(spec["triggers"]))
    behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    return ScaledObject(
        name=manifest["metadata"]["name"],
        target=spec["scaleTargetRef"]["name"],
        questions=questions,
        scaling=Scaling(
            triggers=tuple(_trigger(question) for question in questions),
            minimum=spec.get("minReplicaCount", 0),
            maximum=spec.get("maxReplicaCount", scaling.MOST_REPLICAS),
            polling_s=spec.get("pollingInterval", scaling.POLLING_S),
            cooldown_s=spec.get("cooldownPeriod", scaling.COOLDOWN_S),
            up=_rules(behavior.get("scaleUp", {}), scaling.UP),
            down=_rules(behavior.get("scaleDown", {}), scaling.DOWN),
            fallback=_fallback(spec.get("fallback")),
        ),
    )


def _questions(triggers: Sequence[Manifest]) -> Iterator[Question]:
    for number, trigger in enumerate(triggers):
        login = trigger.get("authenticationRef", {}).get("name")
        yield Question(trigger.get("name", f"s{number}"), trigger["type"], trigger["metadata"], login)


def _trigger(question: Question) -> Trigger:
    target, activation = TARGETS[question.type]
    metadata = question.metadata
    return Trigger(question.name, float(metadata[target]), float(metadata.get(activation, 0)))


def _rules(given: Manifest, default: Rules) -> Rules:
    policies = tuple(
        Policy(one["type"], one["value"], one["periodSeconds"]) for one in given.get("policies", [])
    )
    return Rules(
        policies=policies or default.policies,
        stabilization_s=given.get("stabilizationWindowSeconds", default.stabilization_s),
        select=given.get("selectPolicy", default.select),
        tolerance=float(given.get("tolerance", default.tolerance)),
    )


def _fallback(given: Manifest | None) -> Fallback | None:
    if given is None:
        return None
    return Fallback(given["failureThreshold"], given["replicas"], given.get("behavior", "static"))
