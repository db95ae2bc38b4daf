"""The answer cache as clients see it: chosen by batch and job, counted, forgotten."""

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from app.config import Settings
from app.db import Sessions
from app.kept import TOLD_CHARS
from app.objects import ObjectStore
from tests.desk import line
from tests.mill import Mill
from tests.rows import Rows
from vqueue import BadRequest, Client


@pytest.fixture
def api(api_url: str, api_key: str) -> Iterator[Client]:
    with Client(f"{api_url}/v1", api_key) as client:
        yield client


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    with closing(Mill(sessions=db, objects=objects, settings=settings)) as mill:
        yield mill


def upload(api: Client) -> str:
    content = "".join(f"{line(f'r{number}', 'Colour?')}\n" for number in range(3))
    return api.upload(content.encode(), name="in.jsonl").id


def test_a_batch_tells_what_the_cache_has_spared_it(api: Client, mill: Mill) -> None:
    first = api.create_batch(upload(api))
    mill.grind()
    told = api.batch(first.id).vqueue
    assert (told.cache.mode, told.cache.answered) == ("on", 2)
    assert told.cache.model_seconds_saved > 0
    assert told.model_seconds > 0
    second = api.create_batch(upload(api), cache="off")
    mill.grind()
    assert api.batch(second.id).vqueue.cache.answered == 0


def test_a_job_of_its_own_is_answered_from_the_cache_unless_it_wants_not(api: Client, mill: Mill) -> None:
    jobs = [api.create_job("Colour?")]
    mill.grind()
    jobs += [api.create_job("Colour?"), api.create_job("Colour?", cache="off")]
    mill.grind()
    answers = [api.job(job.id).answer for job in jobs]
    assert [answer.text for answer in answers if answer] == ["0", "0", "1"]
    assert mill.runs == 2


def test_sampling_and_chats_are_never_kept(api: Client, mill: Mill, db: Sessions) -> None:
    api.create_job("Colour?", temperature=0.7)
    api.create_job("Colour?", priority="interactive")
    assert Rows(db).all("SELECT cache FROM jobs") == [0, 0]


def test_a_batch_that_warms_takes_no_answers(api: Client, db: Sessions) -> None:
    api.create_batch(upload(api), metadata={"vqueue_warm": "on"}, cache="on")
    assert Rows(db).all("SELECT cache FROM batches") == ["off"]


def test_kept_answers_are_counted_and_forgotten_by_their_tenant(
    api: Client, mill: Mill, db: Sessions
) -> None:
    api.create_batch(upload(api))
    mill.grind()
    (kept,) = api.kept_answers()
    assert (kept.model, kept.answers) == ("demo", 1)
    assert api.forget_answers(model="large") == 0
    assert api.forget_answers(question="Colour?") == 1
    assert api.kept_answers() == []
    actions = Rows(db).all("SELECT action FROM audit_log ORDER BY id DESC LIMIT 1")
    assert actions == ["answer_cache.forgotten"]


def test_a_question_of_any_letters_and_length_is_forgotten(api: Client, mill: Mill, db: Sessions) -> None:
    question = "Is it \0 or 1? " + "Look well. " * 100
    api.create_job(question)
    mill.grind()
    assert api.forget_answers(question=question) == 1
    details = Rows(db).all("SELECT details->>'question' FROM audit_log ORDER BY id DESC LIMIT 1")
    assert details == [question.replace("\0", "\ufffd")[:TOLD_CHARS]]
    with pytest.raises(BadRequest, match="NUL"):
        api.forget_answers(model="de\0mo")


@pytest.mark.parametrize("wish", [{}, {"all": True, "model": "demo"}])
def test_to_forget_nothing_or_all_and_less_is_refused(api: Client, wish: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="Say which answers to forget"):
        api.forget_answers(**wish)  # pyright: ignore[reportArgumentType]


def test_an_unknown_mode_is_refused_by_name(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", json={"question": "Colour?", "cache": "sometimes"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "cache"
