"""The Redis tier on a real Valkey: its budget, who is admitted, one encoding for all, and its failures."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
import redis
import torch

from tests.observing import Recorder
from tests.servers import Machine, flush_redis, start_valkey
from tests.waiting import eventually
from workers.engine.admission import UNKNOWN, WANTED, Reuse
from workers.engine.base import FeatureTier
from workers.engine.feature_codec import Features, Format, Kept
from workers.engine.features import FeatureCache, FeatureKey, MemoryTier
from workers.engine.redis_books import INDEX, SIZES, Books
from workers.engine.redis_tier import RedisTier
from workers.engine.single_flight import Ask, Waits

MIB = 2**20
KEY = FeatureKey("tenant", "ab" * 32, "revision", "float32", 64, 64, "1")
SHAPE = (4, 4, 8)
FEATURES = torch.arange(128, dtype=torch.float32).reshape(SHAPE)
OpenCache = Callable[..., FeatureCache]


def patient(url: str) -> redis.Redis:
    """A client that a busy machine cannot make fail."""
    return redis.Redis.from_url(url, socket_timeout=30)


def busy() -> bool:
    return False


def key(number: int, **changes: str) -> FeatureKey:
    return replace(KEY, content_hash=f"{number:064}", **changes)


@pytest.fixture
def client(cache_url: str) -> Iterator[redis.Redis]:
    flush_redis(cache_url)
    with closing(redis.Redis.from_url(cache_url)) as client:
        yield client
    flush_redis(cache_url)


@pytest.fixture
def books(client: redis.Redis) -> Books:
    return Books(client, ttl_s=60, budget=1000)


@pytest.fixture
def open_tier(cache_url: str, client: redis.Redis, recorder: Recorder) -> Iterator[Callable[..., RedisTier]]:
    with ExitStack() as stack:

        def open_one(
            url: str = cache_url,
            *,
            ttl_s: int = 60,
            budget: int = 64 * MIB,
            wait_s: float = 20,
            slots: int = 4,
            observer: Recorder = recorder,
        ) -> RedisTier:
            tier = RedisTier(
                client=patient(url),
                ttl_s=ttl_s,
                budget=budget,
                observer=observer,
                waits=Waits(slots=slots, wait_s=wait_s),
                pause_s=60,
            )
            return stack.enter_context(closing(tier))

        yield open_one


@pytest.fixture
def tier(open_tier: Callable[..., RedisTier]) -> RedisTier:
    return open_tier()


def caching(tier: RedisTier, *, observer: Recorder, form: Format = Format.NATIVE) -> FeatureCache:
    return FeatureCache(memory=MemoryTier(budget=0), store=tier, observer=observer, form=form)


def look_up(
    cache: FeatureCache, key: FeatureKey = KEY, *, reuse: Reuse = UNKNOWN, idle: Ask = busy
) -> Features | None:
    return cache.read(key, shape=SHAPE, dtype=torch.float32, reuse=reuse, idle=idle)


def held(tier: RedisTier, key: FeatureKey = KEY) -> Kept | None:
    return tier.peek(key, shape=SHAPE, dtype=torch.float32)


def is_awaited(client: redis.Redis) -> bool:
    """Whether somebody waits for the one image that is being encoded."""
    locks = client.keys("vqueue:features-lock:*")
    return len(locks) == 1 and bool(client.hexists(locks[0], "awaited"))


def booked(client: redis.Redis) -> tuple[int, int]:
    """Images and bytes on the books."""
    return int(client.zcard(INDEX)), int(client.hget(SIZES, "total") or 0)


def test_the_books_tell_what_is_there(books: Books, client: redis.Redis) -> None:
    for name, size in (("a", 300), ("b", 200), ("a", 100)):
        books.write(name, bytes(size))
    assert booked(client) == (2, 300)
    books.drop("a")
    books.drop("never there")
    assert (books.read("a"), booked(client)) == (None, (1, 200))


def test_the_least_recently_used_leave_over_the_budget(books: Books, client: redis.Redis) -> None:
    for name in "abcde":
        books.write(name, bytes(200))
        in_order(client)
    books.read("a")
    assert books.write("f", bytes(400)) == 2
    assert [name for name in "abcdef" if client.exists(name)] == ["a", "d", "e", "f"]
    assert booked(client) == (4, 1000)


def in_order(client: redis.Redis) -> None:
    """Let the server's clock move on by a millisecond, which is what the order of leaving is told by."""
    before = client.time()
    eventually(lambda: client.time() > (before[0], before[1] + 2000))


def test_what_is_larger_than_the_budget_pushes_nobody_out(books: Books, client: redis.Redis) -> None:
    books.write("a", bytes(200))
    assert books.write("b", bytes(1001)) == 0
    assert (client.exists("a"), client.exists("b")) == (1, 0)


