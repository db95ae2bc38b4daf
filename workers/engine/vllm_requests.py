"""A request as vLLM wants it: prompt, pictures, sampling, and the order in which it may run."""

import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import PIL.Image

from app.errors import InvalidWork
from app.grammars import JSON_RULES, json_grammar, refusal
from app.visual_tokens import MERGE, PATCH
from workers.engine.base import Choice, Constraint, Image, JsonObject, JsonSchema, Request
from workers.engine.checks import check_length, image_grid, placed_images
from workers.engine.folder import Outline
from workers.engine.preprocess import Grid
from workers.engine.prompt import PromptBuilder

ONE_TOKEN = Grid(MERGE, MERGE)  # vLLM makes an image's mark as long as it must be, also one that was already
LATEST = 2**31 - 1  # the priority of who has no deadline
URGENT = -1
PRIORITY_S = 10.0  # deadlines nearer together than this keep their order, which is by image
TOKENS_AT_ONCE = 64  # that vLLM gathers before it reports, where nobody listens


@dataclass(frozen=True)
class VllmPrompt:
    """What `generate` takes, how many tokens vLLM must make of it, and what of it belongs to the answer."""

    prompt: Mapping[str, Any]  # vLLM's TokensPrompt
    tokens: int
    opening: str = ""


class Picture:
    """One image at its grid's size, decoded once for all requests that hold it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.resized: PIL.Image.Image | None = None


class VllmPrompts:
    """Makes prompts from any thread; `encoder_tokens` is the largest image that vLLM has room for."""

    def __init__(self, outline: Outline, *, normaliser: str, context: int, encoder_tokens: int) -> None:
        self._preprocessor = outline.preprocessor
        self._normaliser = normaliser
        self._context = context
        self._encoder_tokens = encoder_tokens
        self._builder = PromptBuilder(outline.tokenizer, context=context)
        self.tokenizer = self._builder.tokenizer
        self._pictures: weakref.WeakValueDictionary[str, Picture] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def build(self, request: Request) -> tuple[VllmPrompt, list[Picture]]:
        """The prompt, and the pictures to hold on to until the request ends.

        Sizes first, as in our own engine. Raises InvalidWork, and what `Image.load` raises.
        """
        places = placed_images(request)
        grids = {index: self._grid(request, index) for index in places}
        prompt = self._builder.build(request.turns, [ONE_TOKEN] * len(places))
        tokens = len(prompt) + sum(grids[index].tokens - 1 for index in places)
        check_length(tokens, request.sampling.max_tokens, limit=self._context)
        ids = [self._picture_id(request, request.images[index], grids[index]) for index in places]
        made: dict[str, Any] = {"prompt_token_ids": prompt.ids.tolist(), "cache_salt": _salt(request)}
        held = [
            self._picture(name, request.images[index], grids[index])
            for name, index in zip(ids, places, strict=True)
        ]
        if held:  # the key alone, without pictures, would mean a text: silently
            made["multi_modal_data"] = {"image": [picture.resized for picture in held]}
            made["multi_modal_uuids"] = {"image": ids}
        return VllmPrompt(made, tokens, prompt.opening if request.constraint is None else ""), held

    def _grid(self, request: Request, index: int) -> Grid:
        image, grid = request.images[index], image_grid(self._preprocessor, request, index)
        if grid.tokens > self._encoder_tokens:
            raise InvalidWork(
                "image_too_large",
                f"image {index} of {image.width}x{image.height} is {grid.tokens} visual tokens, but this "
                f"worker's engine has room for {self._encoder_tokens}: ask with a lower max_pixels",
            )
        return grid

    def _picture_id(self, request: Request, image: Image, grid: Grid) -> str:
        """All that changes the pixels, and the scope: vLLM answers for whatever it knows by this name."""
        size = f"{grid.width * PATCH}x{grid.height * PATCH}"
        named = json.dumps([request.cache_scope, image.content_hash, size, self._normaliser])
        return sha256(named.encode()).hexdigest()

    def _picture(self, name: str, image: Image, grid: Grid) -> Picture:
        with self._lock:
            picture = self._pictures.get(name)
            if picture is None:
                picture = self._pictures[name] = Picture()
        with picture.lock:
            if picture.resized is None:
                picture.resized = self._preprocessor.resized(image.load(), grid)
        return picture


def sampling_arguments(request: Request, end_ids: frozenset[int]) -> dict[str, Any]:
    """For vLLM's SamplingParams, without those that are objects of its own."""
    sampling = request.sampling
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "stop": [stop for stop in sampling.stop if stop],
        "stop_token_ids": sorted(end_ids),
        "repetition_penalty": sampling.repetition_penalty,
        "logprobs": sampling.logprobs,
        "stream_interval": 1 if request.on_text is not None else TOKENS_AT_ONCE,
    }


def constraint_arguments(constraint: Constraint) -> dict[str, Any]:
    """For vLLM's StructuredOutputsParams. Raises InvalidWork for a schema that is no JSON object."""
    match constraint:
        case JsonObject():
            return {"json": {"type": "object", "x-guidance": JSON_RULES}}
        case JsonSchema(schema):
            return {"json": {**_read_schema(schema), "x-guidance": JSON_RULES}}
        case Choice(options):
            return {"choice": list(options)}


def priority(request: Request) -> int:
    """Lower runs first: urgent ones, then by deadline, at a grain that keeps jobs of one image together."""
    if request.urgent:
        return URGENT
    return LATEST if request.deadline is None else min(LATEST, int(request.deadline / PRIORITY_S))


def _read_schema(schema: str) -> dict[str, Any]:
    """Checked as our own engine does, so that a schema is refused everywhere or nowhere."""
    try:
        problem = refusal(json_grammar(schema))
    except ValueError as error:
        raise InvalidWork("invalid_schema", f"The schema is not JSON of an object: {error}.") from error
    if problem is not None:
        raise InvalidWork("invalid_schema", f"The answer cannot be held to this form: {problem}")
    return json.loads(schema)


def _salt(request: Request) -> str:
    """Of the prefix cache; never empty, which vLLM refuses."""
    return f"scope:{request.cache_scope}"
