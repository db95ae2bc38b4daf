"""The review queue: the least sure first, nobody twice at once, second opinions, and agreement."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.auth import Keys
from app.db import Sessions, transaction
from app.ids import job_number
from app.labels import read_labels
from app.reviewing import CLAIM_S
from app.store import retention
from app.store.labels import note_labels
from tests.console import Visitor, visiting
from tests.labelled import CHOICE, SCHEMA, TABLE, Labelled

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def ada(api_url: str, api_key: str) -> Iterator[Visitor]:
    with visiting(api_url, api_key) as one:
        yield one


@pytest.fixture
def ben(api_url: str, api_key: str, db: Sessions) -> Iterator[Visitor]:
    """Another moderator of the same tenant."""
    with visiting(api_url, Keys(sessions=db).create(tenant="Ada", name="ben").secret) as one:
        yield one


def answered(mine: Labelled, text: str = "red", *, sure: float | None = None, **columns: Any) -> str:
    job = mine.answer(text, **columns)
    mine.rows.run("UPDATE labels SET confidence = :sure WHERE job_id = :id", sure=sure, id=job_number(job))
    return job


def led_to(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def job_of(path: str) -> str:
    found = re.match(r"/review/(job_\w+)", path)
    return found[1] if found else path


def begin(visitor: Visitor, **wish: str) -> str:
    return job_of(led_to(visitor.post("/review/next", **wish)))


def say(visitor: Visitor, job: str, **said: str) -> str:
    return led_to(visitor.post(f"/review/{job}", **said))


def test_the_least_sure_come_first_and_the_unknown_last(ada: Visitor, mine: Labelled) -> None:
    unknown, sure, unsure = (answered(mine, sure=sure) for sure in (None, 0.9, 0.2))
    seen = [begin(ada)]
    for _ in range(2):
        seen.append(job_of(say(ada, seen[-1], verdict="confirm")))
    assert seen == [unsure, sure, unknown]
    assert "over=yes" in say(ada, unknown, verdict="confirm")
    assert mine.rows.one("SELECT count(*) FROM reviews WHERE verdict = 'confirm'") == 3


def test_confidence_comes_from_the_cascade_or_else_from_the_tokens(mine: Labelled, db: Sessions) -> None:
    jobs = [mine.answer("red") for _ in range(4)]
    run = mine.rows.run
    for job, confidence, logprobs in zip(
        jobs,
        (0.5, None, None, None),
        ("null", '[["r", -0.5, []], ["ed", -0.5, []]]', "[]", '[["r", -9999, []]]'),
        strict=True,
    ):
        run(
            "UPDATE answers SET confidence = :c, logprobs = CAST(:l AS json) WHERE job_id = :id",
            c=confidence,
            l=logprobs,
            id=job_number(job),
        )
    run("DELETE FROM labels")
    with transaction(db) as session:
        note_labels(session, {job_number(job): read_labels(CHOICE, "red") for job in jobs})
    noted = [row[0] for row in mine.rows.table("SELECT confidence FROM labels ORDER BY job_id")]
    assert noted == [0.5, pytest.approx(0.3679, abs=1e-4), None, pytest.approx(0, abs=1e-9)]


@pytest.mark.parametrize(
    "wish",
    [
        {"batch": "night"},
        {"question": "colour"},
        {"label": "blue"},
        {"policy": "v2"},
        {"below": "0.5"},
        {"sweep": "sweep_1"},
    ],
)
def test_the_queue_is_filtered(ada: Visitor, mine: Labelled, wish: dict[str, str]) -> None:
    mine.batch("day", policy="v1")
    mine.batch("night", policy="v2", table=TABLE)
    mine.rows.run(
        """UPDATE batches SET metadata = metadata || '{"vqueue_sweep": "sweep_1"}' WHERE id = 'night'"""
    )
    answered(mine, "red", sure=0.6, batch_id="day", custom_id="a")
    wanted = answered(mine, "blue", sure=0.4, batch_id="night", custom_id="b:colour")
    assert begin(ada, **wish) == wanted
    assert "over=yes" in led_to(ada.post(f"/review/{wanted}/skip", **wish))


def test_an_answers_batch_is_called_as_its_owner_does(ada: Visitor, mine: Labelled) -> None:
    mine.batch("day")
    mine.rows.run("""UPDATE batches SET metadata = '{"name": "Shoes of May"}'""")
    answered(mine, batch_id="day")
    assert re.search(r'href="/batches/day" title="day">Shoes of May<', ada.get(f"/review/{begin(ada)}").text)


def test_two_who_work_at_once_never_get_the_same(api_url: str, api_key: str, mine: Labelled) -> None:
    jobs = {answered(mine, sure=number / 10) for number in range(1, 7)}
    with ExitStack() as doors, ThreadPoolExecutor(6) as people:
        visitors = [doors.enter_context(visiting(api_url, api_key)) for _ in range(6)]
        assert set(people.map(begin, visitors)) == jobs


def test_a_claim_runs_out_by_itself(ada: Visitor, ben: Visitor, mine: Labelled) -> None:
    job = answered(mine)
    assert begin(ada) == job
    assert "over=yes" in led_to(ben.post("/review/next"))
    assert "Somebody else is looking" in ben.get(f"/review/{job}").text
    assert ben.post(f"/review/{job}/hold").status_code == 409
    mine.rows.run("UPDATE review_claims SET until = until - :s * interval '1 second'", s=CLAIM_S)
    assert begin(ben) == job
    assert ada.post(f"/review/{job}/hold").status_code == 409


def test_who_goes_on_looking_keeps_it(ada: Visitor, mine: Labelled) -> None:
    job = answered(mine)
    begin(ada)
    mine.rows.run("UPDATE review_claims SET until = now() + interval '1 second'")
    assert ada.post(f"/review/{job}/hold").status_code == 204
    assert mine.rows.one("SELECT until > now() + interval '1 minute' FROM review_claims")


def test_a_label_is_chosen_written_or_ticked(ada: Visitor, mine: Labelled) -> None:
    one = answered(mine, "red")
    several = answered(mine, '{"colour": "red", "worn": true, "tags": ["a"]}', constraint=SCHEMA)
    say(ada, one, choice='"blue"', note="dark, but blue")
    say(ada, several, field="worn", choice="false")
    say(ada, several, field="colour", verdict="overturn", text="teal")
    say(ada, several, field="tags", verdict="overturn", text='["b", "c"]')
    said = mine.rows.table("SELECT field, label, note FROM reviews ORDER BY job_id, field")
    assert [tuple(row) for row in said] == [
        ("", "blue", "dark, but blue"),
        ("colour", "teal", None),
        ("tags", ["b", "c"], None),
        ("worn", False, None),
    ]


@pytest.mark.parametrize(
    "said", [{"verdict": "overturn"}, {"choice": '"red"'}, {"choice": '"pink"'}, {"text": "["}]
)
def test_what_cannot_be_said_is_told_on_the_page_and_changes_nothing(
    ada: Visitor, mine: Labelled, said: dict[str, str]
) -> None:
    answer = ada.post(f"/review/{answered(mine)}", note="mind me", **said)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert ">mind me</textarea>" in answer.text
    assert mine.rows.one("SELECT count(*) FROM reviews") == 0


def test_the_last_one_is_taken_back_and_shown_again(ada: Visitor, mine: Labelled) -> None:
    first, second = answered(mine, sure=0.1), answered(mine, sure=0.2)
    begin(ada)
    path = say(ada, first, verdict="confirm")
    assert f'action="/review/{first}/undo"' in ada.get(path).text
    assert job_of(led_to(ada.post(f"/review/{first}/undo"))) == first
    assert (
        mine.rows.one("SELECT count(*) FROM reviews")
        == mine.rows.one("SELECT count(*) FROM review_votes")
        == 0
    )
    assert job_of(say(ada, first, verdict="confirm")) == second
    assert ada.post(f"/review/{second}/undo").status_code == 404


def test_taking_back_a_second_opinion_leaves_the_first(ada: Visitor, ben: Visitor, mine: Labelled) -> None:
    job = answered(mine)
    say(ada, job, choice='"blue"')
    say(ben, job, choice='"green"')
    ben.post(f"/review/{job}/undo")
    assert mine.rows.one("SELECT label #>> '{}' FROM reviews") == "blue"
    assert mine.rows.one("SELECT count(*) FROM review_votes") == 1


def test_a_second_opinion_is_asked_of_somebody_else_and_without_the_first(
    ada: Visitor, ben: Visitor, mine: Labelled
) -> None:
    job, _ = answered(mine), answered(mine)
    say(ada, job, choice='"blue"', note="by Ada")
    assert "over=yes" in led_to(ada.post("/review/next", mode="second"))
    path = led_to(ben.post("/review/next", mode="second"))
    assert job_of(path) == job
    page = ben.get(path).text
    assert "by Ada" not in page
    assert "Overturned:" not in page
    assert "by Ada" in ben.get(f"/review/{job}").text
    assert "over=yes" in say(ben, job, verdict="confirm", mode="second")


def test_a_sample_of_second_opinions_is_the_same_for_everybody(
    ada: Visitor, ben: Visitor, mine: Labelled
) -> None:
    for _ in range(60):
        say(ada, answered(mine), verdict="confirm")
    page = [ben.get("/review", mode="second", share=share).text for share in ("50", "50", "100")]
    counts = [re.findall(r"<dd>(\d+)</dd>", text)[0] for text in page]
    assert counts[0] == counts[1]
    assert 10 < int(counts[0]) < 50
    assert counts[2] == "60"


def test_agreement_is_told_by_question_and_pair(
    ada: Visitor, ben: Visitor, mine: Labelled, http: httpx.Client
) -> None:
    mine.batch("b", table={"image_columns": ["i"], "questions": [{"name": "colour", "ask": "?"}]})
    jobs = [answered(mine, batch_id="b", custom_id=str(number)) for number in range(4)]
    for job, one, other in zip(
        jobs, ('"blue"', '"blue"', "", ""), ('"blue"', "", "", '"green"'), strict=True
    ):
        for visitor, choice in ((ada, one), (ben, other)):
            say(visitor, job, **({"choice": choice} if choice else {"verdict": "confirm"}))
    page = re.sub(r"\s+", " ", ada.get("/review/agreement").text)
    assert "50.0 %" in page
    assert page.count('href="/review/job_') == 2
    (line,) = http.get("/v1/answers/agreement").json()["data"]
    # Blue, red: 2 and 2; blue, red, green: 1, 2 and 1. By chance 6 of 16.
    assert (line["answers"], line["agreed"], line["agreement"]) == (4, 2, 0.5)
    assert line["kappa"] == pytest.approx((0.5 - 6 / 16) / (1 - 6 / 16))
    assert http.get("/v1/answers/agreement", params={"question": "other"}).json()["data"] == []


def test_lists_are_the_same_in_any_order(
    ada: Visitor, ben: Visitor, mine: Labelled, http: httpx.Client
) -> None:
    job = answered(mine, '{"tags": ["a", "b"]}', constraint=SCHEMA)
    say(ada, job, field="tags", verdict="overturn", text='["b", "a"]')
    say(ben, job, field="tags", verdict="confirm")
    (line,) = http.get("/v1/answers/agreement").json()["data"]
    assert (line["answers"], line["agreed"], line["kappa"]) == (1, 1, None)


def test_corrections_are_downloaded_by_the_filters(ada: Visitor, mine: Labelled) -> None:
    mine.batch("b")
    say(ada, answered(mine, batch_id="b"), choice='"blue"')
    say(ada, answered(mine), verdict="confirm")
    answer = ada.get("/review/corrections", batch="b")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.text.count("\n") == 1


def test_what_models_and_clients_say_is_never_markup(ada: Visitor, ben: Visitor, mine: Labelled) -> None:
    constraint = {"choice": [EVIL, "blue"]}
    job = answered(mine, EVIL, constraint=constraint, custom_id=EVIL)
    mine.rows.run(
        "UPDATE jobs SET prompt = CAST(:p AS json)",
        p=json.dumps({"turns": [{"role": "user", "parts": [{"text": EVIL}]}]}),
    )
    mine.rows.run("UPDATE labels SET question = :evil, policy_version = :evil", evil=EVIL)
    say(ada, job, verdict="confirm", note=EVIL)
    say(ben, job, choice='"blue"', note=EVIL)
    for path in (f"/review/{job}", "/review", "/review/agreement", f"/review?label={EVIL}&policy={EVIL}"):
        page = ada.get(path).text
        assert EVIL not in page
        assert "&lt;script&gt;" in page


def test_who_may_only_look_changes_nothing(api_url: str, db: Sessions, mine: Labelled) -> None:
    job = answered(mine)
    key = Keys(sessions=db).create(tenant="Ada", name="looks", scopes=["read"]).secret
    with visiting(api_url, key) as visitor:
        assert "/review/next" not in visitor.get("/review").text
        assert 'value="confirm"' not in visitor.get(f"/review/{job}").text
        for path in ("/review/next", f"/review/{job}", f"/review/{job}/skip", f"/review/{job}/undo"):
            assert visitor.post(path, verdict="confirm").status_code == 403
    assert mine.rows.one("SELECT count(*) FROM reviews") == 0


def test_another_tenants_answers_are_not_there(ada: Visitor, db: Sessions) -> None:
    theirs = Labelled.of(db, Keys(sessions=db).create(tenant="Bob", name="x").tenant_id)
    job = theirs.answer("red")
    assert "over=yes" in led_to(ada.post("/review/next"))
    assert ada.get(f"/review/{job}").status_code == 404
    assert ada.post(f"/review/{job}", verdict="confirm").status_code == 404
    assert ada.post(f"/review/{job}/hold").status_code == 409
    assert theirs.rows.one("SELECT count(*) FROM review_claims") == 0


def test_votes_and_claims_go_with_the_job(ada: Visitor, mine: Labelled, db: Sessions) -> None:
    job = answered(mine)
    say(ada, job, verdict="confirm")
    ada.post(f"/review/{job}/hold")
    with transaction(db) as session:
        assert retention.delete_job(session, mine.rows.tenant, job_number(job))
    for table in ("reviews", "review_votes", "review_claims", "labels"):
        assert mine.rows.one(f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - names of our own
