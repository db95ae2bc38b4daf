"""Builds the overlays of k8s/ as `kubectl apply -k` would, with the Secrets that go with them."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.findings import Tree, title

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = Path("k8s/examples/secret.yaml")
KEDA_EXAMPLE = Path("k8s/examples/keda-secret.yaml")
# Where the Secrets of each overlay come from: the script that makes them with the servers, or the example.
SECRETS: Mapping[str, Sequence[str] | Path] = {
    "cpu-demo": ("k8s/secret.sh", "rabbitmq"),
    "redis-broker": ("k8s/secret.sh", "valkey"),
    "gpu": EXAMPLE,
    "vllm": EXAMPLE,
}
WITH_PODS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


class BuildError(Exception):
    """Kustomize refuses an overlay; its words say where."""


@dataclass(frozen=True)
class Overlay:
    """All manifests of one installation."""

    name: str
    manifests: Sequence[Tree]

    @property
    def file(self) -> str:
        return f"k8s/overlays/{self.name}"

    def of_kind(self, *kinds: str) -> list[Tree]:
        return [manifest for manifest in self.manifests if manifest["kind"] in kinds]

    def names(self, kind: str) -> set[str]:
        return {manifest["metadata"]["name"] for manifest in self.of_kind(kind)}

    def pods(self) -> Iterator["Pod"]:
        for manifest in self.of_kind(*WITH_PODS):
            yield Pod(manifest)


@dataclass(frozen=True)
class Pod:
    """The pods of one Deployment, StatefulSet or Job."""

    owner: Tree

    @property
    def field(self) -> str:
        return f"{title(self.owner)}.spec.template.spec"

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.owner["spec"]["template"]["spec"]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.owner["spec"]["template"]["metadata"].get("labels", {})

    @property
    def role(self) -> str:
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def containers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Each container with its path: those that run first, then the pod's own."""
        return [
            (f"{self.field}.{kind}[{one['name']}]", one)
            for kind in ("initContainers", "containers")
            for one in self.spec.get(kind, [])
        ]


def overlay_names() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / "k8s/overlays").glob("*/kustomization.yaml"))


def build(name: str) -> Overlay:
    """One overlay. Raises BuildError with what kustomize says."""
    # Beside the Python that runs this, which is where its wheel puts it.
    kubectl = Path(sys.executable).parent / "kubectl"
    command = [str(kubectl), "kustomize", f"k8s/overlays/{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr.strip())
    return Overlay(name, [*yaml.safe_load_all(done.stdout), *secrets(name)])


def secrets(name: str) -> list[Tree]:
    """The Secrets that are made before the overlay is applied, with `stringData`."""
    source = SECRETS[name]
    if isinstance(source, Path):
        return [yaml.safe_load((ROOT / path).read_text()) for path in (source, KEDA_EXAMPLE)]
    done = subprocess.run(source, cwd=ROOT, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def selects(selector: Tree | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects what has these labels; an empty one selects everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(rule, labels) for rule in selector.get("matchExpressions", []))


def _holds(rule: Tree, labels: Mapping[str, str]) -> bool:
    found = labels.get(rule["key"])
    match rule["operator"]:
        case "In":
            return found in rule["values"]
        case "NotIn":
            return found not in rule["values"]
        case "Exists":
            return found is not None
        case _:  # DoesNotExist, the last that there is
            return found is None
