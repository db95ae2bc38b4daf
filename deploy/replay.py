"""Runs the Dockerfile's steps without Docker: a folder stands for an image's root.

COPY and RUN are those of the file, with `/opt`, `/src`, `/srv`, `/wheels` and `/weights` moved into it.
What cannot run so is left out and told: users of the system, torch (`--torch` runs it), vLLM's own image.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.dockerfile import Stage, Step, read_stages
from deploy.findings import Finding
from deploy.overlays import ROOT

FILE = "Dockerfile"
MOVED = ("opt", "src", "srv", "wheels", "weights")
_PATHS = re.compile(rf"(?<![\w./])/(?={'|'.join(MOVED)}\b)")
# What the API's image runs and reads beside its code, and must not have.
FORBIDDEN = ("torch", "transformers", "vllm", "numpy")
INSTALLED = (
    "import json; from importlib.metadata import distributions as found; "
    "print(json.dumps([one.name for one in found()]))"
)
API_COMMANDS = (
    "vqueue --version",
    "vqueue api --help",
    "vqueue dispatcher --help",
    "vqueue migrate --help",
    'python -c "import app.main, app.dispatcher, workers.fetcher"',
    # Migrations, pages, words and styles are files beside the code.
    'python -c "from app.migrate import newest_revision as n; assert n()"',
    'python -c "import app.console.words, app.console.rendering"',
    "python -c \"from importlib.resources import files as f; c = f('app.console'); "
    "assert (c / 'templates/base.html').is_file() and (c / 'static/console.css').is_file()\"",
)
COMMANDS: Mapping[str, Sequence[str]] = {
    "api": API_COMMANDS,
    "flower": ("celery flower --help",),
    "worker": (*API_COMMANDS[:1], 'python -c "import workers.main"'),
}


class Failed(Exception):
    """A step that does not run; says what it printed."""


@dataclass(frozen=True)
class Replayed:
    """What came of it."""

    steps: int
    left_out: tuple[str, ...]
    mib: Mapping[str, int]  # of what was put into each image over its base, by image
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def line(self) -> str:
        sizes = " ".join(f"{image}_mib={size}" for image, size in self.mib.items())
        return f"replay: steps={self.steps} left_out={len(self.left_out)} {sizes} seconds={self.seconds:.0f}"


def replay(images: Sequence[str]) -> Replayed:
    """Build these images, and run in each what it is for."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="vqueue-replay-") as folder:
        builder = Builder(Path(folder), read_stages())
        findings: list[Finding] = []
        mib: dict[str, int] = {}
        for image in images:
            try:
                builder.build(image)
                mib[image] = _size_mib(builder.layer(image))
                findings += builder.try_out(image)
            except Failed as failed:
                findings.append(Finding(FILE, f"stage {image}", str(failed), "the step must run"))
        return Replayed(
            builder.steps, tuple(builder.left_out), mib, time.monotonic() - began, tuple(findings)
        )


