"""Features through a real Valkey: keyed by everything that changes them, and never in a job's way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import create_server
from threading import Event
from typing import Any

import pytest
import redis
import torch

from bench.oracle import Oracle
from tests.checkpoints import build_checkpoint
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.observing import Recorder
from tests.requests import ask, mixed_requests, picture
from tests.servers import Machine, flush_redis, start_valkey
from tests.waiting import eventually
from workers.engine.base import FeatureTier, Image, Note, Request
from workers.engine.encodings import Encodings
from workers.engine.feature_codec import Format, Kept
from workers.engine.features import FeatureCache, FeatureKey, MemoryTier
from workers.engine.load import Checkpoint, load_checkpoint
from workers.engine.redis_tier import RedisTier, connect
from workers.engine.single_flight import Waits
from workers.engine.transformers import TransformersEngine

KEY = FeatureKey("tenant", "ab" * 32, "revision", "float32", 64, 64, "1")
SHAPE = (4, 4, 8)
FEATURES = torch.arange(128, dtype=torch.float32).reshape(SHAPE)


@pytest.fixture
def client(cache_url: str) -> Iterator[redis.Redis]:
    flush_redis(cache_url)
    with closing(redis.Redis.from_url(cache_url)) as client:
        yield client
    flush_redis(cache_url)


@pytest.fixture
def tier(client: redis.Redis, cache_url: str, recorder: Recorder) -> Iterator[RedisTier]:
    with closing(new_tier(cache_url, recorder)) as tier:
        yield tier


def new_tier(url: str, observer: Recorder, *, client: redis.Redis | None = None) -> RedisTier:
    """By a client that a busy machine cannot make fail, unless another is given."""
    return RedisTier(
        client=client or redis.Redis.from_url(url, socket_timeout=30),
        ttl_s=60,
        budget=64 * MIB,
        observer=observer,
        waits=Waits(slots=1, wait_s=60),
        pause_s=60,
    )


def read(tier: RedisTier, key: FeatureKey = KEY) -> torch.Tensor | None:
    kept = tier.peek(key, shape=SHAPE, dtype=torch.float32)
    return None if kept is None else kept.values


def returning(request: Request) -> Request:
    """With images that later jobs wait for."""
    return replace(request, images=tuple(replace(image, later_uses=1) for image in request.images))


def run(engine: TransformersEngine, request: Request) -> str:
    return engine.submit(returning(request)).result(timeout=60).text


def test_what_is_written_is_read_and_leaves_by_itself(tier: RedisTier, client: redis.Redis) -> None:
    assert read(tier) is None
    tier.write(KEY, Kept(FEATURES))
    tier.flush()
    found = read(tier)
    assert found is not None
    assert torch.equal(found, FEATURES)
    assert 0 < int(client.ttl(KEY.name)) <= 60


def test_another_engine_answers_from_what_the_first_wrote(
    open_engine: OpenEngine, tier: RedisTier, recorder: Recorder
) -> None:
    requests = [returning(request) for request in mixed_requests(24, seed=9)]
    first = [open_engine(store=tier).submit(request) for request in requests]
    expected = [future.result(timeout=60) for future in first]
    tier.flush()
    recorder.reads.clear()
    encoded = recorder.encoded_images
    again = [open_engine(store=tier).submit(request) for request in requests]
    assert [future.result(timeout=60) for future in again] == expected
    assert recorder.encoded_images == encoded
    assert set(recorder.tiers()) == {FeatureTier.REDIS}


def test_an_answer_follows_the_features_under_its_key(
    open_engine: OpenEngine, oracle: Oracle, tier: RedisTier, checkpoint: Checkpoint
) -> None:
    """The proof that cached features are used: with those of another picture it is the other's answer."""
    engine = open_engine(store=tier)
    one, other = ask(picture(3), "colour?", max_tokens=12), ask(picture(4), "colour?", max_tokens=12)
    assert [run(engine, one), run(engine, other)] == [oracle.answer(one).text, oracle.answer(other).text]
    tier.flush()
    swap(tier, checkpoint, one, other)
    assert run(open_engine(store=tier), one) == oracle.answer(other).text


def swap(tier: RedisTier, checkpoint: Checkpoint, one: Request, other: Request) -> None:
    """Put the features of the other's picture under the key of the one's."""
    keys = [feature_key(checkpoint, request) for request in (one, other)]
    shape = (checkpoint.feature_levels, 6, checkpoint.feature_width)
    features = tier.peek(keys[1], shape=shape, dtype=torch.float32)
    assert features is not None
    tier.write(keys[0], features)
    tier.flush()


def feature_key(checkpoint: Checkpoint, request: Request) -> FeatureKey:
    image = request.images[0]
    return FeatureKey("tenant", image.content_hash, checkpoint.revision, "float32", 96, 64, "1")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data[:200], id="cut in the header"),
        pytest.param(lambda data: data[:0], id="empty"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one bit"),
        pytest.param(lambda data: b"\x80\x04\x95" + data, id="pickle"),
    ],
)
def test_damaged_bytes_are_a_miss(
    tier: RedisTier, client: redis.Redis, recorder: Recorder, damage: Callable[[bytes], bytes]
) -> None:
    tier.write(KEY, Kept(FEATURES))
    tier.flush()
    data = client.get(KEY.name)
    assert isinstance(data, bytes)
    client.set(KEY.name, damage(data))
    assert read(tier) is None
    assert len(recorder.refused) == 1


