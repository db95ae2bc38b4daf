"""The memory tier, the bytes of features, the checks, and the pause after a failing Redis."""

from dataclasses import astuple, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observing import Recorder
from workers.engine.admission import UNKNOWN, Reuse, Sightings, returns, worth_sharing
from workers.engine.base import FeatureTier
from workers.engine.encode_speed import EncodeSpeed
from workers.engine.feature_bytes import RefusedBytes, pack, unpack
from workers.engine.feature_checks import FeatureChecks
from workers.engine.feature_codec import Format, Kept, keep, restore
from workers.engine.features import FeatureCache, FeatureKey, MemoryTier
from workers.engine.redis_tier import Breaker

KEY = FeatureKey("scope", "ab" * 32, "revision", "float32", 64, 64, "1")
SHAPE = (4, 2, 3)
FEATURES = torch.arange(24, dtype=torch.float32).reshape(SHAPE)
PACKED = pack("name", Kept(FEATURES))
EIGHT_BITS = pack("name", keep(FEATURES, Format.INT8))


def sized(size: int) -> Kept:
    return Kept(torch.zeros(size, dtype=torch.uint8))


def key(number: int) -> FeatureKey:
    return replace(KEY, content_hash=str(number))


def open_kept(
    data: bytes,
    *,
    name: str = "name",
    shape: tuple[int, int, int] = SHAPE,
    dtype: torch.dtype = torch.float32,
    form: Format = Format.NATIVE,
) -> torch.Tensor:
    return restore(unpack(name, data, shape=shape, dtype=dtype, form=form), dtype)


def caching(recorder: Recorder, *, budget: int = 1000, checks: FeatureChecks | None = None) -> FeatureCache:
    memory = MemoryTier(budget=budget)
    return FeatureCache(memory=memory, store=None, observer=recorder, checks=checks)


def look_up(cache: FeatureCache, key: FeatureKey, reuse: Reuse = UNKNOWN) -> torch.Tensor | None:
    return cache.read(key, shape=SHAPE, dtype=torch.float32, reuse=reuse)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 60), st.booleans()), max_size=40))
def test_memory_stays_within_its_budget(puts: list[tuple[int, int, bool]]) -> None:
    tier = MemoryTier(budget=100)
    for number, size, returning in puts:
        kept = tier.put(key(number), sized(size), returns=returning)
        assert tier.held <= 100
        assert kept or not returning
        assert (tier.get(key(number)) is not None) == kept


def test_the_least_recently_used_leaves_first() -> None:
    tier = MemoryTier(budget=100)
    for number in range(2):
        tier.put(key(number), sized(50))
    assert tier.get(key(0)) is not None
    tier.put(key(2), sized(50))
    assert [tier.get(key(number)) is not None for number in range(3)] == [True, False, True]


def test_images_that_come_once_never_push_out_one_that_returns() -> None:
    tier = MemoryTier(budget=100)
    tier.put(key(0), sized(60), returns=True)
    kept = [tier.put(key(number), sized(30), returns=False) for number in range(1, 20)]
    assert all(kept)
    assert not tier.put(key(20), sized(50), returns=False)
    assert tier.get(key(0)) is not None
    assert tier.held == 90


def test_an_image_that_came_once_makes_room_for_one_that_returns() -> None:
    tier = MemoryTier(budget=100)
    tier.put(key(0), sized(60), returns=True)
    tier.put(key(1), sized(40), returns=False)
    tier.put(key(2), sized(40), returns=True)
    assert [tier.get(key(number)) is not None for number in range(3)] == [True, False, True]


def test_one_that_came_once_and_is_used_is_one_that_returns() -> None:
    tier = MemoryTier(budget=100)
    tier.put(key(0), sized(60), returns=False)
    tier.get(key(0))
    assert not tier.put(key(1), sized(60), returns=False)


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    tier = MemoryTier(budget=0)
    assert not tier.put(KEY, sized(1))
    assert tier.get(KEY) is None


