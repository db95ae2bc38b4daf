"""A question that was answered is not asked again: in a batch, across batches, until something changes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import text

from app.answer_keys import MOST_VAIN, CacheMode, question_id
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork, TransientWork
from app.objects import ObjectStore
from app.retention import Retention
from app.states import JobState
from app.store import answer_cache
from app.store.labels import Filters, count_labels
from app.sweep import Sweeper
from tests.desk import PIXEL, Desk, image, line
from tests.mill import Counted, Mill
from tests.waiting import eventually
from workers.engine.base import Answer, Note, Request, Usage
from workers.engine.fake import FakeEngine
from workers.pool import Resident
from workers.recording import engine_fingerprint

ASKED = [{"type": "text", "text": "Which colour?"}]


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    with closing(Mill(sessions=db, objects=objects, settings=settings)) as mill:
        yield mill


def same(count: int, content: Any = "What is it?", **changes: Any) -> list[str]:
    return [line(f"r{number}", content, **changes) for number in range(count)]


def ask(mill: Mill, desk: Desk, content: list[str], cache: CacheMode = CacheMode.ON) -> list[str]:
    """A batch from its file to its end; the texts of its answers in the order of its lines."""
    batch_id = desk.submit(content, cache=cache)
    mill.grind()
    return texts(desk, batch_id)


def texts(desk: Desk, batch_id: str) -> list[str]:
    rows = desk.result_lines(desk.batch(batch_id).output_file_id)
    return [row["response"]["body"]["choices"][0]["message"]["content"] for row in rows]


def is_waited_for(sessions: Sessions) -> bool:
    """Whether somebody waits for a row that another has locked."""
    with transaction(sessions) as session:
        waits = session.execute(
            text(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )
        return waits.scalar_one() > 0


def test_a_question_that_a_batch_repeats_is_asked_once_and_all_get_the_answer(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit([*same(5), line("other", "Another?")], cache=CacheMode.ON)
    mill.grind()
    assert mill.runs == 2
    assert len(set(texts(desk, batch_id)[:5])) == 1
    batch = desk.batch(batch_id)
    assert (batch.completed, batch.cached_answers) == (6, 4)
    assert batch.saved_model_s > 0
    assert batch.model_s > 0


def test_an_answer_from_the_cache_says_so_and_has_used_no_tokens(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit(same(2), cache=CacheMode.ON)
    mill.grind()
    asked, given = (row["response"]["body"] for row in desk.result_lines(desk.batch(batch_id).output_file_id))
    assert "vqueue" not in asked
    assert given["vqueue"]["notes"] == [answer_cache.CACHED]
    assert given["usage"]["total_tokens"] == 0
    assert given["system_fingerprint"] == asked["system_fingerprint"]
    assert (
        asked["usage"]["total_tokens"]
        == desk.batch(batch_id).completion_tokens + desk.batch(batch_id).prompt_tokens
    )


def test_answers_that_were_given_have_labels_as_those_that_were_asked_for(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(3, guided_choice=["0", "1"]))
    ask(mill, desk, same(2, guided_choice=["0", "1"]))
    assert mill.runs == 1
    with transaction(mill.sessions) as session:
        counts = count_labels(session, desk.tenant, Filters(), by=["label"], limit=9)
    assert [(*one.group, one.labels) for one in counts] == [("0", 5)]


def test_the_next_batch_asks_nothing_and_its_answers_are_identical(mill: Mill, desk: Desk) -> None:
    content = [line(f"r{number}", f"Question {number % 3}?") for number in range(9)]
    first = ask(mill, desk, content)
    runs = mill.runs
    assert ask(mill, desk, content) == first
    assert (runs, mill.runs) == (3, 3)


def test_an_image_is_known_by_its_content_wherever_it_comes_from(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, [line("a", [*ASKED, image(PIXEL)])])
    desk.execute("UPDATE images SET ref_hash = 'another place'")
    ask(mill, desk, [line("a", [*ASKED, image(PIXEL)])])
    assert mill.runs == 1
    desk.execute("UPDATE images SET content_hash = repeat('ab', 32)")
    ask(mill, desk, [line("a", [*ASKED, image(PIXEL)])])
    assert mill.runs == 1 + 1


@pytest.mark.parametrize(
    "changes",
    [{"max_tokens": 3}, {"guided_choice": ["red", "blue"]}, {"logprobs": True}, {"repetition_penalty": 1.1}],
)
def test_other_parameters_are_another_question(mill: Mill, desk: Desk, changes: dict[str, Any]) -> None:
    ask(mill, desk, same(1))
    ask(mill, desk, same(1, **changes))
    assert mill.runs == 2


def test_what_is_drawn_is_drawn_anew_each_time(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(3, temperature=0.5, seed=1))
    assert mill.runs == 3
    with transaction(mill.sessions) as session:
        assert answer_cache.count_kept(session, desk.tenant) == {}


def test_a_batch_may_read_write_or_do_neither(mill: Mill, desk: Desk) -> None:
    assert ask(mill, desk, same(2), CacheMode.OFF) == ["0", "1"]
    assert ask(mill, desk, same(1), CacheMode.READ) == ["2"]
    assert ask(mill, desk, same(1), CacheMode.ON) == ["3"]
    assert ask(mill, desk, same(1), CacheMode.READ) == ["3"]
    assert ask(mill, desk, same(1), CacheMode.WRITE) == ["4"]
    assert ask(mill, desk, same(1), CacheMode.READ) == ["4"]
    assert ask(mill, desk, same(1), CacheMode.OFF) == ["5"]


def test_another_engine_is_asked_anew(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(1))
    mill.use(FakeEngine(model="demo", revision="fake-2", answer=Counted()))
    ask(mill, desk, same(1))
    assert mill.runs == 1
    ask(mill, desk, same(1))
    assert mill.runs == 1


def test_an_engine_is_known_by_what_its_settings_came_to(settings: Settings) -> None:
    def name(number_format: str, device: str) -> str:
        engine = FakeEngine(number_format=number_format)
        with closing(engine):
            own = settings.model_copy(update={"device": device})
            return engine_fingerprint(Resident(engine, own))

    assert name("cuda bfloat16", "auto") == name("cuda bfloat16", "cuda:1")
    assert name("cuda bfloat16", "auto") != name("cpu float32", "auto")


def test_a_tenant_is_given_nobody_elses_answers(
    mill: Mill, desk: Desk, objects: ObjectStore, settings: Settings
) -> None:
    ask(mill, desk, same(1))
    other = Desk(sessions=mill.sessions, objects=objects, settings=settings)
    ask(mill, other, same(1))
    assert mill.runs == 2


def test_tenants_that_agreed_share_their_answers(
    db: Sessions, desk: Desk, objects: ObjectStore, settings: Settings
) -> None:
    other = Desk(sessions=db, objects=objects, settings=settings)
    sharing = settings.model_copy(update={"shared_cache_tenants": (desk.tenant, other.tenant)})
    with closing(Mill(sessions=db, objects=objects, settings=sharing)) as mill:
        assert ask(mill, desk, same(1)) == ask(mill, other, same(1))
        assert mill.runs == 1


def test_of_tenants_that_share_an_answer_belongs_to_who_asked_for_it_last(
    db: Sessions, desk: Desk, objects: ObjectStore, settings: Settings
) -> None:
    other = Desk(sessions=db, objects=objects, settings=settings)
    sharing = settings.model_copy(update={"shared_cache_tenants": (desk.tenant, other.tenant)})
    with closing(Mill(sessions=db, objects=objects, settings=sharing)) as mill:
        ask(mill, desk, same(1))
        ask(mill, other, same(1), CacheMode.WRITE)
    with transaction(db) as session:
        assert answer_cache.count_kept(session, desk.tenant) == {}
        assert answer_cache.forget(session, other.tenant, model=None, question_id=None) == 1


def test_who_waits_for_one_that_fails_is_asked_itself(mill: Mill, desk: Desk) -> None:
    failed = iter([True])

    def answer(_: Request) -> str:
        if next(failed, False):
            raise InvalidWork("bad_luck", "once")
        return "fine"

    mill.use(FakeEngine(model="demo", answer=answer))
    batch_id = desk.submit(same(3), cache=CacheMode.ON)
    mill.grind()
    assert desk.counts(batch_id) == (3, 2, 1)
    assert texts(desk, batch_id) == ["fine", "fine"]
    assert mill.runs == 2


def rounds(mill: Mill) -> int:
    """How often the worker was given something, until nothing is left to do."""
    mill.read()
    found = 0
    while mill.send() or mill.broker.chunks:
        found += bool(mill.broker.chunks)
        mill.work()
    return found


def test_a_question_that_always_fails_is_not_asked_one_by_one(mill: Mill, desk: Desk) -> None:
    def answer(_: Request) -> str:
        raise InvalidWork("too_long", "always")

    mill.use(FakeEngine(model="demo", answer=answer))
    batch_id = desk.submit(same(20), cache=CacheMode.ON)
    assert rounds(mill) == MOST_VAIN + 1
    assert desk.counts(batch_id) == (20, 0, 20)


def test_where_the_answers_of_the_engine_are_not_given_jobs_do_not_wait_for_them_one_by_one(
    mill: Mill, desk: Desk
) -> None:
    with transaction(mill.sessions) as session:
        answer_cache.note_engine(session, model="demo", fingerprint="of one that came last and went")
    batch_id = desk.submit(same(20), cache=CacheMode.ON)
    assert rounds(mill) == MOST_VAIN + 1
    assert desk.counts(batch_id) == (20, 20, 0)


def test_who_is_handed_back_leaves_those_who_wait_with_their_patience(mill: Mill, desk: Desk) -> None:
    busy = iter(range(2 * MOST_VAIN))

    def answer(_: Request) -> str:
        if next(busy, None) is not None:
            raise TransientWork("engine_closed", "a worker that is drained")
        return "fine"

    mill.use(FakeEngine(model="demo", answer=answer))
    batch_id = desk.submit(same(5), cache=CacheMode.ON)
    mill.grind()
    assert (texts(desk, batch_id), mill.runs) == (["fine"] * 5, 2 * MOST_VAIN + 1)


def test_who_waits_for_one_that_is_cancelled_gets_its_own_turn(mill: Mill, desk: Desk) -> None:
    cancelled = desk.submit(same(1), cache=CacheMode.ON)
    mill.read()
    mill.send()
    waiting = desk.submit(same(1), cache=CacheMode.ON)
    mill.read()
    mill.send()
    assert desk.jobs(waiting)[0].state == JobState.WAITING
    desk.cancel(cancelled)
    while Sweeper(sessions=mill.sessions).step():
        pass
    mill.dispatcher.reap()
    mill.grind()
    assert texts(desk, waiting) == ["0"]
    assert desk.count("answer_waits") == 0


def test_who_began_to_wait_in_the_moment_of_the_answer_is_found(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit(same(2), cache=CacheMode.ON)
    mill.read()
    mill.send()
    desk.execute("CREATE TABLE put_aside AS SELECT * FROM answer_waits")
    desk.execute("DELETE FROM answer_waits")
    mill.work()  # and sees nobody who waits
    desk.execute("INSERT INTO answer_waits SELECT * FROM put_aside")
    desk.execute("DROP TABLE put_aside")
    assert mill.send() == 0
    mill.dispatcher.reap()
    mill.grind()
    assert (texts(desk, batch_id), mill.runs) == (["0", "0"], 1)


def test_a_batch_is_cancelled_with_its_jobs_that_wait_for_an_answer(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit(same(4), cache=CacheMode.ON)
    mill.read()
    mill.send()
    desk.cancel(batch_id)
    while Sweeper(sessions=mill.sessions).step():
        pass
    assert desk.counts(batch_id) == (4, 0, 4)
    mill.dispatcher.reap()
    assert desk.count("answer_waits") == 0


def test_a_kept_answer_is_forgotten_after_its_time(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(1))
    desk.execute("UPDATE answer_cache SET expires_at = now()")
    ask(mill, desk, same(1))
    assert mill.runs == 2
    desk.execute("UPDATE answer_cache SET expires_at = now()")
    Retention(sessions=mill.sessions, settings=mill.settings).step()
    assert desk.count("answer_cache") == 0


@pytest.mark.parametrize(
    ("model", "question", "dropped"),
    [(None, None, 2), ("demo", None, 2), ("large", None, 0), (None, "Two?", 1), ("demo", "Three?", 0)],
)
def test_answers_are_forgotten_by_model_and_question(
    mill: Mill, desk: Desk, model: str | None, question: str | None, dropped: int
) -> None:
    ask(mill, desk, [line("a", "One?"), line("b", "Two?")])
    words = question_id(question) if question else None
    with transaction(mill.sessions) as session:
        assert answer_cache.forget(session, "tenant_other", model=model, question_id=words) == 0
        assert answer_cache.forget(session, desk.tenant, model=model, question_id=words) == dropped


def test_an_answer_from_another_images_features_is_the_jobs_own(mill: Mill, desk: Desk) -> None:
    def answer(_: Request) -> Answer:
        return Answer("red", "stop", Usage(3, 1), notes=(Note.NEAR_DUPLICATE,))

    mill.use(FakeEngine(model="demo", answer=answer))
    ask(mill, desk, same(2))
    assert mill.runs == 2
    assert desk.count("answer_cache") == 0


def test_a_retry_uses_the_cache_as_its_batch_did(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit(same(1), cache=CacheMode.ON)
    mill.read()
    desk.execute(
        "UPDATE jobs SET state = 'failed', error_code = 'x', finished_at = now(), cache = cache + 64"
    )
    ask(mill, desk, same(1))
    desk.execute("UPDATE batches SET status = 'completed', ended_at = now() WHERE id = :id", id=batch_id)
    retry = desk.submit([], cache=CacheMode.ON)
    desk.execute(
        "UPDATE batches SET retry_of = :old, retry_states = '{failed}' WHERE id = :id", old=batch_id, id=retry
    )
    mill.grind()
    assert (texts(desk, retry), mill.runs) == (["0"], 1)
    desk.execute("DO $$ BEGIN ASSERT (SELECT max(cache) FROM jobs WHERE state = 'completed') = 3; END $$")


def test_answers_that_two_workers_keep_at_once_stand_once(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(3), CacheMode.WRITE)
    assert mill.runs == 3
    assert desk.count("answer_cache") == 1


def test_a_worker_that_waits_to_keep_an_answer_holds_up_nobody_at_its_batch(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, same(1))
    batch_id = desk.submit(same(1), cache=CacheMode.WRITE)
    mill.read()
    mill.send()
    with ThreadPoolExecutor(1) as worker, transaction(mill.sessions) as session:
        session.execute(text("SELECT FROM answer_cache FOR UPDATE"))
        working = worker.submit(mill.work)
        eventually(lambda: is_waited_for(mill.sessions))
        session.execute(text("SELECT FROM batches WHERE id = :id FOR UPDATE NOWAIT"), {"id": batch_id})
        session.rollback()
        working.result()
    mill.grind()
    assert texts(desk, batch_id) == ["1"]


def test_an_answer_that_comes_while_the_dispatcher_looks_is_not_asked_for_again(
    mill: Mill, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(same(1), cache=CacheMode.ON)
    mill.read()
    mill.send()
    batch_id = desk.submit(same(1), cache=CacheMode.ON)
    mill.read()
    for name in ("find_asked", "find_kept"):
        look = getattr(answer_cache, name)

        def look_and_work(*given: Any, look: Any = look) -> Any:
            found = look(*given)
            mill.work()
            return found

        monkeypatch.setattr(answer_cache, name, look_and_work)
    mill.send()
    monkeypatch.undo()
    mill.dispatcher.reap()
    mill.grind()
    assert (texts(desk, batch_id), mill.runs) == (["0"], 1)