def test_the_settings_are_in_the_key(
    tmp_path: Path, open_engine: OpenEngine, tier: RedisTier, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    image = picture(1, 300, 200)
    other_weights = load_checkpoint(str(build_checkpoint(tmp_path, seed=1)))
    other_dtype = load_checkpoint(str(tmp_path), dtype="bfloat16")
    other_dtype = replace(other_dtype, revision=checkpoint.revision)
    assert other_weights.revision != checkpoint.revision
    run(open_engine(store=tier), ask(image, "a"))
    run(open_engine(store=tier), ask(image, "a", max_pixels=4 * 32 * 32))
    run(open_engine(store=tier), ask(image, "a", tenant="other"))
    run(open_engine(store=tier, normaliser="2"), ask(image, "a"))
    run(open_engine(store=tier, checkpoint=other_weights), ask(image, "a"))
    run(open_engine(store=tier, checkpoint=other_dtype), ask(image, "a"))
    assert recorder.tiers() == [FeatureTier.MISS] * 6
    run(open_engine(store=tier), ask(image, "b"))
    assert recorder.tiers()[-1] is FeatureTier.REDIS


def test_a_redis_that_dies_costs_no_job(open_engine: OpenEngine, oracle: Oracle, recorder: Recorder) -> None:
    machine = Machine()
    url = start_valkey(machine).url(0)
    with closing(new_tier(url, recorder)) as tier:
        engine = open_engine(store=tier)
        request = ask(picture(1), "colour?")
        assert run(engine, request) == oracle.answer(request).text
        tier.flush()
        machine.close()
        again = [ask(picture(seed), "colour?") for seed in range(2, 5)]
        assert [run(engine, each) for each in again] == [oracle.answer(each).text for each in again]
        tier.flush()
    assert recorder.store_failures == ["read", "write"]


def test_a_full_redis_still_serves_reads(recorder: Recorder) -> None:
    machine = Machine()
    url = start_valkey(machine).url(0)
    with closing(new_tier(url, recorder)) as tier:
        tier.write(KEY, Kept(FEATURES))
        tier.flush()
        with closing(redis.Redis.from_url(url)) as admin:
            admin.config_set("maxmemory", "1mb")
            admin.config_set("maxmemory-policy", "noeviction")
        tier.write(replace(KEY, scope="other"), Kept(torch.zeros(MIB)))
        tier.flush()
        assert recorder.store_failures == ["write"]
        assert read(tier) is not None
    machine.close()


def test_a_redis_that_does_not_answer_is_asked_once(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder
) -> None:
    silent = create_server(("127.0.0.1", 0))
    url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
    with (
        closing(silent),
        closing(new_tier(url, recorder, client=connect(url))) as tier,
    ):
        engine = open_engine(store=tier)
        requests = [ask(picture(seed), "colour?") for seed in range(4)]
        assert [run(engine, each) for each in requests] == [oracle.answer(each).text for each in requests]
        tier.flush()
    assert recorder.store_failures == ["read", "write"]


@pytest.mark.parametrize("damaged", [False, True], ids=["right", "wrong"])
def test_a_checked_hit_is_encoded_anew_and_a_wrong_entry_replaced(
    open_engine: OpenEngine,
    oracle: Oracle,
    tier: RedisTier,
    checkpoint: Checkpoint,
    recorder: Recorder,
    damaged: bool,
) -> None:
    one, other = ask(picture(3), "colour?", max_tokens=12), ask(picture(4), "colour?", max_tokens=12)
    for request in (one, other):
        run(open_engine(store=tier), request)
    tier.flush()
    if damaged:
        swap(tier, checkpoint, one, other)
    assert run(open_engine(store=tier, check_share=1), one) == oracle.answer(one).text
    tier.flush()
    assert run(open_engine(store=tier), one) == oracle.answer(one).text
    assert recorder.checked == [not damaged]


def test_eight_bits_are_read_by_engines_of_that_format_only(
    open_engine: OpenEngine, tier: RedisTier, recorder: Recorder
) -> None:
    request = ask(picture(1), "colour?")
    for form in (Format.INT8, Format.INT8, Format.NATIVE, Format.NATIVE):
        run(open_engine(store=tier, form=form), request)
        tier.flush()
    assert recorder.tiers() == [FeatureTier.MISS, FeatureTier.REDIS] * 2


def test_two_engines_encode_an_image_once(
    open_engine: OpenEngine, oracle: Oracle, cache_url: str, client: redis.Redis, folder: Path
) -> None:
    """The second worker's model has other work, so its request waits for what the first one encodes."""
    request, gates, sees = ask(picture(1), "colour?"), (Event(), Event()), (Recorder(), Recorder())
    with closing(new_tier(cache_url, sees[0])) as one, closing(new_tier(cache_url, sees[1])) as two:
        first, second = (
            open_engine(store=store, checkpoint=held(load_checkpoint(str(folder)), gate))
            for store, gate in zip((one, two), gates, strict=True)
        )
        answers = [first.submit(request)]
        eventually(lambda: locks(client))
        second.submit(ask(picture(2), "what keeps the model busy?"))
        eventually(lambda: not second._is_idle())
        answers.append(second.submit(request))
        eventually(lambda: any(client.hexists(lock, "awaited") for lock in locks(client)))
        gates[0].set()
        eventually(lambda: sees[1].awaited)
        gates[1].set()
        assert [answer.result(timeout=60).text for answer in answers] == [oracle.answer(request).text] * 2
    assert sees[1].awaited == [True]


def locks(client: redis.Redis) -> Sequence[str | bytes]:
    return list(client.keys("vqueue:features-lock:*"))


def held(checkpoint: Checkpoint, gate: Event) -> Checkpoint:
    """A model whose tower waits for the gate."""
    model: Any = checkpoint.model  # its methods have no settable type
    tower = model.get_image_features

    def wait(*arguments: object) -> object:
        assert gate.wait(60)
        return tower(*arguments)

    model.get_image_features = wait
    return checkpoint


def retouched(image: Image) -> Image:
    """The same picture a shade lighter, as another encoder would have saved it."""
    pixels = image.load()
    pixels = (pixels.astype("int16") + 2).clip(0, 255).astype("uint8")
    return Image.of(image.content_hash[::-1], pixels)


def near(request: Request) -> Request:
    return replace(request, near_duplicates=True)


def test_a_near_duplicate_is_answered_from_the_first_picture_and_says_so(
    open_engine: OpenEngine, recorder: Recorder
) -> None:
    engine = open_engine(cache_bytes=MIB)
    image = picture(1, 300, 200)
    first = engine.submit(near(ask(image, "colour?"))).result(timeout=60)
    second = engine.submit(near(ask(retouched(image), "how many?"))).result(timeout=60)
    assert (Note.NEAR_DUPLICATE in first.notes, Note.NEAR_DUPLICATE in second.notes) == (False, True)
    assert recorder.encoded_images == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda request: replace(request, near_duplicates=False), id="not asked for"),
        pytest.param(lambda request: replace(request, tenant="other"), id="another tenant"),
        pytest.param(lambda request: replace(request, max_pixels=4 * 32 * 32), id="another size"),
        pytest.param(lambda request: replace(request, images=(picture(2, 300, 200),)), id="another picture"),
    ],
)
def test_a_near_duplicate_is_never_used_for(
    open_engine: OpenEngine, recorder: Recorder, change: Callable[[Request], Request]
) -> None:
    engine = open_engine(cache_bytes=MIB)
    image = picture(1, 300, 200)
    engine.submit(near(ask(image, "colour?"))).result(timeout=60)
    answer = engine.submit(change(near(ask(retouched(image), "colour?")))).result(timeout=60)
    assert Note.NEAR_DUPLICATE not in answer.notes
    assert recorder.encoded_images == 2


