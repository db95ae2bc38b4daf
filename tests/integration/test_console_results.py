"""Pages of results: what the grid shows, how it goes on, and what its filters find."""

import json
import re

import pytest

from app.auth import Keys
from app.console import results
from app.console.results import Results
from app.db import Sessions
from app.ids import job_name
from app.store.console_results import Filters
from tests.console import Visitor, visiting
from tests.labelled import CHOICE, SCHEMA, Labelled
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"
HASH = "ab" * 32
PAGE = "/batches/batch_1/results"


@pytest.fixture
def rows(mine: Labelled) -> Rows:
    mine.batch("batch_1")
    return mine.rows


def shown(page: str) -> list[str]:
    """The cards by their jobs."""
    return re.findall(r'class="open" id="(job_[0-9a-f]+)"', page)


def link(page: str, rel: str) -> str | None:
    found = re.search(rf'href="([^"]+)" rel="{rel}"', page)
    return found[1].replace("&amp;", "&") if found else None


def test_a_card_has_picture_question_answer_and_labels(visitor: Visitor, rows: Rows, mine: Labelled) -> None:
    image = rows.add_image(HASH)
    job = mine.answer("red", batch_id="batch_1", image_ids=[image])
    page = visitor.get(PAGE).text
    assert shown(page) == [job]
    assert f"/images/{HASH}?job={job}" in page
    assert f"/thumbnails/{rows.tenant}/{HASH}/320?until=" in page
    for said in ("Hello?", 'href="/batches/batch_1/results?label=%3Dred"'):
        assert said in page
    assert page.count(">red<") == 1


def test_a_batch_without_jobs_says_so(visitor: Visitor, rows: Rows) -> None:
    assert "No jobs yet" in visitor.get(PAGE).text


def test_another_tenants_batch_and_its_jobs_are_not_there(
    api_url: str, db: Sessions, rows: Rows, mine: Labelled
) -> None:
    image = rows.add_image(HASH)
    job = mine.answer("red", batch_id="batch_1", image_ids=[image])
    key = Keys(sessions=db).create(tenant="Stranger", name="s").secret
    with visiting(api_url, key) as stranger:
        for path in (PAGE, f"{PAGE}/{job}", f"/images/{HASH}"):
            assert stranger.get(path).status_code == 404, path


def test_pages_follow_each_other_and_lead_back(visitor: Visitor, rows: Rows) -> None:
    ids = [job_name(one) for one in rows.add_jobs(130, batch_id="batch_1")]
    first = visitor.get(PAGE).text
    second = visitor.get(link(first, "next") or "").text
    third = visitor.get(link(second, "next") or "").text
    assert [*shown(first), *shown(second), *shown(third)] == ids
    assert [link(first, "prev"), link(third, "next")] == [None, None]
    back = visitor.get(link(third, "prev") or "").text
    assert shown(back) == ids[60:120]
    assert shown(visitor.get(link(back, "prev") or "").text) == ids[:60]
    assert shown(visitor.get(link(back, "next") or "").text) == ids[120:]


def test_a_page_stays_what_it_is_while_jobs_end(visitor: Visitor, rows: Rows) -> None:
    ids = rows.add_jobs(70, batch_id="batch_1")
    before = shown(visitor.get(PAGE).text)
    rows.complete(*ids[40:])
    rows.fail(ids[0])
    assert shown(visitor.get(PAGE).text) == before == [job_name(one) for one in ids[:60]]


