"""The documents name what exists: settings, metrics, tests and files, all of them and no others."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

from app import telemetry
from app.config import Settings
from app.dispatcher import CONNECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").rglob("*.md")]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
SETTINGS = {f"VQUEUE_{field.upper()}" for field in Settings.model_fields}
# Read by the set-up scripts and by clients, or before there are settings.
OTHERS = {
    "VQUEUE_SECRETS_DIR",
    "VQUEUE_TORCH_INDEX",
    "VQUEUE_EXPLORE",
    "VQUEUE_PYTHON",
    "VQUEUE_SKIP_RABBITMQ",
    "VQUEUE_SKIP_CHROMIUM",
    "VQUEUE_SKIP_PROMETHEUS",
    "VQUEUE_SCREENSHOTS",
    "VQUEUE_URL",
    "VQUEUE_API_KEY",
}
METRICS = [metric for metric in vars(telemetry).values() if isinstance(metric, MetricWrapperBase)]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def rows(text: str) -> str:
    """The lines of a page's tables."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files and anchors that a page's relative links lead to."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield (page.parent / path if path else page), anchor


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_known(name: str) -> bool:
    """Whether this is a setting, or the common beginning of some (it ends in an underscore then)."""
    known = SETTINGS | OTHERS
    return name in known or (name.endswith("_") and any(setting.startswith(name) for setting in known))


def known_tests() -> set[str]:
    """Every test function and test file of the project."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    functions = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)]
    return {*functions, *(file.stem for file in files)}


@pytest.mark.parametrize("setting", sorted({*SETTINGS, "VQUEUE_SECRETS_DIR"}))
def test_every_setting_has_its_row(setting: str) -> None:
    assert re.search(rf"^\| [^|]*`{setting}`", rows(OPERATIONS), re.MULTILINE)


@pages
def test_no_page_names_a_setting_that_does_not_exist(page: Path) -> None:
    named = re.findall(r"\bVQUEUE_\w+", page.read_text())
    # VQUEUE_S3_* stands for all that begin so.
    assert [name for name in named if not is_known(name)] == []


@pages
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert [path for path, _ in links(page) if not path.exists()] == []


@pages
def test_every_anchor_is_a_heading(page: Path) -> None:
    assert [(path, anchor) for path, anchor in links(page) if anchor and anchor not in anchors(path)] == []


@pages
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert set(re.findall(r"\b(test_\w+)", page.read_text())) - known_tests() == set()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric._name)
def test_every_metric_is_explained(metric: MetricWrapperBase) -> None:
    described: list[Metric] = list(metric.describe())
    assert f"`{described[0].name}`" in rows(OPERATIONS)


def test_both_readmes_have_the_same_commands_and_tests() -> None:
    english, chinese = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
    pattern = r"scripts/\w+|bin/vqueue \w+|VQUEUE_\w+|test_\w+|docs/\w+\.md"
    assert set(re.findall(pattern, english)) == set(re.findall(pattern, chinese))


def test_the_connections_of_a_dispatcher_are_those_that_it_opens() -> None:
    assert f"the larger of that and {CONNECTIONS}:" in OPERATIONS
    assert f"dispatcher (at least {CONNECTIONS})" in OPERATIONS
