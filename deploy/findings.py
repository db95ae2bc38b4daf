"""What a check finds wrong: where, what, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A manifest, a pod's spec, a service of Compose: as YAML gives them.
Tree = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """One mistake. `file` is a path in the repository, `field` where in it: an object, then its keys."""

    file: str
    field: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: {self.problem}; {self.remedy}"


def title(manifest: Tree) -> str:
    """How findings name a manifest: its kind and name."""
    return f"{manifest.get('kind', '?')}/{manifest.get('metadata', {}).get('name', '?')}"
