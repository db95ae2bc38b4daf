"""A cascade asks the large model where the small one is unsure, as a labelled sample has taught it."""

import math
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.calibration import Trial, calibrate, choose, curve, fit, judge, split
from app.cascade import MOST_STEPS, Cascade, calibrated, probability

SHARES = st.floats(0, 1)


def trial(number: int, probability: float, *, small: bool = True, large: bool = True) -> Trial:
    return Trial(
        id=f"q{number}",
        about=f"picture {number}",
        label="red",
        small="Red " if small else "blue",
        probability=probability,
        small_s=1.0,
        large="red" if large else "blue",
        large_s=4.0,
    )


TRIALS = st.lists(st.tuples(SHARES, st.booleans(), st.booleans()), max_size=40).map(
    lambda rows: [trial(n, p, small=s, large=b) for n, (p, s, b) in enumerate(rows)]
)


def sample(count: int = 400) -> list[Trial]:
    """The small model is right as often as it says, the large one nearly always."""
    random = Random(3)
    chances = [random.random() for _ in range(count)]
    return [
        trial(n, chance, small=random.random() < chance, large=random.random() < 0.97)
        for n, chance in enumerate(chances)
    ]


def test_an_answer_is_as_sure_as_all_its_tokens_together() -> None:
    tokens = [("a", math.log(0.5), []), ("b", math.log(0.4), [])]
    assert probability(tokens) == pytest.approx(0.2)
    assert Cascade("small", 0.5).confidence(tokens) == pytest.approx(0.2)


def test_a_model_that_does_not_say_how_sure_it_is_is_not_sure() -> None:
    cascade = Cascade("small", 0.5, ((0.0, 0.9),))
    assert not cascade.is_sure(cascade.confidence(None))
    assert not cascade.is_sure(cascade.confidence([]))


def test_a_step_holds_from_its_probability_up() -> None:
    steps = ((0.2, 0.1), (0.6, 0.8))
    assert [calibrated(steps, value) for value in (0.0, 0.2, 0.59, 0.6, 1.0)] == [0.1, 0.1, 0.1, 0.8, 0.8]


def test_a_cascade_is_read_as_it_was_stored() -> None:
    cascade = Cascade("small", 0.7, ((0.1, 0.2), (0.5, 0.9)))
    assert Cascade.of(cascade.stored()) == cascade


@given(TRIALS)
def test_what_is_learned_rises_and_keeps_the_share_of_right_answers(trials: list[Trial]) -> None:
    steps = fit(trials)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(steps))
    told = sum(calibrated(steps, one.probability) for one in trials)
    assert told == pytest.approx(sum(one.small_is_right for one in trials))


def test_so_many_steps_are_thinned_to_what_the_api_takes() -> None:
    trials = [trial(n, n / 1000, small=Random(n).random() < n / 1000) for n in range(1000)]
    assert len(fit(trials * 5)) <= MOST_STEPS


@given(TRIALS)
def test_asking_never_and_always_are_the_ends_of_the_curve(trials: list[Trial]) -> None:
    points = curve(trials, fit(trials))
    assert points[0].judged.escalated == 0
    assert points[0].judged.cascade_accuracy == points[0].judged.small_accuracy
    if trials:
        assert points[-1].judged.escalated == 1
        assert points[-1].judged.cascade_accuracy == points[-1].judged.large_accuracy
    assert [p.judged.escalated for p in points] == sorted(p.judged.escalated for p in points)


@given(TRIALS, st.floats(0, 0.2))
def test_what_is_chosen_keeps_the_accuracy_and_nothing_cheaper_does(
    trials: list[Trial], tolerance: float
) -> None:
    points = curve(trials, fit(trials))
    chosen = choose(points, tolerance=tolerance).judged
    assert chosen.cascade_accuracy >= chosen.large_accuracy - tolerance
    for point in points:
        if point.judged.model_s_ratio < chosen.model_s_ratio:
            assert point.judged.cascade_accuracy < point.judged.large_accuracy - tolerance


def test_a_question_is_learned_from_or_judged_by_but_never_both() -> None:
    trials = sample()
    learned, kept = split(trials)
    assert not {one.id for one in learned} & {one.id for one in kept}
    assert len(learned) + len(kept) == len(trials)
    assert split(trials[::-1])[0] == learned[::-1]


def test_what_is_asked_again_under_another_id_is_on_the_same_side() -> None:
    again = [replace(one, id=f"{one.id} again") for one in sample()]
    learned, kept = split([*sample(), *again])
    assert not {one.about for one in learned} & {one.about for one in kept}
    assert len(learned) % 2 == len(kept) % 2 == 0


def test_a_calibrated_cascade_keeps_the_accuracy_for_less_on_questions_it_has_not_seen() -> None:
    cascade, judged = calibrate("small", sample(4000), tolerance=0.05)
    assert 0 < cascade.threshold < 1
    assert judged.large_accuracy - judged.cascade_accuracy < 0.07
    assert judged.model_s_ratio < 1


def test_too_few_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        calibrate("small", sample(30), tolerance=0.01)


def test_seconds_are_those_of_the_small_model_and_of_the_large_one_where_it_was_asked() -> None:
    trials = [trial(0, 0.9), trial(1, 0.1, small=False)]
    judged = judge(trials, (), 0.5)
    assert (judged.escalated, judged.cascade_accuracy, judged.small_accuracy) == (0.5, 1.0, 0.5)
    assert judged.model_s_ratio == pytest.approx((2 * 1.0 + 4.0) / 8.0)
