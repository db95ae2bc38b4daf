"""Rules for how processes start, are probed and are watched."""

from collections.abc import Iterator, Mapping

from deploy.findings import Finding, Tree, title
from deploy.overlays import Overlay, Pod
from deploy.resources import GPU

# Where each role answers, and whether that asks other servers too: whose outage would then end the process.
PATHS: Mapping[str, Mapping[str, bool]] = {"api": {"/healthz": False, "/readyz": True}}
METRICS: Mapping[str, bool] = {"/metrics": False}
OURS = frozenset({"api", "dispatcher", "fetcher", "worker"})
# 17.5 GB of weights at 100 MB/s are 3 minutes, and a cold volume is slower (docs/deploy.md#the-numbers).
GPU_START_S = 600


def check_starts(overlay: Overlay) -> Iterator[Finding]:
    """All rules of this kind for an overlay."""
    jobs = [pod for pod in overlay.pods() if pod.owner["kind"] == "Job"]
    if not any(_words(one) == ["vqueue", "migrate"] for pod in jobs for _, one in pod.containers):
        yield Finding(
            overlay.file, "Job/vqueue-migrate", "nothing brings the schema up", "keep base/migrate.yaml"
        )
    for pod in overlay.pods():
        if pod.role in OURS:
            yield from _schema(overlay.file, pod)
            yield from _scraped(overlay.file, pod)
            field, container = pod.containers[-1]
            yield from _probed(overlay.file, pod.role, field, container)
            yield from _loads(overlay.file, field, container)
    yield from _rollout(overlay)


def _words(container: Tree) -> list[str]:
    return list(container.get("args", []))


def _schema(file: str, pod: Pod) -> Iterator[Finding]:
    """One Job migrates; all others wait for it."""
    before = [(field, _words(one)) for field, one in pod.containers if ".initContainers[" in field]
    migrating = [(field, words) for field, words in before if words[:2] == ["vqueue", "migrate"]]
    if not migrating:
        yield Finding(
            file,
            f"{pod.field}.initContainers",
            "it does not wait for the schema",
            "vqueue migrate --wait 600",
        )
    for field, words in migrating:
        if not any(word.partition("=")[0] == "--wait" for word in words):
            yield Finding(file, f"{field}.args", "it migrates, which is the Job's to do", "add --wait 600")


def _scraped(file: str, pod: Pod) -> Iterator[Finding]:
    """Prometheus finds a pod and its port by these."""
    field = f"{title(pod.owner)}.spec.template.metadata.annotations"
    given: Mapping[str, str] = pod.owner["spec"]["template"]["metadata"].get("annotations", {})
    ports = [str(port["containerPort"]) for port in pod.containers[-1][1].get("ports", [])]
    if given.get("prometheus.io/scrape") != "true":
        yield Finding(file, field, "Prometheus does not look at it", 'prometheus.io/scrape: "true"')
    elif given.get("prometheus.io/port") not in ports:
        problem = f"Prometheus asks port {given.get('prometheus.io/port')}, the ports are {', '.join(ports)}"
        yield Finding(file, field, problem, "correct prometheus.io/port")


def _probed(file: str, role: str, field: str, container: Tree) -> Iterator[Finding]:
    paths = PATHS.get(role, METRICS)
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container.get(kind, {}).get("httpGet", {}).get("path")
        if path is not None and path not in paths:
            known = " or ".join(paths)
            yield Finding(file, f"{field}.{kind}", f"{role} does not answer on {path}", f"ask {known}")
        elif kind == "livenessProbe" and path is not None and paths[path]:
            problem = "an outage of a server would start all processes anew"
            yield Finding(file, f"{field}.{kind}", problem, "ask /healthz")


def _loads(file: str, field: str, container: Tree) -> Iterator[Finding]:
    """A worker on a GPU is not ended for reading its weights."""
    probe: Mapping[str, int] = container.get("startupProbe", {})
    given_s = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    if GPU in container["resources"].get("limits", {}) and given_s < GPU_START_S:
        problem = f"it has {given_s} s to load a model, which take {GPU_START_S} s on a slow disk"
        yield Finding(file, f"{field}.startupProbe.failureThreshold", problem, "raise it")


def _rollout(overlay: Overlay) -> Iterator[Finding]:
    for one in overlay.of_kind("Deployment"):
        strategy = one["spec"].get("strategy", {})
        if one["metadata"]["name"] == "vqueue-api" and (
            strategy.get("type", "RollingUpdate") != "RollingUpdate"
            or strategy.get("rollingUpdate", {}).get("maxUnavailable") != 0
        ):
            problem = "callers are refused while it is rolled"
            yield Finding(
                overlay.file, f"{title(one)}.spec.strategy", problem, "rollingUpdate, maxUnavailable: 0"
            )
