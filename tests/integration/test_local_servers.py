"""The local servers: on loopback only, and with their data still there at the second start."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg2
import pytest
import redis
from kombu.connection import Connection

from app.errors import TransientWork
from app.local.folder import DataFolder
from app.local.postgres import Postgres
from app.local.rabbitmq import RabbitMQ
from app.local.seaweed import ACCESS_KEY_ID, Seaweed
from app.local.supervisor import Supervisor
from app.local.valkey import Valkey
from app.objects import ObjectStore
from tests.servers import LocalServer
from tests.waiting import eventually

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SUPERVISE = """
import sys
from pathlib import Path
from app.local.folder import DataFolder
from app.local.servers import Broker, LocalServers
from app.local.supervisor import Supervisor
folder = DataFolder(Path(sys.argv[1]))
folder.lock()
supervisor = Supervisor(logs=folder.path / "logs", say=print, keep_fd=folder.lock_fd)
LocalServers(supervisor, folder, Broker(sys.argv[2]), {}).start()
print("up", flush=True)
supervisor.run()
"""


@pytest.fixture
def folder() -> Iterator[DataFolder]:
    """A data folder that PostgreSQL's own user can reach (pytest's temporary folders are closed)."""
    with tempfile.TemporaryDirectory(prefix="vqueue-test-") as path:
        Path(path).chmod(0o711)
        yield DataFolder(Path(path))


@contextmanager
def running(server: LocalServer, folder: DataFolder) -> Iterator[list[str]]:
    """The server at work; gives what its supervisor said."""
    said: list[str] = []
    with folder:
        supervisor = Supervisor(logs=folder.path / "logs", say=said.append, keep_fd=folder.lock_fd)
        try:
            for program in server.prepare():
                supervisor.start(program)
            # A server of the session's fixtures may listen for a moment while it ends or begins.
            eventually(lambda: foreign_listeners() == [])
            yield said
        finally:
            supervisor.stop()
    assert said == []


def foreign_listeners() -> list[str]:
    """Sockets of our child processes that other machines could reach."""
    ours = {process.pid for process in psutil.Process().children(recursive=True)}
    return [
        f"{connection.laddr.ip}:{connection.laddr.port}"
        for connection in psutil.net_connections("inet")
        if connection.pid in ours and connection.status == psutil.CONN_LISTEN
        if connection.laddr and connection.laddr.ip not in LOOPBACK
    ]


def test_postgres_keeps_its_rows(folder: DataFolder) -> None:
    postgres = Postgres(folder)
    with running(postgres, folder):
        postgres.create_database("vqueue")
        with closing(psycopg2.connect(postgres.url())) as connection, connection:
            connection.cursor().execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with running(postgres, folder), closing(psycopg2.connect(postgres.url())) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT answer FROM kept")
        assert cursor.fetchone() == (42,)


def test_postgres_wants_its_password(folder: DataFolder) -> None:
    postgres = Postgres(folder)
    with running(postgres, folder):
        wrong = postgres.url("postgres").replace(folder.secret("postgres"), "guess")
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(wrong)


def test_valkey_keeps_its_keys(folder: DataFolder) -> None:
    valkey = Valkey(folder)
    with running(valkey, folder), closing(redis.Redis.from_url(valkey.url(0))) as client:
        client.set("kept", "42")
    with running(valkey, folder), closing(redis.Redis.from_url(valkey.url(0))) as client:
        assert client.get("kept") == b"42"


def test_valkey_wants_its_password(folder: DataFolder) -> None:
    valkey = Valkey(folder)
    with running(valkey, folder):
        stranger = redis.Redis.from_url(valkey.url(0).replace(folder.secret("valkey"), "guess"))
        with closing(stranger), pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_s3_keeps_its_objects(folder: DataFolder) -> None:
    seaweed = Seaweed(folder)
    with running(seaweed, folder), closing(store_of(seaweed)) as store:
        store.ensure_bucket()
        store.put("kept", b"42", content_type="text/plain")
    with running(seaweed, folder), closing(store_of(seaweed)) as store:
        assert eventually(lambda: read_in_time(store, "kept")) == b"42"


def read_in_time(store: ObjectStore, key: str) -> bytes | None:
    """None as long as a store just started does not know all of its volumes: our readers try again."""
    try:
        return store.get(key, max_bytes=10)
    except TransientWork:
        return None


def test_s3_leaves_no_sockets_in_the_temporary_folder(folder: DataFolder) -> None:
    folder_of_sockets = Path(tempfile.gettempdir())
    before = set(folder_of_sockets.glob("seaweedfs-*.sock"))  # of servers that were killed
    with running(Seaweed(folder), folder):
        ports = [port for _, port in folder.ports("seaweed.")]
    left = {path for port in ports for path in folder_of_sockets.glob(f"seaweedfs-*-{port}.sock")}
    assert left <= before


def test_rabbitmq_keeps_its_messages(folder: DataFolder) -> None:
    rabbitmq = RabbitMQ(folder)
    with running(rabbitmq, folder), Connection(rabbitmq.url()) as connection:
        connection.SimpleQueue("kept").put({"chunk": "c42"})
    with running(rabbitmq, folder), Connection(rabbitmq.url()) as connection:
        assert connection.SimpleQueue("kept").get(timeout=10).payload == {"chunk": "c42"}


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_killing_the_supervisor_ends_every_server_and_frees_the_folder(
    folder: DataFolder, broker: str
) -> None:
    started = start_and_kill_supervisor(folder, broker)
    folder.lock(within_s=30)
    folder.unlock()
    eventually(lambda: not any(process.is_running() for process in started))


def test_objects_and_rows_outlive_a_killed_supervisor(folder: DataFolder) -> None:
    start_and_kill_supervisor(folder, "redis", before=lambda: put_one_of_each(folder))
    with running(Postgres(folder), folder), closing(psycopg2.connect(Postgres(folder).url())) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT answer FROM kept")
        assert cursor.fetchone() == (42,)
    with running(Seaweed(folder), folder), closing(store_of(Seaweed(folder))) as store:
        eventually(lambda: read_when_ready(store, "kept") == b"42", within_s=60)
    with running(Valkey(folder), folder), closing(redis.Redis.from_url(Valkey(folder).url(0))) as client:
        assert client.get("kept") == b"42"


def read_when_ready(store: ObjectStore, key: str) -> bytes | None:
    """None while the volume is not back yet: a filer that starts on a busy machine answers 500 until then."""
    try:
        return store.get(key, max_bytes=10)
    except TransientWork:
        return None


def start_and_kill_supervisor(
    folder: DataFolder, broker: str, *, before: Callable[[], None] = lambda: None
) -> list[psutil.Process]:
    """The servers that a supervisor had started when it was killed, after `before`."""
    command = [sys.executable, "-c", SUPERVISE, str(folder.path), broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "up\n"
        before()
        started = psutil.Process(supervisor.pid).children(recursive=True)
        supervisor.send_signal(signal.SIGKILL)
    return started


def put_one_of_each(folder: DataFolder) -> None:
    with closing(psycopg2.connect(Postgres(folder).url())) as connection, connection:
        connection.cursor().execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with closing(store_of(Seaweed(folder))) as store:
        store.ensure_bucket()
        store.put("kept", b"42", content_type="text/plain")
    with closing(redis.Redis.from_url(Valkey(folder).url(0))) as client:
        client.set("kept", "42")


def store_of(seaweed: Seaweed) -> ObjectStore:
    return ObjectStore(
        bucket="vqueue-test",
        endpoint_url=seaweed.endpoint_url,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=seaweed.secret_access_key,
    )
