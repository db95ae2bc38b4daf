"""A chat completion's body, checked and turned into a prompt, params and images. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.checks import Json, is_unicode, missing, shown, wrong
from app.config import Settings
from app.data_urls import unsupported_modality
from app.errors import InvalidWork, NotFound, RequestError
from app.params import read_params
from app.references import ImageReference, parse_reference

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# `detail: low` on every image caps each at 512 x 512 pixels, 256 visual tokens. OpenAI's low is a 512 px
# picture too. `high`, `auto` and `original` leave the engine's own budget, which nothing may exceed.
LOW_DETAIL_PIXELS = 262_144
DETAILS = ("low", "high", "auto", "original")

_MOVING = re.compile("video|audio")  # video_url, input_video, input_audio and the like
_SCHEME = re.compile(r"\s*([a-z][a-z0-9+.-]*):/", re.IGNORECASE)


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


@dataclass(frozen=True)
class ChatRequest:
    """A checked body. `model` is the model's own name, whichever the body had; `prompt` and `params` are as
    stored; `image_params` says where each image stood."""

    model: str
    prompt: Mapping[str, Json]
    params: Mapping[str, Json]
    images: tuple[ImageReference, ...]
    image_params: tuple[str, ...]


class UnusableImage(RequestError):
    """The request is one, but an image in it cannot be read: `model` is whom it was meant for."""

    def __init__(self, model: str, message: str, *, code: str, param: str) -> None:
        super().__init__(message, code=code, param=param)
        self.model = model


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
    model = _model(body, rules)
    params = read_params(body, max_new_tokens=model.max_new_tokens)
    messages = body.get("messages")
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages must be a list with at least one message.")
    reading = _Reading(model.name, rules.images_per_job)
    turns = [reading.turn(f"messages[{at}]", message) for at, message in enumerate(messages)]
    _check_length(reading.chars, model.prompt_max_chars)
    if reading.images and reading.details == {"low"}:
        params["max_pixels"] = LOW_DETAIL_PIXELS
    return ChatRequest(
        model.name, {"turns": turns}, params, tuple(reading.images), tuple(reading.image_params)
    )


class _Reading:
    """Reads the messages of one body, collects their images in order and counts their characters."""

    def __init__(self, model: str, images_per_job: int) -> None:
        self.images: list[ImageReference] = []
        self.image_params: list[str] = []
        self.details: set[str] = set()
        self.chars = 0
        self._model = model
        self._images_per_job = images_per_job

    def turn(self, param: str, message: Json) -> dict[str, Json]:
        if not isinstance(message, dict):
            raise wrong(param, f"A message must be an object, not {shown(message)}.")
        role = message.get("role")
        if role is None:
            raise missing(f"{param}.role")
        if not isinstance(role, str) or role not in ROLES:
            raise wrong(f"{param}.role", f"The role must be one of {', '.join(ROLES)}, not {shown(role)}.")
        if message.get("tool_calls") or message.get("function_call"):
            raise wrong(f"{param}.tool_calls", "Tool calls are not served: leave them out.")
        return {"role": ROLES[role], "parts": self._content(f"{param}.content", message, ROLES[role])}

    def _content(self, param: str, message: Mapping[str, Json], role: str) -> list[dict[str, Json]]:
        content = message.get("content")
        if content is None:
            raise missing(param)
        if isinstance(content, str):
            return [self._text(param, content)]
        if not isinstance(content, list) or not content:
            raise wrong(
                param, f"content must be a text or a list of at least one part, not {shown(content)}."
            )
        return [self._part(f"{param}[{at}]", part, role) for at, part in enumerate(content)]

    def _part(self, param: str, part: Json, role: str) -> dict[str, Json]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            if "text" not in part:
                raise missing(f"{param}.text")
            return self._text(f"{param}.text", part["text"])
        if isinstance(kind, str) and (moving := _MOVING.search(kind)):
            refusal = unsupported_modality(moving[0])
            raise wrong(f"{param}.type", refusal.message, refusal.code)
        if kind != "image_url":
            asked = shown(kind if isinstance(part, dict) else part)
            raise wrong(
                f"{param}.type", f"A part must be of type 'text' or 'image_url'; {asked} is not served."
            )
        if role != "user":
            raise wrong(param, f"Only messages of the user may hold images, not those of role {role!r}.")
        return self._image(f"{param}.image_url", part.get("image_url"))

    def _text(self, param: str, text: Json) -> dict[str, Json]:
        if not isinstance(text, str):
            raise wrong(param, f"The text must be a string, not {shown(text)}.")
        if not is_unicode(text):
            raise wrong(
                param, "The text holds a lone surrogate (half of a Unicode pair), which UTF-8 cannot encode."
            )
        self.chars += len(text)
        return {"text": text}

    def _image(self, param: str, image: Json) -> dict[str, Json]:
        if image is None:
            raise missing(param)
        if not isinstance(image, dict):
            raise wrong(param, f'image_url must be an object {{"url": ...}}, not {shown(image)}.')
        detail = image.get("detail")
        if detail is not None and detail not in DETAILS:
            raise wrong(
                f"{param}.detail", f"detail must be one of {', '.join(DETAILS)}, not {shown(detail)}."
            )
        if len(self.images) == self._images_per_job:
            raise wrong(param, f"There are too many images: the limit is {self._images_per_job} per request.")
        self.images.append(self._reference(f"{param}.url", image.get("url")))
        self.image_params.append(f"{param}.url")
        self.details.add(detail or "auto")
        return {"image": len(self.images) - 1}

    def _reference(self, param: str, url: Json) -> ImageReference:
        if url is None:
            raise missing(param)
        if not isinstance(url, str) or not url.strip() or not is_unicode(url):
            raise wrong(
                param,
                f"url must be an https:// or data: URL, an s3:// key or a file id, not {shown(url)}.",
            )
        if scheme := _foreign_scheme(url):
            message = (
                f"{shown(scheme)} URLs are blocked. Use an https:// or data: URL, an s3:// key or a file id."
            )
            raise UnusableImage(self._model, message, code="blocked_url", param=param)
        try:
            return parse_reference(url)
        except InvalidWork as error:
            raise UnusableImage(self._model, error.message, code=error.code, param=param) from error


def _foreign_scheme(url: str) -> str | None:
    """The scheme of a URL that is of no kind we read, such as file: or ftp:."""
    found = _SCHEME.match(url[:64])
    scheme = found[1].lower() if found else "https"
    return None if scheme in ("http", "https", "data", "s3") else scheme


def _check_length(chars: int, limit: int) -> None:
    """Here, as counting tokens takes a worker a second per megabyte."""
    if chars > limit:
        raise wrong(
            "messages",
            f"The text of all messages has {chars} characters; the limit is {limit}. "
            "Shorten it, or split it over several requests.",
        )


def _model_rules(settings: Settings) -> ModelRules:
    return ModelRules(settings.served_model, settings.prompt_max_chars, settings.max_new_tokens)


def _model(body: Mapping[str, Json], rules: ChatRules) -> ModelRules:
    model = body.get("model")
    if model is None:
        raise missing("model")
    if not isinstance(model, str):
        raise wrong("model", f"model must be a string, not {shown(model)}.")
    if model not in rules.models:
        served = ", ".join(rules.models)
        message = f"The model {shown(model)} is not served here; use {served}."
        raise NotFound(message, param="model", code="model_not_found")
    return rules.models[model]