class Builder:
    """Builds stages one after the other. The root of the one at work is always the same folder, since virtual
    environments hold their own path.
    """

    def __init__(self, folder: Path, stages: Sequence[Stage]) -> None:
        self._stages = {stage.name: stage for stage in stages}
        self._root = folder / "root"
        self._kept = folder / "kept"
        self._python = folder / "python"
        self._is_fresh = False
        self._built: set[str] = set()
        self.steps = 0
        self.left_out: list[str] = []

    def layer(self, name: str) -> Path:
        """The files of a built stage."""
        return self._kept / name

    def build(self, name: str) -> None:
        """Build a stage after those that it stands on. Raises Failed."""
        if name in self._built:
            return
        stage = self._stages[name]
        for other in self._needs(stage):
            self.build(other)
        self._lay_out(stage)
        at, variables = self._root / "srv", dict[str, str]()
        for one in [*self._below(stage), stage]:
            for step in one.steps:
                if step.word == "WORKDIR":
                    at = self._moved_path(step.rest)
                    at.mkdir(parents=True, exist_ok=True)
                if step.word == "ENV":
                    variables |= self._variables(step)
        for step in stage.steps:
            self._step(name, step, at, variables)
        if any(step.word == "RUN" and "pip install" in step.rest for step in stage.steps):
            self._is_fresh = False
        self._kept.mkdir(exist_ok=True)
        self._root.rename(self.layer(name))
        self._built.add(name)

    def try_out(self, name: str) -> Iterator[Finding]:
        """Run what an image is for, with nothing but what is in it."""
        self._lay_out(Stage(name, name))
        at = self._root / "srv" / "vqueue"
        at.mkdir(parents=True, exist_ok=True)
        for command in COMMANDS[name]:
            try:
                self._run(command, at, {})
            except Failed as failed:
                yield Finding(FILE, f"stage {name}", str(failed), "copy what it needs into the image")
        if name == "api":
            yield from self._forbidden(name)
        shutil.rmtree(self._root)

    def _forbidden(self, name: str) -> Iterator[Finding]:
        said = self._run(f"python -c {shlex.quote(INSTALLED)}", self._root, {})
        for found in sorted(set(FORBIDDEN) & {one.lower() for one in json.loads(said)}):
            yield Finding(FILE, f"stage {name}", f"{found} is in the image", "it belongs to the workers")

    def _needs(self, stage: Stage) -> Iterator[str]:
        if stage.base in self._stages:
            yield stage.base
        for step in stage.steps:
            if found := re.match(r"--from=(\S+)", step.rest):
                yield found[1]

    def _below(self, stage: Stage) -> list[Stage]:
        """The stages that it stands on, lowest first."""
        base = self._stages.get(stage.base)
        return [*self._below(base), base] if base else []

    def _lay_out(self, stage: Stage) -> None:
        if self._root.exists():
            shutil.rmtree(self._root)
        if stage.base in self._built:
            shutil.copytree(self.layer(stage.base), self._root, symlinks=True)
        else:
            self._root.mkdir(parents=True)

    def _provide_python(self) -> None:
        """The base image's own Python, without what stages before have installed there."""
        if self._is_fresh:
            return
        if self._python.exists():
            shutil.rmtree(self._python)
        self._run_command([sys.executable, "-m", "venv", str(self._python)], ROOT, dict(os.environ))
        self._is_fresh = True

    def _variables(self, step: Step) -> dict[str, str]:
        pairs = (word.partition("=") for word in shlex.split(step.rest))
        return {key: self._moved(value) for key, _, value in pairs if key != "PATH"}

    def _step(self, name: str, step: Step, at: Path, variables: Mapping[str, str]) -> None:
        if step.word not in ("COPY", "RUN"):
            return
        if re.search(r"\b(useradd|groupadd)\b", step.rest):
            self.left_out.append(f"{name} line {step.line}: users of the system")
            return
        self.steps += 1
        if step.word == "COPY":
            self._copy(step.rest, at)
            return
        if re.search(r"\b(python|pip|hf)\b", step.rest):
            self._provide_python()
        self._run(step.rest, at, variables)

    def _copy(self, rest: str, at: Path) -> None:
        words = shlex.split(rest)
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = self.layer(options["from"]) if "from" in options else ROOT
        to = self._moved_path(target) if target.startswith("/") else at / target
        for source in sources:
            path = origin / source.lstrip("/")
            if not path.exists():
                raise Failed(f"`COPY {rest}`: there is no {source}")
            if path.is_dir():
                shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=_not_sent)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)

    def _run(self, command: str, at: Path, variables: Mapping[str, str]) -> str:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))
        }
        first = [str(self._root / "opt/vqueue/bin"), str(self._python / "bin"), "/usr/bin", "/bin"]
        environment |= {"PATH": ":".join(first), **variables}
        if (self._root / "src").exists() and at == self._root / "src":
            environment["PATH"] = ":".join(first[1:])
        return self._run_command(["sh", "-ec", self._moved(command)], at, environment)

    def _run_command(self, command: Sequence[str], at: Path, environment: Mapping[str, str]) -> str:
        done = subprocess.run(
            command,
            cwd=at,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise Failed(f"`{command[-1]}` ends with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def _moved(self, text: str) -> str:
        return _PATHS.sub(f"{self._root}/", text)

    def _moved_path(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _not_sent(_folder: str, names: list[str]) -> list[str]:
    """What .dockerignore keeps out of a folder that it lets in."""
    return [name for name in names if name == "__pycache__"]


def _size_mib(folder: Path) -> int:
    total = sum(
        path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return round(total / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch", action="store_true", help="the worker as well: gigabytes, and minutes")
    asked = parser.parse_args()
    done = replay(("api", "flower", *(("worker",) if asked.torch else ())))
    for line in (*done.left_out, *done.findings):
        print(line)
    print(done.line)
    sys.exit(bool(done.findings))


if __name__ == "__main__":
    main()
