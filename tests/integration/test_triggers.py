"""What KEDA's triggers would read from real servers is what is true, on both brokers."""

from contextlib import closing
from pathlib import Path

import pytest

from app.config import Settings
from app.db import Sessions
from tests.triggers.proof import Site, prove
from tests.triggers.runs import redis_login


@pytest.fixture
def secrets(request: pytest.FixtureRequest, broker_url: str, database_url: str) -> dict[str, dict[str, str]]:
    """The Secret `vqueue-keda` of this installation."""
    keda = {"POSTGRES_URL": database_url.replace("postgresql+psycopg2", "postgresql")}
    if broker_url.startswith("amqp"):
        keda["RABBITMQ_URL"] = request.getfixturevalue("virtual_hosts").watched(broker_url)
    else:
        keda |= redis_login(broker_url)
    return {"vqueue-keda": keda}


def test_every_trigger_reads_the_truth(
    db: Sessions, on_broker: Settings, secrets: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    settings = on_broker.model_copy(update={"model_name": "demo", "drain_s": 1.0})
    with closing(Site(db, settings, secrets, tmp_path, say=print)) as site:
        lines = prove(site, [0, 1, 1000], held=[1000])
    assert [str(line) for line in lines if not line.is_right] == []
    assert len(lines) == 4 * len({line.trigger for line in lines})
