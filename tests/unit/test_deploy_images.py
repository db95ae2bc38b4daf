"""docker-compose.yml, .env.example and the Dockerfile: all rules hold, and each finds its mistake."""

import copy
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from deploy.compose import check_compose, filled, read_compose, read_example, seconds
from deploy.dockerfile import check_constraints, check_dockerfile, check_stages, read_stages
from deploy.overlays import ROOT
from deploy.requirements import requirements

Services = dict[str, Any]
COMPOSE, EXAMPLE = read_compose(), read_example()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHON = "python:3.12.12-slim-bookworm"


def set_url(services: Services, url: str) -> None:
    services["fetcher"]["environment"]["VQUEUE_REDIS_URL"] = url


def test_durations_are_read_as_compose_writes_them() -> None:
    assert [seconds(text) for text in ("90s", "2m", "1h1m1s", "500ms")] == [90, 120, 3661, 0.5]


def test_networks_that_are_not_closed_are_found() -> None:
    broken = {**COMPOSE, "networks": {"inside": {}, "outside": None}}
    assert "networks.inside" in {one.field for one in check_compose(broken, EXAMPLE)}


def test_compose_breaks_no_rule() -> None:
    assert [str(finding) for finding in check_compose(COMPOSE, EXAMPLE)] == []


def test_the_dockerfile_breaks_no_rule() -> None:
    assert [str(finding) for finding in check_dockerfile()] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda services: services["api"].update(restrat="always"), "services.api"),
        (lambda services: services["api"].update(image="vqueue-api"), "services.api.image"),
        (lambda services: services["valkey"].pop("healthcheck"), "services.valkey.healthcheck"),
        (lambda services: services["s3"].pop("security_opt"), "services.s3.security_opt"),
        (lambda services: services["grafana"].update(ports=["3000:3000"]), "services.grafana.ports"),
        (lambda services: services["api"].update(networks=["within"]), "services.api.networks"),
        (lambda services: services["api"]["depends_on"].update(minio={}), "services.api.depends_on"),
        (lambda services: services["fetcher"].update(read_only=False), "services.fetcher.read_only"),
        (lambda services: services["fetcher"].update(cap_drop=[]), "services.fetcher.cap_drop"),
        (lambda services: services["worker"].update(user="root"), "services.worker.user"),
        (lambda services: services["migrate"].update(command=["vqueue", "migrates"]), "migrate.command"),
        (lambda services: services["api"]["environment"].update(VQUEUE_HOSTS="x"), "VQUEUE_HOSTS"),
        (lambda services: services["worker"]["environment"].update(VQUEUE_ENGINE="tgi"), "VQUEUE_ENGINE"),
        (lambda services: services["worker"].update(stop_grace_period="59s"), "worker.stop_grace_period"),
        (lambda services: services["worker-gpu"].update(stop_grace_period="90s"), "gpu.stop_grace_period"),
        (lambda services: services["api"]["build"].update(target="web"), "services.api.build.target"),
        (lambda services: services["worker"]["build"]["args"].update(INDEX="x"), "build.args.INDEX"),
        (lambda services: services["prometheus"]["volumes"].append("./no:/no"), "prometheus.volumes"),
        (lambda services: services["worker"].pop("tmpfs"), "services.worker.volumes"),
        (lambda services: services["postgres"].update(volumes=["postgres:/data"]), "postgres.volumes"),
        (lambda services: services["api"]["depends_on"].pop("migrate"), "api.depends_on.migrate"),
        (lambda services: services["api"]["environment"].pop("VQUEUE_REDIS_URL"), "VQUEUE_REDIS_URL"),
        (lambda services: set_url(services, "redis://:${P}@cache:6379/1"), "VQUEUE_REDIS_URL"),
        (lambda services: set_url(services, "redis://:${P}@valkey:6380/1"), "VQUEUE_REDIS_URL"),
        (lambda services: set_url(services, "redis://:secret@valkey:6379/1"), "VQUEUE_REDIS_URL"),
        (lambda services: services["fetcher"]["environment"].update(VQUEUE_METRICS_PORT="1"), "s[fetcher]"),
        (lambda services: services["worker-gpu"].update(stop_grace_period="1m30s"), "gpu.stop_grace_period"),
        (lambda services: services["s3"].pop("volumes"), "volumes.s3"),
        (lambda services: services["api"]["environment"].update(A="${NEW}"), "NEW"),
        (lambda services: services["api"]["environment"].update(A="${A_PASSWORD:-x}"), "${A_PASSWORD}"),
    ],
)
def test_a_mistake_in_compose_is_named_with_its_field(change: Callable[[Services], None], field: str) -> None:
    broken = copy.deepcopy(COMPOSE)
    change(broken["services"])
    assert [one for one in check_compose(broken, EXAMPLE) if one.field.endswith(field)]


def test_an_example_variable_that_nothing_asks_for_is_found() -> None:
    assert "OLD" in {finding.field for finding in check_compose(COMPOSE, {**EXAMPLE, "OLD": "1"})}


def test_variables_are_filled_in_as_compose_does() -> None:
    given = {"A": "1", "EMPTY": ""}
    assert filled("${A}:${B:-2}:${EMPTY:-3}:${A:?say}:$$A", given) == "1:2:3:1:$A"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("USER 10001:10001\n\nFROM bare", "USER root\n\nFROM bare", "it runs as root"),
        ("COPY app app", "COPY apps apps", "there is no apps to copy"),
        ("COPY workers workers\n", "", "workers is not copied"),
        ("COPY models models", "USER 10001", "models is not copied"),
        ('CMD ["vqueue", "api"]', 'CMD ["vqueue", "apy"]', "is no command"),
        ("COPY app app", "COPY tests tests", "the Dockerfile copies it on line"),
        (PYTHON.removeprefix("python:"), "slim", "names no exact version"),
        ("COPY models models", "RUN apt-get install gcc", "it installs what only building needs"),
    ],
)
def test_a_mistake_in_the_dockerfile_is_found(old: str, new: str, said: str) -> None:
    assert old in DOCKERFILE
    found = [finding.problem for finding in check_stages(read_stages(DOCKERFILE.replace(old, new)), IGNORED)]
    assert [problem for problem in found if said in problem]


def test_a_library_without_an_exact_version_or_with_one_that_is_refused_is_found() -> None:
    pinned = (ROOT / "deploy/constraints.txt").read_text()
    without = pinned.replace("fastapi==", "fastapi-else==").replace("pillow==13", "pillow==12")
    assert [finding.field for finding in check_constraints(PROJECT, without)] == ["fastapi", "pillow"]


def test_the_requirements_of_a_stage_leave_out_what_its_base_image_has() -> None:
    found = requirements(PROJECT, ["worker"], frozenset({"torch", "fastapi"}))
    names = {line.split(">")[0] for line in found}
    assert {"celery[redis]", "transformers"} <= names
    assert not {"torch", "fastapi", "flower"} & names
