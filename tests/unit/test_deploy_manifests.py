"""The overlays of k8s/: all rules hold, and each rule finds its mistake and names where it is."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from deploy.check import check_examples, check_overlay
from deploy.findings import Finding, title
from deploy.kinds import check_kind
from deploy.overlays import ROOT, BuildError, Overlay, Pod, build, overlay_names, secrets
from deploy.pods import check_pods
from deploy.wiring import check_wiring

GONE = object()
Path = tuple[str | int, ...]
POD: Path = ("spec", "template", "spec")
CONTAINER: Path = (*POD, "containers", 0)


@pytest.fixture(scope="module")
def overlays() -> Mapping[str, Overlay]:
    return {name: build(name) for name in overlay_names()}


def changed(overlay: Overlay, name: str, path: Path, value: object) -> Overlay:
    """The overlay with one field of its first manifest of that name set, or removed by GONE."""
    index = next(at for at, one in enumerate(overlay.manifests) if title(one).startswith(name))
    manifest: Any = copy.deepcopy(overlay.manifests[index])
    place = manifest
    for key in path[:-1]:
        place = place[key]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return Overlay(overlay.name, [manifest, *overlay.manifests[:index], *overlay.manifests[index + 1 :]])


def found(overlay: Overlay, field: str) -> list[Finding]:
    """What is found in such a field. Schemas take their time: only the changed manifest's is asked."""
    findings = [*check_kind(overlay.file, overlay.manifests[0]), *check_pods(overlay), *check_wiring(overlay)]
    return [finding for finding in findings if field in finding.field]


@pytest.mark.parametrize("name", overlay_names())
def test_no_overlay_breaks_a_rule(overlays: Mapping[str, Overlay], name: str) -> None:
    assert [str(finding) for finding in check_overlay(overlays[name])] == []


def test_every_issue_overlay_is_there() -> None:
    assert {"cpu-demo", "gpu", "redis-broker", "vllm"} <= set(overlay_names())


API, WORKER, FETCHER = "Deployment/vqueue-api", "Deployment/vqueue-worker", "Deployment/vqueue-fetcher"
SECURITY: Path = (*CONTAINER, "securityContext")
DRAINS = {"name": "VQUEUE_DRAIN_S", "value": "70"}
MISSPELT = {"name": "VQUEUE_HOSTS", "value": "0.0.0.0"}  # noqa: S104 - where a container listens
WRONG_KEY = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "vqueue", "key": "VQUEUE_PASSWORD"}}}
EVERYWHERE = [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}]


