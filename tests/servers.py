"""The servers of a test run: our own from wheels, or those that `VQUEUE_*` variables name."""

import os
import shutil
import signal
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Protocol
from uuid import uuid4

import psycopg2
import redis
import urllib3
from sqlalchemy import make_url

from app.local.folder import DataFolder
from app.local.postgres import Postgres
from app.local.process import Program
from app.local.rabbitmq import RabbitMQ
from app.local.seaweed import ACCESS_KEY_ID, Seaweed
from app.local.supervisor import Supervisor
from app.local.valkey import Valkey
from app.objects import ObjectStore

REDIS_DATABASES = range(16)


@dataclass(frozen=True)
class S3Place:
    """One bucket of our own and the way to it."""

    endpoint_url: str | None
    region: str
    bucket: str
    access_key_id: str | None
    secret_access_key: str | None

    def create(self) -> None:
        with closing(self.store()) as store:
            store.ensure_bucket()

    def store(self) -> ObjectStore:
        return ObjectStore(
            bucket=self.bucket,
            endpoint_url=self.endpoint_url,
            region=self.region,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
        )


class LocalServer(Protocol):
    def prepare(self) -> tuple[Program, ...]: ...


class Machine:
    """Starts local servers at their first use, with data in a temporary folder; kills all at the end."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="vqueue-test-"))
        path.chmod(0o711)  # PostgreSQL's own user has to pass through
        self.folder = DataFolder(path)
        self.folder.lock()
        hurry = Event()
        hurry.set()  # the data is thrown away: no server needs its time to stop
        self._supervisor = Supervisor(
            logs=path / "logs", say=lambda _: None, keep_fd=self.folder.lock_fd, hurry=hurry
        )

    def start(self, server: LocalServer) -> None:
        for program in server.prepare():
            self._supervisor.start(program)

    def kill(self, name: str) -> None:
        """At once; nobody starts it again."""
        os.kill(self._supervisor.pid(name), signal.SIGKILL)

    def close(self) -> None:
        self._supervisor.stop()
        self.folder.unlock()
        shutil.rmtree(self.folder.path)


class Databases:
    """A Postgres in which a test run makes databases of its own, and drops only those."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql")

    def create(self) -> str:
        name = f"vqueue_test_{uuid4().hex[:12]}"
        self._execute(f'CREATE DATABASE "{name}"')
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        name = make_url(url).database or ""
        assert name.startswith("vqueue_test_")
        self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        with closing(psycopg2.connect(self._url.render_as_string(hide_password=False))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)


def claim_redis(url: str, *, taken: tuple[str, ...] = ()) -> str:
    """The URL of an empty database of that server, which the test run may flush."""
    parsed = make_url(url)
    for number in REDIS_DATABASES:
        candidate = parsed.set(database=str(number)).render_as_string(hide_password=False)
        if candidate not in taken and is_empty(candidate):
            return candidate
    raise AssertionError("the given Redis has no empty database for the tests")


def is_empty(url: str) -> bool:
    with closing(redis.Redis.from_url(url)) as client:
        return client.dbsize() == 0


def flush_redis(url: str) -> None:
    with closing(redis.Redis.from_url(url)) as client:
        client.flushdb()


class VirtualHosts:
    """Makes and removes virtual hosts of our own RabbitMQ by its management API."""

    def __init__(self, server: RabbitMQ) -> None:
        self._server = server
        self._headers = urllib3.make_headers(basic_auth=":".join(server.login))

    def create(self) -> str:
        name = f"test-{uuid4().hex[:12]}"
        self._call("PUT", name)
        return self._server.url(name)

    def delete(self, url: str) -> None:
        self._call("DELETE", url.rsplit("/", 1)[1])

    def watched(self, url: str) -> str:
        """Where the management API tells of a virtual host, with the login of a user who may only look."""
        name, password = f"watcher-{uuid4().hex[:8]}", uuid4().hex
        vhost = url.rsplit("/", 1)[1]
        self._put(f"users/{name}", {"password": password, "tags": "monitoring"})
        self._put(f"permissions/{vhost}/{name}", {"configure": "^$", "write": "^$", "read": "^$"})
        return self._server.management_url.replace("://", f"://{name}:{password}@") + f"/{vhost}"

    def _call(self, method: str, name: str) -> None:
        url = f"{self._server.management_url}/api/vhosts/{name}"
        answer = urllib3.request(method, url, headers=self._headers, timeout=30)
        assert answer.status in (201, 204), answer.data

    def _put(self, path: str, body: dict[str, str]) -> None:
        url = f"{self._server.management_url}/api/{path}"
        answer = urllib3.request("PUT", url, headers=self._headers, json=body, timeout=30)
        assert answer.status in (201, 204), answer.data


def start_postgres(machine: Machine) -> Postgres:
    server = Postgres(machine.folder, durable=False)
    machine.start(server)
    return server


def start_valkey(machine: Machine) -> Valkey:
    server = Valkey(machine.folder)
    machine.start(server)
    return server


def start_rabbitmq(machine: Machine, *, erlang: str = "") -> RabbitMQ:
    server = RabbitMQ(machine.folder, erlang=erlang)
    machine.start(server)
    return server


def start_s3(machine: Machine) -> S3Place:
    server = Seaweed(machine.folder)
    machine.start(server)
    return S3Place(server.endpoint_url, "us-east-1", "vqueue-test", ACCESS_KEY_ID, server.secret_access_key)


def given_s3() -> S3Place | None:
    """A fresh bucket name on the S3 that the environment names."""
    if "VQUEUE_S3_ENDPOINT_URL" not in os.environ and "VQUEUE_S3_ACCESS_KEY_ID" not in os.environ:
        return None
    return S3Place(
        endpoint_url=os.environ.get("VQUEUE_S3_ENDPOINT_URL"),
        region=os.environ.get("VQUEUE_S3_REGION", "us-east-1"),
        bucket=f"vqueue-test-{uuid4().hex[:12]}",
        access_key_id=os.environ.get("VQUEUE_S3_ACCESS_KEY_ID"),
        secret_access_key=os.environ.get("VQUEUE_S3_SECRET_ACCESS_KEY"),
    )
