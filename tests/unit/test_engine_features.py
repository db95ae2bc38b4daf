"""The memory tier, the bytes of features, and the pause after a failing Redis."""

from dataclasses import astuple, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observing import Recorder
from workers.engine.base import FeatureTier
from workers.engine.feature_bytes import RefusedBytes, pack, unpack
from workers.engine.features import FeatureCache, FeatureKey, MemoryTier
from workers.engine.redis_tier import Breaker

KEY = FeatureKey("tenant", "ab" * 32, "revision", "float32", 64, 64, "1")
SHAPE = (4, 2, 3)
FEATURES = torch.arange(24, dtype=torch.float32).reshape(SHAPE)
PACKED = pack("name", FEATURES)


def features(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)


def key(number: int) -> FeatureKey:
    return replace(KEY, content_hash=str(number))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 60)), max_size=40))
def test_memory_stays_within_its_budget(puts: list[tuple[int, int]]) -> None:
    tier = MemoryTier(budget=100)
    for number, size in puts:
        tier.put(key(number), features(size))
        assert tier.held <= 100
        assert tier.get(key(number)) is not None


def test_the_least_recently_used_leaves_first() -> None:
    tier = MemoryTier(budget=100)
    for number in range(2):
        tier.put(key(number), features(50))
    assert tier.get(key(0)) is not None
    tier.put(key(2), features(50))
    assert [tier.get(key(number)) is not None for number in range(3)] == [True, False, True]


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    tier = MemoryTier(budget=0)
    tier.put(KEY, features(1))
    assert tier.get(KEY) is None


def test_features_that_are_no_numbers_are_not_kept() -> None:
    recorder = Recorder()
    cache = FeatureCache(memory=MemoryTier(budget=1000), store=None, observer=recorder)
    cache.write(KEY, torch.full(SHAPE, float("nan")))
    assert cache.read(KEY, shape=SHAPE, dtype=torch.float32) is None
    cache.write(KEY, FEATURES)
    assert cache.read(KEY, shape=SHAPE, dtype=torch.float32) is FEATURES
    assert recorder.reads == [(FeatureTier.MISS, 0), (FeatureTier.MEMORY, FEATURES.nbytes)]


def test_every_part_of_a_key_changes_its_name() -> None:
    others = [
        replace(KEY, **{name: f"{value}x"})
        for name, value in zip(KEY.__annotations__, astuple(KEY), strict=True)
    ]
    assert len({KEY.name, *(other.name for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bytes_come_back_as_the_same_tensor(dtype: torch.dtype) -> None:
    tensor = FEATURES.to(dtype)
    assert torch.equal(unpack("name", pack("name", tensor), shape=SHAPE, dtype=dtype), tensor)


@settings(deadline=None)
@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
def test_no_damaged_byte_goes_unnoticed(place: int, change: int) -> None:
    damaged = PACKED[:place] + bytes([PACKED[place] ^ change]) + PACKED[place + 1 :]
    try:
        found = unpack("name", damaged, shape=SHAPE, dtype=torch.float32)
    except RefusedBytes:
        return
    assert torch.equal(found, FEATURES)  # only white space or an unread name of the header was changed


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedBytes):
        unpack("name", data, shape=SHAPE, dtype=torch.float32)


def test_bytes_are_refused_under_another_name_shape_or_type() -> None:
    with pytest.raises(RefusedBytes, match="name"):
        unpack("other", PACKED, shape=SHAPE, dtype=torch.float32)
    with pytest.raises(RefusedBytes, match="shape"):
        unpack("name", PACKED, shape=(4, 3, 2), dtype=torch.float32)
    with pytest.raises(RefusedBytes, match="shape"):
        unpack("name", PACKED, shape=SHAPE, dtype=torch.bfloat16)


def test_a_tripped_breaker_closes_after_its_pause() -> None:
    now = [100.0]
    breaker = Breaker(pause_s=5, clock=lambda: now[0])
    assert breaker.closed()
    breaker.trip()
    assert not breaker.closed()
    now[0] = 105.0
    assert breaker.closed()
