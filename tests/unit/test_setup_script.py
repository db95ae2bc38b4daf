"""scripts/setup.sh makes a .venv, but never one that belongs to somebody else."""

import shutil
import subprocess
from pathlib import Path


def test_what_a_linked_venv_leads_to_is_left_alone(tmp_path: Path) -> None:
    clone, other = tmp_path / "clone", tmp_path / "other"
    (clone / "scripts").mkdir(parents=True)
    shutil.copy("scripts/setup.sh", clone / "scripts")
    (clone / "pyproject.toml").touch()
    other.mkdir()
    (other / "theirs").touch()
    (clone / ".venv").symlink_to(other)
    command = ["bash", "-c", ". scripts/setup.sh && set_up_python"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "is a link" in done.stdout + done.stderr
    assert [path.name for path in other.iterdir()] == ["theirs"]
