"""The turns of one request's conversation: roles, texts and images, whichever endpoint they came by. Pure."""

import re
from collections.abc import Callable, Mapping

from app.checks import Json, is_unicode, missing, shown, wrong
from app.data_urls import unsupported_modality
from app.errors import InvalidWork, RequestError
from app.references import ImageReference, parse_reference

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# `detail: low` on every image caps each at 512 x 512 pixels, 256 visual tokens. OpenAI's low is a 512 px
# picture too. `high`, `auto` and `original` leave the engine's own budget, which nothing may exceed.
LOW_DETAIL_PIXELS = 262_144
DETAILS = ("low", "high", "auto", "original")

_MOVING = re.compile("video|audio")  # video_url, input_video, input_audio and the like
_SCHEME = re.compile(r"\s*([a-z][a-z0-9+.-]*):/", re.IGNORECASE)

# Reads a part of a message from a role: where it stands, and what is there.
ReadPart = Callable[[str, Json, str], dict[str, Json]]


class UnusableImage(RequestError):
    """The request is one, but an image in it cannot be read: `model` is whom it was meant for."""

    def __init__(self, model: str, message: str, *, code: str, param: str) -> None:
        super().__init__(message, code=code, param=param)
        self.model = model


class Reading:
    """Reads the messages of one body, collects their images in order and counts their characters."""

    def __init__(self, model: str, *, images_per_job: int, most_chars: int) -> None:
        self.images: list[ImageReference] = []
        self.image_params: list[str] = []
        self._details: set[str] = set()
        self._chars = 0
        self._model = model
        self._images_per_job = images_per_job
        self._most_chars = most_chars

    @property
    def max_pixels(self) -> dict[str, Json]:
        """What `detail` makes of the pixel budget, as a parameter of the request."""
        return {"max_pixels": LOW_DETAIL_PIXELS} if self._details == {"low"} else {}

    def turn(self, param: str, message: Json, part: ReadPart) -> dict[str, Json]:
        if not isinstance(message, dict):
            raise wrong(param, f"A message must be an object, not {shown(message)}.")
        role = message.get("role")
        if role is None:
            raise missing(f"{param}.role")
        if not isinstance(role, str) or role not in ROLES:
            raise wrong(f"{param}.role", f"The role must be one of {', '.join(ROLES)}, not {shown(role)}.")
        if message.get("tool_calls") or message.get("function_call"):
            raise wrong(f"{param}.tool_calls", "Tool calls are not served: leave them out.")
        return {"role": ROLES[role], "parts": self._content(f"{param}.content", message, ROLES[role], part)}

    def text(self, param: str, text: Json) -> dict[str, Json]:
        if not isinstance(text, str):
            raise wrong(param, f"The text must be a string, not {shown(text)}.")
        if not is_unicode(text):
            raise wrong(
                param, "The text holds a lone surrogate (half of a Unicode pair), which UTF-8 cannot encode."
            )
        self._chars += len(text)
        return {"text": text}

    def image(self, param: str, at: str, url: Json, detail: Json) -> dict[str, Json]:
        """The image at `at` of the part or object at `param`."""
        if detail is not None and detail not in DETAILS:
            raise wrong(
                f"{param}.detail", f"detail must be one of {', '.join(DETAILS)}, not {shown(detail)}."
            )
        if len(self.images) == self._images_per_job:
            raise wrong(param, f"There are too many images: the limit is {self._images_per_job} per request.")
        self.images.append(self._reference(at, url))
        self.image_params.append(at)
        self._details.add(detail or "auto")
        return {"image": len(self.images) - 1}

    def check_length(self, param: str) -> None:
        """Here, as counting tokens takes a worker a second per megabyte."""
        if self._chars > self._most_chars:
            raise wrong(
                param,
                f"The text of all messages has {self._chars} characters; the limit is {self._most_chars}. "
                "Shorten it, or split it over several requests.",
            )

    def _content(
        self, param: str, message: Mapping[str, Json], role: str, part: ReadPart
    ) -> list[dict[str, Json]]:
        content = message.get("content")
        if content is None:
            raise missing(param)
        if isinstance(content, str):
            return [self.text(param, content)]
        if not isinstance(content, list) or not content:
            raise wrong(
                param, f"content must be a text or a list of at least one part, not {shown(content)}."
            )
        return [part(f"{param}[{at}]", one, role) for at, one in enumerate(content)]

    def _reference(self, param: str, url: Json) -> ImageReference:
        if url is None:
            raise missing(param)
        if not isinstance(url, str) or not url.strip() or not is_unicode(url):
            name = param.rsplit(".", 1)[-1]
            raise wrong(
                param,
                f"{name} must be an https:// or data: URL, an s3:// key or a file id, not {shown(url)}.",
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


def refuse_part(param: str, part: Json, served: str) -> RequestError:
    """What to tell of a part whose type is not among the `served` ones."""
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and (moving := _MOVING.search(kind)):
        refusal = unsupported_modality(moving[0])
        return wrong(f"{param}.type", refusal.message, refusal.code)
    asked = shown(kind if isinstance(part, dict) else part)
    return wrong(f"{param}.type", f"A part must be of type {served}; {asked} is not served.")


def check_shower(param: str, role: str) -> None:
    if role != "user":
        raise wrong(param, f"Only messages of the user may hold images, not those of role {role!r}.")


def _foreign_scheme(url: str) -> str | None:
    """The scheme of a URL that is of no kind we read, such as file: or ftp:."""
    found = _SCHEME.match(url[:64])
    scheme = found[1].lower() if found else "https"
    return None if scheme in ("http", "https", "data", "s3") else scheme
