"""What field cases about batches need: servers, the API on them, and a desk; started at the first use."""

from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from openai import OpenAI
from pydantic import SecretStr
from sqlalchemy import text

from app.auth import Keys
from app.config import Settings
from app.db import Sessions, make_engine, make_sessions, transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.main import build_app, wire
from app.migrate import migrate
from app.models import metadata
from app.objects import ObjectStore, make_objects
from app.queue import ChunkSender, make_celery
from app.sweep import Sweeper
from tests.desk import Desk
from tests.servers import Machine, start_postgres, start_s3, start_valkey
from tests.serving import sdk, serving


class Services:
    def __init__(self) -> None:
        self._stack = ExitStack()

    @cached_property
    def settings(self) -> Settings:
        machine = Machine()
        self._stack.callback(machine.close)
        place, valkey = start_s3(machine), start_valkey(machine)
        place.create()
        return Settings(
            database_url=SecretStr(start_postgres(machine).url("postgres")),
            broker_url=SecretStr(valkey.url(0)),
            redis_url=SecretStr(valkey.url(1)),
            s3_endpoint_url=place.endpoint_url,
            s3_region=place.region,
            s3_bucket=place.bucket,
            s3_access_key_id=SecretStr(place.access_key_id or ""),
            s3_secret_access_key=SecretStr(place.secret_access_key or ""),
        )

    @cached_property
    def sessions(self) -> Sessions:
        url = self.settings.database_url.get_secret_value()
        engine = make_engine(url, pool_size=10, application="fieldcases")
        self._stack.callback(engine.dispose)
        migrate(engine)
        return make_sessions(engine)

    @cached_property
    def ingest(self) -> Ingest:
        ingest = Ingest(sessions=self.sessions, objects=self.objects, settings=self.settings)
        return self._stack.enter_context(closing(ingest))

    @cached_property
    def url(self) -> str:
        assert self.sessions
        return self._stack.enter_context(serving(build_app(wire(self.settings))))

    def desk(self) -> Desk:
        """Of a tenant of its own."""
        return Desk(sessions=self.sessions, objects=self.objects, settings=self.settings)

    def lonely_desk(self) -> Desk:
        """One with nobody else's jobs beside its own."""
        tables = ", ".join(table.name for table in metadata.sorted_tables)
        with transaction(self.sessions) as session:
            session.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))
        return self.desk()

    @cached_property
    def quick(self) -> Settings:
        """For workers that die and are found dead within seconds."""
        return self.settings.model_copy(
            update={"lease_s": 1.5, "heartbeat_s": 0.3, "resend_s": 0.5, "worker_threads": 2}
        )

    @cached_property
    def sender(self) -> ChunkSender:
        sender = ChunkSender(celery=make_celery(self.quick), amqp=False)
        self._stack.callback(sender.close)
        return sender

    @cached_property
    def folder(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory()))

    def key(self, desk: Desk) -> str:
        return Keys(sessions=self.sessions).create(tenant=desk.tenant, name="cases").secret

    def client(self, desk: Desk) -> OpenAI:
        return self._stack.enter_context(sdk(self.url, self.key(desk)))

    def http(self, desk: Desk) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key(desk)}"}
        return self._stack.enter_context(httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=60))

    def read(self) -> None:
        """Play the dispatcher: read what was handed in."""
        while self.ingest.step():
            pass

    def end(self) -> None:
        """Play the dispatcher: end what can be ended."""
        sweeper = Sweeper(sessions=self.sessions)
        finalize = Finalize(sessions=self.sessions, objects=self.objects, settings=self.settings)
        while sweeper.step() or finalize.step():
            pass

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def objects(self) -> ObjectStore:
        store = make_objects(self.settings)
        self._stack.callback(store.close)
        return store
