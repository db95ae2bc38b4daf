"""Rules for pods: Pod Security's level `restricted`, and what a process of vqueue needs besides."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from app.config import Settings
from deploy import settings as given
from deploy.findings import Finding, Tree
from deploy.overlays import Overlay, Pod

# The volume types that `restricted` admits.
VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
HOST = ("hostNetwork", "hostPID", "hostIPC")


def check_pods(overlay: Overlay) -> Iterator[Finding]:
    """All rules for all pods of an overlay."""
    for pod in overlay.pods():
        yield from _pod_security(overlay.file, pod)
        yield from _pod_needs(overlay.file, pod)
        for field, container in pod.containers:
            yield from _container_security(overlay.file, field, pod, container)
            yield from _container_needs(overlay.file, field, container)
            yield from _process(overlay, field, container)
        for field, container in pod.containers:
            if ".containers[" in field and pod.owner["kind"] != "Job":
                yield from _probes(overlay.file, field, container)
        yield from _grace(overlay, pod)


def _pod_security(file: str, pod: Pod) -> Iterator[Finding]:
    """What `restricted` asks of the pod as a whole."""
    for key in HOST:
        if pod.spec.get(key):
            yield Finding(file, f"{pod.field}.{key}", "the host's own is open to the pod", "remove it")
    for volume in pod.spec.get("volumes", []):
        if not VOLUMES & volume.keys():
            yield Finding(
                file,
                f"{pod.field}.volumes[{volume['name']}]",
                "Pod Security `restricted` refuses this type",
                f"use one of {', '.join(sorted(VOLUMES))}",
            )


def _container_security(file: str, field: str, pod: Pod, container: Tree) -> Iterator[Finding]:
    """What `restricted` asks of a container, and a root file system that is only read."""
    own: Mapping[str, Any] = container.get("securityContext", {})
    both = {**pod.spec.get("securityContext", {}), **own}
    profile = both.get("seccompProfile", {}).get("type")
    rules = [
        ("runAsNonRoot", both.get("runAsNonRoot") is True, "set it to true"),
        ("runAsUser", both.get("runAsUser", 0) != 0, "name a user other than 0"),
        ("seccompProfile", profile in ("RuntimeDefault", "Localhost"), "set type: RuntimeDefault"),
        ("allowPrivilegeEscalation", own.get("allowPrivilegeEscalation") is False, "set it to false"),
        ("capabilities.drop", "ALL" in own.get("capabilities", {}).get("drop", []), "drop ALL"),
        ("capabilities.add", not own.get("capabilities", {}).get("add"), "add none"),
        ("privileged", not own.get("privileged"), "remove it"),
        ("readOnlyRootFilesystem", own.get("readOnlyRootFilesystem") is True, "set it to true"),
    ]
    for key, holds, remedy in rules:
        if not holds:
            yield Finding(file, f"{field}.securityContext.{key}", "the container may do too much", remedy)


def _pod_needs(file: str, pod: Pod) -> Iterator[Finding]:
    spec = pod.spec
    rules = [
        (
            "automountServiceAccountToken",
            spec.get("automountServiceAccountToken") is False,
            "set it to false",
        ),
        ("enableServiceLinks", spec.get("enableServiceLinks") is False, "set it to false"),
        ("priorityClassName", bool(spec.get("priorityClassName")), "name vqueue-control or vqueue-work"),
        ("terminationGracePeriodSeconds", "terminationGracePeriodSeconds" in spec, "say how long, and why"),
    ]
    if pod.owner["spec"].get("volumeClaimTemplates"):
        # Else each mount opens all files to the group, and servers that want theirs closed do not start.
        policy = spec.get("securityContext", {}).get("fsGroupChangePolicy")
        rules.append(("fsGroupChangePolicy", policy == "OnRootMismatch", "set it to OnRootMismatch"))
    for key, holds, remedy in rules:
        if not holds:
            yield Finding(file, f"{pod.field}.{key}", "it is left to the cluster's default", remedy)


def _container_needs(file: str, field: str, container: Tree) -> Iterator[Finding]:
    yield from given.check_image(file, f"{field}.image", container.get("image", ""))
    resources = container.get("resources", {})
    for kind, key in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
        if key not in resources.get(kind, {}):
            yield Finding(
                file, f"{field}.resources.{kind}.{key}", "it is missing", "set it, with its reason beside it"
            )


def _probes(file: str, field: str, container: Tree) -> Iterator[Finding]:
    if "livenessProbe" not in container:
        yield Finding(
            file, f"{field}.livenessProbe", "it is missing", "a process that hangs must be restarted"
        )
    if "startupProbe" not in container and "readinessProbe" not in container:
        yield Finding(file, f"{field}.startupProbe", "it is missing", "a rollout must know when it is up")
    ports = {port.get("name") for port in container.get("ports", [])}
    numbers = {port["containerPort"] for port in container.get("ports", [])}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        port = container.get(kind, {}).get("httpGet", {}).get("port")
        if port is not None and port not in ports | numbers:
            yield Finding(
                file, f"{field}.{kind}", f"the container has no port {port}", "name one of its ports"
            )


def environment(overlay: Overlay, container: Tree) -> dict[str, str]:
    """The variables of a container, as far as ConfigMaps and Secrets of the overlay give them."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if key in source:
                found |= contents(overlay, kind, source[key]["name"])
    for variable in container.get("env", []):
        reference = variable.get("valueFrom", {}).get("secretKeyRef", {})
        values = contents(overlay, "Secret", reference.get("name", ""))
        value = values.get(reference.get("key"), _of_resources(variable, container))
        found[variable["name"]] = variable.get("value", value)
    return found


