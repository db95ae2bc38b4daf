"""The page of two batches side by side."""

import html
import json
import re

import pytest

from app.auth import Keys
from app.console import compare
from app.console.compare import Comparisons
from app.db import Sessions
from app.store.console_compare import PairFilters
from tests.console import Visitor, visiting
from tests.labelled import SCHEMA, Labelled
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"
PAGE = "/compare?a=batch_1&b=batch_2"
ANSWERS = {
    "batch_1": {"same": "red", "alike": "Dark  Blue", "differing": "red", "only_a": "red", "missing": "red"},
    "batch_2": {"same": "red", "alike": "dark blue ", "differing": "blue", "only_b": "red", "extra": "red"},
}
UNANSWERED = {"batch_1": ["only_b", "neither"], "batch_2": ["only_a", "neither"]}


@pytest.fixture
def rows(mine: Labelled) -> Rows:
    """Two batches, named by what became of each item."""
    for batch, answers in ANSWERS.items():
        mine.batch(batch)
        for name, text in answers.items():
            mine.answer(text, batch_id=batch, custom_id=name)
        for name in UNANSWERED[batch]:
            mine.rows.fail(*mine.rows.add_jobs(1, batch_id=batch, custom_id=name))
    return mine.rows


def shown(page: str) -> list[str]:
    return re.findall(r'class="shared">.*?class="line-no">([^<]*)<', page, re.S)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["differing", "only_a", "only_b"]),
        ({"show": "differing"}, ["differing"]),
        ({"show": "unanswered"}, ["only_a", "only_b", "neither"]),
        ({"show": "same"}, ["same", "alike"]),
        ({"show": "missing"}, ["missing"]),
        ({"show": "nonsense", "after": "x"}, ["differing", "only_a", "only_b"]),
        ({"text": "BLUE"}, ["differing"]),
        ({"text": "only_"}, ["only_a", "only_b"]),
        ({"label": "=blue"}, ["differing"]),
        ({"label": "=blue", "show": "same"}, []),
    ],
)
def test_items_are_shown_by_how_they_compare(
    visitor: Visitor, rows: Rows, query: dict[str, str], names: list[str]
) -> None:
    page = visitor.get("/compare", a="batch_1", b="batch_2", **query)
    assert page.status_code == 200
    assert shown(page.text) == names


def test_the_page_tells_how_often_both_agree(visitor: Visitor, rows: Rows) -> None:
    page = re.sub(r"\s+", " ", visitor.get(PAGE).text)
    assert '<strong class="rate">66.7 %</strong> of 3 items' in page
    facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>(\d+)</dd>", page))
    assert facts == {
        "Alike": "2",
        "Different": "1",
        "Answered in A only": "1",
        "Answered in B only": "1",
        "Answered in neither": "1",
        "Not in B": "1",
        "Not in A": "1",
    }
    assert 'id="agreement" class="card" data-live="0"' in page


def test_an_agreement_is_counted_on_from_call_to_call(
    db: Sessions, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "TALLY_PIECE", 3)
    monkeypatch.setattr(compare, "TALLY_S", 0)
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    desk = Comparisons(sessions=db, clock=clock)
    told = [desk.agreement("batch_1", "batch_2", is_open=True) for _ in range(4)]
    assert [one.looked for one in told] == [3, 6, 7, 7]
    assert [one.is_done for one in told] == [False, False, True, True]
    now[0] += 100
    assert desk.agreement("batch_1", "batch_2", is_open=True).looked == 3


