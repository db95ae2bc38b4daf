"""The data folder of one machine."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.local.folder import DataFolder, FolderBusy, is_free, open_the_way

HOLD = """
import subprocess, sys
from pathlib import Path
from app.local.folder import DataFolder
folder = DataFolder(Path(sys.argv[1]))
folder.lock()
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
print(subprocess.Popen(["sleep", "1000"], pass_fds=(folder.lock_fd,), **quiet).pid)
"""


def test_two_supervisors_do_not_share_a_folder(tmp_path: Path) -> None:
    remedy = rf"by another supervisor \(pid {os.getpid()}\): stop it, or give another --data"
    with DataFolder(tmp_path), pytest.raises(FolderBusy, match=remedy):
        DataFolder(tmp_path).lock(within_s=0.1)


def test_a_folder_is_free_again_afterwards(tmp_path: Path) -> None:
    with DataFolder(tmp_path):
        pass
    with DataFolder(tmp_path):
        pass


def test_a_server_that_outlives_its_supervisor_keeps_the_folder(tmp_path: Path) -> None:
    holder = subprocess.run([sys.executable, "-c", HOLD, str(tmp_path)], capture_output=True, check=True)
    with pytest.raises(FolderBusy, match="servers of a supervisor that has ended"):
        DataFolder(tmp_path).lock(within_s=0.1)
    os.kill(int(holder.stdout), signal.SIGKILL)
    DataFolder(tmp_path).lock(within_s=10)


def test_a_password_stays_the_same_and_is_for_the_owner_only(tmp_path: Path) -> None:
    password = DataFolder(tmp_path).secret("postgres")
    assert DataFolder(tmp_path).secret("postgres") == password
    assert DataFolder(tmp_path).secret("valkey") != password
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_port_is_remembered(tmp_path: Path) -> None:
    port = DataFolder(tmp_path).choose_port("postgres")
    assert DataFolder(tmp_path).choose_port("postgres") == port
    assert DataFolder(tmp_path).port("postgres") == port


def test_a_port_that_somebody_took_is_replaced(tmp_path: Path) -> None:
    port = DataFolder(tmp_path).choose_port("postgres")
    with closing(socket.create_server(("127.0.0.1", port))):
        assert not is_free(port)
        assert DataFolder(tmp_path).choose_port("postgres") != port


def test_the_way_is_opened_for_passing_through_only(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    assert closed in open_the_way(closed / "data")
    assert closed.stat().st_mode & 0o777 == 0o701
