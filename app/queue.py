"""The broker: the Celery app, names of queues and tasks, and publishing chunks with confirms."""

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from celery import Celery
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError
from kombu.messaging import Producer

from app.config import Settings
from app.errors import TransientWork
from app.planner import Chunk
from app.states import Priority

RUN_CHUNK = "vqueue.run_chunk"
DEAD = "vqueue.dead"
TRACES = "vqueue_traces"  # the header with the traces of jobs that are followed; few messages have it
DEAD_LENGTH = 10_000  # chunks kept for a look; their jobs are safe in Postgres
DELIVERY_LIMIT = 20  # deliveries of one chunk before RabbitMQ puts it aside
CONFIRM_S = 10.0  # a broker that takes longer to confirm a window is taken for away
CONFIRM_WINDOW = 1_000  # unconfirmed messages at once
# Far over the longest chunk: on Redis a lapsed message only runs a second time and claims nothing.
VISIBILITY_S = 3600


def queue_name(model: str, priority: Priority = Priority.STANDARD) -> str:
    """The queue of one model's chunks of one class; a colon is in no model's part of it."""
    name = f"vqueue.run.{_plain(model)}"
    return name if priority is Priority.STANDARD else f"{name}:{priority}"


def held_key(models: Sequence[str]) -> str:
    """On Redis, the hash of the chunks that workers of these models hold.

    Kombu's own name would be one for all models, and a busy one would keep the workers of all others up.
    """
    return f"vqueue.held.{'+'.join(_plain(model) for model in models)}"


def is_amqp(broker_url: str) -> bool:
    return broker_url.startswith(("amqp", "pyamqp"))


def chunk_queue(model: str, priority: Priority = Priority.STANDARD, *, amqp: bool) -> Queue:
    """On RabbitMQ a quorum queue, which survives a node; chunks delivered too often go to `vqueue.dead`."""
    name = queue_name(model, priority)
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD,
    }
    return Queue(
        name,
        exchange=Exchange("vqueue", type="direct"),
        routing_key=name,
        queue_arguments=arguments if amqp else None,
    )


def dead_queue() -> Queue:
    return Queue(
        DEAD,
        exchange=Exchange(DEAD, type="fanout"),
        queue_arguments={"x-max-length": DEAD_LENGTH},
    )


def make_celery(settings: Settings) -> Celery:
    """The Celery app of worker and dispatcher. JSON only; late acks; no results, ETA or retries of its own.

    Its queues are those of the models that a worker with these settings serves, three for each.
    Retry times live in Postgres. The pool must not touch prefetch counts: with the threads pool that
    deadlocks after a RabbitMQ restart.
    """
    broker_url = settings.broker_url.get_secret_value()
    amqp = is_amqp(broker_url)
    celery = Celery("vqueue", broker=broker_url)
    celery.conf.update(
        accept_content=["json"],
        task_serializer="json",
        event_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_create_missing_queues=False,
        task_queues=[
            chunk_queue(model, priority, amqp=amqp)
            for model in settings.resident_models
            for priority in Priority
        ],
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        worker_send_task_events=False,  # three messages for each chunk: Flower asks for them while it runs
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_channel_error_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_heartbeat=30,
        broker_transport_options={"confirm_publish": False} if amqp else _redis_options(settings),
        broker_use_ssl=_tls(broker_url),
    )
    return celery


def _redis_options(settings: Settings) -> dict[str, object]:
    held = held_key(settings.resident_models)
    return {
        "unacked_key": held,
        "unacked_index_key": f"{held}:index",
        "unacked_mutex_key": f"{held}:mutex",
        "visibility_timeout": VISIBILITY_S,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
    }


def _plain(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model)


