"""Held lines, end to end: text while it is made, whoever dies on the way."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import Stream
from openai.types.chat import ChatCompletionChunk
from pydantic import SecretStr

from tests.e2e.conftest import Cluster
from tests.e2e.test_main_job import picture
from tests.servers import Machine, start_valkey
from tests.waiting import eventually

Make = Callable[..., Cluster]


def ask(cluster: Cluster, question: str) -> Stream[ChatCompletionChunk]:
    """A streamed question, once a worker is there."""
    eventually(lambda: cluster.rows.one("SELECT count(*) FROM workers") > 0, within_s=120)
    return cluster.client().chat.completions.create(
        model=cluster.settings.served_model,
        messages=[{"role": "user", "content": question}],
        stream=True,
    )


def text_of(stream: Stream[ChatCompletionChunk], *, chunks: int | None = None) -> str:
    """Of so many chunks, or of all that are left; the first of a stream has the role only."""
    found: list[str] = []
    for chunk in stream:
        found.append(chunk.choices[0].delta.content or "")
        if len(found) == chunks:
            break
    return "".join(found)


def test_text_comes_while_it_is_made_and_adds_up_to_the_recorded_answer(
    cluster: Cluster, tmp_path: Path
) -> None:
    question = f"red until:{tmp_path / 'gate'} and blue"
    stream = ask(cluster, question)
    assert text_of(stream, chunks=2) == "red "
    (tmp_path / "gate").touch()
    assert text_of(stream) == question.removeprefix("red ")
    assert cluster.rows.all("SELECT text FROM answers") == [question]


def test_a_picture_by_url_is_fetched_while_the_line_is_held(cluster: Cluster) -> None:
    (cluster.pictures / "a.jpg").write_bytes(picture(1))
    eventually(lambda: cluster.rows.one("SELECT count(*) FROM workers") > 0, within_s=120)
    answer = cluster.client().chat.completions.create(
        model=cluster.settings.served_model,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": f"{cluster.pictures_url}/a.jpg"}},
                    {"type": "text", "text": "what?"},
                ],
            }
        ],
    )
    content = answer.choices[0].message.content
    assert content is not None
    assert content.startswith("what? ")


def test_no_poll_stands_between_the_call_and_the_worker(make_cluster: Make) -> None:
    """The dispatcher looks by itself only once a minute here."""
    cluster = make_cluster(dispatch_poll_s=60.0)
    cluster.start("api", "dispatcher", "worker")
    eventually(lambda: "dispatcher_ready" in cluster.logs(), within_s=120)
    text_of(ask(cluster, "warm"))
    started = time.monotonic()
    assert text_of(ask(cluster, "now")) == "now"
    assert time.monotonic() - started < 30


def test_a_worker_that_dies_midway_is_followed_by_another_that_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    death = tmp_path / "death"
    death.touch()
    question = f"red and until:{tmp_path / 'gate'} die-at:{death} blue"
    stream = ask(cluster, question)
    assert text_of(stream, chunks=2).startswith("red ")
    (tmp_path / "gate").touch()
    eventually(lambda: not death.exists())
    cluster.kill("worker")
    cluster.start("worker")
    heard = text_of(stream)
    assert heard.endswith(" blue")
    assert heard.count("blue") == 1
    assert cluster.rows.one("SELECT attempt FROM jobs") == 2


@pytest.fixture
def machine() -> Iterator[Machine]:
    """For servers of the test's own."""
    machine = Machine()
    yield machine
    machine.close()


def test_a_redis_that_dies_midway_costs_no_text(make_cluster: Make, machine: Machine, tmp_path: Path) -> None:
    cluster = make_cluster(redis_url=SecretStr(start_valkey(machine).url(1)))
    cluster.start("api", "dispatcher", "worker")
    question = f"red until:{tmp_path / 'gate'} and blue"
    stream = ask(cluster, question)
    assert text_of(stream, chunks=2) == "red "
    machine.kill("valkey")
    (tmp_path / "gate").touch()
    assert text_of(stream) == question.removeprefix("red ")
