"""The proof on servers of its own, at 0, 1, 1,000 and 100,000 waiting jobs."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.config import Settings
from app.db import make_engine, make_sessions
from app.local import rabbitmq
from app.migrate import migrate
from tests.servers import Databases, Machine, VirtualHosts, start_postgres, start_rabbitmq, start_valkey
from tests.triggers.proof import Line, Secrets, Site, prove

LEVELS = (0, 1, 1_000, 100_000)


def prove_all(levels: tuple[int, ...] = LEVELS) -> list[Line]:
    """On both brokers, RabbitMQ where it is installed; prints each line as it comes."""
    lines: list[Line] = []
    with _machine() as machine, tempfile.TemporaryDirectory() as folder:
        databases = Databases(start_postgres(machine).url("postgres"))
        valkey = start_valkey(machine)
        for broker in ("rabbitmq", "redis") if rabbitmq.installed() else ("redis",):
            database_url = databases.create()
            if broker == "rabbitmq":
                hosts = VirtualHosts(start_rabbitmq(machine))
                broker_url = hosts.create()
                keda = {"RABBITMQ_URL": hosts.watched(broker_url)}
            else:
                broker_url = valkey.url(0)
                keda = redis_login(broker_url)
            settings = Settings(
                database_url=SecretStr(database_url),
                broker_url=SecretStr(broker_url),
                redis_url=SecretStr(valkey.url(1)),
                model_name="demo",
                lease_s=6.0,
                heartbeat_s=1.0,
                drain_s=1.0,
            )
            secrets = {"vqueue-keda": {"POSTGRES_URL": database_url, **keda}}
            lines += _prove(settings, secrets, Path(folder), levels)
    return lines


def redis_login(url: str) -> dict[str, str]:
    """The keys of `vqueue-keda` for a Redis by its URL."""
    parts = urlsplit(url)
    return {
        "REDIS_ADDRESS": f"{parts.hostname}:{parts.port}",
        "REDIS_USERNAME": parts.username or "default",
        "REDIS_PASSWORD": parts.password or "",
        "REDIS_TLS": "enable" if parts.scheme == "rediss" else "disable",
    }


def _prove(settings: Settings, secrets: Secrets, folder: Path, levels: tuple[int, ...]) -> list[Line]:
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=2, application="tests")
    migrate(engine)
    site = Site(make_sessions(engine), settings, secrets, folder, say=lambda line: print(line, flush=True))
    try:
        return prove(site, levels, held=[level for level in levels if level])
    finally:
        site.close()
        engine.dispose()


@contextmanager
def _machine() -> Iterator[Machine]:
    with closing(Machine()) as machine:
        yield machine