def test_what_expired_or_was_deleted_is_taken_off_the_books(client: redis.Redis) -> None:
    brief = Books(client, ttl_s=1, budget=1000)
    brief.write("expires", bytes(300))
    books = Books(client, ttl_s=60, budget=1000)
    books.write("deleted", bytes(300))
    client.delete("deleted")
    assert books.read("deleted") is None
    eventually(lambda: not client.exists("expires"))
    in_order(client)
    books.write("new", bytes(100))
    assert booked(client) == (1, 100)


def test_a_use_keeps_an_image_for_another_ttl(client: redis.Redis) -> None:
    Books(client, ttl_s=60, budget=1000).write("a", b"x")
    Books(client, ttl_s=600, budget=1000).read("a")
    assert int(client.ttl("a")) > 60
    leaves_ms = client.zscore(INDEX, "a")
    assert leaves_ms is not None
    assert leaves_ms > (client.time()[0] + 60) * 1000


def test_many_writers_never_lose_count(books: Books, client: redis.Redis) -> None:
    def write(worker: int) -> None:
        for number in range(60):
            books.write(f"image {(number * 7 + worker) % 20}", bytes(50 + number))

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = list(client.keys("image *"))
    assert booked(client) == (len(names), sum(client.strlen(name) for name in names))
    assert booked(client)[1] <= 1000


def test_a_first_sighting_is_not_kept_and_a_second_one_is(tier: RedisTier, recorder: Recorder) -> None:
    cache = caching(tier, observer=recorder)
    assert look_up(cache) is None
    cache.write(KEY, FEATURES)
    tier.flush()
    assert held(tier) is None
    another = caching(tier, observer=recorder)  # a worker that has not seen it itself
    assert look_up(another) is None
    another.write(KEY, FEATURES)
    tier.flush()
    assert held(tier) is not None


def test_an_image_that_jobs_wait_for_is_kept_at_once(tier: RedisTier, recorder: Recorder) -> None:
    cache = caching(tier, observer=recorder)
    for number, reuse in enumerate([Reuse(expected=10), Reuse(expected=10, later=1)]):
        look_up(cache, key(number), reuse=reuse)
        cache.write(key(number), FEATURES)
    tier.flush()
    assert [held(tier, key(number)) is not None for number in range(2)] == [False, True]


def test_single_images_leave_redis_as_it_is(tier: RedisTier, client: redis.Redis, recorder: Recorder) -> None:
    cache = caching(tier, observer=recorder)
    cache.write(KEY, FEATURES)
    tier.flush()
    before = booked(client)
    for number in range(100):
        look_up(cache, key(number))
        cache.write(key(number), FEATURES)
    tier.flush()
    assert booked(client) == before


@pytest.mark.parametrize("form", Format)
def test_features_come_back_in_their_format(tier: RedisTier, recorder: Recorder, form: Format) -> None:
    cache = caching(tier, observer=recorder, form=form)
    cache.write(replace(KEY, form=form), FEATURES)
    tier.flush()
    found = look_up(cache, replace(KEY, form=form))
    assert found is not None
    assert torch.allclose(found, FEATURES, atol=0 if form is Format.NATIVE else 0.51)
    other = Format.INT8 if form is Format.NATIVE else Format.NATIVE
    assert look_up(cache, replace(KEY, form=other)) is None


def test_two_workers_encode_an_image_once(open_tier: Callable[..., RedisTier], client: redis.Redis) -> None:
    observers = [Recorder(), Recorder()]
    caches = [caching(open_tier(observer=observer), observer=observer) for observer in observers]
    assert look_up(caches[0]) is None
    found: list[Features | None] = []
    waiter = threading.Thread(target=lambda: found.append(look_up(caches[1])))
    waiter.start()
    eventually(lambda: is_awaited(client))
    caches[0].write(KEY, FEATURES)
    waiter.join()
    assert found[0] is not None
    assert torch.equal(found[0], FEATURES)
    assert observers[1].awaited == [True]
    assert observers[1].tiers() == [FeatureTier.REDIS]


