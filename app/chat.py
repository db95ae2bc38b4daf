"""A chat completion's body, checked and turned into a prompt, params and images. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.checks import Json, missing, shown, wrong
from app.config import Settings
from app.errors import NotFound
from app.messages import Reading, check_shower, refuse_part
from app.params import read_params
from app.references import ImageReference


@dataclass(frozen=True)
class ModelRules:
    """What may be asked of a model: characters of text per request, tokens per answer. `name` is its own."""

    name: str
    prompt_max_chars: int
    max_new_tokens: int


@dataclass(frozen=True)
class ChatRules:
    """What a body may ask for: models, by every name that they have, and images per request."""

    models: Mapping[str, ModelRules]
    images_per_job: int

    def model(self, body: Mapping[str, Json]) -> ModelRules:
        """The model that a body names; RequestError where none is served by that name."""
        model = body.get("model")
        if model is None:
            raise missing("model")
        if not isinstance(model, str):
            raise wrong("model", f"model must be a string, not {shown(model)}.")
        if model not in self.models:
            served = ", ".join(self.models)
            message = f"The model {shown(model)} is not served here; use {served}."
            raise NotFound(message, param="model", code="model_not_found")
        return self.models[model]

    def reading(self, model: ModelRules) -> Reading:
        return Reading(model.name, images_per_job=self.images_per_job, most_chars=model.prompt_max_chars)


@dataclass(frozen=True)
class ChatRequest:
    """A checked body. `model` is the model's own name, whichever the body had; `prompt` and `params` are as
    stored; `image_params` says where each image stood."""

    model: str
    prompt: Mapping[str, Json]
    params: Mapping[str, Json]
    images: tuple[ImageReference, ...]
    image_params: tuple[str, ...]


def chat_rules(settings: Settings) -> ChatRules:
    models = {name: _model_rules(settings.for_model(model)) for name, model in settings.model_names.items()}
    return ChatRules(models=models, images_per_job=settings.images_per_job)


def parse_chat_body(body: Json, rules: ChatRules) -> ChatRequest:
    """Check a `/v1/chat/completions` body.

    Raises RequestError with code and `param` (relative to the body) for the first thing that is wrong;
    `UnusableImage` when that is the form of an image reference.
    """
    if not isinstance(body, dict):
        raise wrong("", f"The body must be a JSON object, not {shown(body)}.")
    model = rules.model(body)
    params = read_params(body, max_new_tokens=model.max_new_tokens)
    messages = body.get("messages")
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages must be a list with at least one message.")
    reading = rules.reading(model)

    def part(param: str, given: Json, role: str) -> dict[str, Json]:
        return _part(reading, param, given, role)

    turns = [reading.turn(f"messages[{at}]", message, part) for at, message in enumerate(messages)]
    reading.check_length("messages")
    return make_request(model, turns, params, reading)


def make_request(
    model: ModelRules, turns: list[dict[str, Json]], params: Mapping[str, Json], reading: Reading
) -> ChatRequest:
    return ChatRequest(
        model=model.name,
        prompt={"turns": turns},
        params={**params, **reading.max_pixels},
        images=tuple(reading.images),
        image_params=tuple(reading.image_params),
    )


def _part(reading: Reading, param: str, part: Json, role: str) -> dict[str, Json]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        if "text" not in part:
            raise missing(f"{param}.text")
        return reading.text(f"{param}.text", part["text"])
    if kind != "image_url":
        raise refuse_part(param, part, "'text' or 'image_url'")
    check_shower(param, role)
    image, param = part.get("image_url"), f"{param}.image_url"
    if image is None:
        raise missing(param)
    if not isinstance(image, dict):
        raise wrong(param, f'image_url must be an object {{"url": ...}}, not {shown(image)}.')
    return reading.image(param, f"{param}.url", image.get("url"), image.get("detail"))


def _model_rules(settings: Settings) -> ModelRules:
    return ModelRules(settings.served_model, settings.prompt_max_chars, settings.max_new_tokens)
