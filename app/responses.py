"""The body of a `/v1/responses` request, read as the request that a chat completion would make. Pure."""

from collections.abc import Mapping

from app.chat import ChatRequest, ChatRules, make_request
from app.checks import Json, missing, shown, wrong
from app.constraints import GUIDES, read_constraint, read_text_format
from app.messages import Reading, check_shower, refuse_part
from app.params import (
    IGNORED,
    UNSERVED,
    Unserved,
    Vocabulary,
    check_unused,
    read_sampling,
    top_logprobs,
    unknown,
)

LOGPROBS = "message.output_text.logprobs"
# Of reasoning there is none, so that nothing is missing where it is included.
INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")

NO_MEMORY = "Send the whole conversation in 'input'"
RESPONSES = Vocabulary(
    max_tokens=frozenset({"max_output_tokens"}),
    elsewhere=IGNORED
    | GUIDES
    | {"model", "input", "instructions", "text", "reasoning", "include", "top_logprobs"},
    unserved={
        **UNSERVED,
        "stream": Unserved((False,), "Chat completions can be streamed"),
        "background": Unserved((False,), "A batch runs in the background"),
        "conversation": Unserved((), NO_MEMORY),
        "context_management": Unserved(([],), NO_MEMORY),
        "max_tool_calls": Unserved(()),
        "moderation": Unserved(()),
        "previous_response_id": Unserved((), NO_MEMORY),
        "prompt": Unserved((), "Send the prompt's text in 'input'"),
        "truncation": Unserved(("disabled",), "Shorten the input"),
    },
)
TEXT = {"verbosity": Unserved(("medium",), "Say in the prompt how long the answer is to be")}
REASONING = {
    "effort": Unserved(("none",), "Choose a model that reasons as much as you want"),
    "summary": Unserved(("auto",)),
    "generate_summary": Unserved(("auto",)),
}


def parse_responses_body(body: Json, rules: ChatRules) -> ChatRequest:
    """Check a `/v1/responses` body. Raises as `parse_chat_body` does."""
    if not isinstance(body, dict):
        raise wrong("", f"The body must be a JSON object, not {shown(body)}.")
    model = rules.model(body)
    params = read_sampling(body, RESPONSES, max_new_tokens=model.max_new_tokens)
    _check_object("reasoning", body.get("reasoning"), REASONING)
    _check_object("text", body.get("text"), TEXT, known=("format",))
    found = {"logprobs": _logprobs(body), "constraint": _constraint(body)}
    params |= {name: value for name, value in found.items() if value is not None}
    reading = rules.reading(model)
    turns = [*_instructions(body.get("instructions"), reading), *_input(body.get("input"), reading)]
    reading.check_length("input")
    return make_request(model, turns, params, reading)


def _instructions(given: Json, reading: Reading) -> list[dict[str, Json]]:
    if given is None:
        return []
    return [{"role": "system", "parts": [reading.text("instructions", given)]}]


def _input(given: Json, reading: Reading) -> list[dict[str, Json]]:
    if given is None:
        raise missing("input")
    if isinstance(given, str):
        return [{"role": "user", "parts": [reading.text("input", given)]}]
    if not isinstance(given, list) or not given:
        raise wrong("input", f"input must be a text or a list of at least one message, not {shown(given)}.")
    return [_item(f"input[{at}]", item, reading) for at, item in enumerate(given)]


def _item(param: str, item: Json, reading: Reading) -> dict[str, Json]:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind not in (None, "message"):
        raise wrong(
            f"{param}.type", f"An item of input must be of type 'message'; {shown(kind)} is not served."
        )

    def part(at: str, given: Json, role: str) -> dict[str, Json]:
        return _part(reading, at, given, role)

    return reading.turn(param, item, part)


def _part(reading: Reading, param: str, part: Json, role: str) -> dict[str, Json]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text"):
        if "text" not in part:
            raise missing(f"{param}.text")
        return reading.text(f"{param}.text", part["text"])
    if kind != "input_image":
        raise refuse_part(param, part, "'input_text', 'output_text' or 'input_image'")
    check_shower(param, role)
    url, file_id = part.get("image_url"), part.get("file_id")
    if url is not None and file_id is not None:
        raise wrong(param, "image_url and file_id exclude each other: give one of them.")
    if isinstance(url, dict):
        raise wrong(f"{param}.image_url", "image_url must be a text here: the URL itself, not an object.")
    at = "image_url" if file_id is None else "file_id"
    return reading.image(param, f"{param}.{at}", url if file_id is None else file_id, part.get("detail"))


def _logprobs(body: Mapping[str, Json]) -> int | None:
    """How many alternatives each token is told with; asking for some asks for log probabilities."""
    include, top = body.get("include"), body.get("top_logprobs")
    if include is not None and not isinstance(include, list):
        raise wrong("include", f"include must be a list, not {shown(include)}.")
    for at, name in enumerate(include or ()):
        if name not in INCLUDABLE:
            message = f"{shown(name)} is not served in include: leave it out, or use {INCLUDABLE[0]!r}."
            raise wrong(f"include[{at}]", message)
    count = top_logprobs(top)
    return count if count or LOGPROBS in (include or ()) else None


def _constraint(body: Mapping[str, Json]) -> dict[str, Json] | None:
    """What the answer is held to: `text.format`, or vLLM's spellings, which all endpoints have."""
    text, guides = body.get("text"), read_constraint({name: body.get(name) for name in GUIDES})
    form = read_text_format("text.format", text.get("format")) if text else None
    if form and guides:
        raise wrong("text.format", "An answer is held to one form, so keep text.format or the guide.")
    return form or guides


def _check_object(
    name: str, given: Json, unserved: Mapping[str, Unserved], known: tuple[str, ...] = ()
) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise wrong(name, f"{name} must be an object, not {shown(given)}.")
    for field, value in given.items():
        if field not in (*unserved, *known):
            raise unknown(field, f"{name}.")
        if field in unserved and value is not None:
            check_unused(f"{name}.{field}", value, unserved[field])
