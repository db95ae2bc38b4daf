"""What a cascade answered is kept under the model that gave it, and stands in for near duplicates."""

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from app.answer_keys import CacheMode
from app.config import Settings, read_option
from app.db import Sessions, transaction
from app.images import content_hash
from app.model_list import read_models
from app.objects import ObjectStore
from app.store import answer_cache
from app.store.answer_cache import CACHED, NEAR, NEAR_OF
from tests.desk import Desk, image, line
from tests.drawn import REMAKES, product, saved
from tests.looking import data_url, grind
from tests.mill import Mill
from workers.engine.base import Answer, Request, TokenLogprob, Usage, texts
from workers.engine.fake import FakeEngine
from workers.hashing import Hasher

TWO = read_models("large=x, small=y", read_option)
CASCADE = {"model": "small", "threshold": 0.8}
PHOTO = [remake(product(1)) for remake in REMAKES.values()]
SURE, UNSURE = "Easy?", "Hard?"


def small_says(request: Request) -> Answer:
    share = 0.99 if texts(request.turns)[-1] == SURE else 0.3
    return Answer("small", "stop", Usage(10, 1), (TokenLogprob("small", math.log(share)),))


def large_says(request: Request) -> Answer:
    del request
    return Answer("large", "stop", Usage(10, 1))


class Two:
    """A mill with both models behind it, and what they were asked since they came."""

    def __init__(self, mill: Mill) -> None:
        self.mill = mill
        self.start()

    def start(self, *, small: str = "small 1", large: str = "large 1") -> None:
        """The worker starts anew, with these revisions."""
        self.small = FakeEngine(model="small", revision=small, answer=small_says)
        self.large = FakeEngine(model="large", revision=large, answer=large_says)
        self.mill.use(self.small, self.large)

    @property
    def runs(self) -> tuple[int, int]:
        return len(self.small.submitted), len(self.large.submitted)


@pytest.fixture
def two(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Two]:
    chosen = settings.model_copy(update={"models": TWO})
    with closing(Mill(sessions=db, objects=objects, settings=chosen)) as mill:
        yield Two(mill)


@pytest.fixture
def hasher(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Hasher]:
    with closing(Hasher(sessions=db, objects=objects, settings=settings)) as hasher:
        yield hasher


def ask(two: Two, desk: Desk, *questions: str, cascade: bool = True) -> list[str]:
    """A batch with the cache on; the models that answered."""
    rows = [line(f"r{number}", question, model="large") for number, question in enumerate(questions)]
    batch_id = desk.submit(rows, cascade=CASCADE if cascade else None, cache=CacheMode.ON)
    two.mill.grind()
    return [body["model"] for body in bodies(desk, batch_id)]


def bodies(desk: Desk, batch_id: str) -> list[dict[str, Any]]:
    rows = desk.result_lines(desk.batch(batch_id).output_file_id)
    return [row["response"]["body"] for row in rows]


def about(question: str, *pictures: bytes) -> list[str]:
    parts = [[{"type": "text", "text": question}, image(data_url(picture))] for picture in pictures]
    return [line(f"r{number}", content, model="large") for number, content in enumerate(parts)]


def ask_about(two: Two, desk: Desk, hasher: Hasher, question: str, *pictures: bytes) -> str:
    batch_id = desk.submit(about(question, *pictures), cascade=CASCADE, cache=CacheMode.ON, near_distance=6)
    grind(two.mill, hasher)
    return batch_id


def test_an_answer_is_kept_under_the_model_that_gave_it(two: Two, desk: Desk) -> None:
    assert ask(two, desk, SURE, UNSURE) == ["small", "large"]
    with transaction(two.mill.sessions) as session:
        kept = answer_cache.count_kept(session, desk.tenant)
    assert {model: count for model, (count, _) in kept.items()} == {"small": 1, "large": 1}


@pytest.mark.parametrize(
    ("revisions", "runs"),
    [
        ({}, (0, 0)),
        ({"small": "2"}, (1, 0)),
        ({"large": "2"}, (1, 1)),
        ({"small": "2", "large": "2"}, (2, 1)),
    ],
)
def test_a_new_revision_is_asked_again_what_its_model_had_answered(
    two: Two, desk: Desk, revisions: dict[str, str], runs: tuple[int, int]
) -> None:
    first = ask(two, desk, SURE, UNSURE)
    two.start(**revisions)
    assert ask(two, desk, SURE, UNSURE) == first
    assert two.runs == runs


def test_what_is_forgotten_of_one_model_is_still_kept_of_the_other(two: Two, desk: Desk) -> None:
    ask(two, desk, SURE, UNSURE)
    with transaction(two.mill.sessions) as session:
        assert answer_cache.forget(session, desk.tenant, model="small", question_id=None) == 1
    two.start()
    ask(two, desk, SURE, UNSURE)
    assert two.runs == (1, 0)


def test_what_a_cascade_answered_is_not_given_to_who_asks_the_large_model_alone(two: Two, desk: Desk) -> None:
    ask(two, desk, SURE, UNSURE)
    two.start()
    assert ask(two, desk, SURE, UNSURE, cascade=False) == ["large", "large"]
    assert two.runs == (0, 2)


@pytest.mark.parametrize(("question", "giver", "runs"), [(SURE, "small", (1, 0)), (UNSURE, "large", (1, 1))])
def test_one_of_the_pictures_that_look_the_same_goes_through_the_cascade_for_all(
    two: Two, desk: Desk, hasher: Hasher, question: str, giver: str, runs: tuple[int, int]
) -> None:
    batch_id = ask_about(two, desk, hasher, question, *PHOTO)
    told = bodies(desk, batch_id)
    assert two.runs == runs
    assert {body["model"] for body in told} == {giver}
    assert len({body["vqueue"]["confidence"] for body in told}) == 1
    batch = desk.batch(batch_id)
    assert (batch.near_answers, batch.escalated) == (len(PHOTO) - 1, runs[1])


def test_the_large_models_answer_about_another_picture_says_so(two: Two, desk: Desk, hasher: Hasher) -> None:
    ask_about(two, desk, hasher, UNSURE, PHOTO[0])
    (body,) = bodies(desk, ask_about(two, desk, hasher, UNSURE, PHOTO[1]))
    assert (body["model"], body["vqueue"]["confidence"]) == ("large", pytest.approx(0.3))
    assert body["vqueue"]["notes"] == [CACHED, NEAR, f"{NEAR_OF}{content_hash(PHOTO[0])}"]


def test_a_picture_that_looks_otherwise_is_asked_about_itself(two: Two, desk: Desk, hasher: Hasher) -> None:
    ask_about(two, desk, hasher, UNSURE, PHOTO[0], saved(product(2)))
    assert two.runs == (2, 2)
