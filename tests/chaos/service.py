"""The processes of one vqueue for a run, with a database and a bucket of their own."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.auth import Keys
from app.config import Settings
from app.db import make_engine, make_sessions
from app.local.folder import DataFolder
from app.migrate import migrate
from tests.chaos.books import Books
from tests.chaos.customer import Customer
from tests.chaos.inputs import Input
from tests.chaos.pace import Pace
from tests.chaos.pictures import Host
from tests.chaos.plan import RunPlan
from tests.chaos.strikes import Field
from tests.chaos.units import READY_S, Servers, Unit, own_units
from tests.processes import free_port
from tests.servers import S3Place
from tests.waiting import eventually

MODEL = "chaos"
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"


@dataclass
class Service:
    """The processes of one vqueue, with a database and a bucket of their own."""

    settings: Settings
    servers: Servers
    units: list[Unit]
    keys: list[str]
    bucket: str

    @property
    def place(self) -> S3Place:
        return self.servers.s3(self.bucket)

    def field(self, lease_s: float) -> Field:
        books = Books(self.settings.database_url.get_secret_value())
        units = [*self.servers.units.values(), *self.units]
        return Field(self.servers, units, books, self.settings, self.place, lease_s)

    @contextmanager
    def customer(self, inputs: Sequence[Input], pace: Pace | None = None) -> Iterator[Customer]:
        url = f"http://127.0.0.1:{self.settings.port}"
        pace = pace or Pace(struck=1.0)
        with closing(Customer(urls=[url], keys=self.keys, inputs=inputs, pace=pace)) as customer:
            customer.start()
            yield customer


@contextmanager
def service(
    plan: RunPlan, servers: Servers, host: Host, name: str, data: DataFolder, *, job_ms: float
) -> Iterator[Service]:
    servers.postgres.create_database(name)
    settings = settings_for(plan, servers, host, name)
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="chaos")
    migrate(engine)
    keys = Keys(sessions=make_sessions(engine))
    secrets = [keys.create(tenant=tenant, name="chaos").secret for tenant in ("Ada", "Grace")]
    engine.dispose()
    servers.s3(name).create()
    units = own_units(
        settings,
        data.subfolder("logs"),
        variables={"CHAOS_JOB_MS": str(job_ms), "CHAOS_ENGINE": plan.engine},
    )
    try:
        for unit in units:
            unit.start()
        for unit in units:
            eventually(unit.ready, within_s=READY_S)
        yield Service(settings, servers, units, secrets, name)
    finally:
        for unit in units:
            unit.kill()


def settings_for(plan: RunPlan, servers: Servers, host: Host, name: str) -> Settings:
    """Few jobs at a time in a worker and on the broker, since what is measured is the way back.

    Deaths are ours, not the jobs': none is to end for having been on board too often.
    """
    place = servers.s3(name)
    return Settings(
        database_url=SecretStr(servers.postgres.url(name)),
        broker_url=SecretStr(servers.broker_url),
        redis_url=SecretStr(servers.redis_url),
        s3_endpoint_url=place.endpoint_url,
        s3_bucket=name,
        s3_access_key_id=SecretStr(place.access_key_id or ""),
        s3_secret_access_key=SecretStr(place.secret_access_key or ""),
        model=str(DEMO),
        model_name=MODEL,
        port=free_port(),
        lease_s=plan.lease_s,
        heartbeat_s=plan.lease_s / 3,
        resend_s=1.0,
        dispatch_poll_s=0.1,
        chunk_jobs=8,
        worker_threads=2,
        step_rows=1 if plan.engine == "fake" else 4,
        torch_threads=1,
        window_jobs=32,
        answer_cache="off",  # every job is to be on its way for long
        crash_attempts=100,
        job_attempts=100,
        fetch_attempts=100,
        fetch_reuse_s=0,
        fetch_total_s=5.0,
        fetch_allow_hosts=("127.0.0.1",),
        fetch_ports=(host.server_port,),
        drain_s=5.0,
    )
