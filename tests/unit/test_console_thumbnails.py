"""Links to small pictures: ours alone, and for an hour or two."""

from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from app.console.thumbnails import SAME_S, Thumbnail, holds, link, shrink, sign
from app.images import Limits

SECRET = b"s" * 32
ONE = Thumbnail("tenant_a", "ab" * 32, 320, until=7200)


def test_a_link_of_ours_holds_until_its_time() -> None:
    mark = sign(SECRET, ONE)
    assert holds(SECRET, ONE, mark, now=7199)
    assert not holds(SECRET, ONE, mark, now=7200)


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, tenant_id="tenant_b"),
        replace(ONE, content_hash="cd" * 32),
        replace(ONE, side=1600),
        replace(ONE, until=9999),
    ],
)
def test_a_link_holds_for_nothing_else(other: Thumbnail) -> None:
    assert not holds(SECRET, other, sign(SECRET, ONE), now=0)


def test_another_secret_signs_nothing_for_us() -> None:
    assert not holds(SECRET, ONE, sign(b"t" * 32, ONE), now=0)


@given(st.integers(min_value=0, max_value=10**10), st.integers(min_value=0, max_value=SAME_S - 1))
def test_a_link_is_the_same_within_the_hour_and_holds_for_one_more(hour: int, second: int) -> None:
    start = hour // SAME_S * SAME_S
    first, then = (link(SECRET, "t", "h", 320, now=start + later) for later in (0, second))
    assert first == then
    until = int(first.partition("until=")[2].partition("&")[0])
    assert SAME_S <= until - (start + second) <= 2 * SAME_S


@pytest.mark.parametrize(("size", "made"), [((3000, 1500), (320, 160)), ((40, 20), (40, 20))])
def test_a_picture_is_made_smaller_and_never_larger(size: tuple[int, int], made: tuple[int, int]) -> None:
    original = BytesIO()
    Image.new("RGB", size, "red").save(original, "JPEG")
    small = Image.open(BytesIO(shrink(original.getvalue(), Limits(), 320)))
    assert (small.format, small.size) == ("WEBP", made)
