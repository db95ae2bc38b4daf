"""Plain Celery for comparison, as its worker or its producer: one task and one row per job.

As fair as it gets: the same broker and engine, late acks, publisher confirms, eight threads over a pool of
connections that stay open, each row inserted in a transaction of its own.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery, signals
from psycopg2.pool import ThreadedConnectionPool

from bench.queue_engine import InstantEngine
from workers.engine.base import Request, Sampling, TextPart, Turn

THREADS = 8
TABLE = """
CREATE TABLE results (
    id bigserial PRIMARY KEY, custom_id text NOT NULL UNIQUE, answer text NOT NULL,
    finish_reason text NOT NULL, prompt_tokens int NOT NULL, completion_tokens int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now())
"""
INSERT = """
INSERT INTO results (custom_id, answer, finish_reason, prompt_tokens, completion_tokens)
VALUES (%s, %s, %s, %s, %s)
"""

# Celery's app and tasks are not typed.
Untyped = Any


def make_app(broker_url: str) -> Celery:
    app = Celery("plain", broker=broker_url)
    options = {"confirm_publish": True} if broker_url.startswith("amqp") else {}
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        task_default_queue="plain",
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=options,
    )
    return app


def add_task(app: Celery, database_url: str) -> Untyped:
    engine = InstantEngine()
    pool = ThreadedConnectionPool(THREADS, THREADS, database_url)

    def ask(custom_id: str, body: dict[str, Untyped]) -> None:
        answer = engine.submit(_request(custom_id, body)).result()
        usage = answer.usage
        row = (custom_id, answer.text, answer.finish_reason, usage.prompt_tokens, usage.completion_tokens)
        connection = pool.getconn()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(INSERT, row)
        finally:
            pool.putconn(connection)

    return app.task(ask, name="plain.ask")


def publish(app: Celery, file: Path, start: int, end: int) -> None:
    """A task for each of the file's lines from `start` on."""

    def ask(custom_id: str, body: dict[str, Untyped]) -> None:
        """Runs in the worker only."""

    task: Untyped = app.task(ask, name="plain.ask")
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            if start <= number < end:
                job = json.loads(line)
                task.apply_async((job["custom_id"], job["body"]))


def _request(custom_id: str, body: dict[str, Untyped]) -> Request:
    turns = tuple(Turn(turn["role"], (TextPart(turn["content"]),)) for turn in body["messages"])
    return Request(custom_id, "plain", turns, (), Sampling(body["max_tokens"], body["temperature"]))


def say_ready(**_: Untyped) -> None:
    print("ready", flush=True)


def work(app: Celery) -> None:
    signals.worker_ready.connect(say_ready)
    consumer: Untyped = app.Worker(pool="threads", concurrency=THREADS, loglevel="WARNING", quiet=True)
    consumer.start()


if __name__ == "__main__":
    app = make_app(os.environ["PLAIN_BROKER_URL"])
    if sys.argv[1] == "work":
        add_task(app, os.environ["PLAIN_DATABASE_URL"])
        work(app)
    else:
        _, _, file, start, end = sys.argv
        say_ready()
        sys.stdin.readline()
        publish(app, Path(file), int(start), int(end))
