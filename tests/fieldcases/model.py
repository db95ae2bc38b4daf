"""Acts out the kind model: a small random checkpoint in the Transformers engine, from outside."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils.logging import disable_progress_bar

from app.errors import InvalidWork, WorkError
from app.states import GiveUp, RetryPolicy, after_error
from app.visual_tokens import visual_tokens
from tests.checkpoints import CONTEXT, build_checkpoint
from tests.fieldcases.cases import Case, Did, NotServed, Outcome
from tests.fieldcases.pictures import serve_token_table
from tests.observing import Recorder
from tests.requests import ask, picture
from tests.servers import Machine, start_valkey
from workers.engine.base import Answer, FeatureTier, Image, Request
from workers.engine.folder import read_outline
from workers.engine.transformers import TransformersEngine, open_engine
from workers.engine.vllm_requests import VllmPrompts

PATIENCE_S = 60
MARKS = 2  # tokens around an image's own
TABLE = "cases/model/model_tokens.json"
SMALL = (4096, 262_144)  # least and most pixels; the largest of the table's pictures are 256 tokens
LARGE = (65_536, 16_777_216)

Promises = Mapping[str, bool]


class Lab:
    """Checkpoints, a Valkey and engines, made when they are first wanted."""

    def __init__(self) -> None:
        disable_progress_bar()
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._redis_url: str | None = None

    def checkpoint(self, *, pixels: tuple[int, int] = SMALL, seed: int = 0) -> Path:
        """With this pixel budget of its own."""
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        folder = self._folder / f"{pixels[1]}-{seed}"
        if not folder.exists():
            build_checkpoint(folder, seed=seed)
            settings = folder / "preprocessor_config.json"
            size = {"shortest_edge": pixels[0], "longest_edge": pixels[1]}
            settings.write_text(json.dumps(json.loads(settings.read_text()) | {"size": size}))
        return folder

    @contextmanager
    def engine(
        self, checkpoint: Path | None = None, **options: Any
    ) -> Iterator[tuple[TransformersEngine, Recorder]]:
        recorder = Recorder()
        engine = open_engine(
            model=str(checkpoint or self.checkpoint()),
            normaliser="1",
            observer=recorder,
            torch_threads=1,
            prefix_cache_bytes=0,
            **options,
        )
        with closing(engine):
            yield engine, recorder

    def redis_url(self) -> str:
        if self._redis_url is None:
            self._redis_url = start_valkey(self._stack.enter_context(closing(Machine()))).url(1)
        return self._redis_url

    def close(self) -> None:
        self._stack.close()


def serve_model(case: Case, lab: Lab) -> Outcome:
    if case.expectations[0]["verdict"] == "table":
        return serve_token_table(case)
    act = _ACTS.get(case.id)
    if act is None:
        return NotServed("nobody has acted this row out")
    try:
        kept = act(case, lab)
    except WorkError as error:
        return Did("failed", {"error": error})
    broken = [promise for promise in case.expectations[0]["all_of"] if not kept.get(promise)]
    return Did("behaviour" if not broken else "promises broken", {"broken": broken})


def _text_among_pictures(case: Case, lab: Lab) -> Promises:
    requests = [
        ask(picture(1), "what colour?"),
        ask("how many"),
        ask(picture(2), "what colour?"),
        ask("is the mug"),
        ask("2 and 2?"),
    ]
    with lab.engine() as (engine, _):
        alone = [_answer(engine.submit(request)).text for request in requests]
        together = [_answer(future).text for future in [engine.submit(request) for request in requests]]
    return {
        "each answer equals its single run": together == alone,
        "no picture moves to a neighbour": together[0] == alone[0] != together[2] == alone[2],
    }


def _overlapping(case: Case, lab: Lab) -> Promises:
    """B is submitted while A's first piece of text is handed out."""
    with lab.engine() as (engine, _):
        first, alone = _long_answer(engine)
        second: list[Future[Answer]] = []

        def join(piece: str) -> None:
            if not second:
                second.append(engine.submit(ask(picture(2), "how many?")))

        answer = _answer(engine.submit(replace(first, on_text=join)))
        joined = bool(second) and bool(_answer(second[0]).text)
    return {"A's answer is what it is alone": joined and answer == alone}


def _long_answer(engine: TransformersEngine) -> tuple[Request, Answer]:
    for seed in range(50):
        request = ask(picture(seed), "tell me all", max_tokens=60)
        answer = _answer(engine.submit(request))
        if answer.usage.completion_tokens > 20:
            return request, answer
    raise AssertionError("the checkpoint answers nothing at length")


def _cache_key(case: Case, lab: Lab) -> Promises:
    """Each setting's entry is found again by an engine of the same settings, and by no other."""
    shown = replace(picture(1, 300, 300), expected_uses=9, later_uses=8)
    wide, narrow = ask(shown, "colour?", max_pixels=65_536), ask(shown, "colour?", max_pixels=16_384)
    caches = {"redis_url": lab.redis_url(), "feature_cache_bytes": 2**22}
    first = _tiers(lab, [wide, narrow, wide], **caches)
    again = _tiers(lab, [narrow], **caches)
    other = _tiers(lab, [wide], checkpoint=lab.checkpoint(seed=1), **caches)
    coarse = _tiers(lab, [wide], dtype="bfloat16", **caches)
    with lab.engine() as (engine, _):
        fresh = [_answer(engine.submit(request)).text for request in (wide, narrow, wide)]
    miss, memory, redis = FeatureTier.MISS, FeatureTier.MEMORY, FeatureTier.REDIS
    kept_apart = first[1] == [miss, miss, memory] and other[1] == [miss] and coarse[1] == [miss]
    return {
        "no entry is reused across them": kept_apart and again[1] == [redis],
        "no 'image features and image tokens do not match'": first[0] == fresh and again[0] == fresh[1:2],
    }


