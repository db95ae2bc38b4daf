"""Whether KEDA takes a ScaledObject or TriggerAuthentication: after the reference of KEDA 2.17 to 2.20.

The API server drops a field that it does not know in silence, and a trigger with wrong metadata shows only in
a status; so unknown ones are mistakes here. `deploy.scaling_rules` judges what they mean for us.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from deploy.findings import Finding, Tree, title

JUDGE = "KEDA 2.17 to 2.20"
MOST_NAME = 63  # of a ScaledObject, which becomes a label's value
Schema = dict[str, Any]  # JSON Schema


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


def _whole(least: int, most: int = 2**31 - 1) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


TEXT: Schema = {"type": "string", "minLength": 1}
TRUTH: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = _object(("name",), name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
POLICY = _object(
    ("type", "value", "periodSeconds"),
    type=_one_of("Pods", "Percent"),
    value=_whole(1),
    periodSeconds=_whole(1, 1800),
)
RULES = _object(
    stabilizationWindowSeconds=_whole(0, 3600),
    selectPolicy=_one_of("Max", "Min", "Disabled"),
    policies=_list(POLICY, 1),
)
ADVANCED = _object(
    restoreToOriginalReplicaCount=TRUTH,
    horizontalPodAutoscalerConfig=_object(name=TEXT, behavior=_object(scaleUp=RULES, scaleDown=RULES)),
    scalingModifiers=_object(
        formula=TEXT, target=TEXT, activationTarget=TEXT, metricType=_one_of("AverageValue", "Value")
    ),
)
TRIGGER = _object(
    ("type", "metadata"),
    type=TEXT,
    name=TEXT,
    useCachedMetrics=TRUTH,
    metadata=TEXTS,
    metricType=_one_of("AverageValue", "Value", "Utilization"),
    authenticationRef=_object(
        ("name",), name=TEXT, kind=_one_of("TriggerAuthentication", "ClusterTriggerAuthentication")
    ),
)
SCALED_OBJECT = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion=TEXT,
    kind=TEXT,
    metadata=METADATA,
    spec=_object(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=_object(("name",), name=TEXT, apiVersion=TEXT, kind=TEXT, envSourceContainerName=TEXT),
        pollingInterval=_whole(1),
        initialCooldownPeriod=_whole(0),
        cooldownPeriod=_whole(0),
        idleReplicaCount=_whole(0, 0),  # the only value that works, by its documentation
        minReplicaCount=_whole(0),
        maxReplicaCount=_whole(1),
        advanced=ADVANCED,
        fallback=_object(
            ("failureThreshold", "replicas"),
            failureThreshold=_whole(0),
            replicas=_whole(0),
            behavior=_one_of(
                "static",
                "currentReplicas",
                "currentReplicasIfHigher",
                "currentReplicasIfLower",
            ),
        ),
        triggers=_list(TRIGGER, 1),
    ),
)
REFERENCE = _object(("parameter", "name", "key"), parameter=TEXT, name=TEXT, key=TEXT)
# Vaults of clouds are left out: ours come from Secrets, which the External Secrets Operator may fill.
TRIGGER_AUTHENTICATION = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion=TEXT,
    kind=TEXT,
    metadata=METADATA,
    spec=_object(
        secretTargetRef=_list(REFERENCE, 1),
        configMapTargetRef=_list(REFERENCE, 1),
        env=_list(_object(("parameter", "name"), parameter=TEXT, name=TEXT, containerName=TEXT), 1),
        filePath=TEXT,
        podIdentity=_object(
            ("provider",),
            provider=_one_of("azure-workload", "gcp", "aws", "aws-eks", "none"),
            identityId=TEXT,
            identityTenantId=TEXT,
            identityAuthorityHost=TEXT,
            roleArn=TEXT,
            externalID=TEXT,
            identityOwner=_one_of("keda", "workload"),
        ),
    ),
)


def _is_number(value: str) -> bool:
    try:
        return float(value) >= 0
    except ValueError:
        return False


def _is_over_zero(value: str) -> bool:
    return _is_number(value) and float(value) > 0


def _is_truth(value: str) -> bool:
    return value in ("true", "false")


def _among(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _is_text(value: str) -> bool:
    return bool(value.strip())


@dataclass(frozen=True)
class TriggerType:
    """Which metadata a type of trigger takes, and which parameters of a TriggerAuthentication.

    `needed` are those without which there is nothing to read or to compare with; each alternative of
    `reached` is enough to find the server, as metadata, `...FromEnv` or parameter.
    """

    metadata: Mapping[str, Callable[[str], bool]]
    parameters: frozenset[str]
    needed: tuple[str, ...]
    reached: tuple[tuple[str, ...], ...]


TYPES = {
    "rabbitmq": TriggerType(
        metadata={
            "queueName": _is_text,
            "mode": _among(
                "QueueLength",
                "MessageRate",
                "DeliverGetRate",
                "PublishedToDeliveredRatio",
                "ExpectedQueueConsumptionTime",
            ),
            "value": _is_over_zero,
            "activationValue": _is_number,
            "host": _is_text,
            "protocol": _among("auto", "http", "amqp"),
            "vhostName": _is_text,
            "useRegex": _is_truth,
            "pageSize": str.isdecimal,
            "operation": _among("sum", "max", "avg"),
            "timeout": str.isdecimal,
            "excludeUnacknowledged": _is_truth,
            "unsafeSsl": _is_truth,
        },
        parameters=frozenset(
            [
                "host",
                "protocol",
                "vhostName",
                "username",
                "password",
                "tls",
                "ca",
                "cert",
                "key",
                "keyPassword",
            ]
        ),
        needed=("queueName", "mode", "value"),
        reached=(("host",),),
    ),
    "redis": TriggerType(
        metadata={
            "listName": _is_text,
            "listLength": _is_over_zero,
            "activationListLength": _is_number,
            "databaseIndex": str.isdecimal,
            "address": _is_text,
            "host": _is_text,
            "port": str.isdecimal,
            "enableTLS": _is_truth,
            "unsafeSsl": _is_truth,
        },
        parameters=frozenset(
            ["address", "host", "port", "username", "password", "tls", "ca", "cert", "key", "keyPassword"]
        ),
        needed=("listName", "listLength"),
        reached=(("address",), ("host", "port")),
    ),
    "postgresql": TriggerType(
        metadata={
            "query": _is_text,
            "targetQueryValue": _is_over_zero,
            "activationTargetQueryValue": _is_number,
            "host": _is_text,
            "port": str.isdecimal,
            "userName": _is_text,
            "dbName": _is_text,
            "sslmode": _among("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        },
        parameters=frozenset(["connection", "host", "port", "userName", "password", "dbName", "sslmode"]),
        needed=("query", "targetQueryValue"),
        reached=(("connection",), ("host", "port", "userName", "dbName", "sslmode")),
    ),
}


def check_scaled_object(file: str, manifest: Tree) -> Iterator[Finding]:
    """What KEDA's schema, its webhook or a trigger would refuse."""
    found = list(_against(SCALED_OBJECT, file, manifest))
    yield from found
    if found:
        return
    yield from _bounds(file, manifest)
    names = [trigger["name"] for trigger in manifest["spec"]["triggers"] if "name" in trigger]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Finding(file, f"{title(manifest)}.spec.triggers", f"two are named {name}", "rename one")
    for number, trigger in enumerate(manifest["spec"]["triggers"]):
        field = f"{title(manifest)}.spec.triggers[{trigger.get('name', number)}]"
        yield from _check_trigger(file, field, trigger)


