"""The data folder of one machine: its lock, generated passwords and remembered ports."""

import fcntl
import json
import os
import pwd
import random
import secrets
import socket
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Below Linux's ephemeral range (32768-60999), so that no outgoing connection takes a remembered port.
PORTS = range(20_000, 32_000)
# PostgreSQL refuses to run as root; root's servers run as this system user.
SERVICE_USER = "vqueue"
# Where `vqueue up` keeps everything unless told otherwise.
STATE_FILE = "state.json"  # ports and secrets of the local servers
DEFAULT_DATA = Path(".vqueue")


class FolderBusy(Exception):
    """Another supervisor, or a server that is still stopping, holds the folder."""


@dataclass
class _State:
    ports: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


class DataFolder:
    """One folder with all that local servers keep. Hold it in a `with` before anything starts in it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.lock_fd = -1

    def __enter__(self) -> "DataFolder":
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def lock(self, *, within_s: float = 10.0) -> None:
        """Take the folder for this process and its children.

        Children inherit the lock, so it outlives a killed supervisor until its last server has stopped;
        hence the wait.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + within_s
        while not _locked(fd):
            if time.monotonic() > until:
                holder = os.pread(fd, 20, 0).decode()
                os.close(fd)
                raise FolderBusy(_busy(self.path, holder))
            time.sleep(0.05)
        os.truncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self.lock_fd = fd

    def unlock(self) -> None:
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def subfolder(self, name: str) -> Path:
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def has(self, name: str) -> bool:
        """Whether a server of this name was set up here: its port and its password are known."""
        state = self._read()
        return name in state.ports and name in state.secrets

    def secret(self, name: str) -> str:
        """The password called `name`: made at its first use, the same ever after."""
        state = self._read()
        if name not in state.secrets:
            state.secrets[name] = secrets.token_urlsafe(24)
            self._write(state)
        return state.secrets[name]

    def choose_port(self, name: str, *, twin: int = 0) -> int:
        """A free loopback port for `name`: the remembered one while nobody else has taken it.

        The port that lies `twin` higher is free as well.
        """
        state = self._read()
        others = {port for key, port in state.ports.items() if key != name}
        port = state.ports.get(name)
        while port is None or {port, port + twin} & others or not (is_free(port) and is_free(port + twin)):
            port = random.choice(PORTS[: len(PORTS) - twin])
        state.ports[name] = port
        self._write(state)
        return port

    def port(self, name: str) -> int:
        """The port chosen for `name` before."""
        return self._read().ports[name]

    def ports(self, prefix: str) -> list[tuple[str, int]]:
        """The names that begin with `prefix`, and the ports chosen for them."""
        return [(name, port) for name, port in self._read().ports.items() if name.startswith(prefix)]

    def _read(self) -> _State:
        try:
            return _State(**json.loads((self.path / STATE_FILE).read_text()))
        except FileNotFoundError:
            return _State()

    def _write(self, state: _State) -> None:
        write_private(self.path / STATE_FILE, json.dumps(asdict(state), indent=1))


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read; a crash leaves the old or the new one."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def service_user() -> pwd.struct_passwd | None:
    """The system user for servers that refuse root, made at need; None when we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SERVICE_USER)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SERVICE_USER]
        subprocess.run(command, check=True)
        return pwd.getpwnam(SERVICE_USER)


def open_the_way(path: Path) -> list[Path]:
    """Let other users pass through (not list) the folders above `path`; returns those that were changed."""
    closed = [folder for folder in path.parents if not folder.stat().st_mode & 0o001]
    for folder in closed:
        folder.chmod(folder.stat().st_mode | 0o001)
    return closed


def _busy(path: Path, holder: str) -> str:
    """`holder` is the pid in the lock file; a lock can outlive it by servers that are still stopping."""
    pid = f" (pid {holder})" if holder else ""
    if holder and not Path(f"/proc/{holder}").exists():
        return (
            f"servers of a supervisor that has ended{pid} still run in {path}: wait, or give another --data"
        )
    return f"{path} is in use by another supervisor{pid}: stop it, or give another --data"


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
