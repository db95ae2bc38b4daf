"""The queues of a worker, each over a channel of its own: a model or class that is busy holds up no other."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from celery import Celery
from celery.bootsteps import ConsumerStep
from kombu.common import ignore_errors

log = structlog.get_logger()

# Celery's worker and its consumer are not typed.
Untyped = Any


def consume_apart(celery: Celery, prefetch: Mapping[str, int]) -> None:
    """Let a worker take each queue but the first over a channel of its own; Celery itself takes the first.

    A broker counts what is not acknowledged yet by channel (Redis) or consumer (quorum queues): so each queue
    has its own share of the threads, and a queue that is busy holds no more than that.
    """
    step = type("Queues", (FurtherQueues,), {"prefetch": prefetch})
    celery.steps["consumer"].add(step)  # pyright: ignore[reportOptionalSubscript] - set by now


class FurtherQueues(ConsumerStep):
    """Consumers of all queues but the first, beside Celery's own, each with the prefetch of its queue."""

    requires = ("celery.worker.consumer:Tasks",)
    prefetch: Mapping[str, int]

    def __init__(self, c: Untyped, **options: Untyped) -> None:
        super().__init__(c, **options)
        first, *self._further = c.app.conf.task_queues
        c.initial_prefetch_count = self.prefetch[first.name]
        make_handler = c.create_task_handler
        c.create_task_handler = lambda: _guarded(make_handler(), c)

    def start(self, c: Untyped) -> None:
        self.consumers = [self._consumer(c, queue) for queue in self._further]
        for consumer in self.consumers:
            consumer.consume()

    def stop(self, c: Untyped) -> None:
        """Only cancel: chunks that still run are acknowledged over these channels, until `shutdown`."""
        for consumer in self.consumers or ():
            ignore_errors(c.connection, consumer.cancel)

    def _consumer(self, c: Untyped, queue: Untyped) -> Untyped:
        consumer = c.app.amqp.TaskConsumer(
            c.connection.channel(), queues=[queue], on_decode_error=c.on_decode_error
        )
        consumer.on_message = c.create_task_handler()
        consumer.qos(prefetch_count=self.prefetch[queue.name])
        return consumer


def _guarded(handler: Callable[[Untyped], None], c: Untyped) -> Callable[[Untyped], None]:
    """Celery refuses most of what is no task of ours, and ends with some: that is put aside here."""

    def on_message(message: Untyped) -> None:
        try:
            handler(message)
        except (*c.connection_errors, *c.channel_errors):
            raise
        except Exception:
            log.exception("message_refused")
            if not message.acknowledged:
                message.reject()

    return on_message
