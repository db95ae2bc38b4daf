"""What is read at once is cut to a size: nothing lost, nothing moved."""

from hypothesis import given
from hypothesis import strategies as st

from app.parts import in_parts
from app.states import JobState
from app.store.exports import Place


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 30))
def test_parts_are_small_and_have_everything_in_order(sizes: list[int], most: int) -> None:
    places = [Place(number, number, None, JobState.READY) for number in range(len(sizes))]
    parts = list(in_parts(places, dict(enumerate(sizes)), most=most))
    assert [place for part in parts for place in part] == places
    for part in parts:
        assert len(part) == 1 or sum(sizes[place.job_id] for place in part) <= most
