"""The queues of several models in one worker, so that the chunks of one never keep another's waiting."""

from typing import Any

from celery import Celery
from celery.bootsteps import ConsumerStep
from kombu.common import ignore_errors

# Celery's worker and its consumer are not typed.
Untyped = Any


def queue_names(celery: Celery) -> list[str]:
    return [queue.name for queue in celery.conf.task_queues]


def consume_apart(celery: Celery) -> None:
    """Let a worker take each further queue over a channel of its own; Celery itself takes the first.

    A broker counts what is not acknowledged yet by channel (Redis) or consumer (quorum queues): so each queue
    has its own share of the threads, and a model that is busy holds no more than that.
    """
    celery.steps["consumer"].add(FurtherQueues)  # pyright: ignore[reportOptionalSubscript] - set by now


class FurtherQueues(ConsumerStep):
    """Consumers of all queues but the first, beside Celery's own, and with a share of the prefetch each."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, c: Untyped, **options: Untyped) -> None:
        super().__init__(c, **options)
        self._first, *self._further = c.app.conf.task_queues
        c.initial_prefetch_count //= 1 + len(self._further)

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
        consumer.qos(prefetch_count=c.initial_prefetch_count)
        return consumer