def check_trigger_authentication(file: str, manifest: Tree) -> Iterator[Finding]:
    """What KEDA's schema would refuse; both kinds of it."""
    yield from _against(TRIGGER_AUTHENTICATION, file, manifest)


CHECKS: Mapping[str, Callable[[str, Tree], Iterator[Finding]]] = {
    "keda.sh/v1alpha1/ScaledObject": check_scaled_object,
    "keda.sh/v1alpha1/TriggerAuthentication": check_trigger_authentication,
    "keda.sh/v1alpha1/ClusterTriggerAuthentication": check_trigger_authentication,
}


def _against(schema: Schema, file: str, manifest: Tree) -> Iterator[Finding]:
    for error in Draft202012Validator(schema).iter_errors(manifest):
        path = ".".join([title(manifest), *(str(part) for part in error.absolute_path)])
        yield Finding(file, path, f"{error.message} ({JUDGE})", "correct the field")


def _bounds(file: str, manifest: Tree) -> Iterator[Finding]:
    spec, where = manifest["spec"], f"{title(manifest)}.spec"
    least, most = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    if least > most:
        yield Finding(file, f"{where}.minReplicaCount", f"{least} is over {most}, the most", "lower it")
    if "idleReplicaCount" in spec and least == 0:
        yield Finding(file, f"{where}.idleReplicaCount", "it must be under the least", "leave it out")
    if len(manifest["metadata"]["name"]) + len("keda-hpa-") > MOST_NAME:
        yield Finding(file, title(manifest), "the name of its HPA has over 63 characters", "shorten it")


def _check_trigger(file: str, field: str, trigger: Tree) -> Iterator[Finding]:
    known = TYPES.get(trigger["type"])
    if known is None:
        remedy = "take one of these, or teach deploy/keda.py its fields"
        yield Finding(file, field, f"type {trigger['type']} is none of {', '.join(TYPES)}", remedy)
        return
    metadata: Mapping[str, str] = trigger["metadata"]
    for name, value in metadata.items():
        if name.endswith("FromEnv"):
            if name.removesuffix("FromEnv") not in {*known.metadata, *known.parameters}:
                yield Finding(file, f"{field}.{name}", "there is no such field", "correct its name")
        elif name not in known.metadata:
            yield Finding(file, f"{field}.{name}", "there is no such field", "correct its name")
        elif not known.metadata[name](value):
            yield Finding(file, f"{field}.{name}", f"{value!r} cannot be", "correct the value")
    for name in known.needed:
        if name not in metadata:
            yield Finding(file, field, f"{name} is missing", "say it")
    yield from _combinations(file, field, trigger)
    if "authenticationRef" not in trigger and not is_reached(known, metadata):
        yield Finding(file, field, "nothing says where its server is", "give it an authenticationRef")


def is_reached(known: TriggerType, given: Mapping[str, str]) -> bool:
    """Whether metadata or parameters name the server."""
    names = {name.removesuffix("FromEnv") for name in given}
    return any(names.issuperset(alternative) for alternative in known.reached)


def _combinations(file: str, field: str, trigger: Tree) -> Iterator[Finding]:
    """What RabbitMQ's scaler refuses together."""
    metadata = trigger["metadata"]
    if trigger["type"] != "rabbitmq" or metadata.get("protocol", "auto") != "amqp":
        return
    for name in ("useRegex", "excludeUnacknowledged", "timeout"):
        if metadata.get(name, "false") != "false":
            yield Finding(file, f"{field}.{name}", "AMQP has no such thing", "protocol: http")
    if metadata.get("mode", "QueueLength") != "QueueLength":
        yield Finding(file, f"{field}.mode", "AMQP tells lengths only", "protocol: http")