def test_what_is_dropped_frees_its_bytes() -> None:
    tier = MemoryTier(budget=100)
    tier.put(KEY, sized(60))
    tier.drop(KEY)
    assert (tier.get(KEY), tier.held) == (None, 0)


def test_features_that_are_no_numbers_are_not_kept() -> None:
    recorder = Recorder()
    cache = caching(recorder)
    cache.write(KEY, torch.full(SHAPE, float("nan")))
    assert look_up(cache, KEY) is None
    cache.write(KEY, FEATURES)
    assert look_up(cache, KEY) is FEATURES
    assert recorder.reads == [(FeatureTier.MISS, 0), (FeatureTier.MEMORY, FEATURES.nbytes)]


def test_a_stream_of_single_images_leaves_the_known_ones_in_place() -> None:
    cache = caching(Recorder(), budget=3 * FEATURES.nbytes)
    for number in range(2):
        assert look_up(cache, key(number), Reuse(expected=2)) is None
        cache.write(key(number), FEATURES)
    for number in range(2, 50):
        assert look_up(cache, key(number)) is None
        cache.write(key(number), FEATURES)
    assert all(look_up(cache, key(number)) is not None for number in range(2))


def test_a_second_sighting_makes_an_image_one_that_returns() -> None:
    cache = caching(Recorder(), budget=FEATURES.nbytes)
    for number in (0, 1, 0):
        look_up(cache, key(number))
        cache.write(key(number), FEATURES)
    look_up(cache, key(2))
    cache.write(key(2), FEATURES)
    assert look_up(cache, key(0)) is not None


