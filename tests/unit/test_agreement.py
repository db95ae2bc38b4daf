"""Two sides agree on what both answered, to the letter or but for case and space, in all and by kind."""

import json

from hypothesis import given
from hypothesis import strategies as st

from app.agreement import Comparison, Question, Reply, Side, as_json, last_line


def comparison(*rows: tuple[str | None, str | None, str | None]) -> Comparison:
    """Rows of kind, answer of a, answer of b; no answer is an error."""
    questions = [Question("id", "text", kind) for kind, _, _ in rows]
    return Comparison(
        questions,
        Side("first", [_reply(a) for _, a, _ in rows], wall_s=2.0, cpu_s=1.0),
        Side("second", [_reply(b) for _, _, b in rows], wall_s=0.5, cpu_s=4.0),
    )


def _reply(text: str | None) -> Reply:
    return Reply(text, "out_of_memory" if text is None else "stop")


def test_case_and_space_count_for_exact_agreement_only() -> None:
    found = comparison((None, "red", "red"), (None, "A  red\nmug ", "a red mug"), (None, "red", "blue"))
    agreement = found.agreement()
    assert (agreement.questions, agreement.exact, agreement.normalised) == (3, 1, 2)
    assert [pair.b.text for pair in found.disagreements()] == ["a red mug", "blue"]


def test_a_question_without_an_answer_is_never_agreed_on() -> None:
    found = comparison((None, None, None), (None, "red", None))
    assert (found.agreement().exact, found.agreement().normalised) == (0, 0)
    assert len(found.disagreements()) == 2
    assert found.b.endings() == {"out_of_memory": 2}


def test_kinds_have_shares_of_their_own_in_the_order_of_the_sample() -> None:
    found = comparison(("size", "1", "1"), ("colour", "red", "blue"), (None, "x", "x"), ("size", "2", "3"))
    kinds = found.by_kind()
    assert [(kind, one.questions, one.share) for kind, one in kinds.items()] == [
        ("size", 2, 0.5),
        ("colour", 1, 0.0),
    ]


def test_speed_is_told_per_second_and_per_question() -> None:
    found = comparison((None, "red", "red"), (None, "red", "blue"))
    assert (found.a.per_s, found.a.cpu_s_each, found.b.per_s) == (1.0, 0.5, 4.0)
    assert last_line(found) == "compare: agreement=0.500 a_per_s=1.00 b_per_s=4.00"


def test_the_report_holds_every_disagreement_whole() -> None:
    long = "red " * 100
    report = json.loads(json.dumps(as_json(comparison(("colour", long, "blue")))))
    assert report["disagreements"][0]["a"]["text"] == long
    assert report["by_kind"]["colour"]["share"] == 0
    assert report["a"]["model"] == "first"


answers = st.one_of(st.none(), st.sampled_from(["red", "Red", "blue"]))


@given(st.lists(st.tuples(st.sampled_from(["size", "colour", None]), answers, answers)))
def test_nothing_is_lost_between_agreements_and_disagreements(
    rows: list[tuple[str | None, str | None, str | None]],
) -> None:
    found = comparison(*rows)
    agreement = found.agreement()
    assert agreement.exact + len(found.disagreements()) == agreement.questions == len(rows)
    assert agreement.exact <= agreement.normalised
    assert sum(one.questions for one in found.by_kind().values()) == sum(
        kind is not None for kind, *_ in rows
    )
