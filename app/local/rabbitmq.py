"""A local RabbitMQ from the Debian package, with a node, ports and folder of its own."""

import os
import shutil
import socket
import urllib.parse
from pathlib import Path

from app.local.folder import DataFolder, write_private
from app.local.probes import PROBE_S, listens
from app.local.process import Program

NODE = "vqueue@localhost"
USER = "vqueue"
# Not /usr/sbin/rabbitmq-server: that wrapper changes to the system's user and its one data folder.
DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
default_user = {user}
default_pass = {password}
log.file = false
log.console = true
log.console.level = warning
"""


class RabbitMQ:
    """The broker and its own epmd: a shared epmd, which the broker would start as a daemon, stays behind."""

    def __init__(self, folder: DataFolder, *, erlang: str = "") -> None:
        """`erlang`: more arguments of the broker's Erlang machine."""
        self._folder = folder
        self._erlang = erlang
        self._home = folder.subfolder("rabbitmq")

    def url(self, vhost: str = "/") -> str:
        login = f"{USER}:{self._folder.secret('rabbitmq')}"
        where = f"127.0.0.1:{self._folder.port('rabbitmq')}"
        return f"amqp://{login}@{where}/{urllib.parse.quote(vhost, safe='')}"

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self._folder.port('rabbitmq.management')}"

    @property
    def login(self) -> tuple[str, str]:
        return USER, self._folder.secret("rabbitmq")

    def prepare(self) -> tuple[Program, ...]:
        ports = {name: self._folder.choose_port(name) for name in ("rabbitmq", "rabbitmq.management")}
        config = CONFIG.format(
            amqp=ports["rabbitmq"],
            management=ports["rabbitmq.management"],
            user=USER,
            password=self._folder.secret("rabbitmq"),
        )
        write_private(self._home / "rabbitmq.conf", config)
        (self._home / "plugins").write_text("[rabbitmq_management].\n")
        env = self._environment()
        port_mapper = Program(
            name="epmd",
            command=(_binary("epmd"),),
            env=env,
            is_ready=lambda: listens(int(env["ERL_EPMD_PORT"])),
        )
        server = Program(
            name="rabbitmq",
            command=(_server(),),
            env=env,
            cwd=self._home,
            stop_within_s=20.0,
            is_ready=self._is_ready,
        )
        return port_mapper, server

    def _environment(self) -> dict[str, str]:
        home = str(self._home)
        return os.environ | {
            "HOME": home,  # of the Erlang cookie
            "ERL_EPMD_PORT": str(self._folder.choose_port("rabbitmq.epmd")),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": "1",  # makes the script become the server, so that signals reach it
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_DIST_PORT": str(self._folder.choose_port("rabbitmq.distribution")),
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{home}/data",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_PID_FILE": f"{home}/pid",
            # No busy waiting of idle schedulers: other programs share these cores.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -start_epmd false +sbwt none +sbwtdcpu none "
            f"+sbwtdio none -kernel inet_dist_use_interface {{127,0,0,1}} {self._erlang}",
        }

    def _is_ready(self) -> bool:
        """Whether both listeners answer; they open at the end of the broker's start."""
        return _greets(self._folder.port("rabbitmq")) and listens(self._folder.port("rabbitmq.management"))


def installed() -> bool:
    return _find_server() is not None


def _find_server() -> str | None:
    return str(DEBIAN) if DEBIAN.exists() else shutil.which("rabbitmq-server")


def _server() -> str:
    found = _find_server()
    if found is None:
        raise RuntimeError("RabbitMQ is missing: apt-get install rabbitmq-server")
    return found


def _binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name}, a part of Erlang, is missing: apt-get install rabbitmq-server")
    return found


def _greets(port: int) -> bool:
    """Whether an AMQP 0.9.1 server answers the protocol header with a method frame."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PROBE_S) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
    except OSError:
        return False
