"""Prints what vqueue is built on, by pyproject.toml, for `pip install --requirement`. Needs the library only.

python deploy/requirements.py [--beside] [EXTRA ...]

`--beside` leaves out what the Python that runs this has already, in whatever version: vLLM's image brings
some of our libraries in versions below ours, and must keep them.
"""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any


def requirements(project: Mapping[str, Any], extras: Sequence[str], present: frozenset[str]) -> list[str]:
    """The dependencies of `project`, and those of its `extras`, whose names are not `present`."""
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    return [line for line in wanted if name_of(line) not in present]


def name_of(requirement: str) -> str:
    """The name of a requirement or distribution as indexes compare it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def main(words: Sequence[str]) -> None:
    extras = [word for word in words if word != "--beside"]
    beside = len(extras) < len(words)
    present = frozenset(name_of(one.name) for one in distributions()) if beside else frozenset[str]()
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    sys.stdout.writelines(f"{line}\n" for line in requirements(project, extras, present))


if __name__ == "__main__":
    main(sys.argv[1:])
