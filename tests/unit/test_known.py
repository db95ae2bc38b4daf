"""Ready jobs are given what is known, wait for what is on its way, or are sent; each exactly one of these."""

from collections.abc import Mapping
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from app.answer_keys import READ, WRITE
from app.known import RANKS, Sight, find_keys, sort_out
from app.planner import Lane
from app.states import Priority
from app.store.answer_cache import Known
from app.store.images import ImageRow
from app.store.plans import Candidate

KEYS = [b"a", b"b", b"c"]
PRIORITIES = st.sampled_from(list(Priority))


def candidate(
    job_id: int, cache: int = READ | WRITE, *, alone: bool = False, priority: str = "standard"
) -> Candidate:
    lane = Lane("demo", Priority(priority))
    return Candidate(job_id, lane, [1], alone, "tenant_a", cache, b"question" if cache else None)


def images(*ids: int) -> Mapping[int, ImageRow]:
    return {number: ImageRow(number, "tenant_a", f"hash {number}", 4, 4) for number in ids}


def test_of_jobs_that_ask_the_same_one_is_sent_and_the_others_wait() -> None:
    jobs = [candidate(number) for number in (1, 2, 3)]
    found = sort_out(jobs, dict.fromkeys((1, 2, 3), b"a"), {}, {})
    assert [one.id for one in found.asked] == [1]
    assert found.waiting == [(2, b"a"), (3, b"a")]
    assert found.keys == {1: b"a"}


def test_what_is_kept_is_given_to_who_may_take_it() -> None:
    jobs = [candidate(1, READ), candidate(2, WRITE), candidate(3, 0)]
    found = sort_out(jobs, {1: b"a", 2: b"a"}, {b"a": "print"}, {})
    assert found.known == [Known(1, b"a", "print")]
    assert [one.id for one in found.asked] == [2, 3]
    assert found.keys == {2: b"a"}


def test_who_only_reads_is_asked_without_a_key_and_nobody_waits_for_it() -> None:
    found = sort_out([candidate(1, READ), candidate(2, READ)], {1: b"a", 2: b"a"}, {}, {})
    assert [one.id for one in found.asked] == [1, 2]
    assert found.keys == {}


def test_nobody_waits_for_a_job_of_a_lower_class() -> None:
    asked = {b"a": {Priority.BACKGROUND}}
    standard, leisure = candidate(1), candidate(2, priority="background")
    found = sort_out([standard, leisure], {1: b"a", 2: b"a"}, {}, asked)
    assert ([one.id for one in found.asked], found.waiting) == ([1], [(2, b"a")])


def test_a_job_that_must_travel_alone_waits_for_nobody() -> None:
    found = sort_out([candidate(1, alone=True)], {1: b"a"}, {}, {b"a": {Priority.STANDARD}})
    assert [one.id for one in found.asked] == [1]


def test_the_own_images_answer_goes_before_that_of_the_nearest_that_looks_the_same() -> None:
    sights = {1: Sight([(b"b", "near"), (b"c", "further")])}
    kept = {b"a": "print", b"b": "print", b"c": "print"}
    for about, key in ((None, b"a"), ("near", b"b"), ("further", b"c")):
        found = sort_out([candidate(1)], {1: b"a"}, kept, {}, sights)
        assert found.known == [Known(1, key, "print", about)]
        del kept[key]


def test_of_jobs_whose_images_look_the_same_one_is_sent_under_its_own_key() -> None:
    sights = {1: Sight([(b"b", "two")]), 2: Sight([(b"a", "one")])}
    found = sort_out([candidate(1), candidate(2)], {1: b"a", 2: b"b"}, {}, {}, sights)
    assert ([one.id for one in found.asked], found.waiting) == ([1], [(2, b"a")])
    assert found.keys == {1: b"a"}


def test_a_job_whose_image_nobody_has_seen_waits_for_that_unless_it_must_travel_alone() -> None:
    jobs = [candidate(1), candidate(2, alone=True)]
    sights = {1: Sight(unseen=b"look"), 2: Sight(unseen=b"look")}
    found = sort_out(jobs, {1: b"a", 2: b"b"}, {}, {}, sights)
    assert ([one.id for one in found.asked], found.waiting) == ([2], [(1, b"look")])


def test_who_asks_anew_is_given_nothing_of_near_duplicates() -> None:
    found = sort_out([candidate(1, WRITE)], {1: b"a"}, {b"b": "print"}, {}, {1: Sight([(b"b", "near")])})
    assert [one.id for one in found.asked] == [1]


def test_a_job_whose_image_is_gone_has_no_key() -> None:
    assert find_keys([candidate(1)], images(), ()) == {}


def test_tenants_that_share_have_the_same_keys_and_others_not() -> None:
    mine, yours = candidate(1), Candidate(2, Lane("demo"), [1], False, "tenant_b", READ, b"question")
    apart = find_keys([mine, yours], images(1), ())
    assert apart[1] != apart[2]
    together = find_keys([mine, yours], images(1), {"tenant_a", "tenant_b"})
    assert together[1] == together[2]


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.booleans(), PRIORITIES, st.sampled_from(KEYS))),
    st.sets(st.sampled_from(KEYS)),
    st.dictionaries(st.sampled_from(KEYS), st.sets(PRIORITIES)),
)
def test_every_job_is_given_waits_or_is_sent_and_who_waits_has_somebody_to_wait_for(
    wishes: list[tuple[int, bool, Priority, bytes]], kept: set[bytes], asked: dict[bytes, set[Priority]]
) -> None:
    jobs = [
        candidate(number, cache, alone=alone, priority=priority)
        for number, (cache, alone, priority, _) in enumerate(wishes)
    ]
    keys = {number: wish[3] for number, wish in enumerate(wishes) if wish[0]}
    found = sort_out(jobs, keys, dict.fromkeys(kept, "print"), asked)
    groups = [
        [one.job_id for one in found.known],
        [row[0] for row in found.waiting],
        [one.id for one in found.asked],
    ]
    assert sorted(chain(*groups)) == list(range(len(jobs)))
    by_id = {one.id: one for one in jobs}
    for job_id, key in found.waiting:
        sent = {by_id[other].lane.priority for other, its in found.keys.items() if its == key}
        rank = RANKS[by_id[job_id].lane.priority]
        assert any(RANKS[one] <= rank for one in sent | asked.get(key, set()))
