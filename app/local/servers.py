"""Which servers run on this machine, and the VQUEUE_* variables that lead to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.local.folder import DataFolder
from app.local.postgres import Postgres
from app.local.process import Program
from app.local.rabbitmq import RabbitMQ
from app.local.seaweed import ACCESS_KEY_ID, Seaweed
from app.local.supervisor import Supervisor
from app.local.valkey import Valkey

# Any of these leads to another object store; the other S3 settings hold for the local one too.
OBJECT_STORE = frozenset({"VQUEUE_S3_ENDPOINT_URL", "VQUEUE_S3_ACCESS_KEY_ID", "VQUEUE_S3_SECRET_ACCESS_KEY"})


class Broker(StrEnum):
    """What carries the messages."""

    REDIS = "redis"
    RABBITMQ = "rabbitmq"


def names_object_store(given: Mapping[str, str]) -> bool:
    """Whether the caller brings an object store, or the keys to Amazon's."""
    return not OBJECT_STORE.isdisjoint(given)


@dataclass(frozen=True)
class LocalServers:
    """Starts the servers that the caller did not bring. `given` are the caller's own variables."""

    supervisor: Supervisor
    folder: DataFolder
    broker: Broker
    given: Mapping[str, str]

    def start(self) -> dict[str, str]:
        """Start them one by one; the variables that lead to them."""
        return self._database() | self._brokers() | self._objects()

    def _database(self) -> dict[str, str]:
        if "VQUEUE_DATABASE_URL" in self.given:
            return {}
        postgres = Postgres(self.folder)
        self._run(postgres.prepare())
        postgres.create_database("vqueue")
        return {"VQUEUE_DATABASE_URL": postgres.url()}

    def _brokers(self) -> dict[str, str]:
        """Valkey serves the cache in any case, and the broker unless RabbitMQ is asked for."""
        urls: dict[str, str] = {}
        if self.broker is Broker.RABBITMQ and "VQUEUE_BROKER_URL" not in self.given:
            rabbitmq = RabbitMQ(self.folder)
            self._run(rabbitmq.prepare())
            urls["VQUEUE_BROKER_URL"] = rabbitmq.url()
        if {"VQUEUE_BROKER_URL", "VQUEUE_REDIS_URL"} - urls.keys() - self.given.keys():
            valkey = Valkey(self.folder)
            self._run(valkey.prepare())
            urls = {"VQUEUE_BROKER_URL": valkey.url(0), "VQUEUE_REDIS_URL": valkey.url(1)} | urls
        return {name: url for name, url in urls.items() if name not in self.given}

    def _objects(self) -> dict[str, str]:
        if names_object_store(self.given):
            return {}
        seaweed = Seaweed(self.folder)
        self._run(seaweed.prepare())
        return {
            "VQUEUE_S3_ENDPOINT_URL": seaweed.endpoint_url,
            "VQUEUE_S3_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "VQUEUE_S3_SECRET_ACCESS_KEY": seaweed.secret_access_key,
        }

    def _run(self, programs: tuple[Program, ...]) -> None:
        for program in programs:
            self.supervisor.start(program)
