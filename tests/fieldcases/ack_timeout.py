"""The row about a broker that waits for acknowledgements for less long than a job takes."""

from contextlib import closing

from pydantic import SecretStr
from sqlalchemy import text

from app.db import transaction
from app.dispatch import Dispatcher
from app.queue import ChunkSender, make_celery
from tests.asking import worker
from tests.desk import Desk, line
from tests.fieldcases.services import Services
from tests.servers import Machine, start_rabbitmq
from tests.waiting import eventually

# RabbitMQ looks once a minute, unless told otherwise.
IMPATIENT = "-rabbit consumer_timeout 10000 -rabbit channel_tick_interval 1000"
JOB_S = 25
NEXT_S = 60


def outlast_the_broker(services: Services) -> None:
    """One job takes 25 s where the broker takes its message back after 10; others come after it."""
    with closing(Machine()) as machine:
        url = start_rabbitmq(machine, erlang=IMPATIENT).url()
        _outlast(services, url)


def _outlast(services: Services, url: str) -> None:
    desk, gate = services.lonely_desk(), services.folder / "patience"
    settings = services.quick.model_copy(update={"broker_url": SecretStr(url)})
    sender = ChunkSender(celery=make_celery(settings), amqp=True)
    dispatcher = Dispatcher(sessions=desk.sessions, sender=sender, settings=settings)
    long = desk.submit([line("long", f"wait for {gate}")])
    services.read()
    dispatcher.send()
    with closing(sender), worker(settings, services.folder, "patient") as process:
        eventually(lambda: _runs_for(desk, long, JOB_S), within_s=JOB_S + 40)
        gate.touch()
        eventually(lambda: desk.counts(long) == (1, 1, 0), within_s=NEXT_S)
        assert "PRECONDITION_FAILED" in process.output()
        after = desk.submit([line(f"after{number}") for number in range(10)])
        services.read()
        eventually(lambda: dispatcher.send() == 0 and desk.counts(after) == (10, 10, 0), within_s=NEXT_S)
        assert process.terminate() == 0
    services.end()
    assert desk.ids(desk.batch(long).output_file_id) == ["long"]
    assert len(set(desk.ids(desk.batch(after).output_file_id))) == 10
    assert desk.count("answers") == 11


def _runs_for(desk: Desk, batch_id: str, seconds: float) -> bool:
    statement = (
        "SELECT extract(epoch FROM clock_timestamp() - min(started_at)) FROM jobs WHERE batch_id = :id"
    )
    with transaction(desk.sessions) as session:
        passed = session.execute(text(statement), {"id": batch_id}).scalar_one()
    return passed is not None and passed > seconds
