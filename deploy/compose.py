"""Rules for docker-compose.yml and .env.example: Compose's schema, and what our services need."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from jsonschema import Draft7Validator
from pydantic import ValidationError

from deploy import settings as given
from deploy.dockerfile import Stage, read_stages
from deploy.findings import Finding, Tree
from deploy.kinds import SCHEMAS
from deploy.overlays import ROOT
from deploy.reach import OPTIONAL, SERVERS, targets
from deploy.resources import WRITTEN, image_name

FILE = "docker-compose.yml"
EXAMPLE = ".env.example"
PROMETHEUS = "deploy/prometheus/prometheus.yml"
# Our services and their roles.
ROLES = {"worker-gpu": "worker", "worker-vllm": "worker"}
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6}
# What the services of servers listen on.
LISTENS = {"postgres": (5432,), "rabbitmq": (5672, 15672), "valkey": (6379,), "s3": (8333,)}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|us|h|m|s)")
_ASKED = re.compile(r"(?<!\$)\$\{(\w+)(?::?([-?])([^}]*))?\}")


def read_compose() -> dict[str, Any]:
    """The file, with its anchors merged."""
    return yaml.safe_load((ROOT / FILE).read_text())


def read_example() -> dict[str, str]:
    """The variables that .env.example sets."""
    return dict(re.findall(r"^(\w+)=(.*)$", (ROOT / EXAMPLE).read_text(), re.MULTILINE))


def check_compose(compose: Tree, example: Mapping[str, str]) -> Iterator[Finding]:
    """All rules for the file."""
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text())
    for error in Draft7Validator(schema).iter_errors(compose):
        yield Finding(
            FILE, ".".join(str(part) for part in error.absolute_path), error.message, "correct the field"
        )
    stages = {stage.name: stage for stage in read_stages()}
    for name, service in compose["services"].items():
        yield from _service(f"services.{name}", service, compose)
        if service["image"].startswith("vqueue-"):
            yield from _ours(name, service, example)
        if isinstance(service.get("build"), Mapping):
            yield from _build(f"services.{name}.build", service["build"], stages)
    yield from _volumes(compose)
    if not compose["networks"].get("inside", {}).get("internal"):
        yield Finding(FILE, "networks.inside", "servers and workers can reach the internet", "internal: true")
    yield from _scraped(compose)
    yield from _example(compose, example)


def _service(field: str, service: Tree, compose: Tree) -> Iterator[Finding]:
    yield from given.check_image(FILE, f"{field}.image", service["image"])
    if "test" not in service.get("healthcheck", {}) and service.get("restart") != "on-failure":
        yield Finding(FILE, f"{field}.healthcheck", "it is missing", "say how to tell that it works")
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield Finding(FILE, f"{field}.security_opt", "privileges can be gained", "add no-new-privileges:true")
    for port in service.get("ports", []):
        if not str(port).startswith("127.0.0.1:"):
            yield Finding(
                FILE, f"{field}.ports", f"{port} is open to other machines", "begin it with 127.0.0.1:"
            )
    mounted = {str(one).split(":")[0] for one in service.get("tmpfs", [])}
    mounted |= {str(one).split(":")[1] for one in service.get("volumes", [])}
    for path in WRITTEN.get(image_name(service["image"]), ()):
        if path not in mounted and path != "/dev/shm":  # noqa: S108 - every container has one
            yield Finding(
                FILE, f"{field}.volumes", f"it writes to {path}, which is read-only or lost", "mount it"
            )
    for kind in ("networks", "depends_on"):
        for name in service.get(kind, []):
            if name not in compose["services" if kind == "depends_on" else "networks"]:
                yield Finding(FILE, f"{field}.{kind}", f"there is no {name}", "correct it")


def _ours(name: str, service: Tree, example: Mapping[str, str]) -> Iterator[Finding]:
    field = f"services.{name}"
    for key, wanted in (("read_only", True), ("cap_drop", ["ALL"]), ("init", True)):
        if service.get(key) != wanted:
            yield Finding(FILE, f"{field}.{key}", "the container may do too much", f"set it to {wanted}")
    if service.get("privileged") or service.get("user") in ("root", "0", 0):
        yield Finding(FILE, f"{field}.user", "it runs as root", "leave it to the image, whose user is 10001")
    environment = {key: filled(str(value), example) for key, value in service.get("environment", {}).items()}
    words = [str(word) for word in service["command"]]
    yield from given.check_names(FILE, f"{field}.environment", environment)
    yield from given.check_command(FILE, f"{field}.command", words)
    yield from given.check_values(FILE, f"{field}.environment", environment)
    yield from _servers(field, words, service["environment"], environment)
    wanted = {"condition": "service_completed_successfully"}
    if words[0] == "vqueue" and name != "migrate" and service["depends_on"].get("migrate") != wanted:
        yield Finding(FILE, f"{field}.depends_on.migrate", "it does not wait for the schema", str(wanted))
    yield from _grace(field, ROLES.get(name, name), service, environment)


def _servers(
    field: str, words: list[str], written: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Servers that are named are there, on ports that they have, and no password stands in the file."""
    for name in (*SERVERS, *OPTIONAL) if words[0] == "vqueue" else ():
        if name not in environment:
            yield Finding(FILE, f"{field}.environment.{name}", "it is not given", "name the service")
    for target in targets({key: value for key, value in environment.items() if "://" in value}):
        ports = LISTENS.get(target.host)
        where = f"{field}.environment.{target.variable}"
        if ports is not None and target.port not in ports:
            yield Finding(FILE, where, f"{target.host} does not listen on {target.port}", f"{ports[0]}")
        if ports is None and "." not in target.host:
            yield Finding(FILE, where, f"there is no server {target.host}", f"one of {', '.join(LISTENS)}")
        if re.search(r"://[^/@{]*:(?!\$\{)[^/@]+@", str(written[target.variable])):
            yield Finding(FILE, where, "the password stands in the file", "ask .env for it by ${...:?}")


