"""A batch asks the small model first and the large one where that is unsure; each job is answered once."""

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from app.answer_keys import CacheMode
from app.config import Settings, read_option
from app.db import Sessions
from app.model_list import read_models
from app.objects import ObjectStore
from app.states import JobState
from tests.desk import Desk, line
from tests.mill import Mill
from workers.engine.base import Answer, Request, TokenLogprob, Usage, texts
from workers.engine.fake import FakeEngine

TWO = read_models("large=x, small=y", read_option)
CASCADE = {"model": "small", "threshold": 0.8}


def small_says(request: Request) -> Answer:
    """As sure as the question's number of percent."""
    share = int(texts(request.turns)[-1]) / 100
    told = (TokenLogprob("red", math.log(share)),) if request.sampling.logprobs is not None else None
    return Answer("red" if share > 0.5 else "maybe", "stop", Usage(10, 1), told)


def large_says(request: Request) -> Answer:
    del request
    return Answer("red", "stop", Usage(10, 1))


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    chosen = settings.model_copy(update={"models": TWO})
    with closing(Mill(sessions=db, objects=objects, settings=chosen)) as mill:
        mill.use(FakeEngine(model="small", answer=small_says), FakeEngine(model="large", answer=large_says))
        yield mill


def ask(mill: Mill, desk: Desk, *shares: int, cache: CacheMode = CacheMode.OFF, **changes: Any) -> str:
    rows = [line(f"r{share}", str(share), model="large", **changes) for share in shares]
    batch_id = desk.submit(rows, cascade=CASCADE, cache=cache)
    mill.grind()
    return batch_id


def bodies(desk: Desk, batch_id: str) -> list[dict[str, Any]]:
    rows = desk.result_lines(desk.batch(batch_id).output_file_id)
    return [row["response"]["body"] for row in rows]


def test_what_the_small_model_is_sure_of_is_its_answer_and_the_rest_the_large_ones(
    mill: Mill, desk: Desk
) -> None:
    batch_id = ask(mill, desk, 99, 81, 79, 20)
    told = bodies(desk, batch_id)
    assert [body["model"] for body in told] == ["small", "small", "large", "large"]
    assert [body["choices"][0]["message"]["content"] for body in told] == ["red"] * 4
    assert [body["vqueue"]["confidence"] for body in told] == pytest.approx([0.99, 0.81, 0.79, 0.2])


def test_a_batch_tells_how_many_went_on_and_how_often_both_agreed(mill: Mill, desk: Desk) -> None:
    batch = desk.batch(ask(mill, desk, 99, 79, 20))
    assert (batch.completed, batch.escalated, batch.escalated_answered, batch.agreed) == (3, 2, 2, 1)
    assert 0 < batch.first_model_s < batch.model_s


def test_the_first_models_try_is_none_of_the_jobs_tries(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 20)
    rows = desk.jobs(batch_id)
    assert rows[0].state == JobState.COMPLETED
    assert [one.sampling.logprobs for one in mill.engine.submitted] == [0]
    desk.execute("DO $$ BEGIN ASSERT (SELECT attempt - returns FROM jobs) = 1; END $$")


def test_logprobs_are_shown_to_who_asked_for_them_only(mill: Mill, desk: Desk) -> None:
    (without,) = bodies(desk, ask(mill, desk, 99))
    assert without["choices"][0]["logprobs"] is None
    (with_them,) = bodies(desk, ask(mill, desk, 99, logprobs=True))
    assert with_them["choices"][0]["logprobs"]["content"][0]["token"] == "red"


