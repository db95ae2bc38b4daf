"""docker-compose.yml and .env.example, as far as they can be judged without Docker."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.processes import MODULES
from app.config import Settings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]  # as YAML gives it
OURS = ["api", "dispatcher", "fetcher", "worker"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check_or_ends_by_itself(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert "test" in check or (name == "migrate" and check == {"disable": True})


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_names_its_version(name: str) -> None:
    image: str = SERVICES[name]["image"]
    assert re.search(r":\d[\w.-]*$", image)


@pytest.mark.parametrize("name", [*OURS, "migrate"])
def test_every_setting_exists(name: str) -> None:
    given = {key for key in SERVICES[name]["environment"] if key.startswith("VQUEUE_")}
    assert given <= {f"VQUEUE_{field.upper()}" for field in Settings.model_fields}


@pytest.mark.parametrize("name", [*OURS, "migrate"])
def test_every_command_exists(name: str) -> None:
    program, command = SERVICES[name]["command"]
    assert program == "vqueue"
    assert command in {*MODULES, "migrate"}


@pytest.mark.parametrize("name", OURS)
def test_our_processes_run_without_privileges_and_get_time_to_drain(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"]
    assert int(service["stop_grace_period"].removesuffix("s")) > Settings.model_fields["drain_s"].default


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in OURS])
def test_no_server_is_open_to_other_machines(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert used == set(yaml.safe_load(TEXT)["volumes"])


def test_the_example_sets_what_the_file_asks_for_and_nothing_else() -> None:
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT))
    assert set(re.findall(r"^(\w+)=", EXAMPLE, re.MULTILINE)) == asked


def test_passwords_have_no_defaults() -> None:
    assert re.findall(r"\$\{\w*PASSWORD:?-", TEXT) == []
