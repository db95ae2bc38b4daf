"""Direct jobs over HTTP against the real app, Postgres and S3."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from openai import OpenAI

from app.config import Settings
from app.db import Sessions, transaction
from app.ids import job_number
from app.main import build_app, wire
from app.store import jobs, records
from app.store.records import AnswerRow, FailureRow
from tests.rows import Rows
from tests.serving import new_key, serving
from workers.engine.base import Answer, Image, JsonSchema, Note, Request, TokenLogprob, Usage
from workers.engine.fake import FakeEngine
from workers.leases import Leases
from workers.pool import EnginePool, Resident
from workers.runner import Runner

URL = "https://images.example/mug.png"


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


def png(colour: str = "red") -> bytes:
    out = io.BytesIO()
    PIL.Image.new("RGB", (64, 48), colour).save(out, "PNG")
    return out.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def ask(http: httpx.Client, **body: object) -> dict[str, Any]:
    """A job that is accepted."""
    answer = http.post("/v1/jobs", json={"question": "What is it?", **body})
    assert answer.status_code == 202, answer.text
    return answer.json()


def refuse(http: httpx.Client, **body: object) -> tuple[int, str | None, str | None]:
    """Status, param and code of a job that is refused."""
    answer = http.post("/v1/jobs", json={"question": "What is it?", **body})
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


def in_short(request: Request) -> Answer:
    """An answer cut at its first token."""
    logprobs = (TokenLogprob("{", -0.5, (("[", float("-inf")),)),)
    return Answer("{", "length", Usage(5, 1), logprobs, (Note.REPETITION,))


def work(db: Sessions, settings: Settings, engine: FakeEngine, name: str) -> None:
    """Run a job as a worker does."""
    with ThreadPoolExecutor(2) as readers:
        runner = Runner(
            sessions=db,
            pool=EnginePool({"demo": Resident(engine, settings)}),
            leases=Leases(sessions=db, worker="w1", settings=settings),
            read_image=lambda row: Image.of(row.content_hash, np.zeros((4, 4, 3), np.uint8)),
            readers=readers,
            urgent_readers=readers,
            settings=settings,
            worker="w1",
        )
        assert runner.run([job_number(name)]) == 1
    engine.close()


def claim(db: Sessions, name: str) -> None:
    with transaction(db) as session:
        assert jobs.claim(session, [job_number(name)], worker="w", lease_s=60)


def test_a_question_without_images_is_ready_at_once(http: httpx.Client) -> None:
    job = ask(http, model="demo")
    assert (job["object"], job["status"], job["model"]) == ("job", "ready", "demo")
    assert (job["answer"], job["error"], job["started_at"], job["finished_at"]) == (None,) * 4
    assert http.get(f"/v1/jobs/{job['id']}").json() == job


def test_the_model_may_be_left_out(http: httpx.Client) -> None:
    assert ask(http)["model"] == "demo"


def test_prompt_and_params_are_stored_as_those_of_a_line(http: httpx.Client, rows: Rows) -> None:
    ask(http, system="Be brief.", images=[URL], max_tokens=7, temperature=0.5, stop="\n")
    assert rows.one("SELECT prompt FROM jobs") == {
        "turns": [
            {"role": "system", "parts": [{"text": "Be brief."}]},
            {"role": "user", "parts": [{"image": 0}, {"text": "What is it?"}]},
        ]
    }
    assert rows.one("SELECT params FROM jobs") == {"max_tokens": 7, "temperature": 0.5, "stop": ["\n"]}


@pytest.mark.parametrize("priority", ["interactive", "standard", "background"])
def test_a_job_may_have_any_priority(http: httpx.Client, rows: Rows, priority: str) -> None:
    ask(http, priority=priority)
    assert rows.one("SELECT priority FROM jobs") == priority
    assert refuse(http, priority="urgent") == (400, "priority", "invalid_value")


def test_a_job_waits_for_an_image_by_url(http: httpx.Client, rows: Rows) -> None:
    assert ask(http, image=URL)["status"] == "waiting"
    assert rows.all("SELECT ref FROM images WHERE state = 'pending'") == [URL]
    assert rows.one("SELECT count(*) FROM job_waits") == 1


def test_two_jobs_share_an_image_that_is_on_its_way(http: httpx.Client, rows: Rows) -> None:
    ask(http, image=URL)
    ask(http, image=URL, question="What colour?")
    assert rows.one("SELECT count(*) FROM images") == 1
    assert rows.one("SELECT count(*) FROM job_waits") == 2


def test_a_data_url_is_stored_and_ready_at_once(http: httpx.Client, rows: Rows) -> None:
    assert ask(http, image=data_url(png()))["status"] == "ready"
    assert rows.one("SELECT (width, height)::text FROM images WHERE state = 'stored'") == "(64,48)"


def test_several_images_keep_their_order(http: httpx.Client, rows: Rows) -> None:
    one, two = data_url(png("red")), data_url(png("blue"))
    ask(http, image=one)
    ask(http, images=[two, one, two])
    red, blue = rows.all("SELECT id FROM images ORDER BY id")
    assert rows.one("SELECT image_ids FROM jobs ORDER BY id DESC LIMIT 1") == [blue, red, blue]


def test_an_uploaded_file_can_be_asked_about(http: httpx.Client, client: OpenAI, rows: Rows) -> None:
    file = client.files.create(file=("mug.png", png()), purpose="vision")
    assert ask(http, image=file.id)["status"] == "waiting"
    assert rows.one("SELECT ref_kind FROM images") == "file"


def test_another_tenants_file_cannot(http: httpx.Client, stranger: OpenAI) -> None:
    file = stranger.files.create(file=("mug.png", png()), purpose="vision")
    assert refuse(http, image=file.id) == (404, "image", "file_not_found")


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"question": ""}, "question", "invalid_value"),
        ({"question": None}, "question", "invalid_value"),
        ({"image": "file:///etc/passwd"}, "image", "blocked_url"),
        ({"images": [URL, "mug.png"]}, "images[1]", "bad_url"),
        ({"image": URL, "images": ["mug.png"]}, "images[0]", "bad_url"),
        ({"image": data_url(b"no picture")}, "image", "not_an_image"),
        ({"images": [URL] * 17}, "images[16]", "invalid_request"),
        ({"system": 5}, "system", "invalid_value"),
        ({"max_tokens": -5}, "max_tokens", "invalid_request"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"deadline_s": 0}, "deadline_s", "invalid_value"),
        ({"surprise": 1}, "surprise", "unknown_parameter"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_request"),
        ({"guided_choice": []}, "guided_choice", "invalid_request"),
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json", "invalid_schema"),
        ({"image": "data:video/mp4;base64,AAAA"}, "image", "unsupported_modality"),
    ],
)
def test_a_job_that_is_refused(
    http: httpx.Client, rows: Rows, body: dict[str, object], param: str, code: str
) -> None:
    assert refuse(http, **body) == (400, param, code)
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_a_job_for_a_model_that_is_not_served_is_answered_404(http: httpx.Client, rows: Rows) -> None:
    assert refuse(http, model="other") == (404, "model", "model_not_found")
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_interactive_jobs_over_the_bound_of_their_class_are_told_to_come_back(
    settings: Settings, api_key: str, rows: Rows
) -> None:
    small = settings.model_copy(update={"interactive_max": 1})
    headers = {"Authorization": f"Bearer {api_key}"}
    with serving(build_app(wire(small))) as url, httpx.Client(base_url=url, headers=headers) as http:
        ask(http, priority="interactive")
        assert refuse(http, priority="interactive") == (429, None, "overloaded")
        ask(http, priority="standard")


def test_interactive_jobs_of_one_tenant_leave_room_for_another(
    settings: Settings, api_key: str, db: Sessions, rows: Rows
) -> None:
    assert rows
    small = settings.model_copy(update={"interactive_max": 4})
    ada, bob = [{"Authorization": f"Bearer {key}"} for key in (api_key, new_key(db, "Bob"))]
    with serving(build_app(wire(small))) as url, httpx.Client(base_url=url, headers=ada) as http:
        ask(http, priority="interactive", image="https://hangs.example/mug.png")
        ask(http, priority="interactive")
        answer = http.post("/v1/jobs", json={"question": "?", "priority": "interactive"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert "You have 2 of 4" in answer.json()["error"]["message"]
        with httpx.Client(base_url=url, headers=bob) as http:
            ask(http, priority="interactive")


def test_a_tenant_who_is_alone_has_all_the_room(settings: Settings, api_key: str, rows: Rows) -> None:
    small = settings.model_copy(update={"interactive_max": 4})
    headers = {"Authorization": f"Bearer {api_key}"}
    rows.run("DELETE FROM tenants WHERE id NOT IN (SELECT tenant_id FROM api_keys)")
    with serving(build_app(wire(small))) as url, httpx.Client(base_url=url, headers=headers) as http:
        for _ in range(4):
            ask(http, priority="interactive")
        assert refuse(http, priority="interactive") == (429, None, "overloaded")


@pytest.mark.parametrize(
    ("body", "left_s"),
    [
        ({"priority": "interactive"}, 120),
        ({"priority": "interactive", "deadline_s": 600}, 600),
        ({}, None),
    ],
)
def test_an_interactive_job_ends_when_a_chat_would(
    http: httpx.Client, rows: Rows, body: dict[str, object], left_s: float | None
) -> None:
    ask(http, **body)
    assert rows.one("SELECT round(extract(epoch FROM deadline - created_at)) FROM jobs") == left_s


def test_a_job_runs_and_is_answered(http: httpx.Client, db: Sessions) -> None:
    name = ask(http)["id"]
    claim(db, name)
    running = http.get(f"/v1/jobs/{name}").json()
    assert (running["status"], running["attempt"]) == ("running", 1)
    with transaction(db) as session:
        records.record_answers(
            session, [AnswerRow(job_number(name), 1, "red", "stop", 50, 20, 3)], model="demo", revision="r1"
        )
    done = http.get(f"/v1/jobs/{name}").json()
    assert (done["status"], done["answer"]["text"]) == ("completed", "red")
    assert done["answer"]["usage"] == {
        "prompt_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens": 3,
        "total_tokens": 53,
    }


def test_an_answer_keeps_to_the_form_that_was_asked_for(
    http: httpx.Client, db: Sessions, settings: Settings
) -> None:
    schema = {"type": "object", "properties": {"why": {}, "colour": {}}}
    form = {"type": "json_schema", "json_schema": {"name": "mug", "schema": schema, "strict": True}}
    name = ask(http, response_format=form, logprobs=True, top_logprobs=1)["id"]
    engine = FakeEngine(answer=in_short)
    work(db, settings, engine, name)
    assert engine.joined[0].constraint == JsonSchema(json.dumps(schema, separators=(",", ":")))
    assert engine.joined[0].sampling.logprobs == 1
    answer = http.get(f"/v1/jobs/{name}").json()["answer"]
    assert (answer["text"], answer["finish_reason"], answer["notes"]) == ("{", "length", ["repetition"])
    assert answer["logprobs"]["content"] == [
        {
            "token": "{",
            "logprob": -0.5,
            "bytes": [123],
            "top_logprobs": [{"token": "[", "logprob": -9999.0, "bytes": [91]}],
        }
    ]


def test_a_plain_answer_has_neither_log_probabilities_nor_notes(
    http: httpx.Client, db: Sessions, settings: Settings
) -> None:
    name = ask(http)["id"]
    work(db, settings, FakeEngine(), name)
    answer = http.get(f"/v1/jobs/{name}").json()["answer"]
    assert (answer["logprobs"], answer["notes"]) == (None, [])


def test_a_job_that_failed_says_why(http: httpx.Client, db: Sessions) -> None:
    name = ask(http)["id"]
    claim(db, name)
    with transaction(db) as session:
        records.record_failures(session, [FailureRow(job_number(name), 1, "engine_crash", "It died.")])
    failed = http.get(f"/v1/jobs/{name}").json()
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "engine_crash", "message": "It died."}


def test_a_deadline_is_kept(http: httpx.Client, rows: Rows) -> None:
    ask(http, deadline_s=90)
    assert rows.one("SELECT round(extract(epoch FROM deadline - created_at))::int FROM jobs") in (89, 90)


@pytest.mark.parametrize("name", ["job_0000000000000001", "job_1", "nonsense"])
def test_a_job_that_is_not_there(http: httpx.Client, name: str) -> None:
    assert http.get(f"/v1/jobs/{name}").status_code == 404


def test_another_tenants_job_is_not_there(http: httpx.Client, api_url: str, db: Sessions) -> None:
    name = ask(http)["id"]
    headers = {"Authorization": f"Bearer {new_key(db, 'Bob')}"}
    assert httpx.get(f"{api_url}/v1/jobs/{name}", headers=headers).status_code == 404