def test_a_near_duplicate_is_used_only_while_the_original_s_features_are_at_hand(
    checkpoint: Checkpoint, recorder: Recorder
) -> None:
    cache = FeatureCache(memory=MemoryTier(budget=0), store=None, observer=recorder)
    encodings = Encodings(checkpoint=checkpoint, cache=cache, normaliser="1")
    image, grid = picture(1, 300, 200), checkpoint.preprocessor.grid(300, 200)
    key, other = (encodings.key("tenant", each, grid) for each in (image, retouched(image)))
    assert encodings.twin(key, image, grid) is None
    original = encodings.get(key, image, grid)
    assert encodings.twin(other, retouched(image), grid) is original
    del original
    assert encodings.twin(other, retouched(image), grid) is None
    assert encodings.twin(other, retouched(image), grid) is None
    kept = encodings.get(other, retouched(image), grid)
    assert encodings.twin(key, image, grid) is kept


def test_warming_stores_an_image_and_says_whether_it_was_there(
    open_engine: OpenEngine, tier: RedisTier, recorder: Recorder
) -> None:
    engine = open_engine(store=tier, cache_bytes=MIB)
    warm = replace(ask(picture(1), max_tokens=1), warm=True)
    notes = [engine.submit(returning(warm)).result(timeout=60).notes for _ in range(2)]
    assert [Note.FEATURES_CACHED in each for each in notes] == [False, True]
    tier.flush()
    run(open_engine(store=tier), ask(picture(1), "colour?"))
    assert recorder.encoded_images == 1


def test_warming_shares_what_only_one_worker_s_memory_has(
    open_engine: OpenEngine, tier: RedisTier, client: redis.Redis, recorder: Recorder
) -> None:
    engine = open_engine(store=tier, cache_bytes=MIB)
    engine.submit(ask(picture(1), "colour?")).result(timeout=60)
    tier.flush()
    assert not client.keys("vqueue:features:*")
    engine.submit(replace(ask(picture(1), max_tokens=1), warm=True)).result(timeout=60)
    tier.flush()
    assert len(client.keys("vqueue:features:*")) == 1
    assert recorder.encoded_images == 1
