"""Labelled answers over HTTP: found by each filter, counted by group, paged."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.db import Sessions, transaction
from app.ids import job_number
from app.routes.answers import MOST_ANSWERS
from app.store.retention import mark_batch
from tests.labelled import SCHEMA, Labelled, counts, get, put, told

EVERYTHING = {
    "batch_id": "b2",
    "question": "kind",
    "item": "1",
    "label": "green",
    "policy_version": "v2",
    "model": "large",
    "since": "2026-11-21",
}


def names(http: httpx.Client, found: dict[str, str], **query: Any) -> list[str]:
    named = {job: name for name, job in found.items()}
    return [named[entry["job_id"]] for entry in get(http, **query)["data"]]


def test_an_entry_says_what_was_asked_and_answered(http: httpx.Client, found: dict[str, str]) -> None:
    (entry,) = get(http, **EVERYTHING)["data"]
    assert entry.pop("created_at") == 1_795_348_800
    assert entry == {
        "confidence": None,
        "id": found["large"],
        "object": "labelled_answer",
        "job_id": found["large"],
        "batch_id": "b2",
        "item": "1",
        "question": "kind",
        "field": "",
        "label": "green",
        "text": "green",
        "model": "large",
        "revision": "r1",
        "notes": [],
        "policy_version": "v2",
        "review": None,
    }


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, ["large", "new", "direct", "direct", "kind", "old"]),
        ({"batch_id": "b1"}, ["kind", "old"]),
        ({"question": "colour"}, ["new", "old"]),
        ({"item": "1"}, ["large", "kind", "old"]),
        ({"label": "red"}, ["new", "direct", "old"]),
        ({"label": "true", "field": "worn"}, ["direct"]),
        ({"field": "", "label": "red"}, ["new", "old"]),
        ({"policy_version": "v2"}, ["large", "new"]),
        ({"model": "large"}, ["large"]),
        ({"since": "2026-11-21T12:00:00Z"}, ["large", "new", "direct", "direct"]),
        ({"until": "2026-11-21T12:00:00Z"}, ["kind", "old"]),
        ({"since": "2026-11-21", "until": "2026-11-22"}, ["direct", "direct"]),
        ({"since": 1_795_262_400, "until": 1_795_262_401}, ["direct", "direct"]),
        ({"until": "2026-11-20T14:00:00+02:00"}, []),
        ({"question": "colour", "label": "blue"}, []),
    ],
)
def test_each_filter_leaves_what_is_so(
    http: httpx.Client, found: dict[str, str], query: dict[str, Any], wanted: list[str]
) -> None:
    assert names(http, found, **query) == wanted
    assert get(http, "/count", **query)["total"] == len(wanted)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"min_confidence": 0.5}, ["large", "new"]),
        ({"max_confidence": 0.5}, ["old"]),
        ({"min_confidence": 0.2, "max_confidence": 0.9}, ["new", "old"]),
        ({"sweep": "sweep_1"}, ["large", "new"]),
        ({"sweep": "nightly"}, ["large", "new"]),
        ({"sweep": "nightly", "max_confidence": 0.9}, ["new"]),
        ({"sweep": "other"}, []),
    ],
)
def test_confidence_and_sweep_are_filters_too(
    http: httpx.Client, found: dict[str, str], mine: Labelled, query: dict[str, Any], wanted: list[str]
) -> None:
    for name, confidence in {"large": 0.9, "new": 0.5, "old": 0.25}.items():
        mine.rows.run(
            "UPDATE labels SET confidence = :c WHERE job_id = :id", c=confidence, id=job_number(found[name])
        )
    mine.rows.run(
        "UPDATE batches SET metadata = metadata || '{\"vqueue_sweep\": \"sweep_1\"}' WHERE id = 'b2'"
    )
    for id, name, tenant in (("sweep_1", "nightly", mine.rows.tenant), ("sweep_2", "other", "tenant_b")):
        mine.rows.add_tenant(tenant)
        mine.rows.run(
            """
            INSERT INTO sweeps (id, tenant_id, name, source, questions, policy_version, model, body, zone,
                                completion_window, batch, alert_after_s)
            VALUES (:id, :tenant, :name, '{}', '[]', 'v1', 'demo', '{}', 'UTC', '24h', '{}', 60)
            """,
            id=id,
            name=name,
            tenant=tenant,
        )
    assert names(http, found, **query) == wanted
    assert get(http, "/count", **query)["total"] == len(wanted)
    assert {entry["confidence"] for entry in get(http, item="1", label="green")["data"]} == {0.9}


@pytest.mark.parametrize("path", ["", "/count", "/agreement", "/corrections"])
def test_a_misspelt_filter_is_named(http: httpx.Client, path: str) -> None:
    answer = http.get(f"/v1/answers{path}?lable=red")
    assert told(answer) == (400, "unknown_parameter", "lable")
    assert "label" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["usage", "sweeps", "image_clusters", "webhook_endpoints", "audit"])
def test_other_lists_of_ours_name_it_too(http: httpx.Client, path: str) -> None:
    assert http.get(f"/v1/{path}?surprise=1").json()["error"]["param"] == "surprise"


@pytest.mark.parametrize("path", ["batches", "files", "models"])
def test_lists_of_openai_s_contract_take_what_its_clients_send(http: httpx.Client, path: str) -> None:
    assert http.get(f"/v1/{path}?surprise=1").status_code == 200


def test_reviews_are_a_filter_too(http: httpx.Client, found: dict[str, str]) -> None:
    put(http, found["old"], verdict="confirm")
    put(http, found["new"], verdict="overturn", label="blue")
    put(http, found["direct"], verdict="confirm", field="worn")
    assert names(http, found, review="confirmed") == ["direct", "old"]
    assert names(http, found, review="overturned") == ["new"]
    assert names(http, found, review="none") == ["large", "direct", "kind"]
    assert counts(http, "review") == {"none": 3, "confirmed": 2, "overturned": 1}


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("label", {"red": 3, "blue": 1, "green": 1, "true": 1}),
        ("question", {"colour": 2, "kind": 2, None: 2}),
        ("policy_version", {"v1": 2, "v2": 2, None: 2}),
        ("model", {"demo": 5, "large": 1}),
        ("day", {"2026-11-20": 2, "2026-11-21": 2, "2026-11-22": 2}),
        (
            "field,label",
            {
                ("", "red"): 2,
                ("", "blue"): 1,
                ("", "green"): 1,
                ("colour", "red"): 1,
                ("worn", "true"): 1,
            },
        ),
        (
            "day,model",
            {
                ("2026-11-20", "demo"): 2,
                ("2026-11-21", "demo"): 2,
                ("2026-11-22", "demo"): 1,
                ("2026-11-22", "large"): 1,
            },
        ),
    ],
)
def test_counts_by_group(http: httpx.Client, found: dict[str, str], by: str, wanted: dict[Any, int]) -> None:
    assert found
    assert counts(http, by) == wanted


def test_a_count_has_only_what_was_grouped_by(http: httpx.Client, found: dict[str, str]) -> None:
    assert found
    report = get(http, "/count", group_by=" day , day", label="green")
    assert report == {
        "object": "label_counts",
        "group_by": ["day"],
        "data": [{"object": "label_count", "day": "2026-11-22", "count": 1}],
        "total": 1,
    }
    assert get(http, "/count", group_by="")["data"] == [{"object": "label_count", "count": 6}]


def pages(http: httpx.Client, *, limit: int, **query: Any) -> Iterator[list[dict[str, Any]]]:
    after: dict[str, str] = {}
    while True:
        page = get(http, limit=limit, **query, **after)
        yield page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}


def test_pages_miss_nothing_while_answers_come(http: httpx.Client, mine: Labelled) -> None:
    told = [mine.answer('{"tags": ["a", "b"]}', constraint=SCHEMA) for _ in range(3)]
    seen: list[str] = []
    for page in pages(http, limit=2):
        seen += [entry["id"] for entry in page]
        mine.answer("red")
    assert seen == [f"{job}.{place}.tags" for job in reversed(told) for place in (1, 0)]


def test_a_field_of_any_name_can_be_gone_on_from(http: httpx.Client, mine: Labelled) -> None:
    job = mine.answer(json.dumps({"a.b": 1, "c&d=é": 2}), constraint=SCHEMA)
    ids = [entry["id"] for page in pages(http, limit=1) for entry in page]
    assert sorted(ids) == sorted([f"{job}.0.a.b", f"{job}.0.c&d=é"])


def test_other_tenants_see_nothing_and_change_nothing(
    http: httpx.Client, mine: Labelled, db: Sessions
) -> None:
    other = Labelled.of(db, "tenant_b")
    theirs = other.answer("red", batch_id=other.batch("theirs"))
    assert get(http)["data"] == []
    assert get(http, "/count")["total"] == 0
    assert told(http.get("/v1/answers", params={"after": theirs})) == (404, "answer_not_found", "after")
    assert told(put(http, theirs, verdict="confirm")) == (404, "answer_not_found", "job_id")
    assert told(http.delete(f"/v1/answers/{theirs}/review")) == (404, "answer_not_found", "job_id")
    other.rows.run(
        "INSERT INTO reviews (job_id, field, tenant_id, verdict) VALUES (1, '', 'tenant_b', 'confirm')"
    )
    assert http.get("/v1/answers/corrections").content == b""
    assert mine.rows.tenant != "tenant_b"


def test_a_deleted_batch_is_gone_at_once(http: httpx.Client, mine: Labelled, found: dict[str, str]) -> None:
    put(http, found["old"], verdict="confirm")
    mine.rows.run("UPDATE batches SET ended_at = now()")
    with transaction(mine.rows.sessions) as session:
        assert mark_batch(session, mine.rows.tenant, "b1")
    assert names(http, found) == ["large", "new", "direct", "direct"]
    assert counts(http, "question") == {"colour": 1, "kind": 1, None: 2}
    assert http.get("/v1/answers/corrections").content == b""
    assert told(put(http, found["kind"], verdict="confirm"))[0] == 404


@pytest.mark.parametrize(
    ("path", "query", "wanted", "message"),
    [
        ("", {"after": "job_1"}, (404, "answer_not_found", "after"), "No answer has the id"),
        ("", {"after": "job_0000000000000001"}, (404, "answer_not_found", "after"), "No answer has the id"),
        ("", {"after": "job_0000000000000001.x.y"}, (404, "answer_not_found", "after"), "No answer"),
        ("", {"limit": MOST_ANSWERS + 1}, (400, "invalid_value", "limit"), "less than or equal to 1000"),
        ("", {"review": "confirm"}, (400, "invalid_value", "review"), "'none', 'confirmed' or 'overturned'"),
        ("", {"since": "yesterday"}, (400, "invalid_value", "since"), "datetime"),
        ("", {"batch_id": ""}, (400, "invalid_value", "batch_id"), "at least 1 character"),
        ("/count", {"group_by": "colour"}, (400, "invalid_group_by", "group_by"), "grouped by 'colour'"),
        (
            "/count",
            {"group_by": "label,day,model,field"},
            (400, "invalid_group_by", "group_by"),
            "at most 3",
        ),
        ("/corrections", {"until": "x"}, (400, "invalid_value", "until"), "datetime"),
    ],
)
def test_bad_parameters_are_named(
    http: httpx.Client, path: str, query: dict[str, Any], wanted: tuple[int, str, str], message: str
) -> None:
    answer = http.get(f"/v1/answers{path}", params=query)
    assert told(answer) == wanted
    assert message in answer.json()["error"]["message"]


def test_too_many_groups_are_refused(
    http: httpx.Client, mine: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answers.MOST_COUNTS", 1)
    mine.answer("red")
    assert counts(http, "label") == {"red": 1}
    mine.answer("blue")
    answer = http.get("/v1/answers/count")
    assert told(answer) == (400, "report_too_large", "group_by")
