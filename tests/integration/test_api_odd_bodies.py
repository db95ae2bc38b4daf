"""Whatever a client posts, it is told what is wrong: no body gives a 500."""

import json
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEXT = st.text(st.characters(), max_size=20)  # NUL and half surrogate pairs among them
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
BATCH = {
    "input_file_id": JSON,
    "endpoint": st.just("/v1/chat/completions") | JSON,
    "completion_window": st.just("24h") | JSON,
    "metadata": st.dictionaries(TEXT, TEXT, max_size=3) | JSON,
    "output_expires_after": JSON,
}
JOB = {
    "image": TEXT.map("https://a.example/{}".format) | JSON,
    "images": st.lists(TEXT.map("s3://bucket/{}".format) | TEXT.map("data:{}".format) | JSON, max_size=3)
    | JSON,
    "system": TEXT | JSON,
    "max_tokens": JSON,
    "temperature": JSON,
    "seed": JSON,
    "stop": st.lists(TEXT) | JSON,
    "deadline_s": st.floats() | JSON,
}
ODD = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ODD
@given(body=st.fixed_dictionaries({}, optional=BATCH) | JSON)
def test_no_body_of_a_batch_gives_a_500(http: httpx.Client, body: object) -> None:
    answer = http.post("/v1/batches", content=json.dumps(body))
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


@ODD
@given(body=st.fixed_dictionaries({"question": TEXT | JSON}, optional=JOB) | JSON)
def test_no_body_of_a_job_gives_a_500(http: httpx.Client, body: object) -> None:
    answer = http.post("/v1/jobs", content=json.dumps(body))
    assert answer.status_code in (202, 400, 404)


@ODD
@given(name=st.text(min_size=1, max_size=20), room=st.sampled_from(("files", "batches", "jobs", "models")))
def test_no_id_gives_a_500(http: httpx.Client, name: str, room: str) -> None:
    answer = http.get(f"/v1/{room}/{quote('a' + name, safe='')}")
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


@ODD
@given(key=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=300))
def test_no_idempotency_key_gives_a_500(http: httpx.Client, key: str) -> None:
    body = {"input_file_id": "f", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    answer = http.post("/v1/batches", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code in (400, 404)