@pytest.mark.parametrize(
    ("name", "path", "value", "field"),
    [
        # Schemas.
        (API, ("spec", "replicaz"), 2, "Deployment/vqueue-api"),
        (API, (*CONTAINER, "ports", 0, "containerPort"), "http", "ports.0.containerPort"),
        # Pod Security `restricted`.
        (API, (*SECURITY, "allowPrivilegeEscalation"), True, "allowPrivilegeEscalation"),
        (API, (*SECURITY, "capabilities"), {}, "capabilities.drop"),
        (API, (*SECURITY, "capabilities", "add"), ["NET_ADMIN"], "capabilities.add"),
        (API, (*SECURITY, "privileged"), True, "privileged"),
        (API, (*SECURITY, "readOnlyRootFilesystem"), False, "readOnlyRootFilesystem"),
        (API, (*SECURITY, "runAsUser"), 0, "runAsUser"),
        (API, (*POD, "securityContext", "runAsNonRoot"), GONE, "runAsNonRoot"),
        (API, (*POD, "securityContext", "seccompProfile"), GONE, "seccompProfile"),
        (API, (*POD, "hostNetwork"), True, "hostNetwork"),
        (API, (*POD, "volumes", 0), {"name": "tmp", "hostPath": {"path": "/tmp"}}, "volumes[tmp]"),  # noqa: S108
        # What our processes need.
        (API, (*POD, "automountServiceAccountToken"), True, "automountServiceAccountToken"),
        (API, (*POD, "enableServiceLinks"), GONE, "enableServiceLinks"),
        (
            "StatefulSet/postgres",
            (*POD, "securityContext", "fsGroupChangePolicy"),
            GONE,
            "fsGroupChangePolicy",
        ),
        (API, (*CONTAINER, "image"), "vqueue-api:latest", "containers[api].image"),
        (API, (*CONTAINER, "resources", "limits", "memory"), GONE, "resources.limits.memory"),
        (API, (*CONTAINER, "livenessProbe"), GONE, "livenessProbe"),
        (WORKER, (*CONTAINER, "startupProbe"), GONE, "startupProbe"),
        (API, (*CONTAINER, "livenessProbe", "httpGet", "port"), "metrics", "livenessProbe"),
        (API, (*CONTAINER, "ports", 0, "containerPort"), 80, "containers[api].ports"),
        (API, (*CONTAINER, "args"), ["vqueue", "apy"], "containers[api].args"),
        (API, (*POD, "initContainers", 0, "args"), ["vqueue", "migrate", "--weight"], "[schema].args"),
        (API, (*CONTAINER, "env", 0), MISSPELT, "VQUEUE_HOSTS"),
        (API, (*CONTAINER, "env", 0), {"name": "VQUEUE_PORT", "value": "http"}, "VQUEUE_PORT"),
        (FETCHER, (*CONTAINER, "env"), [DRAINS], "terminationGracePeriodSeconds"),
        (API, (*CONTAINER, "lifecycle", "preStop", "sleep", "seconds"), 30, "terminationGracePeriodSeconds"),
        # What one manifest says of another.
        (API, ("metadata", "namespace"), GONE, "Deployment/vqueue-api.metadata.namespace"),
        (API, (*POD, "priorityClassName"), "vqueue-controls", "priorityClassName"),
        (API, (*POD, "serviceAccountName"), "vqueue-apis", "serviceAccountName"),
        (API, (*CONTAINER, "envFrom", 1, "secretRef", "name"), "vqueues", "envFrom"),
        (API, (*CONTAINER, "volumeMounts", 0, "name"), "temp", "volumeMounts[temp]"),
        (API, (*CONTAINER, "env", 0), WRONG_KEY, "env[X]"),
        (API, (*POD, "topologySpreadConstraints", 0, "labelSelector"), GONE, "topologySpreadConstraints"),
        (API, ("spec", "replicas"), 3, "Deployment/vqueue-api.spec.replicas"),
        ("PodDisruptionBudget/vqueue-api", ("spec", "selector"), {}, "PodDisruptionBudget/vqueue-api"),
        ("Service/vqueue-api", ("spec", "selector"), {"app": "api"}, "Service/vqueue-api.spec.selector"),
        ("Service/vqueue-api", ("spec", "ports", 0, "targetPort"), "web", "Service/vqueue-api.spec.ports"),
        ("HorizontalPodAutoscaler/", ("spec", "scaleTargetRef", "name"), "api", "spec.scaleTargetRef"),
        ("NetworkPolicy/default-deny", ("spec", "policyTypes"), ["Ingress"], "NetworkPolicy"),
        (
            "NetworkPolicy/callers",
            ("spec", "podSelector", "matchLabels"),
            {"a": "b"},
            "callers.spec.podSelector",
        ),
        ("NetworkPolicy/callers", ("spec", "ingress", 0, "ports", 0, "port"), "web", "callers.spec"),
        ("NetworkPolicy/servers", ("spec", "egress"), EVERYWHERE, "NetworkPolicy/servers.spec.egress"),
        ("NetworkPolicy/internet", ("spec", "egress"), EVERYWHERE, "NetworkPolicy/internet.spec.egress"),
        ("ConfigMap/vqueue", ("data", "VQUEUE_LOG_LEVLE"), "INFO", "VQUEUE_LOG_LEVLE"),
        ("ConfigMap/vqueue", ("data", "VQUEUE_MODELS"), "demo=a, big=b", "VQUEUE_MODELS"),
    ],
)
def test_a_rule_that_is_broken_is_named_with_its_field(
    overlays: Mapping[str, Overlay], name: str, path: Path, value: object, field: str
) -> None:
    broken = changed(overlays["cpu-demo"], name, path, value)
    findings = found(broken, field)
    assert findings
    assert all(one.file == "k8s/overlays/cpu-demo" and one.remedy for one in findings)


