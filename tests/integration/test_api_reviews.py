"""Reviews over HTTP: confirmed, overturned, audited, and handed out as corrections."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db import transaction
from app.store.images import ImageWish, StoredImage, keep_image, want_images
from tests.labelled import CHOICE, SCHEMA, TABLE, Labelled, counts, get, put, told
from vqueue import AsyncClient, BadRequest, Client, NotFound


def test_a_review_is_kept_beside_the_answer(http: httpx.Client, mine: Labelled) -> None:
    job = mine.answer("red")
    said = put(http, job, verdict="overturn", label="blue", note="it is not").json()
    assert said.pop("reviewed_at") > 1_700_000_000
    assert said.pop("key_id").startswith("key_")
    assert said == {
        "object": "review",
        "job_id": job,
        "field": "",
        "verdict": "overturn",
        "label": "blue",
        "note": "it is not",
    }
    (entry,) = get(http)["data"]
    assert (entry["label"], entry["review"]["label"]) == ("red", "blue")
    assert put(http, job, verdict="confirm").json()["label"] is None
    assert get(http)["data"][0]["review"]["verdict"] == "confirm"
    assert http.delete(f"/v1/answers/{job}/review").json() == {
        "object": "review",
        "job_id": job,
        "deleted": True,
    }
    assert get(http)["data"][0]["review"] is None
    assert told(http.delete(f"/v1/answers/{job}/review")) == (404, "review_not_found", "job_id")


def test_fields_are_reviewed_apart(http: httpx.Client, mine: Labelled) -> None:
    job = mine.answer('{"colour": "red", "worn": true, "tags": []}', constraint=SCHEMA)
    assert told(put(http, job, verdict="confirm")) == (400, "invalid_field", "field")
    assert told(put(http, job, verdict="confirm", field="size")) == (400, "invalid_field", "field")
    assert put(http, job, verdict="confirm", field="colour").status_code == 200
    assert put(http, job, verdict="overturn", field="worn", label="false").json()["label"] is False
    assert put(http, job, verdict="overturn", field="tags", label=["a"]).json()["label"] == ["a"]
    assert counts(http, "field,review") == {
        ("colour", "confirmed"): 1,
        ("tags", "overturned"): 1,
        ("worn", "overturned"): 1,
    }
    assert http.delete(f"/v1/answers/{job}/review", params={"field": "worn"}).status_code == 200
    assert counts(http, "review", field="worn") == {"none": 1}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, (400, "missing_parameter", "verdict")),
        ({"verdict": "maybe"}, (400, "invalid_value", "verdict")),
        ({"verdict": "overturn"}, (400, "missing_parameter", "label")),
        ({"verdict": "overturn", "label": "pink"}, (400, "invalid_label", "label")),
        ({"verdict": "overturn", "label": "red"}, (400, "label_unchanged", "label")),
        ({"verdict": "confirm", "label": "red"}, (400, "invalid_label", "label")),
        ({"verdict": "confirm", "note": "a\0b"}, (400, "invalid_value", "note")),
        ({"verdict": "confirm", "who": "me"}, (400, "unknown_parameter", "who")),
    ],
)
def test_a_review_that_cannot_be_is_refused(
    http: httpx.Client, mine: Labelled, body: dict[str, Any], wanted: tuple[int, str, str]
) -> None:
    job = mine.answer("red")
    assert told(put(http, job, **body)) == wanted
    assert get(http)["data"][0]["review"] is None


def test_an_answer_that_is_a_label_as_a_whole_says_to_leave_the_field_out(
    http: httpx.Client, mine: Labelled
) -> None:
    refused = put(http, mine.answer("red"), verdict="confirm", field="colour")
    assert told(refused) == (400, "invalid_field", "field")
    assert "leave field out" in refused.json()["error"]["message"]


def test_only_labelled_answers_are_reviewed(http: httpx.Client, mine: Labelled) -> None:
    for job in (mine.answer("red", constraint=None), mine.answer('{"colour": "r', constraint=SCHEMA)):
        answer = put(http, job, verdict="confirm")
        assert told(answer) == (404, "answer_not_found", "job_id")
        assert "cut off" in answer.json()["error"]["message"]


def test_every_change_of_a_review_is_audited_once(http: httpx.Client, mine: Labelled) -> None:
    job = mine.answer("red")
    for _ in range(2):
        put(http, job, verdict="overturn", label="blue")
    put(http, job, verdict="confirm")
    http.delete(f"/v1/answers/{job}/review")
    log = http.get("/v1/audit").json()["data"]
    assert [
        (row["action"], row["object_id"], row["details"]) for row in log if "answer" in row["action"]
    ] == [
        ("answer.review_deleted", job, {"field": ""}),
        ("answer.reviewed", job, {"field": "", "verdict": "confirm"}),
        ("answer.reviewed", job, {"field": "", "verdict": "overturn", "label": "blue"}),
    ]


def picture(mine: Labelled, wish: ImageWish | None) -> int:
    """An image that a job names as wished; without a wish, one that came in a data URL."""
    with transaction(mine.rows.sessions) as session:
        if wish is None:
            return keep_image(session, mine.rows.tenant, "d" * 64, StoredImage("d" * 64, "PNG", 1, 1, 9))
        (wanted,) = want_images(session, mine.rows.tenant, [wish], reuse_s=60).values()
        return wanted.id


PROMPT = {
    "turns": [
        {"role": "system", "parts": [{"text": "Be brief."}]},
        {"role": "user", "parts": [{"image": 0}, {"text": "Which colour?"}]},
    ]
}


def corrections(http: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = http.get("/v1/answers/corrections", params=query)
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.content.splitlines()]


def test_corrections_come_back_as_jobs_that_can_be_asked_again(http: httpx.Client, mine: Labelled) -> None:
    url = picture(mine, ImageWish("url", "h1", "https://shop.example/a.jpg"))
    batch = mine.batch("b", policy="v1", table=TABLE)
    job = mine.answer("red", batch_id=batch, custom_id="7:colour", image_ids=[url])
    mine.rows.run("UPDATE jobs SET prompt = :prompt", prompt=json.dumps(PROMPT))
    put(http, job, verdict="overturn", label="blue", note="no")
    (line,) = corrections(http)
    assert (line["source"].pop("answered_at"), line["source"].pop("reviewed_at")) > (1, 1)
    assert line == {
        "custom_id": job,
        "image": "https://shop.example/a.jpg",
        "question": "Which colour?",
        "system": "Be brief.",
        "choices": CHOICE["choice"],
        "label": "blue",
        "model_answer": "red",
        "source": {
            "job_id": job,
            "batch_id": "b",
            "custom_id": "7:colour",
            "item": "7",
            "question": "colour",
            "policy_version": "v1",
            "model": "demo",
            "revision": "r1",
            "verdict": "overturn",
            "note": "no",
            "content_hashes": [None],
        },
    }
    asked = {name: line[name] for name in ("image", "question", "system")}
    body = {**asked, "model": "demo", "guided_choice": line["choices"]}
    again = http.post("/v1/jobs", json=body)
    assert again.status_code == 202, again.text


def test_corrections_keep_the_types_of_fields(
    http: httpx.Client, mine: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answers.PAGE_CORRECTIONS", 1)
    job = mine.answer('{"colour": "red", "worn": true, "tags": ["a", "c"]}', constraint=SCHEMA)
    put(http, job, verdict="confirm", field="worn")
    put(http, job, verdict="overturn", field="tags", label=["b", "c"])
    lines = corrections(http)
    assert [(one["custom_id"], one["field"], one["label"], one["model_answer"]) for one in lines] == [
        (f"{job}.0.tags", "tags", ["b", "c"], ["a", "c"]),
        (f"{job}.0.worn", "worn", True, True),
    ]
    assert lines[0]["schema"] == json.loads(SCHEMA["json_schema"])
    monkeypatch.setattr("app.answers.PAGE_CORRECTIONS", 500)
    assert corrections(http) == lines


def test_an_image_without_a_name_has_none_in_corrections(http: httpx.Client, mine: Labelled) -> None:
    job = mine.answer("red", image_ids=[picture(mine, None), 999])
    put(http, job, verdict="confirm")
    (line,) = corrections(http)
    assert (line["image"], line["images"]) == (None, [None, None])
    assert line["source"]["content_hashes"] == ["d" * 64, None]


def test_corrections_are_read_page_by_page_and_filtered(
    http: httpx.Client, mine: Labelled, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answers.PAGE_CORRECTIONS", 2)
    for name in ("old", "kind", "new", "large"):
        put(http, found[name], verdict="confirm")
    put(http, mine.answer("red"), verdict="overturn", label="blue")
    assert len(corrections(http)) == 5
    assert [one["custom_id"] for one in corrections(http, policy_version="v1")] == [
        found["old"],
        found["kind"],
    ]
    assert [one["label"] for one in corrections(http, review="overturned")] == ["blue"]


def test_the_client_package_has_the_same(
    api_url: str, api_key: str, mine: Labelled, found: dict[str, str], tmp_path: Path
) -> None:
    with Client(f"{api_url}/v1", api_key) as api:
        assert [one.label for one in api.answers({"batch_id": "b1"}).data] == ["blue", "red"]
        page = api.answers(limit=1)
        assert api.answers(limit=1, after=page.last_id).data[0].job_id == found["new"]
        counted = api.count_answers(group_by=["question", "field"])
        assert (counted[0].question, counted[0].field, counted[0].count) == ("colour", "", 2)
        assert api.review(found["old"], "overturn", label="blue", note="x").label == "blue"
        assert api.answers({"review": "overturned"}).data[0].review is not None
        saved = api.corrections(tmp_path / "c.jsonl", {"review": "overturned"})
        assert json.loads(saved.read_text())["label"] == "blue"
        api.delete_review(found["old"])
        with pytest.raises(NotFound, match="no review"):
            api.delete_review(found["old"])
        with pytest.raises(BadRequest, match="one of"):
            api.review(found["old"], "overturn", label="pink")


def test_the_async_client_has_them_too(api_url: str, api_key: str, mine: Labelled) -> None:
    job = mine.answer('{"colour": null}', constraint={"json_schema": "{}"})

    async def tour() -> None:
        async with AsyncClient(f"{api_url}/v1", api_key) as api:
            assert (await api.review(job, "confirm")).field == "colour"
            assert [one.count for one in await api.count_answers({"review": "confirmed"})] == [1]
            assert (await api.answers()).data[0].label == "null"

    asyncio.run(tour())