def test_a_request_to_the_first_model_itself_has_no_cascade(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit([line("a", "20", model="small")], cascade=CASCADE)
    mill.grind()
    (body,) = bodies(desk, batch_id)
    assert (body["model"], body["choices"][0]["message"]["content"]) == ("small", "maybe")
    assert desk.batch(batch_id).escalated == 0


def test_the_next_day_neither_model_is_asked(mill: Mill, desk: Desk) -> None:
    first = bodies(desk, ask(mill, desk, 99, 20, cache=CacheMode.ON))
    runs = mill.runs
    second = bodies(desk, ask(mill, desk, 99, 20, cache=CacheMode.ON))
    assert mill.runs == runs
    for before, after in zip(first, second, strict=True):
        assert after["model"] == before["model"]
        assert after["choices"] == before["choices"]
        assert after["vqueue"]["notes"] == ["answer_cached"]
    assert bodies(desk, ask(mill, desk, 99, 20))[0]["model"] == "small"
    assert mill.runs == runs + 2


def test_jobs_that_ask_the_same_wait_until_the_large_model_has_answered(mill: Mill, desk: Desk) -> None:
    rows = [line(f"r{number}", "20", model="large") for number in range(4)]
    batch_id = desk.submit(rows, cascade=CASCADE, cache=CacheMode.ON)
    mill.grind()
    assert mill.runs == 1
    assert [body["model"] for body in bodies(desk, batch_id)] == ["large"] * 4
    assert desk.batch(batch_id).cached_answers == 3


def test_who_is_cancelled_between_the_two_models_ends_cancelled(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit([line("a", "20", model="large")], cascade=CASCADE)
    mill.read()
    mill.send()
    mill.work()
    (job,) = desk.jobs(batch_id)
    assert job.state == JobState.READY
    desk.cancel(batch_id)
    mill.grind()
    assert mill.broker.chunks == []
    assert desk.count("answers") == 0


def test_a_retry_asks_the_small_model_first_again(mill: Mill, desk: Desk) -> None:
    old = desk.submit([line("a", "99", model="large")], cascade=CASCADE)
    mill.read()
    desk.execute("UPDATE jobs SET state = 'failed', error_code = 'x', finished_at = now()")
    desk.execute(
        "UPDATE batches SET status = 'completed', ended_at = now(), failed = 1 WHERE id = :id", id=old
    )
    retry = desk.submit([], cascade=CASCADE)
    desk.execute(
        "UPDATE batches SET retry_of = :o, retry_states = '{failed}' WHERE id = :id", o=old, id=retry
    )
    mill.grind()
    assert [body["model"] for body in bodies(desk, retry)] == ["small"]


@pytest.mark.parametrize(
    ("cascade", "param"),
    [
        ({"model": "nobody", "threshold": 0.5}, "cascade.model"),
        ({"model": "demo", "threshold": 1.5}, "cascade.threshold"),
        ({"model": "demo"}, "cascade.threshold"),
        ({"model": "demo", "threshold": 0.5, "steps": [[0.5, 0.1], [0.2, 0.3]]}, "cascade.steps"),
    ],
)
def test_a_cascade_that_cannot_be_is_refused_by_its_field(
    http: httpx.Client, cascade: dict[str, Any], param: str
) -> None:
    wish = {"input_file_id": "file-x", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    form = {"file": ("in.jsonl", line("a", "20").encode(), "application/jsonl")}
    wish["input_file_id"] = http.post("/v1/files", data={"purpose": "batch"}, files=form).json()["id"]
    answer = http.post("/v1/batches", json={**wish, "cascade": cascade})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_batch_with_a_cascade_tells_of_it(http: httpx.Client) -> None:
    form = {"file": ("in.jsonl", line("a", "20").encode(), "application/jsonl")}
    file_id = http.post("/v1/files", data={"purpose": "batch"}, files=form).json()["id"]
    wish = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = http.post("/v1/batches", json={**wish, "cascade": {"model": "demo", "threshold": 0.9}}).json()
    assert batch["vqueue"]["cascade"] == {
        "model": "demo",
        "threshold": 0.9,
        "escalated": 0,
        "agreed": 0,
        "model_seconds": 0.0,
        "model_seconds_saved": None,
    }


def test_who_waits_goes_on_waiting_while_the_first_stands_between_the_two_models(
    mill: Mill, desk: Desk
) -> None:
    rows = [line(f"r{number}", "20", model="large") for number in range(3)]
    batch_id = desk.submit(rows, cascade=CASCADE, cache=CacheMode.ON)
    mill.read()
    mill.send()
    mill.work()
    mill.dispatcher.reap()
    assert [job.state for job in desk.jobs(batch_id)] == [JobState.READY, JobState.WAITING, JobState.WAITING]
    mill.grind()
    assert mill.runs == 1
    assert desk.batch(batch_id).cached_answers == 2
