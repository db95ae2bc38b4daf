"""`scripts/check-deploy`: what deploys vqueue, judged as far as that goes without Docker and a cluster."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from deploy import monitoring, upgrade
from deploy.alarms import check_metrics, read_rules
from deploy.compose import check_compose, read_compose, read_example
from deploy.dashboards import DASHBOARDS
from deploy.dockerfile import check_dockerfile
from deploy.findings import Finding, Tree
from deploy.kinds import check_kind
from deploy.overlays import ROOT, BuildError, Overlay, build, overlay_names, secrets
from deploy.pods import check_pods
from deploy.reach import check_reach
from deploy.replay import replay
from deploy.resources import check_resources
from deploy.scaling_rules import check_scaling
from deploy.starts import check_starts
from deploy.wiring import check_wiring
from tests.triggers.runs import prove_all

# Examples that no overlay holds.
EXTERNAL = "k8s/examples/external-secret.yaml"
NOT_RUN = "na"


def check_overlay(overlay: Overlay) -> Iterator[Finding]:
    """Every rule for one overlay."""
    for manifest in overlay.manifests:
        yield from check_kind(overlay.file, manifest)
    yield from check_pods(overlay)
    yield from check_wiring(overlay)
    yield from check_reach(overlay)
    yield from check_starts(overlay)
    yield from check_resources(overlay)
    yield from check_scaling(overlay.file, overlay.manifests)


def check_examples(external: Tree, example: Tree) -> Iterator[Finding]:
    """The ExternalSecret makes the very Secret that the example is."""
    yield from check_kind(EXTERNAL, external)
    made = {one["secretKey"] for one in external["spec"]["data"]}
    if (
        made != set(example["stringData"])
        or external["spec"]["target"]["name"] != example["metadata"]["name"]
    ):
        yield Finding(
            EXTERNAL,
            "ExternalSecret/vqueue.spec.data",
            "it makes another Secret than k8s/examples/secret.yaml",
            "give both the same name and keys",
        )


def check_manifests() -> tuple[int, list[Finding]]:
    """How many manifests all overlays and examples hold, and what is wrong with them."""
    external = yaml.safe_load((ROOT / EXTERNAL).read_text())
    count, findings = 1, list(check_examples(external, secrets("gpu")[0]))
    for name in overlay_names():
        try:
            overlay = build(name)
        except BuildError as error:
            findings.append(
                Finding(f"k8s/overlays/{name}", "kustomization", str(error), "kubectl kustomize it")
            )
            continue
        count += len(overlay.manifests)
        findings += check_overlay(overlay)
    return count, findings


def triggers() -> tuple[str, list[Finding]]:
    """How many triggers of KEDA read the truth on real servers, at each number of waiting jobs."""
    lines = prove_all()
    wrong = [line for line in lines if not line.is_right]
    remedy = "docs/scaling.md says what each reads"
    return f"{len(lines) - len(wrong)}/{len(lines)}", [
        Finding("k8s/components", line.trigger, str(line), remedy) for line in wrong
    ]


def upgraded(jobs: int) -> tuple[str, list[Finding]]:
    """How many jobs an upgrade process by process loses; NOT_RUN where the old version is missing."""
    remedy = "docs/upgrades.md says what versions must leave one another"
    try:
        with TemporaryDirectory(prefix="vqueue-upgrade-") as folder:
            report = upgrade.check(Path(folder) / "ground", jobs=jobs)
    except Exception as error:  # a process that does not start is a finding like others
        return "unknown", [Finding("deploy/upgrade.py", "drill", f"it did not end: {error!r}", remedy)]
    if report is None:
        return NOT_RUN, []
    return str(report.lost), [
        Finding("deploy/upgrade.py", "drill", problem, remedy) for problem in report.problems
    ]


def replayed() -> list[Finding]:
    """What the Dockerfile's steps come to; prints how many ran, and sizes."""
    done = replay(("api", "flower"))
    print(done.line)
    return list(done.findings)


def metrics() -> list[Finding]:
    """Rules and panels that look at nothing."""
    looks = {rule.name: rule.expression for rule in read_rules()}
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            expressions = (query.expression for query in panel.queries)
            looks[f"{dashboard.name}, {panel.title}"] = " ".join(expressions)
    return [Finding("deploy", "expr", fault, "correct its name") for fault in check_metrics(looks)]


def watched() -> list[Finding]:
    """What Prometheus finds wrong with alarms and dashboards, after a small run under it."""
    if shutil.which("promtool") is None:
        print("monitoring: not looked at, as there is no promtool")
        return []
    remedy = "docs/monitoring.md says what belongs together"
    return [Finding("deploy/monitoring.py", "check", fault, remedy) for fault in monitoring.check()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Judges what deploys vqueue.")
    parser.add_argument(
        "--quick", action="store_true", help="what takes seconds: nothing is installed or run"
    )
    parser.add_argument("--jobs", type=int, default=upgrade.JOBS, help="of the upgrade that is tried")
    asked = parser.parse_args()
    count, findings = check_manifests()
    beside = [*check_compose(read_compose(), read_example()), *check_dockerfile(), *metrics()]
    read, lost = NOT_RUN, NOT_RUN
    if not asked.quick:
        beside += replayed()
        beside += watched()
        read, wrong = triggers()
        beside += wrong
        lost, problems = upgraded(asked.jobs)
        beside += problems
    for finding in (*findings, *beside):
        print(finding)
    invalid = len({(one.file, one.field.split(".")[0]) for one in findings})
    print(f"beside: findings={len(beside)}")
    print(f"deploy: manifests={count} invalid={invalid} triggers={read} upgrade_lost={lost}")
    sys.exit(bool(findings or beside))


if __name__ == "__main__":
    main()