@pytest.fixture
def varied(rows: Rows, mine: Labelled) -> dict[str, str]:
    """Jobs that differ in whatever is filtered by; a second batch has the same, and must never be seen."""
    mine.batch("batch_2")
    for batch in ("batch_2", "batch_1"):
        found = {
            "red": mine.answer("red", batch_id=batch),
            "blue": mine.answer("blue", batch_id=batch),
            "worn": mine.answer('{"colour": "red", "worn": true}', batch_id=batch, constraint=SCHEMA),
            "text": mine.answer("It costs 100% of Zürich's \\ Geld", batch_id=batch, constraint=None),
        }
        failed, gone, found_open = rows.add_jobs(3, batch_id=batch)
        rows.fail(failed, code="bad_prompt")
        rows.fail(gone, code="image_not_found")
        found |= {"failed": job_name(failed), "gone": job_name(gone), "open": job_name(found_open)}
    prompt = {"turns": [{"role": "user", "parts": [{"text": "Ist es eine 红色 Glühbirne 💡?"}]}]}
    number = int(found["blue"].removeprefix("job_"), 16)
    rows.run("UPDATE jobs SET prompt = :p WHERE id = :id", id=number, p=json.dumps(prompt))
    rows.run("UPDATE answers SET confidence = 0.4 WHERE job_id = :id", id=number)
    for name, verdict in (("red", "confirm"), ("worn", "overturn")):
        rows.run(
            "INSERT INTO reviews (job_id, field, tenant_id, verdict, label) VALUES (:id, :f, :t, :v, :l)",
            id=int(found[name].removeprefix("job_"), 16),
            f="colour" if name == "worn" else "",
            t=rows.tenant,
            v=verdict,
            l='"blue"' if verdict == "overturn" else None,
        )
    return found


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"label": "=red"}, ["red"]),
        ({"label": "colour=red"}, ["worn"]),
        ({"label": "colour=absent"}, []),
        ({"field": "=worn"}, ["worn"]),
        ({"field": "="}, ["red", "blue"]),
        ({"outcome": "answered"}, ["red", "blue", "worn", "text"]),
        ({"outcome": "failed"}, ["failed", "gone"]),
        ({"outcome": "open"}, ["open"]),
        ({"outcome": "code:image_not_found"}, ["gone"]),
        ({"outcome": "code:image_not_found", "label": "=red"}, []),
        ({"below": "0.5"}, ["blue"]),
        ({"below": "50 %"}, ["blue"]),
        ({"below": "0,3"}, []),
        ({"review": "confirmed"}, ["red"]),
        ({"review": "overturned"}, ["worn"]),
        ({"review": "overturned", "field": "=worn"}, []),
        ({"review": "none"}, ["blue", "worn"]),
        ({"review": "none", "label": "colour=red"}, []),
        ({"text": "COSTS"}, ["text"]),
        ({"text": "100%"}, ["text"]),
        ({"text": "1%%"}, []),
        ({"text": "ZÜRICH"}, ["text"]),
        ({"text": " \\ "}, ["text"]),
        ({"text": "红色"}, ["blue"]),
        ({"text": "GLÜHBIRNE 💡"}, ["blue"]),
        ({"text": "turns"}, []),
        ({"text": "r3"}, ["worn"]),
        ({"text": "red", "review": "overturned"}, ["worn"]),
        ({"label": "%00=x"}, []),
        ({"below": "nan", "outcome": "nonsense", "review": "x", "text": "  "}, None),
    ],
)
def test_filters_find_what_they_say(
    visitor: Visitor, varied: dict[str, str], query: dict[str, str], names: list[str] | None
) -> None:
    wanted = [varied[name] for name in varied] if names is None else [varied[name] for name in names]
    page = visitor.get(PAGE, **query)
    assert page.status_code == 200
    assert shown(page.text) == wanted


@pytest.mark.parametrize("query", [{"below": "0.5"}, {"review": "confirmed"}])
def test_jobs_of_another_batch_between_those_of_one_are_left_out(
    visitor: Visitor, rows: Rows, mine: Labelled, query: dict[str, str]
) -> None:
    mine.batch("batch_2")
    first, _, last = (mine.answer("red", batch_id=f"batch_{number}") for number in (1, 2, 1))
    rows.run("UPDATE answers SET confidence = 0.4")
    rows.run(
        "INSERT INTO reviews (job_id, field, tenant_id, verdict) "
        "SELECT id, '', tenant_id, 'confirm' FROM jobs"
    )
    assert shown(visitor.get(PAGE, **query).text) == [first, last]


def test_labels_are_offered_with_their_counts(visitor: Visitor, varied: dict[str, str]) -> None:
    page = visitor.get(PAGE, label="colour=rare").text
    for option in (">red (1)<", '<optgroup label="worn">', 'value="colour=rare" selected>rare<'):
        assert option in page


def test_a_review_is_told_on_its_label(visitor: Visitor, varied: dict[str, str]) -> None:
    page = visitor.get(PAGE).text
    assert page.count('chip review-confirmed"') == 1
    assert "→ blue" in page


