"""Objects of an API to name in requests: files, batches of them, a job, a model, a webhook endpoint."""

from openai import OpenAI

from tests.contract.explore import Known
from tests.desk import line

BATCHES = 6


def make_objects(client: OpenAI) -> Known:
    model = client.models.list().data[0].id
    content = line("a", model=model).encode()
    files = [
        client.files.create(file=(f"{number}.jsonl", content), purpose="batch").id
        for number in range(BATCHES)
    ]
    batches = [
        client.batches.create(
            input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h"
        ).id
        for file_id in files
    ]
    job = client.post("/jobs", body={"question": "why?"}, cast_to=object)
    assert isinstance(job, dict)
    hook = client.webhooks.create(
        name="contract", url="https://example.com/hook", event_types=["batch.completed"]
    )
    return {
        "file_id": files,
        "batch_id": batches,
        "job_id": [job["id"]],
        "model": [model],
        "webhook_endpoint_id": [hook.id],
    }