def _tls(broker_url: str) -> dict[str, object] | None:
    """Certificate and host name are checked; kombu by itself checks neither on Redis, the first on AMQP."""
    url = urlsplit(broker_url)
    match url.scheme:
        case "amqps":
            return {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": url.hostname}
        case "rediss":
            return {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        case _:
            return None


class _Confirms:
    """Which of a channel's messages the broker has not confirmed yet. Delivery tags count from 1."""

    def __init__(self, channel: Any) -> None:
        # Virtual transports (Redis) answer each publish; only AMQP channels confirm later.
        self.active = hasattr(channel, "confirm_select")
        self.outstanding: set[int] = set()
        self.refused = False
        self._published = 0
        if self.active:
            channel.confirm_select()
            channel.events["basic_ack"].add(self._settled)
            channel.events["basic_nack"].add(self._nacked)
            channel.events["basic_return"].add(self._returned)

    def published(self) -> None:
        self._published += 1
        if self.active:
            self.outstanding.add(self._published)

    def _settled(self, tag: int, multiple: bool) -> None:
        if multiple:
            self.outstanding -= {waiting for waiting in self.outstanding if waiting <= tag}
        else:
            self.outstanding.discard(tag)

    def _nacked(self, tag: int, multiple: bool) -> None:
        self.refused = True
        self._settled(tag, multiple)

    def _returned(self, *_: object) -> None:
        self.refused = True


@dataclass
class _Line:
    """An open connection to the broker with what belongs to it."""

    connection: Connection
    producer: Producer
    confirms: _Confirms
    declared: set[str] = field(default_factory=set)


class ChunkSender:
    """Publishes chunks over one connection, and returns only when the broker has confirmed them all.

    For one thread. A fault closes the connection; the next call opens a new one.
    """

    def __init__(self, *, celery: Celery, amqp: bool) -> None:
        self._celery = celery
        self._amqp = amqp
        self._line: _Line | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Publish all; TransientWork if any of them may not have arrived."""
        with self._translated():
            line = self._open()
            for start in range(0, len(chunks), CONFIRM_WINDOW):
                self._send_window(line, chunks[start : start + CONFIRM_WINDOW])

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int:
        """Chunks of a model and class that wait on the broker, those that a worker holds not counted."""
        with self._translated():
            line = self._open()
            queue = self._declare(line, model, priority)
            # Not a passive one: on Redis an empty queue does not exist.
            return queue.bind(line.producer.channel).queue_declare().message_count

    def dead(self) -> int:
        """Chunks that RabbitMQ has put aside; 0 on other brokers, which put none aside."""
        if not self._amqp:
            return 0
        with self._translated():
            queue = dead_queue().bind(self._open().producer.channel)
            queue.declare()
            return queue.queue_declare(passive=True).message_count

    def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with suppress(Exception):  # it is broken or going anyway
                line.connection.release()

    def _send_window(self, line: _Line, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            queue = self._declare(line, chunk.model, chunk.priority)
            shown = f"({len(chunk.job_ids)} jobs)"
            message = self._celery.amqp.as_task_v2(
                uuid4().hex, RUN_CHUNK, args=[list(chunk.job_ids)], argsrepr=shown
            )
            self._celery.amqp.send_task_message(
                line.producer,
                RUN_CHUNK,
                message,
                queue=queue,
                retry=False,
                mandatory=True,
                timeout=CONFIRM_S,
                headers=_trace_header(chunk),
            )
            line.confirms.published()
        while line.confirms.outstanding:
            line.connection.drain_events(timeout=CONFIRM_S)
        if line.confirms.refused:
            raise OSError("a chunk was refused or could not be routed")

    def _open(self) -> _Line:
        if self._line is not None and self._line.connection.connected:
            return self._line
        self.close()
        connection = self._celery.connection_for_write(connect_timeout=5)
        connection.connect()
        channel = connection.channel()
        self._line = _Line(connection, Producer(channel), _Confirms(channel))
        return self._line

    def _declare(self, line: _Line, model: str, priority: Priority) -> Queue:
        queue = chunk_queue(model, priority, amqp=self._amqp)
        if queue.name not in line.declared:
            if self._amqp:
                dead_queue().bind(line.producer.channel).declare()
            queue.bind(line.producer.channel).declare()
            line.declared.add(queue.name)
        return queue

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Any fault of the connection closes it and becomes TransientWork."""
        faults = self._celery.connection_for_write()
        try:
            yield
        except (OSError, KombuError, *faults.connection_errors, *faults.channel_errors) as error:
            self.close()
            message = f"The broker does not answer: {type(error).__name__}"
            raise TransientWork("broker_unavailable", message) from error


def _trace_header(chunk: Chunk) -> dict[str, dict[str, str]] | None:
    """Beside the ids, as a worker that knows nothing of it leaves it alone."""
    return {TRACES: {str(job_id): trace for job_id, trace in chunk.traces.items()}} if chunk.traces else None


def read_traces(header: object) -> dict[int, str]:
    """What such a header says, without what is none of ours."""
    pairs = header.items() if isinstance(header, dict) else ()
    return {
        int(job_id): trace for job_id, trace in pairs if str(job_id).isdecimal() and isinstance(trace, str)
    }


def count_dead(settings: Settings) -> int | None:
    """Chunks that RabbitMQ has put aside; None for other brokers, which put none aside.

    Raises TransientWork where the broker is away.
    """
    if not is_amqp(settings.broker_url.get_secret_value()):
        return None
    connection = make_celery(settings).connection_for_read(connect_timeout=5)
    try:
        with connection, connection.channel() as channel:
            return dead_queue().bind(channel).queue_declare(passive=True).message_count
    except connection.channel_errors:  # no chunk was ever sent: there is no such queue yet
        return 0
    except (OSError, KombuError, *connection.connection_errors) as error:
        message = f"The broker does not answer: {type(error).__name__}"
        raise TransientWork("broker_unavailable", message) from error


def broker_answers(broker_url: str) -> bool:
    """Whether the broker takes a connection, for readiness checks."""
    try:
        with Connection(broker_url, connect_timeout=3) as connection:
            connection.connect()
            return True
    except Exception:  # any fault of any transport means the same here
        return False