def _scraped(compose: Tree) -> Iterator[Finding]:
    """What Prometheus is told to ask are services, on the ports of their metrics."""
    config = yaml.safe_load((ROOT / PROMETHEUS).read_text())
    for job in config["scrape_configs"]:
        for found in job.get("dns_sd_configs", []):
            for name in found["names"]:
                field = f"scrape_configs[{job['job_name']}]"
                service = compose["services"].get(name)
                if service is None:
                    yield Finding(PROMETHEUS, field, f"there is no service {name}", "correct its name")
                    continue
                environment: Mapping[str, object] = service.get("environment", {})
                port = 8000 if name == "api" else environment.get("VQUEUE_METRICS_PORT")
                if str(port) != str(found["port"]):
                    yield Finding(PROMETHEUS, field, f"{name} has its metrics on {port}", "correct the port")


def _grace(field: str, role: str, service: Tree, environment: Mapping[str, str]) -> Iterator[Finding]:
    try:
        needed_s = given.least_grace_s(role, given.read_settings(environment))
    except ValidationError:  # check_values tells
        return
    grace_s = seconds(str(service.get("stop_grace_period", "10s")))  # Docker's own
    if needed_s is not None and grace_s < needed_s:
        yield Finding(
            FILE,
            f"{field}.stop_grace_period",
            f"{grace_s:g} s are less than drain and closing take, {needed_s:g} s",
            "raise it, or lower VQUEUE_DRAIN_S",
        )


def seconds(text: str) -> float:
    """A duration as Compose writes it: 90s, 2m, 1m30s, 1h."""
    return sum(float(number) * SECONDS[unit] for number, unit in _DURATION.findall(text))


def filled(text: str, variables: Mapping[str, str]) -> str:
    """A value with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` filled in."""
    found = _ASKED.sub(lambda match: variables.get(match[1]) or (match[3] if match[2] == "-" else ""), text)
    return found.replace("$$", "$")


def _build(field: str, build: Tree, stages: Mapping[str, Stage]) -> Iterator[Finding]:
    stage = stages.get(build.get("target", ""))
    if stage is None:
        yield Finding(
            FILE, f"{field}.target", f"the Dockerfile has no stage {build.get('target')!r}", "name one"
        )
        return
    asked = {name for one in stages.values() for name in one.arguments}
    for name in build.get("args", {}):
        if name not in asked:
            yield Finding(FILE, f"{field}.args.{name}", "no stage asks for it", "add an ARG, or remove it")


def _volumes(compose: Tree) -> Iterator[Finding]:
    used: set[str] = set()
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith("."):
                used.add(source)
            elif not (ROOT / source).exists():
                yield Finding(
                    FILE, f"services.{name}.volumes", f"there is no {source} to mount", "correct it"
                )
    declared = set(compose["volumes"])
    for name in sorted(used ^ declared):
        problem = "it is not declared" if name in used else "nothing uses it"
        yield Finding(FILE, f"volumes.{name}", problem, "declare what is used, and nothing else")


def _example(compose: Tree, example: Mapping[str, str]) -> Iterator[Finding]:
    """The example sets what the file asks for and nothing else, and no password has a default."""
    asked = {match[1]: match for match in _ASKED.finditer(json.dumps(compose))}
    for name in sorted(asked.keys() - example.keys()):
        yield Finding(EXAMPLE, name, f"{FILE} asks for it", "add it with a value to begin with")
    for name in sorted(example.keys() - asked.keys() - {"COMPOSE_PROFILES"}):
        yield Finding(EXAMPLE, name, f"{FILE} does not ask for it", "remove it")
    for name, match in asked.items():
        if name.endswith("_PASSWORD") and match[2] != "?":
            yield Finding(FILE, f"${{{name}}}", "a password must not be empty or guessed", "ask by :?")
    profiles = {one for service in compose["services"].values() for one in service.get("profiles", [])}
    if example.get("COMPOSE_PROFILES") not in profiles:
        yield Finding(
            EXAMPLE, "COMPOSE_PROFILES", f"the profiles are {', '.join(sorted(profiles))}", "name one"
        )