def test_a_worker_that_serves_another_model_than_its_label_says_is_found(
    overlays: Mapping[str, Overlay],
) -> None:
    path = ("spec", "template", "metadata", "labels", "vqueue.dev/model")
    assert found(changed(overlays["gpu"], WORKER, path, "qwen3-vl-2b"), "VQUEUE_WORKER_MODELS")


def test_a_claim_that_nobody_made_is_found(overlays: Mapping[str, Overlay]) -> None:
    def has_claim(one: Mapping[str, Any]) -> bool:
        return one["kind"] == "PersistentVolumeClaim"

    without = [one for one in overlays["gpu"].manifests if not has_claim(one)]
    assert found(Overlay("gpu", without), "volumes[models]")


PROMETHEUS = ROOT / "deploy/prometheus"


def kept_ports() -> str:
    """The names of ports that a Prometheus in the cluster keeps, as a pattern."""
    jobs = yaml.safe_load((PROMETHEUS / "kubernetes.yml").read_text())["scrape_configs"]
    port = "__meta_kubernetes_pod_container_port_name"
    return next(one["regex"] for one in jobs[0]["relabel_configs"] if one.get("source_labels") == [port])


def port_names(pod: Pod) -> list[tuple[str, int]]:
    """As Prometheus finds them: a container without ports is found, too, under no name."""
    found: list[tuple[str, int]] = []
    for _, container in pod.containers:
        ports = [(one["name"], one["containerPort"]) for one in container.get("ports", [])]
        found += ports or [("", 0)]
    return found


@pytest.mark.parametrize("name", overlay_names())
def test_each_process_of_ours_and_nothing_else_is_read_by_prometheus_once(
    overlays: Mapping[str, Overlay], name: str
) -> None:
    monitor = yaml.safe_load((PROMETHEUS / "podmonitor.yaml").read_text())
    endpoints = [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]]
    read: dict[str, list[str]] = {}
    for pod in overlays[name].pods():
        note = pod.owner["spec"]["template"]["metadata"].get("annotations", {})
        ours = [port for port in port_names(pod) if re.fullmatch(kept_ports(), port[0])]
        assert [str(number) for _, number in ours] == ([note["prometheus.io/port"]] if note else [])
        read[pod.role] = [port for port, _ in port_names(pod) if port in endpoints]
    processes = {"api": ["http"], "dispatcher": ["metrics"], "fetcher": ["metrics"], "worker": ["metrics"]}
    assert {role: ports for role, ports in read.items() if ports} == processes


def external() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "k8s/examples/external-secret.yaml").read_text())


def drop_key(manifest: dict[str, Any]) -> None:
    manifest["spec"]["data"].pop()


def misspell(manifest: dict[str, Any]) -> None:
    manifest["spec"]["data"][0]["remoteReference"] = manifest["spec"]["data"][0].pop("remoteRef")


def test_the_external_secret_makes_the_secret_of_the_example() -> None:
    assert [str(one) for one in check_examples(external(), secrets("gpu")[0])] == []


@pytest.mark.parametrize("change", [drop_key, misspell])
def test_an_external_secret_that_makes_another_one_is_found(
    change: Callable[[dict[str, Any]], None],
) -> None:
    manifest = external()
    change(manifest)
    assert "spec.data" in next(check_examples(manifest, secrets("gpu")[0])).field


def test_a_kind_that_nobody_judges_is_found() -> None:
    finding = next(
        check_kind("k8s/x.yaml", {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {}})
    )
    assert finding.problem.endswith("has no example.org/v1/Thing")


def test_an_overlay_that_cannot_be_built_says_why() -> None:
    with pytest.raises(BuildError, match="not a valid directory"):
        build("none")
