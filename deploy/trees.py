"""The two sides of an upgrade: this checkout, and an earlier commit of the same repository."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from app.config import Settings
from tests.processes import environment

# What is upgraded from, until there is a release: the last commit before cascades, near duplicates, the
# console and the queue of reviews, with the schema of migration 0007.
OLDEST = "f40d7774a1986b33e2d7e4fd219a243158710aa9"
ROOT = Path(__file__).resolve().parents[1]
COMMAND_S = 120


@dataclass(frozen=True)
class Tree:
    """A checkout of vqueue; its processes run in this Python."""

    name: str
    folder: Path

    def command(self, settings: Settings, *words: str) -> str:
        """What `vqueue WORDS` of this checkout prints; RuntimeError with what it says where it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "app.cli.main", *words],
            cwd=self.folder,
            env={**environment(settings), "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: vqueue {' '.join(words)} failed: {done.stderr}")
        return done.stdout

    def newest_revision(self) -> str:
        """Of its migrations; it also tells that the checkout's own code runs, not what is installed."""
        found = subprocess.run(
            [
                sys.executable,
                "-c",
                "import app.migrate; print(app.migrate.__file__, app.migrate.newest_revision())",
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        file, revision = found.split()
        assert Path(file).is_relative_to(self.folder), f"{file} ran in place of {self.folder}"
        return revision


NEW = Tree("new", ROOT)


def old_tree(folder: Path) -> Tree | None:
    """OLDEST, taken out into the folder; None where the clone does not have it (a shallow one)."""
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run([*git, "cat-file", "-e", f"{OLDEST}^{{commit}}"], check=False, capture_output=True)
    if known.returncode != 0:
        return None
    folder.mkdir(parents=True)
    archive = subprocess.run([*git, "archive", OLDEST], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return Tree("old", folder)
