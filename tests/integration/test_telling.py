"""A worker tells over Redis what its engine says, so that who comes late or comes back misses nothing."""

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.client import PubSub

from app.live_text import HeardText, Piece, text_channel
from app.states import Priority
from app.store.jobs import ClaimedJob, Held
from tests.processes import free_port
from tests.waiting import eventually
from workers.telling import Teller, connect


def claimed(priority: Priority = Priority.INTERACTIVE) -> ClaimedJob:
    return ClaimedJob(7, 1, 1, "tenant_a", None, "demo", {}, {}, (), 0.0, priority=priority)


HELD = [Held(7, 1)]


@pytest.fixture
def teller(cache_url: str) -> Iterator[Teller]:
    teller = Teller(connect(cache_url))
    yield teller
    teller.close()


@pytest.fixture
def line(cache_url: str) -> Iterator[PubSub]:
    """A subscription of whoever wants it."""
    with Redis.from_url(cache_url) as redis, redis.pubsub(ignore_subscribe_messages=True) as line:
        yield line


def hear(line: PubSub, text: HeardText) -> Piece | None:
    """The next piece, if there is one, added to what was heard."""
    message = line.get_message(timeout=0.05)
    if message is None:
        return None
    piece = Piece.unpack(message["data"])
    text.hear(piece)
    return piece


def subscribe(line: PubSub) -> HeardText:
    line.subscribe(text_channel("tenant_a", 7))
    eventually(lambda: line.get_message(timeout=0.05) is None)
    return HeardText()


def test_text_is_told_piece_by_piece_and_then_the_end(teller: Teller, line: PubSub) -> None:
    heard = subscribe(line)
    listen = teller.listener(claimed())
    assert listen is not None
    listen("red ")
    eventually(lambda: hear(line, heard) and heard.text == "red ")
    listen("and blue")
    teller.ended(HELD)
    last = eventually(lambda: (piece := hear(line, heard)) and piece.ended and piece)
    assert (heard.text, last) == ("red and blue", Piece(1, 4, "and blue", ended=True))


def test_who_comes_late_hears_all_with_the_next_piece(teller: Teller, line: PubSub) -> None:
    listen = teller.listener(claimed())
    assert listen is not None
    listen("red ")
    eventually(lambda: not teller.has_news())
    heard = subscribe(line)
    listen("and blue")
    eventually(lambda: hear(line, heard) and heard.text == "red and blue")


def test_an_end_that_nobody_hears_is_told_again_for_a_while(teller: Teller, line: PubSub) -> None:
    assert teller.listener(claimed()) is not None
    teller.ended(HELD)
    heard = subscribe(line)
    assert eventually(lambda: hear(line, heard)) == Piece(1, 0, "", ended=True)


def test_an_attempt_that_was_given_up_says_nothing_more(teller: Teller, line: PubSub) -> None:
    heard = subscribe(line)
    listen = teller.listener(claimed())
    assert listen is not None
    teller.forget(HELD)
    listen("too late")
    again = teller.listener(
        ClaimedJob(7, 2, 2, "tenant_a", None, "demo", {}, {}, (), 0.0, priority=Priority.INTERACTIVE)
    )
    assert again is not None
    again("red")
    assert eventually(lambda: hear(line, heard)) == Piece(2, 0, "red")


def test_nobody_listens_to_jobs_of_other_classes(teller: Teller) -> None:
    assert teller.listener(claimed(Priority.STANDARD)) is None


def test_a_redis_that_is_away_keeps_nobody() -> None:
    teller = Teller(connect(f"redis://127.0.0.1:{free_port()}/0"))
    listen = teller.listener(claimed())
    assert listen is not None
    listen("red")
    teller.ended(HELD)
    teller.close()