def _of_resources(variable: Tree, container: Tree) -> str:
    """What a container is told of its own requests and limits, in whole CPUs."""
    wanted = variable.get("valueFrom", {}).get("resourceFieldRef", {}).get("resource", "")
    kind, _, key = wanted.partition(".")
    amount: str = container.get("resources", {}).get(kind, {}).get(key, "")
    thousandths = amount.removesuffix("m") if amount.endswith("m") else None
    return str(-(-int(thousandths) // 1000)) if thousandths else amount


def contents(overlay: Overlay, kind: str, name: str) -> dict[str, str]:
    """What a ConfigMap or Secret holds; nothing where there is none of that name."""
    for manifest in overlay.of_kind(kind):
        if manifest["metadata"]["name"] == name:
            return {**manifest.get("data", {}), **manifest.get("stringData", {})}
    return {}


def process_settings(overlay: Overlay, container: Tree) -> Settings | None:
    """The settings of a process; None where it would refuse them, which `_process` tells."""
    try:
        return given.read_settings(environment(overlay, container))
    except ValidationError:
        return None


def _process(overlay: Overlay, field: str, container: Tree) -> Iterator[Finding]:
    """A process of ours: settings that exist and are taken, a command that exists, its ports."""
    words = list(container.get("args", []))
    variables = environment(overlay, container)
    yield from given.check_names(overlay.file, f"{field}.env", variables)
    if not words or words[0] != "vqueue":
        return
    yield from given.check_values(overlay.file, f"{field}.env", variables)
    yield from given.check_command(overlay.file, f"{field}.args", words)
    settings = process_settings(overlay, container)
    if settings is None or not container.get("ports"):
        return
    wanted = settings.port if words[1] == "api" else settings.metrics_port
    listens = [port["containerPort"] for port in container["ports"]]
    if wanted not in listens:
        variable = "VQUEUE_PORT" if words[1] == "api" else "VQUEUE_METRICS_PORT"
        yield Finding(
            overlay.file,
            f"{field}.ports",
            f"{variable} is {wanted}, the ports are {listens}",
            "make them agree",
        )


def _grace(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    """More time to end than preStop and the drain take: who is killed meanwhile costs a lease."""
    for field, container in pod.containers:
        settings = process_settings(overlay, container) if ".containers[" in field else None
        needed_s = settings and given.least_grace_s(pod.role, settings)
        if needed_s is None:
            continue
        hook = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        needed_s += hook.get("seconds", 0)
        grace_s = pod.spec.get("terminationGracePeriodSeconds", 30)
        if grace_s < needed_s:
            yield Finding(
                overlay.file,
                f"{pod.field}.terminationGracePeriodSeconds",
                f"{grace_s} s are less than preStop, drain and closing take, {needed_s:g} s",
                "raise it, or lower VQUEUE_DRAIN_S",
            )
