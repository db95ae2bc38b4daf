"""Checks of Prometheus' files: promtool's own, and that every alarm is tested and explained."""

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PROMETHEUS = ROOT / "deploy" / "prometheus"
PAGE = ROOT / "docs" / "alerts.md"
METRICS_PAGE = ROOT / "docs" / "operations.md"
_FIRST_CELLS = re.compile(r"^\| (`vqueue_[^|]+) \|", re.MULTILINE)
_SERIES = re.compile(r"\bvqueue[_:][\w:]+")
_SUFFIX = re.compile(r"_(total|count|sum|bucket)$")
ANNOTATIONS = ("summary", "description", "runbook_url")


@dataclass(frozen=True)
class Rule:
    """An alarm or a recorded series, and its PromQL."""

    name: str
    expression: str
    is_alarm: bool
    annotations: dict[str, str]


def read_rules() -> list[Rule]:
    """All rules, as the two files have them."""
    return [_rule(found) for name in ("rules.yml", "alerts.yml") for found in _rules_of(PROMETHEUS / name)]


def check_files() -> list[str]:
    """What is wrong with the files, one line each; nothing where all is well. Needs promtool."""
    return [*check_syntax(), *check_alarms(read_rules())]


def check_metrics(expressions: Mapping[str, str]) -> list[str]:
    """Series that rules or panels, given by their names, look at, and that nobody makes."""
    cells = " ".join(_FIRST_CELLS.findall(METRICS_PAGE.read_text()))
    made = set(_SERIES.findall(cells))
    made |= {rule.name for rule in read_rules() if not rule.is_alarm}
    return [
        f"{name}: there is no metric {series}, docs/operations.md lists them all"
        for name, expression in expressions.items()
        for series in sorted(set(_SERIES.findall(expression)))
        if series not in made and _SUFFIX.sub("", series) not in made
    ]


def check_syntax() -> list[str]:
    """What promtool finds: configurations, rules, and the tests of the alarms."""
    commands = [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ]
    faults = [fault for command in commands for fault in promtool(command, PROMETHEUS)]
    with tempfile.TemporaryDirectory() as folder:
        # Debian's build knows no cluster: all but the way to find pods is checked.
        config = yaml.safe_load((PROMETHEUS / "kubernetes.yml").read_text())
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": job.pop("kubernetes_sd_configs") and []}]
        path = Path(folder, "kubernetes.yml")
        path.write_text(yaml.safe_dump(config))
        return faults + promtool(["check", "config", "--syntax-only", str(path)], PROMETHEUS)


def check_alarms(rules: Sequence[Rule]) -> list[str]:
    """Whether each alarm says what it means, has its part of the page, and a test in which it rings."""
    tests = (PROMETHEUS / "alerts_test.yml").read_text()
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    alarms = [rule for rule in rules if rule.is_alarm]
    faults = [
        f"{rule.name}: no {name}" for rule in alarms for name in ANNOTATIONS if not rule.annotations.get(name)
    ]
    for rule in alarms:
        if rule.annotations.get("runbook_url") != f"docs/alerts.md#{rule.name.lower()}":
            faults.append(f"{rule.name}: its runbook_url does not lead to its part of docs/alerts.md")
        if rule.name not in headings:
            faults.append(f"{rule.name}: docs/alerts.md has no part of that name")
        if f'alertname="{rule.name}"' not in tests:
            faults.append(f"{rule.name}: rings in no test")
    strays = sorted(set(headings) - {rule.name for rule in alarms})
    return faults + [f"docs/alerts.md explains {name}, which is no alarm" for name in strays]


def promtool(arguments: Sequence[str], folder: Path) -> list[str]:
    """What it complains of."""
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode == 0:
        return []
    return [f"promtool {' '.join(arguments)}: {done.stdout.strip()} {done.stderr.strip()}"]


def without_thresholds(expression: str) -> str:
    """The series that an alarm looks at: `sum(x) > 5` is `sum(x)`."""
    return re.sub(r"\s*(?:==|!=|>=|<=|>|<)\s*-?\d+(?:\.\d+)?", "", expression)


def _rules_of(path: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _rule(found: dict[str, Any]) -> Rule:
    is_alarm = "alert" in found
    name = found["alert" if is_alarm else "record"]
    return Rule(name, found["expr"], is_alarm, found.get("annotations", {}))