def test_pages_of_differences_join(db: Sessions, mine: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PAGE", 4)
    monkeypatch.setattr(compare, "PIECES", (3, 5))
    monkeypatch.setattr(compare, "MOST_LOOKED", 8)
    for batch in ("batch_1", "batch_2"):
        mine.batch(batch)
        ids = mine.rows.add_jobs(40, batch_id=batch)
        mine.rows.complete(*ids[::2], text="red")
        mine.rows.complete(*ids[1::2], text=batch if batch == "batch_1" else "blue")
    desk, differing = Comparisons(sessions=db), PairFilters(["differing"])
    lines: list[int] = []
    after: int | None = 0
    before: int | None
    while after is not None:
        page = desk.find("batch_1", "batch_2", differing, at=after)
        lines += [pair.line for pair in page.pairs]
        after = page.line
    assert lines == list(range(2, 41, 2))
    lines, before = [], 41
    while before is not None:
        page = desk.find("batch_1", "batch_2", differing, at=before, backwards=True)
        lines = [pair.line for pair in page.pairs] + lines
        before = page.line
    assert lines == list(range(2, 41, 2))


def test_the_page_before_is_a_link_away(
    visitor: Visitor, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "PAGE", 1)

    def turn(page: str, way: str) -> str:
        link = html.unescape(re.findall(rf'href="([^"]*)" rel="{way}"', page)[0])
        return visitor.get(link).text

    first = visitor.get(PAGE).text
    second = turn(first, "next")
    third = turn(second, "next")
    back = turn(turn(third, "prev"), "prev")
    assert [shown(page) for page in (first, second, third)] == [["differing"], ["only_a"], ["only_b"]]
    assert (shown(back), 'rel="prev"' in back, 'rel="prev"' in first) == (["differing"], False, False)
    assert shown(turn(back, "next")) == ["only_a"]


def test_labels_that_differ_are_marked(visitor: Visitor, mine: Labelled) -> None:
    for batch, colour in (("batch_1", "red"), ("batch_2", "blue")):
        mine.batch(batch)
        mine.answer(json.dumps({"colour": colour, "worn": True}), batch_id=batch, constraint=SCHEMA)
    marked = re.findall(
        r'class="chip differs"><span class="field">(\w+)</span> (\w+)', visitor.get(PAGE).text
    )
    assert marked == [("colour", "red"), ("colour", "blue")]


def test_a_batch_is_compared_from_its_page(visitor: Visitor, rows: Rows) -> None:
    page = visitor.get("/batches/batch_1").text
    assert '<input type="hidden" name="a" value="batch_1">' in page
    assert re.findall(r'<option value="(batch_\d)"', page) == ["batch_2"]


@pytest.mark.parametrize("query", ["", "?a=batch_1", "?a=batch_1&b=batch_1"])
def test_without_two_batches_there_is_a_choice(visitor: Visitor, rows: Rows, query: str) -> None:
    page = visitor.get(f"/compare{query}").text
    assert set(re.findall(r'<option value="(batch_\d)"', page)) == {"batch_1", "batch_2"}


def test_a_choice_of_batches_tells_their_time_as_elsewhere_and_marks_retries(
    visitor: Visitor, rows: Rows
) -> None:
    rows.run("UPDATE batches SET created_at = '2026-11-01 10:00Z'")
    rows.run("UPDATE batches SET retry_of = 'batch_1' WHERE id = 'batch_2'")
    page = visitor.get("/compare").text
    options = re.findall(r'data-utc="2026-11-01 10:00 UTC" [a-z]*>([^<]*)</option>', page)
    ends = {(" (retry) · " in one, one.endswith(" · 2026-11-01 10:00 UTC")) for one in options[:2]}
    assert ends == {(True, True), (False, True)}


def test_batches_without_a_common_item_say_so(visitor: Visitor, mine: Labelled) -> None:
    for name in ("here", "there"):
        mine.answer("red", batch_id=mine.batch(name), custom_id=f"only {name}")
    page = visitor.get("/compare", a="here", b="there").text
    assert ("Nothing in common" in page, "No differences" in page) == (True, False)


def test_with_one_batch_there_is_nothing_to_choose(visitor: Visitor, mine: Labelled) -> None:
    mine.batch("batch_1")
    assert "Nothing to compare yet" in visitor.get("/compare").text


def test_another_tenants_batch_is_not_found(api_url: str, db: Sessions, rows: Rows) -> None:
    key = Keys(sessions=db).create(tenant="Stranger", name="s").secret
    with visiting(api_url, key) as stranger:
        for query in ("?a=batch_1", "?b=batch_1", "?a=batch_1&b=batch_2"):
            assert stranger.get(f"/compare{query}").status_code == 404


def test_what_clients_and_models_say_is_never_markup(visitor: Visitor, mine: Labelled) -> None:
    for batch in ("batch_1", "batch_2"):
        mine.batch(batch)
        answer = json.dumps({EVIL: f"{EVIL}{batch}"})
        mine.answer(answer, batch_id=batch, custom_id=EVIL, constraint=SCHEMA)
        mine.rows.fail(*mine.rows.add_jobs(1, batch_id=batch), code=EVIL)
    mine.rows.run("UPDATE batches SET metadata = jsonb_build_object('name', CAST(:e AS text))", e=EVIL)
    for path in (f"{PAGE}&text={EVIL}&label={EVIL}={EVIL}", PAGE, "/compare", f"{PAGE}&show=unanswered"):
        page = visitor.get(path)
        assert page.status_code == 200, path
        assert EVIL not in page.text
        assert "&lt;script&gt;" in page.text
