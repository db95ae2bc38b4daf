"""Rules for what a container has: places to write, GPUs, memory, CPU threads, the weights of its model."""

import math
from collections.abc import Iterator, Mapping

from app.config import Settings
from deploy.findings import Finding, Tree, title
from deploy.overlays import Overlay, Pod
from deploy.pods import environment, process_settings

GPU = "nvidia.com/gpu"
GIB = 2**30
# By the last part of an image's name: what it writes under a root file system that is only read.
WRITTEN: Mapping[str, tuple[str, ...]] = {
    "vqueue-api": ("/tmp",),  # noqa: S108 - in the container
    "vqueue-worker": ("/tmp",),  # noqa: S108
    "vqueue-worker-vllm": ("/tmp", "/dev/shm"),  # noqa: S108
    "vqueue-flower": ("/tmp",),  # noqa: S108
    "postgres": ("/var/lib/postgresql",),
    "rabbitmq": ("/var/lib/rabbitmq",),
    "valkey": (),  # the cache writes nothing
    "seaweedfs": ("/data",),
    "prometheus": ("/prometheus",),
    "grafana": ("/var/lib/grafana", "/tmp"),  # noqa: S108
}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "m": 1e-3}
# What torch, libraries and readers take beside caches.
BASE_BYTES = 2 * GIB
KV_BYTES = 2 * GIB  # VQUEUE_KV_BYTES by default on the CPU


def quantity(text: str) -> float:
    """Kubernetes' way to write an amount: 500m, 2, 6Gi."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def image_name(image: str) -> str:
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def check_resources(overlay: Overlay) -> Iterator[Finding]:
    """All rules of this kind for an overlay."""
    for pod in overlay.pods():
        for field, container in pod.containers:
            yield from _bounds(overlay.file, field, container)
            # Init containers of ours only look.
            if ".containers[" in field and pod.owner["kind"] != "Job":
                yield from _written(overlay.file, field, container)
        yield from _gpu(overlay.file, pod)
        yield from _claims(overlay, pod)
        if pod.role == "worker":
            yield from _worker(overlay, pod)


def _bounds(file: str, field: str, container: Tree) -> Iterator[Finding]:
    resources: Mapping[str, Mapping[str, str]] = container.get("resources", {})
    limits = resources.get("limits", {})
    for key, asked in resources.get("requests", {}).items():
        if key in limits and quantity(asked) > quantity(limits[key]):
            yield Finding(
                file,
                f"{field}.resources.requests.{key}",
                f"{asked} is over the limit {limits[key]}",
                "lower it",
            )
        if key == GPU and key not in limits:
            yield Finding(file, f"{field}.resources.limits", f"Kubernetes wants {GPU} here", "move it")


def _written(file: str, field: str, container: Tree) -> Iterator[Finding]:
    mounts = [
        mount["mountPath"].rstrip("/")
        for mount in container.get("volumeMounts", [])
        if not mount.get("readOnly")
    ]
    for path in WRITTEN.get(image_name(container.get("image", "")), ()):
        if path not in mounts:
            yield Finding(
                file, f"{field}.volumeMounts", f"it writes to {path}, which is read-only or lost", "mount it"
            )


def _gpu(file: str, pod: Pod) -> Iterator[Finding]:
    """A GPU and a node that has one: a pod with one of both never starts, or takes another's place."""
    has = any(GPU in one.get("resources", {}).get("limits", {}) for _, one in pod.containers)
    tolerations: list[Tree] = pod.spec.get("tolerations", [])
    bears = any(
        one.get("effect", "NoSchedule") == "NoSchedule"
        and (one.get("key") == GPU or ("key" not in one and one.get("operator") == "Exists"))
        for one in tolerations
    )
    if has and not bears:
        yield Finding(file, f"{pod.field}.tolerations", "nodes with GPUs have a taint", f"tolerate {GPU}")
    if bears and not has:
        yield Finding(
            file, f"{pod.field}.containers", "it goes to nodes with GPUs and asks for none", f"limits: {GPU}"
        )


def _claims(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    """What many pods mount is on many nodes."""
    claims = {one["metadata"]["name"]: one for one in overlay.of_kind("PersistentVolumeClaim")}
    for volume in pod.spec.get("volumes", []):
        claim = claims.get(volume.get("persistentVolumeClaim", {}).get("claimName"))
        if (
            claim
            and pod.owner["kind"] == "Deployment"
            and "ReadWriteMany" not in claim["spec"]["accessModes"]
        ):
            yield Finding(
                overlay.file, f"{title(claim)}.spec.accessModes", "many nodes mount it", "ReadWriteMany"
            )


def _worker(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    field, container = pod.containers[-1]
    settings = process_settings(overlay, container)
    if settings is None:
        return
    limits: Mapping[str, str] = container["resources"].get("limits", {})
    if "memory" in limits:
        yield from _memory(overlay.file, field, pod, settings, limits)
    if "cpu" in limits:
        most = math.ceil(quantity(limits["cpu"]))
        if not 0 < settings.torch_threads <= most:
            problem = f"torch has as many threads as the node has cores, and {most} CPUs to run them"
            yield Finding(
                overlay.file, f"{field}.env.VQUEUE_TORCH_THREADS", problem, "resourceFieldRef limits.cpu"
            )
    yield from _weights(overlay, pod, field, container)


def _memory(
    file: str, field: str, pod: Pod, settings: Settings, limits: Mapping[str, str]
) -> Iterator[Finding]:
    """Caches, KV where there is no GPU, and volumes in memory: a pod over its limit is killed."""
    shared = [one["emptyDir"] for one in pod.spec.get("volumes", []) if "emptyDir" in one]
    own = {one.name: one.options for one in settings.models}
    options = [own.get(name, {}) for name in settings.resident_models]
    caches = [one.get("feature_cache_bytes", settings.feature_cache_bytes) for one in options]
    needed = BASE_BYTES + sum(int(str(size)) for size in caches)
    needed += sum(int(quantity(one["sizeLimit"])) for one in shared if one.get("medium") == "Memory")
    if GPU not in limits:
        kept = [one.get("kv_bytes", settings.kv_bytes or KV_BYTES) for one in options]
        needed += sum(int(str(size)) for size in kept)
    if needed > quantity(limits["memory"]):
        problem = f"caches and what lies in memory come to {needed / GIB:.1f} GiB"
        yield Finding(
            file, f"{field}.resources.limits.memory", problem, "raise it, or lower VQUEUE_FEATURE_CACHE_BYTES"
        )


def _weights(overlay: Overlay, pod: Pod, field: str, container: Tree) -> Iterator[Finding]:
    """A model's folder lies on a volume, and whoever waits for it waits for that one."""
    given = environment(overlay, container)
    settings = process_settings(overlay, container)
    mounts = [mount["mountPath"].rstrip("/") + "/" for mount in container.get("volumeMounts", [])]
    sources = (
        [one.source for one in settings.models if one.name in settings.resident_models] if settings else []
    )
    for source in sources:
        if not source.startswith("/"):
            continue
        if not source.startswith(tuple(mounts)):
            problem = f"no volume is mounted at {source}"
            yield Finding(
                overlay.file, f"{field}.env.VQUEUE_MODELS", problem, f"mounted are {', '.join(mounts)}"
            )
        waits = [" ".join(one.get("args", [])) for name, one in pod.containers if "[weights]" in name]
        if waits and not any(f"{source} " in words for words in waits):
            problem = f"it does not wait for {source}, where {given.get('VQUEUE_WORKER_MODELS')} is"
            yield Finding(
                overlay.file, f"{pod.field}.initContainers[weights].args", problem, "correct the folder"
            )
