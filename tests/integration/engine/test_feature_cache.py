"""Features through a real Valkey: keyed by everything that changes them, and never in a job's way."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import create_server

import pytest
import redis
import torch

from bench.oracle import Oracle
from tests.checkpoints import build_checkpoint
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.observing import Recorder
from tests.requests import ask, mixed_requests, picture
from tests.servers import Machine, flush_redis, start_valkey
from workers.engine.base import FeatureTier, Request
from workers.engine.features import FeatureKey
from workers.engine.load import Checkpoint, load_checkpoint
from workers.engine.redis_tier import RedisTier, connect
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
    with closing(RedisTier(client=connect(cache_url), ttl_s=60, observer=recorder)) as tier:
        yield tier


def read(tier: RedisTier, key: FeatureKey = KEY) -> torch.Tensor | None:
    return tier.read(key, shape=SHAPE, dtype=torch.float32)


def run(engine: TransformersEngine, request: Request) -> str:
    return engine.submit(request).result(timeout=60).text


def test_what_is_written_is_read_and_leaves_by_itself(tier: RedisTier, client: redis.Redis) -> None:
    assert read(tier) is None
    tier.write(KEY, FEATURES)
    tier.flush()
    found = read(tier)
    assert found is not None
    assert torch.equal(found, FEATURES)
    assert 0 < int(client.ttl(KEY.name)) <= 60


def test_another_engine_answers_from_what_the_first_wrote(
    open_engine: OpenEngine, tier: RedisTier, recorder: Recorder
) -> None:
    requests = mixed_requests(24, seed=9)
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
    keys = [feature_key(checkpoint, request) for request in (one, other)]
    shape = (checkpoint.feature_levels, 6, checkpoint.feature_width)
    features = tier.read(keys[1], shape=shape, dtype=torch.float32)
    assert features is not None
    tier.write(keys[0], features)
    tier.flush()
    assert run(engine, one) == oracle.answer(other).text


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
    tier.write(KEY, FEATURES)
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
    other_dtype = replace(checkpoint, model=load_checkpoint(str(tmp_path), dtype="bfloat16").model)
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
    with closing(RedisTier(client=connect(url), ttl_s=60, observer=recorder, pause_s=60)) as tier:
        engine = open_engine(store=tier)
        request = ask(picture(1), "colour?")
        assert run(engine, request) == oracle.answer(request).text
        tier.flush()
        machine.close()
        assert [run(engine, request) for _ in range(3)] == [oracle.answer(request).text] * 3
        tier.flush()
    assert recorder.store_failures == ["read", "write"]


def test_a_full_redis_still_serves_reads(recorder: Recorder) -> None:
    machine = Machine()
    url = start_valkey(machine).url(0)
    with closing(RedisTier(client=connect(url), ttl_s=60, observer=recorder, pause_s=60)) as tier:
        tier.write(KEY, FEATURES)
        tier.flush()
        with closing(redis.Redis.from_url(url)) as admin:
            admin.config_set("maxmemory", "1mb")
            admin.config_set("maxmemory-policy", "noeviction")
        tier.write(replace(KEY, tenant="other"), torch.zeros(MIB))
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
        closing(RedisTier(client=connect(url), ttl_s=60, observer=recorder, pause_s=60)) as tier,
    ):
        engine = open_engine(store=tier)
        requests = [ask(picture(seed), "colour?") for seed in range(4)]
        assert [run(engine, each) for each in requests] == [oracle.answer(each).text for each in requests]
        tier.flush()
    assert recorder.store_failures == ["read", "write"]