def test_every_part_of_a_key_changes_its_name() -> None:
    others = [
        replace(KEY, **{name: f"{value}x"})
        for name, value in zip(KEY.__annotations__, astuple(KEY), strict=True)
    ]
    assert len({KEY.name, *(other.name for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bytes_come_back_as_the_same_tensor(dtype: torch.dtype) -> None:
    tensor = FEATURES.to(dtype)
    assert torch.equal(open_kept(pack("name", Kept(tensor)), dtype=dtype), tensor)


@settings(deadline=None)
@given(st.sampled_from([torch.float32, torch.bfloat16]), st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_eight_bits_are_within_half_a_step_of_each_token(dtype: torch.dtype, size: float, seed: int) -> None:
    features = (size * torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))).to(dtype)
    found = open_kept(pack("name", keep(features, Format.INT8)), dtype=dtype, form=Format.INT8)
    step = features.float().abs().amax(-1, keepdim=True) / 127
    rounding = step * (1 if dtype is torch.bfloat16 else 1e-3)
    assert found.dtype is dtype
    assert bool(((found.float() - features.float()).abs() <= step / 2 + rounding).all())


def test_a_token_of_zeros_stays_one_in_eight_bits() -> None:
    assert torch.equal(restore(keep(torch.zeros(SHAPE), Format.INT8), torch.float32), torch.zeros(SHAPE))


@pytest.mark.parametrize("packed", [PACKED, EIGHT_BITS], ids=["native", "int8"])
@settings(deadline=None)
@given(data=st.data(), change=st.integers(1, 255))
def test_no_damaged_byte_goes_unnoticed(packed: bytes, data: st.DataObject, change: int) -> None:
    place = data.draw(st.integers(0, len(packed) - 1))
    form = Format.NATIVE if packed is PACKED else Format.INT8
    damaged = packed[:place] + bytes([packed[place] ^ change]) + packed[place + 1 :]
    try:
        found = open_kept(damaged, form=form)
    except RefusedBytes:
        return
    assert torch.equal(found, open_kept(packed, form=form))  # white space or an unread name of the header


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(Format))
def test_foreign_bytes_are_refused(data: bytes, form: Format) -> None:
    with pytest.raises(RefusedBytes):
        open_kept(data, form=form)


def test_bytes_are_refused_under_another_name_shape_type_or_format() -> None:
    with pytest.raises(RefusedBytes, match="name"):
        open_kept(PACKED, name="other")
    with pytest.raises(RefusedBytes, match="shape"):
        open_kept(PACKED, shape=(4, 3, 2))
    with pytest.raises(RefusedBytes, match="shape"):
        open_kept(PACKED, dtype=torch.bfloat16)
    with pytest.raises(RefusedBytes, match="format"):
        open_kept(PACKED, form=Format.INT8)
    with pytest.raises(RefusedBytes, match="format"):
        open_kept(EIGHT_BITS)


@pytest.mark.parametrize(
    ("reuse", "stays", "shared"),
    [
        (Reuse(), False, False),
        (Reuse(expected=10), True, False),
        (Reuse(expected=10, later=1), True, True),
        (Reuse(seen=True), True, True),
    ],
    ids=["one use", "uses of this chunk only", "later uses", "second sighting"],
)
def test_who_is_admitted(reuse: Reuse, stays: bool, shared: bool) -> None:
    assert (returns(reuse), worth_sharing(reuse, awaited=False)) == (stays, shared)
    assert worth_sharing(reuse, awaited=True)


def test_sightings_forget_but_never_grow() -> None:
    sightings = Sightings(capacity=10)
    assert [sightings.again(name) for name in ("a", "b", "a")] == [False, False, True]
    assert not any(sightings.again(number) for number in range(100))
    assert not sightings.again("a")
    assert sightings.size <= 20


def test_a_share_of_hits_is_checked() -> None:
    draws = iter([0.05, 0.2, 0.099])
    checks = FeatureChecks(share=0.1, observer=Recorder(), draw=lambda: next(draws))
    assert [checks.should_check() for _ in range(3)] == [True, False, True]
    assert not FeatureChecks(share=0, observer=Recorder(), draw=lambda: 0.0).should_check()


@pytest.mark.parametrize("form", Format)
def test_a_check_tells_rounding_from_another_picture(form: Format) -> None:
    recorder = Recorder()
    checks = FeatureChecks(share=1, observer=recorder)
    fresh, other = torch.randn(4, 6, 64), torch.randn(4, 6, 64)
    assert checks.matches(restore(keep(fresh, form), torch.float32), fresh, form=form)
    assert not checks.matches(restore(keep(other, form), torch.float32), fresh, form=form)
    assert not checks.matches(torch.full_like(fresh, float("nan")), fresh, form=form)
    assert recorder.checked == [True, False, False]


def test_a_wrong_entry_is_dropped() -> None:
    recorder = Recorder()
    cache = caching(recorder, checks=FeatureChecks(share=1, observer=recorder))
    cache.write(KEY, -FEATURES)
    found = look_up(cache, KEY)
    assert found is not None
    compare = cache.check(KEY, found)
    assert compare is not None
    compare(FEATURES)
    assert recorder.checked == [False]
    assert look_up(cache, KEY) is None


def test_the_tower_s_time_is_told_by_images_of_the_same_size() -> None:
    speed = EncodeSpeed()
    assert speed.estimate(1000) == 0.0
    speed.record(images=2, visual_tokens=200, seconds=0.2)
    speed.record(images=1, visual_tokens=1000, seconds=3.0)
    assert speed.estimate(100) == pytest.approx(0.1)
    assert speed.estimate(1000) == pytest.approx(3.0)
    assert speed.estimate(4000) == pytest.approx(12.0)


def test_the_tower_s_time_follows_what_is_measured() -> None:
    speed = EncodeSpeed()
    for seconds in [1.0, *[2.0] * 100]:
        speed.record(images=1, visual_tokens=100, seconds=seconds)
    assert speed.estimate(100) == pytest.approx(2.0, rel=0.01)


def test_a_tripped_breaker_closes_after_its_pause() -> None:
    now = [100.0]
    breaker = Breaker(pause_s=5, clock=lambda: now[0])
    assert breaker.closed()
    breaker.trip()
    assert not breaker.closed()
    now[0] = 105.0
    assert breaker.closed()