def _tiers(lab: Lab, requests: list[Request], **options: Any) -> tuple[list[str], list[FeatureTier]]:
    """Answers, and where the features came from."""
    with lab.engine(**options) as (engine, recorder):
        answers = [_answer(engine.submit(request)).text for request in requests]
    return answers, recorder.tiers()


def _max_pixels(case: Case, lab: Lab) -> Promises:
    checkpoint, budget = lab.checkpoint(pixels=LARGE), 1_000_000
    with lab.engine(checkpoint, max_pixels=budget) as (engine, _):
        by_setting = _image_tokens(engine, ask(_blank(6000, 4000), "colour?", max_tokens=1))
    with lab.engine(checkpoint, max_pixels=2 * budget) as (engine, _):
        larger = _image_tokens(engine, ask(_blank(6000, 4000), "colour?", max_tokens=1))
        request = ask(_blank(6000, 4000), "colour?", max_tokens=1, max_pixels=budget)
        by_request = _image_tokens(engine, request)
    table = visual_tokens(6000, 4000, min_pixels=LARGE[0], max_pixels=budget)
    return {
        "image tokens <= 977": by_setting == by_request == table <= 977,
        "documented setting reaches the processor's size, not only an attribute": larger > by_setting,
    }


def _image_tokens(engine: TransformersEngine, request: Request) -> int:
    without = _answer(engine.submit(ask("colour?", max_tokens=1))).usage.prompt_tokens
    return _answer(engine.submit(request)).usage.prompt_tokens - without - MARKS


def _too_long(case: Case, lab: Lab) -> Promises:
    request = ask(picture(1), "x" * 5000)
    with lab.engine() as (engine, recorder):
        error = engine.submit(request).exception(PATIENCE_S)
        ran = (recorder.prompt_tokens, recorder.encoded_images)
        neighbour = _answer(engine.submit(ask(picture(2), "colour?"))).text
    numbers = {int(number) for number in re.findall(r"\d+", str(error))}
    told = _is_final(error, "context_length_exceeded") and CONTEXT in numbers and max(numbers) > 5000
    return {
        "rejected before the run with both numbers in the text": told and ran == (0, 0),
        "never cut in the middle of image tokens": ran == (0, 0) and bool(neighbour),
    }


def _usage(case: Case, lab: Lab) -> Promises:
    table = [row for row in json.loads(case.read(TABLE)) if (row["min_pixels"], row["max_pixels"]) == SMALL]
    requests = [ask(_blank(row["width"], row["height"]), "colour?", max_tokens=2) for row in table]
    with lab.engine() as (engine, recorder):
        usages = [_answer(future).usage for future in [engine.submit(request) for request in requests]]
        seen = recorder.prompt_tokens + recorder.cached_tokens
        text = _answer(engine.submit(ask("colour?", max_tokens=1))).usage.prompt_tokens
    prompts = [usage.prompt_tokens for usage in usages]
    expected = [row["image_tokens"] + text + MARKS for row in table]
    return {
        "prompt_tokens include the image tokens of the table in model_tokens.json": prompts == expected,
        "totals add up over the batch": bool(table) and sum(prompts) == seen,
    }


def _encoder_budget(case: Case, lab: Lab) -> Promises:
    """Ours has no budget but the context; vLLM's requests are told its encoder's, whoever answers them."""
    large = ask(_blank(6000, 4000), "colour?")
    with lab.engine(lab.checkpoint(pixels=LARGE)) as (engine, recorder):
        ours = engine.submit(large).exception(PATIENCE_S)
        encoded = recorder.encoded_images
    outline = read_outline(str(lab.checkpoint()))
    prompts = VllmPrompts(outline, normaliser="1", context=CONTEXT, encoder_tokens=64)
    theirs = _raised(lambda: prompts.build(large))
    told = "64" in str(theirs) and str(CONTEXT) in str(ours)
    final = _is_final(ours, "context_length_exceeded") and _is_final(theirs, "image_too_large")
    return {"fails at once with a clear text, no endless retry": told and final and not encoded}


def _is_final(error: BaseException | None, code: str) -> bool:
    if not isinstance(error, InvalidWork) or error.code != code:
        return False
    return isinstance(after_error(error, attempt=1, policy=RetryPolicy(3), spread=0.5), GiveUp)


def _raised(act: Callable[[], object]) -> WorkError | None:
    try:
        act()
    except WorkError as error:
        return error
    return None


def _answer(future: Future[Answer]) -> Answer:
    return future.result(PATIENCE_S)


def _blank(width: int, height: int) -> Image:
    name = sha256(f"{width}x{height}".encode()).hexdigest()
    return Image(name, width, height, lambda: np.zeros((height, width, 3), np.uint8))


_ACTS: Mapping[str, Callable[[Case, Lab], Promises]] = {
    "model-text-only-mixed": _text_among_pictures,
    "model-two-threads": _overlapping,
    "model-cache-key-has-settings": _cache_key,
    "model-max-pixels-honoured": _max_pixels,
    "model-prompt-too-long": _too_long,
    "model-usage-counts": _usage,
    "model-encoder-budget": _encoder_budget,
}
