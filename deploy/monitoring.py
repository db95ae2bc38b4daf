"""Every panel's and every rule's PromQL on a real Prometheus after a real run: none errs, all have series."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.config import Settings
from app.db import Sessions, make_engine, make_sessions
from app.migrate import migrate
from deploy.alarms import Rule, check_files, read_rules, without_thresholds
from deploy.dashboards import DASHBOARDS
from deploy.grafana_json import FOLDER, Dashboard, Query, to_json
from deploy.prometheus_server import PrometheusServer, QueryRefused, Series, running_prometheus
from deploy.small_run import small_run
from tests.servers import Databases, Machine, start_postgres, start_s3, start_valkey
from tests.waiting import eventually

RATE_INTERVAL = "15s"  # several scrapes of the run; Grafana takes four of its own
STEP_S = 1.0


@dataclass(frozen=True)
class Monitored:
    """A Prometheus that has watched a run, and when that began and ended."""

    prometheus: PrometheusServer
    started: float
    ended: float

    def series(self, query: Query) -> list[Series]:
        """What a panel shows of the run, all values of its variables chosen."""
        expression = as_prometheus(query.expression)
        return self.prometheus.over(expression, start=self.started, end=self.ended, step_s=STEP_S)


@contextmanager
def watched_run(
    settings: Settings, sessions: Sessions, folder: Path, *, rounds: int = 1
) -> Iterator[Monitored]:
    """A run that has ended its work, and the Prometheus that watched it from before."""
    with (
        small_run(settings, sessions, folder) as run,
        running_prometheus(run.ports, folder) as prometheus,
    ):
        eventually(lambda: prometheus.targets_up() == set(run.ports), within_s=60)
        started = time.time()
        run.work(rounds)
        # The last of what is done comes a moment later, and is read another moment later.
        deleted = "increase(vqueue_objects_deleted_total[1m] offset 3s) > 0"
        eventually(lambda: bool(prometheus.at(deleted)), within_s=60)
        yield Monitored(prometheus, started, time.time())


def check() -> list[str]:
    """What is wrong with alarms and dashboards, one line each. Starts servers of its own; a minute or so."""
    with tempfile.TemporaryDirectory() as folder, own_run(Path(folder)) as monitored:
        return [*check_files(), *check_run(monitored)]


@contextmanager
def own_run(folder: Path, *, rounds: int = 1) -> Iterator[Monitored]:
    """A watched run on servers that are started for it."""
    machine = Machine()
    try:
        settings = _settings(machine)
        engine = make_engine(settings.database_url.get_secret_value(), pool_size=2, application="monitoring")
        migrate(engine)
        with watched_run(settings, make_sessions(engine), folder, rounds=rounds) as monitored:
            yield monitored
        engine.dispose()
    finally:
        machine.close()


def _settings(machine: Machine) -> Settings:
    database_url = Databases(start_postgres(machine).url("postgres")).create()
    valkey, s3 = start_valkey(machine), start_s3(machine)
    s3.create()
    return Settings(
        database_url=SecretStr(database_url),
        broker_url=SecretStr(valkey.url(0)),
        redis_url=SecretStr(valkey.url(1)),
        model_name="demo",
        s3_endpoint_url=s3.endpoint_url,
        s3_bucket=s3.bucket,
        s3_access_key_id=SecretStr(s3.access_key_id or ""),
        s3_secret_access_key=SecretStr(s3.secret_access_key or ""),
    )


def check_run(monitored: Monitored) -> list[str]:
    """What is wrong, one line each: PromQL that errs or finds nothing."""
    return [
        *check_committed(),
        *(fault for dashboard in DASHBOARDS for fault in check_dashboard(monitored, dashboard)),
        *(fault for rule in read_rules() for fault in check_rule(monitored.prometheus, rule)),
        *unhealthy(monitored.prometheus),
    ]


def check_committed() -> list[str]:
    """Whether the committed files are what the code makes."""
    written = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    made = {f"{dashboard.name}.json": to_json(dashboard) for dashboard in DASHBOARDS}
    names = sorted(written.keys() | made.keys())
    return [
        f"{name}: not what `python -m deploy.dashboards` makes"
        for name in names
        if written.get(name) != made.get(name)
    ]


def check_dashboard(monitored: Monitored, dashboard: Dashboard) -> list[str]:
    return [
        f"{dashboard.name}, {panel.title}: {fault}"
        for panel in dashboard.panels
        for query in panel.queries
        for fault in _faults(monitored, query)
    ]


def _faults(monitored: Monitored, query: Query) -> Sequence[str]:
    try:
        found = monitored.series(query)
    except QueryRefused as error:
        return [str(error)]
    labels = set(query.legend.replace("{{", "}}").split("}}")[1::2])
    if not any(series.has_values for series in found):
        return [f"no series of {query.expression}"]
    unknown = sorted(label for label in labels if not any(label in series.labels for series in found))
    return [f"its legend names {label}, which no series has" for label in unknown]


def check_rule(prometheus: PrometheusServer, rule: Rule) -> list[str]:
    expression = without_thresholds(rule.expression)
    try:
        found = prometheus.at(expression)
    except QueryRefused as error:
        return [f"{rule.name}: {error}"]
    return [] if found else [f"{rule.name}: no series of {expression}"]


def unhealthy(prometheus: PrometheusServer) -> list[str]:
    """Rules that Prometheus itself could not evaluate."""
    return [
        f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}"
        for rule in prometheus.rules()
        if rule["health"] != "ok"
    ]


def as_prometheus(expression: str) -> str:
    """Grafana's variables filled in."""
    return expression.replace("$__rate_interval", RATE_INTERVAL).replace("$model", ".*")
