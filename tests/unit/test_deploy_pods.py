"""The pods of k8s/: how they start, what they have, and who scales them; each mistake is found."""

from collections.abc import Mapping
from typing import Any

import pytest

from deploy.findings import title
from deploy.overlays import Overlay, build
from deploy.resources import check_resources, quantity
from deploy.scaling_rules import check_scaling
from deploy.starts import check_starts
from tests.unit.test_deploy_network import changed

CPU, GPU, REDIS = "cpu-demo", "gpu", "redis-broker"
API, FETCHER = "Deployment/vqueue-api", "Deployment/vqueue-fetcher"
WORKER, DEMO = "Deployment/vqueue-worker-qwen3-vl-8b", "Deployment/vqueue-worker-demo"
SCALER = "ScaledObject/vqueue-worker-qwen3-vl-8b"
DEMO_SCALER = "ScaledObject/vqueue-worker-demo"
POD, MAIN = "spec.template.spec", "spec.template.spec.containers.0"
METADATA = "spec.template.metadata"
LIMITS = {"cpu": "8", "memory": "32Gi"}
BEHAVIOR = "spec.advanced.horizontalPodAutoscalerConfig.behavior"
GPU_REQUEST = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
BUDGETS = {"name": "VQUEUE_FEATURE_CACHE_BYTES", "value": str(40 * 2**30)}
RWO = ["ReadWriteOnce"]


@pytest.fixture(scope="module")
def overlays() -> Mapping[str, Overlay]:
    return {name: build(name) for name in (CPU, GPU, REDIS)}


def said(overlay: Overlay) -> str:
    found = (
        *check_starts(overlay),
        *check_resources(overlay),
        *check_scaling(overlay.file, overlay.manifests),
    )
    return "\n".join(str(one) for one in found)


@pytest.mark.parametrize(
    ("name", "what", "change", "told"),
    [
        # Starting.
        (CPU, FETCHER, {f"{POD}.initContainers": []}, "it does not wait for the schema"),
        (CPU, FETCHER, {f"{POD}.initContainers.0.args": ["vqueue", "migrate"]}, "which is the Job's to do"),
        (
            CPU,
            "Job/vqueue-migrate",
            {f"{MAIN}.args": ["vqueue", "migrate", "--wait", "9"]},
            "brings the schema up",
        ),
        (CPU, FETCHER, {f"{METADATA}.annotations": {}}, "Prometheus does not look at it"),
        (CPU, FETCHER, {f"{METADATA}.annotations": {"prometheus.io/scrape": "true"}}, "asks port None"),
        (CPU, API, {f"{MAIN}.livenessProbe.httpGet.path": "/readyz"}, "an outage of a server"),
        (CPU, API, {f"{MAIN}.readinessProbe.httpGet.path": "/ready"}, "api does not answer on /ready"),
        (CPU, API, {"spec.strategy": {"type": "Recreate"}}, "refused while it is rolled"),
        (GPU, WORKER, {f"{MAIN}.startupProbe.failureThreshold": 3}, "it has 15 s to load"),
        # What there is.
        (CPU, API, {f"{MAIN}.volumeMounts": []}, "it writes to /tmp"),
        (CPU, "StatefulSet/postgres", {f"{MAIN}.volumeMounts.0.mountPath": "/data"}, "/var/lib/postgresql"),
        (GPU, WORKER, {f"{POD}.tolerations": []}, "nodes with GPUs have a taint"),
        (GPU, WORKER, {f"{MAIN}.resources.limits": LIMITS}, "asks for none"),
        (
            GPU,
            WORKER,
            {f"{MAIN}.resources": {"requests": GPU_REQUEST, "limits": LIMITS}},
            "Kubernetes wants nvidia.com/gpu here",
        ),
        (GPU, WORKER, {f"{MAIN}.resources.requests.memory": "64Gi"}, "64Gi is over the limit 32Gi"),
        (GPU, WORKER, {f"{MAIN}.env.0": BUDGETS, f"{MAIN}.env.3": BUDGETS}, "come to 42.0 GiB"),
        (CPU, DEMO, {f"{MAIN}.env": []}, "as many threads as the node has cores"),
        (GPU, "PersistentVolumeClaim/vqueue-models", {"spec.accessModes": RWO}, "many nodes mount it"),
        (
            GPU,
            WORKER,
            {f"{MAIN}.volumeMounts.0.mountPath": "/weights"},
            "no volume is mounted at /models/qwen3",
        ),
        (
            GPU,
            WORKER,
            {f"{POD}.initContainers.0.args.2": "[ -e /models/qwen ]"},
            "does not wait for /models/qwen3",
        ),
        # Scaling.
        (GPU, SCALER, {"spec.scaleTargetRef.name": "vqueue-worker"}, f"{WORKER}: no ScaledObject has it"),
        (GPU, SCALER, {"spec.cooldownPeriod": 30}, "cooldownPeriod: 30 s are less"),
        (GPU, SCALER, {f"{BEHAVIOR}.scaleDown.stabilizationWindowSeconds": 15}, "Seconds: 15 s are less"),
        (REDIS, DEMO_SCALER, {"spec.triggers.0.metadata.databaseIndex": "1"}, "has its queues in database 0"),
        (REDIS, "Secret/vqueue", {"stringData.VQUEUE_BROKER_URL": "amqp://a:b@r//"}, "the broker is amqp"),
        (
            CPU,
            "ScaledObject/vqueue-fetcher",
            {"spec.triggers.0.metadata.query": "SELECT vqueue_fetches()"},
            "there is no such function",
        ),
        (
            CPU,
            DEMO_SCALER,
            {"spec.triggers.1.metadata.queueName": "vqueue[.]run[.]demo"},
            "counts other models' queues",
        ),
    ],
)
def test_a_pod_that_would_not_start_run_or_be_scaled_is_found(
    overlays: Mapping[str, Overlay], name: str, what: str, change: Mapping[str, Any], told: str
) -> None:
    assert told in said(changed(overlays[name], what, change))


def test_torch_has_the_threads_that_its_pod_has_cpus_for(overlays: Mapping[str, Overlay]) -> None:
    half = changed(overlays[CPU], DEMO, {f"{MAIN}.resources.limits.cpu": "2500m"})
    assert "TORCH_THREADS" not in said(half)
    assert any(title(one) == DEMO for one in half.manifests)


def test_amounts_are_read_as_kubernetes_writes_them() -> None:
    assert [quantity(text) for text in ("500m", "2", "6Gi", "5G")] == [0.5, 2, 6 * 2**30, 5e9]