def test_many_workers_encode_many_images_once_each(open_tier: Callable[..., RedisTier]) -> None:
    encoded: list[int] = []

    def work(cache: FeatureCache) -> None:
        for number in range(20):
            if look_up(cache, key(number)) is None:
                encoded.append(number)
                cache.write(key(number), FEATURES)

    caches = [caching(open_tier(), observer=Recorder()) for _ in range(4)]
    threads = [threading.Thread(target=work, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # An image's first worker keeps it only if another one waits already: then the second encodes it as well.
    assert sorted(set(encoded)) == list(range(20))
    assert len(encoded) <= 2 * 20


def test_nobody_waits_while_the_model_is_idle(open_tier: Callable[..., RedisTier]) -> None:
    observer = Recorder()
    look_up(caching(open_tier(), observer=Recorder()))
    cache = caching(open_tier(wait_s=3600, observer=observer), observer=observer)
    assert look_up(cache, idle=lambda: True) is None
    assert observer.awaited == [False]


def test_a_wait_ends_when_the_model_runs_dry(open_tier: Callable[..., RedisTier]) -> None:
    look_up(caching(open_tier(), observer=Recorder()))
    asked = iter([False, False, True])
    assert look_up(caching(open_tier(wait_s=3600), observer=Recorder()), idle=lambda: next(asked)) is None


def test_only_so_many_threads_wait(open_tier: Callable[..., RedisTier]) -> None:
    look_up(caching(open_tier(), observer=Recorder()))
    assert look_up(caching(open_tier(wait_s=3600, slots=0), observer=Recorder())) is None


def test_a_dead_worker_s_place_is_taken(open_tier: Callable[..., RedisTier], client: redis.Redis) -> None:
    look_up(caching(open_tier(), observer=Recorder()))
    client.pexpire(next(iter(client.keys("vqueue:features-lock:*"))), 50)
    cache = caching(open_tier(wait_s=3600), observer=Recorder())
    assert look_up(cache) is None
    cache.write(KEY, FEATURES)
    eventually(lambda: not client.keys("vqueue:features-lock:*"))
    assert look_up(cache) is not None


def test_who_gives_up_lets_the_next_one_encode(tier: RedisTier, open_tier: Callable[..., RedisTier]) -> None:
    first = caching(tier, observer=Recorder())
    look_up(first)
    first.forget_miss(KEY)
    tier.flush()
    observer = Recorder()
    assert look_up(caching(open_tier(wait_s=3600, observer=observer), observer=observer)) is None
    assert observer.awaited == []


def test_a_late_owner_does_not_end_another_s_claim(books: Books) -> None:
    assert books.claim("a", "first").mine
    books.release("a", "first")
    assert books.claim("a", "second").mine
    books.release("a", "first")
    assert books.locked("a")


def test_what_came_between_look_up_and_claim_is_read(books: Books) -> None:
    books.write("a", b"x")
    claim = books.claim("a", "token")
    assert (claim.mine, claim.stored, books.locked("a")) == (False, True, False)


def test_a_flush_in_the_middle_costs_a_second_encoding_only(
    open_tier: Callable[..., RedisTier], client: redis.Redis, recorder: Recorder
) -> None:
    tier = open_tier()
    cache = caching(tier, observer=recorder)
    look_up(cache, reuse=Reuse(later=1))
    client.flushdb()
    cache.write(KEY, FEATURES)
    tier.flush()
    assert look_up(cache) is not None
    assert booked(client)[0] == 1
    client.flushdb()
    client.script_flush()
    assert look_up(cache) is None
    cache.write(KEY, FEATURES)
    tier.flush()
    assert look_up(cache) is not None
    assert recorder.store_failures == []


def test_a_full_redis_serves_reads_and_nobody_waits(
    open_tier: Callable[..., RedisTier], recorder: Recorder
) -> None:
    machine = Machine()
    url = start_valkey(machine).url(0)
    tier = open_tier(url, wait_s=3600)
    cache = caching(tier, observer=recorder)
    cache.write(KEY, FEATURES)
    tier.flush()
    with closing(redis.Redis.from_url(url)) as admin:
        before = booked(admin)
        admin.config_set("maxmemory", "1mb")
        assert look_up(cache, key(1)) is None
        tier.write(key(1), Kept(torch.zeros(MIB)), WANTED)
        tier.flush()
        assert look_up(cache) is not None
        assert booked(admin) == before
    assert recorder.store_failures == ["claim"]
    machine.close()


def test_a_redis_that_dies_in_a_wait_ends_it(open_tier: Callable[..., RedisTier]) -> None:
    machine = Machine()
    url = start_valkey(machine).url(0)
    look_up(caching(open_tier(url), observer=Recorder()))
    found: list[Features | None] = []
    observer = Recorder()
    cache = caching(open_tier(url, wait_s=3600), observer=observer)
    waiter = threading.Thread(target=lambda: found.append(look_up(cache)))
    waiter.start()
    with closing(redis.Redis.from_url(url)) as admin:
        eventually(lambda: is_awaited(admin))
    machine.close()
    waiter.join(timeout=20)
    assert found == [None]
    cache.write(KEY, FEATURES)


def test_damaged_bytes_are_replaced(tier: RedisTier, client: redis.Redis, recorder: Recorder) -> None:
    client.set(KEY.name, b"damaged")
    cache = caching(tier, observer=recorder)
    assert look_up(cache, reuse=Reuse(later=1)) is None
    assert len(recorder.refused) >= 1
    cache.write(KEY, FEATURES)
    tier.flush()
    assert look_up(cache) is not None


def test_a_wrong_entry_leaves_redis(tier: RedisTier) -> None:
    tier.write(KEY, Kept(FEATURES))
    tier.flush()
    assert held(tier) is not None
    tier.drop(KEY)
    tier.flush()
    assert held(tier) is None
