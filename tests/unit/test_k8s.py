"""The Kubernetes manifests, as far as they can be judged without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.processes import MODULES
from app.config import Settings

K8S = Path(__file__).resolve().parents[2] / "k8s"
BASE = K8S / "base"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((BASE / "kustomization.yaml").read_text())
Manifest = dict[str, Any]  # as YAML gives it


def manifests() -> list[Manifest]:
    return [
        manifest
        for name in KUSTOMIZATION["resources"]
        for manifest in yaml.safe_load_all((BASE / name).read_text())
    ] + list(yaml.safe_load_all((K8S / "worker" / "worker.yaml").read_text()))


DEPLOYMENTS = [manifest for manifest in manifests() if manifest["kind"] == "Deployment"]
WITH_PODS = [manifest for manifest in manifests() if "template" in manifest.get("spec", {})]
PODS = [manifest["spec"]["template"]["spec"] for manifest in WITH_PODS]


def by_name(value: object) -> str:
    return value["containers"][0]["name"] if isinstance(value, dict) and "containers" in value else ""


def test_every_file_is_part_of_the_kustomization() -> None:
    files = {str(path.relative_to(BASE)) for path in BASE.rglob("*.yaml")}
    assert files == {*KUSTOMIZATION["resources"], "kustomization.yaml"}


def test_every_process_has_a_deployment() -> None:
    assert {pod["containers"][0]["name"] for pod in PODS} == {*MODULES, "migrate"}


@pytest.mark.parametrize("pod", PODS, ids=by_name)
def test_no_pod_has_more_rights_than_it_needs(pod: Manifest) -> None:
    rights = pod["containers"][0]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
    assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("pod", PODS, ids=by_name)
def test_every_command_exists(pod: Manifest) -> None:
    program, command = pod["containers"][0]["args"]
    assert program == "vqueue"
    assert command in {*MODULES, "migrate"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda found: found["metadata"]["name"])
def test_a_pod_has_longer_to_end_than_a_drain_takes(deployment: Manifest) -> None:
    grace_s = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > Settings.model_fields["drain_s"].default


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda found: found["metadata"]["name"])
def test_a_deployment_selects_its_own_pods(deployment: Manifest) -> None:
    wanted = deployment["spec"]["selector"]["matchLabels"]
    assert wanted == deployment["spec"]["template"]["metadata"]["labels"]


def test_every_setting_that_is_named_exists() -> None:
    secret = yaml.safe_load((K8S / "examples" / "secret.yaml").read_text())["stringData"]
    literals = [text.split("=")[0] for text in KUSTOMIZATION["configMapGenerator"][0]["literals"]]
    assert {*secret, *literals} <= {f"VQUEUE_{field.upper()}" for field in Settings.model_fields}
