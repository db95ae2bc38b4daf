"""Reads the Dockerfile, and its rules: hadolint's, exact versions, and that what is copied is let in."""

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from deploy.findings import Finding
from deploy.overlays import ROOT
from deploy.requirements import name_of, requirements
from deploy.settings import check_command

FILE = "Dockerfile"
CONSTRAINTS = "deploy/constraints.txt"
IGNORED = ".dockerignore"
# vLLM's worker is put beside what vLLM's image has, whose versions are its own. No image has the others.
EXTRAS = ("worker", "gpu", "flower", "tracing")


# What is missed only when it runs: our packages, and the model that a worker has by default.
CARRIES = (
    *(("wheel", package) for package in ("app", "migrations", "vqueue", "workers")),
    ("worker", "models"),
)


@dataclass(frozen=True)
class Step:
    """One instruction, its lines joined."""

    line: int
    word: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """What stands between two FROMs. `base` is an image or an earlier stage, its arguments filled in."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list[Step])

    @property
    def arguments(self) -> list[str]:
        return [step.rest.partition("=")[0] for step in self.steps if step.word == "ARG"]

    def last(self, word: str) -> str | None:
        """What the last such instruction says; None where there is none."""
        return next((step.rest for step in reversed(self.steps) if step.word == word), None)


def read_steps(text: str) -> Iterator[Step]:
    """The instructions of a Dockerfile."""
    pending, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        began = began or number
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        word, _, rest = pending.strip().partition(" ")
        yield Step(began, word, " ".join(rest.split()))
        pending, began = "", 0


def read_stages(text: str | None = None) -> list[Stage]:
    """The stages of the repository's Dockerfile, or of a text."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for step in read_steps((ROOT / FILE).read_text() if text is None else text):
        if step.word == "FROM":
            image, _, name = step.rest.partition(" AS ")
            stages.append(Stage(name, re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], image)))
        elif not stages and step.word == "ARG":
            key, _, value = step.rest.partition("=")
            arguments[key] = value
        else:
            stages[-1].steps.append(step)
    return stages


def check_dockerfile() -> Iterator[Finding]:
    """All rules for the Dockerfile and what belongs to it."""
    yield from _lint()
    text = (ROOT / FILE).read_text()
    yield from check_stages(read_stages(text), (ROOT / IGNORED).read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from check_constraints(project, (ROOT / CONSTRAINTS).read_text())


def _lint() -> Iterator[Finding]:
    hadolint = Path(sys.executable).parent / "hadolint"
    command = [str(hadolint), "--format", "json", FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for found in json.loads(done.stdout):
        yield Finding(
            FILE, f"line {found['line']}", f"{found['code']}: {found['message']}", "hadolint has a page on it"
        )


def check_stages(stages: list[Stage], ignored: str) -> Iterator[Finding]:
    """Images that are run have a user of their own and no compilers; what is copied gets into the context."""
    names = {stage.name for stage in stages}
    for name, wanted in CARRIES:
        if not any(step.word == "COPY" and wanted in step.rest.split() for step in _steps(stages, name)):
            yield Finding(
                FILE, f"stage {name}", f"{wanted} is not copied, and is missed there", f"COPY {wanted}"
            )
    allowed = [line[1:] for line in ignored.splitlines() if line.startswith("!")]
    for stage in stages:
        for step in stage.steps:
            if step.word == "COPY" and not step.rest.startswith("--"):
                yield from _copied(step, allowed)
        if stage.base not in names and not re.search(r":v?\d+\.\d+", stage.base):
            yield Finding(FILE, f"stage {stage.name}", f"{stage.base} names no exact version", "pin it")
        command = stage.last("CMD")
        if command is None:
            continue
        yield from check_command(FILE, f"stage {stage.name}", json.loads(command))
        user = _inherited(stages, stage, "USER")
        if user is None or user.split(":")[0] in ("root", "0"):
            yield Finding(FILE, f"stage {stage.name}", "it runs as root", "end it with USER 10001:10001")
        if any(re.search(r"\b(apt-get|gcc|build-essential)\b", step.rest) for step in stage.steps):
            yield Finding(
                FILE, f"stage {stage.name}", "it installs what only building needs", "do so in a stage before"
            )


def _steps(stages: list[Stage], name: str) -> list[Step]:
    return [step for stage in stages if stage.name == name for step in stage.steps]


def _inherited(stages: list[Stage], stage: Stage, word: str) -> str | None:
    by_name = {one.name: one for one in stages}
    at: Stage | None = stage
    while at is not None:
        if found := at.last(word):
            return found
        at = by_name.get(at.base)
    return None


def _copied(step: Step, allowed: list[str]) -> Iterator[Finding]:
    for source in shlex.split(step.rest)[:-1]:
        if not (ROOT / source).exists():
            yield Finding(FILE, f"line {step.line}", f"there is no {source} to copy", "correct it")
        if not any(fnmatch.fnmatch(source, pattern) for pattern in allowed):
            yield Finding(IGNORED, source, f"the Dockerfile copies it on line {step.line}", f"add !{source}")


def check_constraints(project: Mapping[str, Any], constraints: str) -> Iterator[Finding]:
    """Every library of the images has one exact version, which pyproject.toml allows."""
    pinned = {
        name_of(line): line.partition("==")[2]
        for line in constraints.splitlines()
        if line and not line.startswith("#")
    }
    for line in requirements(project, EXTRAS, frozenset()):
        wanted = Requirement(line)
        found = pinned.get(name_of(wanted.name))
        if not found:
            yield Finding(CONSTRAINTS, wanted.name, "pyproject.toml asks for it", "add its exact version")
        elif found not in wanted.specifier:
            yield Finding(CONSTRAINTS, wanted.name, f"{found} is not {wanted.specifier}", "renew it")