def test_words_are_looked_for_in_pieces_that_join(
    db: Sessions, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forwards and backwards, every find once, whatever a request may look at."""
    monkeypatch.setattr(results, "PIECES", (3, 5))
    monkeypatch.setattr(results, "MOST_LOOKED", 8)
    ids = rows.add_jobs(40, batch_id="batch_1")
    wanted = [one for one in ids if one % 7 == 0]
    rows.complete(*wanted, text="needle")
    desk, words = Results(sessions=db), Filters(text="needle")
    found: list[int] = []
    page = desk.find(rows.tenant, "batch_1", words, at=None)
    while True:
        found += page.ids
        assert page.looked <= 8
        if not page.goes_on:
            break
        page = desk.find(rows.tenant, "batch_1", words, at=page.resume)
    assert found == wanted
    back = desk.find(rows.tenant, "batch_1", words, at=ids[10], backwards=True)
    assert back.ids == [one for one in wanted if ids[2] <= one < ids[10]]
    assert back.line == 3


def test_a_search_says_how_far_it_has_come(
    visitor: Visitor, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "PIECES", (4,))
    monkeypatch.setattr(results, "MOST_LOOKED", 4)
    ids = rows.add_jobs(6, batch_id="batch_1")
    page = visitor.get(PAGE, text="absent").text
    assert "Looked at lines up to 4 of 6." in page
    assert link(page, "next") == f"{PAGE}?text=absent&after={job_name(ids[3])}"
    assert "Nothing fits" in visitor.get(link(page, "next") or "").text


def test_what_clients_and_models_say_is_never_markup(visitor: Visitor, rows: Rows, mine: Labelled) -> None:
    image = rows.add_image(HASH)
    rows.run("UPDATE images SET ref = :evil, ref_kind = 'url'", evil=EVIL)
    rows.run("UPDATE batches SET metadata = jsonb_build_object('name', CAST(:e AS text))", e=EVIL)
    answer = json.dumps({EVIL: EVIL, "tags": [EVIL]})
    job = mine.answer(answer, batch_id="batch_1", image_ids=[image], custom_id=EVIL, constraint=SCHEMA)
    rows.fail(*rows.add_jobs(1, batch_id="batch_1", image_ids=[image], image_group=image), code=EVIL)
    rows.run("UPDATE jobs SET image_group = :image", image=image)
    prompt = {"turns": [{"role": "user", "parts": [{"text": EVIL}]}]}
    rows.run("UPDATE jobs SET prompt = :p", p=json.dumps(prompt))
    for path in (PAGE, f"{PAGE}?label={EVIL}={EVIL}&text={EVIL}", f"{PAGE}/{job}", f"/images/{HASH}"):
        page = visitor.get(path)
        assert page.status_code == 200, path
        assert EVIL not in page.text
        assert "&lt;script&gt;" in page.text


def test_a_page_of_long_answers_stays_small(visitor: Visitor, mine: Labelled, rows: Rows) -> None:
    long = json.dumps({f"field{n}": '"<&>' * 100 for n in range(30)})
    for _ in range(60):
        mine.answer(long, batch_id="batch_1", constraint=SCHEMA)
    page = visitor.get(PAGE)
    assert len(shown(page.text)) == 60
    assert len(page.content) < 300_000


def test_a_job_alone_has_all_of_its_answer(visitor: Visitor, mine: Labelled, rows: Rows) -> None:
    job = mine.answer("x" * 5_000, batch_id="batch_1", constraint=None)
    mine.batch("batch_2")
    assert "x" * 5_000 in visitor.get(f"{PAGE}/{job}").text
    for path in (f"/batches/batch_2/results/{job}", f"{PAGE}/job_{9:016x}", f"{PAGE}/nonsense"):
        assert visitor.get(path).status_code == 404


@pytest.mark.parametrize("constraint", [CHOICE, None])
def test_an_answer_that_says_what_it_is_has_marks(
    visitor: Visitor, mine: Labelled, rows: Rows, constraint: dict[str, list[str]] | None
) -> None:
    mine.answer("red", batch_id="batch_1", constraint=constraint)
    notes = json.dumps(["near_duplicate", "answer_cached", f"near_duplicate_of:{HASH}"])
    rows.run("UPDATE answers SET notes = :n, confidence = 0.25", n=notes)
    rows.run("UPDATE jobs SET first_answer = '{}'")
    page = visitor.get(PAGE).text
    assert [
        word for word in ("from cache", "near duplicate", "escalated", "25.0 % sure") if word in page
    ] == [
        "from cache",
        "near duplicate",
        "escalated",
        "25.0 % sure",
    ]
