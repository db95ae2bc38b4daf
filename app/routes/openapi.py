"""What `/openapi.json` says beyond the routes' types: names of operations, errors, examples, tags."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from app.routes import (
    examples,
    examples_clusters,
    examples_labels,
    examples_sweeps,
    examples_tenants,
    examples_webhooks,
)

PLACES = (examples, examples_webhooks, examples_tenants, examples_labels, examples_sweeps, examples_clusters)
REQUESTS = {name: example for place in PLACES for name, example in place.REQUESTS.items()}
ANSWERS = {name: example for place in PLACES for name, example in place.ANSWERS.items()}

# OpenAPI is JSON of which we change pieces in place.
Document = dict[str, Any]

TAGS = {
    "files": "Input and result files, and pictures that jobs name by id.",
    "batches": "Many requests with one deadline. Results by file, or while they come.",
    "answers": "(ours) Answers under a choice list or a JSON schema, by their labels; reviews of them.",
    "images": "(ours) Images that look the same, in clusters.",
    "jobs": "(ours) One question about some images, asked straight and polled.",
    "chat": "Chat completions, whole or streamed, answered while the line is held.",
    "responses": "The same in the words of the Responses API, whole.",
    "sweeps": "(ours) Sources gone through again and again: only what is new or changed is asked about.",
    "models": "The models that are served, and their aliases.",
    "webhooks": "Where events of batches are sent.",
    "cache": "(ours) Answers that are kept, so that nothing is asked twice.",
    "tenant": "(ours) Keys, usage and the audit log: for keys with the scope `admin`.",
    "health": "For probes and Prometheus; no key is needed.",
}
ERRORS = {
    400: "Something in the request is wrong: `param` names it.",
    401: "No API key, or one that does not hold.",
    403: "The key may not do this.",
    404: "There is no such object, or it is another tenant's.",
    408: "The body did not come in time.",
    409: "The object's state, or an Idempotency-Key used before, forbids it: do not try again.",
    413: "The body is too large.",
    429: "Too much at once: come back after `Retry-After` seconds.",
    500: "Our own fault: the log has the reason under the same request id.",
    503: "A server that this one stands on is away: come back after `Retry-After` seconds.",
    504: "There was no time left to answer.",
}
ALWAYS, WITH_ID, WRITING, HELD = (400, 401, 403, 429, 500, 503), (404,), (404, 408, 409, 413), (504,)
ERROR_SCHEMA = {
    "title": "Error",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "what is wrong, where, and what to do"},
                "type": {"type": "string", "examples": ["invalid_request_error"]},
                "param": {"type": ["string", "null"], "description": "the field that is at fault"},
                "code": {"type": ["string", "null"], "description": "stable; docs/api.md lists them"},
            },
        }
    },
}
REQUEST_ID = {"x-request-id": {"schema": {"type": "string"}, "description": "the logs hold it, too"}}


def operation_id(route: APIRoute) -> str:
    """Such as `batches_create`: the tag, and what the route's function does."""
    tag = str(route.tags[0]) if route.tags else "other"
    return f"{tag}_{re.sub(rf'_{tag}$', '', route.name)}"


def describe(app: FastAPI) -> None:
    """Have the app's document completed when it is first asked for."""
    generate = app.openapi

    def openapi() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate())
        return app.openapi_schema

    app.openapi = openapi


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Document]]:
    """Path, method and entry of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _completed(document: Document) -> Document:
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own: such errors are told as 400
        schemas.pop(name, None)
    schemas["Error"] = ERROR_SCHEMA
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    for path, method, operation in operations(document):
        operation["responses"].pop("422", None)
        if path.startswith("/v1/"):
            _add_errors(path, method, operation)
        _add_examples(operation)
        for answer in operation["responses"].values():
            answer["headers"] = {**REQUEST_ID, **answer.get("headers", {})}
    return document


def _add_errors(path: str, method: str, operation: Document) -> None:
    held = path in ("/v1/chat/completions", "/v1/responses")
    names_one = any(one["name"] == "after" or one["in"] == "path" for one in operation.get("parameters", ()))
    statuses = [
        *ALWAYS,
        *(WITH_ID if names_one else ()),
        *(WRITING if method != "get" else ()),
        *(HELD if held else ()),
    ]
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status in sorted(set(statuses)):
        operation["responses"].setdefault(str(status), {"description": ERRORS[status], "content": content})


def _add_examples(operation: Document) -> None:
    name = operation["operationId"]
    for media, entry in operation.get("requestBody", {}).get("content", {}).items():
        if media == "application/json" and name in REQUESTS:
            entry["examples"] = {key: {"value": value} for key, value in REQUESTS[name].items()}
    for status, answer in operation["responses"].items():
        entry = answer.get("content", {}).get("application/json")
        if status.startswith("2") and entry is not None and name in ANSWERS:
            entry["example"] = ANSWERS[name]
