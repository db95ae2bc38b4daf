"""However a batch's jobs end, and whoever closes it: each line is one result, and one line of one file."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import pytest

from app.batches import Brake
from app.config import Settings
from app.db import Sessions, transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.limits import Limits
from app.objects import ObjectStore
from app.retrying import Retries, RetryWish
from app.states import JobState
from app.store.progress import read_errors
from app.sweep import Sweeper
from tests.desk import Desk, image, line
from tests.ending import CLOSINGS, STEPS, Play

NAMES = [f"r{number:02}" for number in range(14)]
UNANSWERED = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)


@pytest.fixture
def make_play(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Callable[..., Play]]:
    """Batches of fourteen lines, read three at a time."""
    with ExitStack() as stack:

        def make(random: Random) -> Play:
            desk = Desk(sessions=db, objects=objects, settings=settings)
            ingest = Ingest(sessions=db, objects=objects, settings=settings, block_lines=3, turn_s=0)
            stack.callback(ingest.close)
            finalize = Finalize(sessions=db, objects=objects, settings=settings, page_jobs=4)
            sweeper = Sweeper(sessions=db, block_jobs=3, again_after_s=0)
            return Play(desk, ingest, finalize, sweeper, desk.submit(content(random)), random)

        yield make


@pytest.fixture
def retries(db: Sessions) -> Retries:
    limits = Limits(sessions=db, backlog_max_jobs=10**6, disk_min_free_bytes=0, data_dir=None)
    return Retries(sessions=db, limits=limits, brake=Brake(None, 100))


def content(random: Random) -> list[str]:
    kinds: list[Callable[[str], str]] = [
        line,
        lambda name: line(name, [image(f"https://example.com/{random.randint(1, 3)}.png")]),
        lambda name: line(name, n=9),
    ]
    return [random.choices(kinds, [5, 3, 1])[0](name) for name in NAMES]


def check(play: Play, names: list[str]) -> list[str]:
    """The promises of an ended batch with these lines; the ones without an answer."""
    desk, batch = play.desk, play.desk.batch(play.batch_id)
    output, errors = desk.ids(batch.output_file_id), desk.ids(batch.error_file_id)
    assert sorted(output + errors) == names
    assert (output, errors) == (sorted(output), sorted(errors))
    assert (batch.total, batch.completed, batch.failed) == (len(names), len(output), len(errors))
    assert (batch.prompt_tokens, batch.completion_tokens) == used(desk, batch.output_file_id)
    assert [seq for seq, _ in play.seen] == list(range(1, len(names) + 1))
    assert sorted(name or "" for _, name in play.seen) == names
    with transaction(desk.sessions) as session:
        explained = sum(error.jobs for error in read_errors(session, batch.id))
    states = [job.error_code for job in desk.jobs(batch.id) if job.state == "failed"]
    assert explained == sum(code != "batch_failed" for code in states)
    return errors


def used(desk: Desk, file_id: str | None) -> tuple[int, int]:
    """The tokens of all answers in the output file."""
    rows = desk.result_lines(file_id) if file_id else []
    usage = [row["response"]["body"]["usage"] for row in rows]
    return sum(one["prompt_tokens"] for one in usage), sum(one["completion_tokens"] for one in usage)


def played(make_play: Callable[..., Play], closing: str | None, seed: int) -> Play:
    """A batch to which thirty things happen in any order; it is closed at any time among them."""
    play = make_play(Random(seed))
    happenings = ["ingest"] * 5 + play.random.choices(STEPS, k=25)
    if seed % 2:
        play.random.shuffle(happenings)
    if closing:
        happenings.insert(play.random.randint(0, len(happenings)), closing)
    play.do(*happenings)
    play.end()
    return play


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("closing", [None, *CLOSINGS])
def test_each_line_is_one_result_and_one_line_of_one_file_in_order(
    make_play: Callable[..., Play], closing: str | None, seed: int
) -> None:
    check(played(make_play, closing, seed), NAMES)


@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("closing", [None, *CLOSINGS])
def test_a_retry_has_each_request_without_an_answer_once(
    make_play: Callable[..., Play], retries: Retries, closing: str | None, seed: int
) -> None:
    play = played(make_play, closing, seed)
    bad = {job.custom_id for job in play.desk.jobs(play.batch_id) if job.prompt == {}}
    wanted = [name for name in check(play, NAMES) if name not in bad]
    again = retries.submit(play.desk.tenant, play.batch_id, RetryWish(UNANSWERED))
    retry = replace(play, batch_id=again.id, seen=[])
    retry.do(*play.random.choices(STEPS, k=25))
    retry.end()
    check(retry, wanted)
