"""Places that tenants share."""

from hypothesis import given
from hypothesis import strategies as st

from app.shares import Places

TENANTS = "abcdefgh"


def taken(places: Places, tenant: str) -> int:
    """How many a tenant gets who asks for ever more."""
    held = 0
    while places.take(tenant):
        held += 1
    return held


def test_each_newcomer_finds_a_place() -> None:
    places = Places(16)
    assert [taken(places, tenant) for tenant in "abcde"] == [8, 4, 2, 1, 1]
    assert not places.take("f")


def test_a_place_that_is_left_is_free_for_another() -> None:
    places = Places(1)
    assert [places.take("a"), places.take("b")] == [True, False]
    places.leave("a")
    assert [places.take("b"), places.take("a")] == [True, False]


@given(most=st.integers(1, 20), asked=st.lists(st.sampled_from(TENANTS), max_size=60))
def test_nobody_takes_more_than_half_and_a_newcomer_is_refused_only_when_all_are_taken(
    most: int, asked: list[str]
) -> None:
    places, held = Places(most), dict.fromkeys(TENANTS, 0)
    for tenant in asked:
        is_full = sum(held.values()) == most
        is_in = places.take(tenant)
        assert is_in or is_full or held[tenant]
        held[tenant] += is_in
    assert max(held.values()) <= (most + 1) // 2
    assert sum(held.values()) <= most
