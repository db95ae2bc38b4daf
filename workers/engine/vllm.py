"""The vLLM engine: AsyncLLM in this process, on an event loop in a thread of its own."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

from app.errors import FatalWork, InvalidWork, TransientWork, WorkError
from workers.engine.answer_text import AnswerText
from workers.engine.base import Answer, FinishReason, Note, Observer, Request, TokenLogprob, Usage
from workers.engine.failures import step_failed
from workers.engine.folder import Outline, read_outline
from workers.engine.loop import RequestLoop
from workers.engine.repetition import repeats
from workers.engine.vllm_arguments import Arguments, VllmSettings, engine_arguments
from workers.engine.vllm_requests import (
    VllmPrompt,
    VllmPrompts,
    constraint_arguments,
    priority,
    sampling_arguments,
)

WATCH_S = 0.5


def open_engine(
    *,
    model: str,
    normaliser: str,
    observer: Observer,
    settings: VllmSettings,
    on_death: Callable[[str], None],
    name: str | None = None,
    dtype: str = "auto",
    max_pixels: int | None = None,
    stall_s: float = 300.0,
    prepare_threads: int = 2,
) -> "VllmEngine":
    """Start vLLM on a checkpoint; raises FatalWork where it is not one that we run, or vLLM is missing.

    `on_death` is told why when vLLM's own process has died or answers nothing for `stall_s`: this process
    has to end then.
    """
    outline = read_outline(model, max_pixels=max_pixels)
    on_gpu = _has_gpu()
    chosen = dtype if dtype != "auto" else "bfloat16" if on_gpu else "float32"
    arguments = engine_arguments(
        settings,
        folder=outline.folder,
        dtype=chosen,
        on_gpu=on_gpu,
        max_pixels=outline.preprocessor.max_pixels,
    )
    return VllmEngine(
        name=name or model.rstrip("/").rsplit("/", 1)[-1],
        outline=outline,
        number_format=f"{'gpu' if on_gpu else 'cpu'} {chosen}",
        arguments=arguments,
        normaliser=normaliser,
        observer=observer,
        on_death=on_death,
        stall_s=stall_s,
        prepare_threads=prepare_threads,
    )


class VllmEngine:
    """Hands requests to vLLM's scheduler as they come; decoding of pictures happens on a small pool."""

    def __init__(
        self,
        *,
        name: str,
        outline: Outline,
        number_format: str,
        arguments: Arguments,
        normaliser: str,
        observer: Observer,
        on_death: Callable[[str], None],
        stall_s: float = 300.0,
        prepare_threads: int = 2,
    ) -> None:
        self.model = name
        self.revision = outline.revision
        self.number_format = number_format
        self._end_ids = outline.end_ids
        self._on_death = on_death
        self._stall_s = stall_s
        self._asked = 0  # requests that vLLM has
        self._heard = time.monotonic()  # when vLLM last said something, or was first asked
        self._ending = False
        self._pool = ThreadPoolExecutor(prepare_threads, thread_name_prefix="engine-prepare")
        self._requests = RequestLoop("vllm", self._answer, observer=observer)
        try:
            self._llm: Any = self._requests.run(self._open(arguments))
        except BaseException:
            self._requests.close(_nothing)
            raise
        self._prompts = VllmPrompts(
            outline,
            normaliser=normaliser,
            context=self._llm.model_config.max_model_len,
            encoder_tokens=self._llm.input_processor.mm_encoder_cache_size,
        )
        self._requests.start(self._watch())

    def submit(self, request: Request) -> Future[Answer]:
        return self._requests.submit(request)

    def close(self) -> None:
        """Let the rows that run end, fail the rest, stop vLLM; may be called again."""
        self._requests.close(self._stop)
        self._pool.shutdown()

    async def _open(self, arguments: Arguments) -> Any:
        """On the loop, as vLLM reads its results on the loop that it was made on."""
        made = _vllm("engine.arg_utils").AsyncEngineArgs(**arguments)
        return _vllm("v1.engine.async_llm").AsyncLLM.from_engine_args(made)

    async def _stop(self) -> None:
        self._ending = True
        self._llm.shutdown()

    async def _watch(self) -> None:
        """Also while nobody asks: a worker without an engine must not take another chunk."""
        while not self._ending:
            await asyncio.sleep(WATCH_S)
            if self._llm.errored:
                self._die("vLLM's engine process has died")
            elif self._asked and 0 < self._stall_s < time.monotonic() - self._heard:
                self._die(f"vLLM gave no token for {self._stall_s:g} s")

    def _die(self, reason: str) -> None:
        if not self._ending:
            self._ending = True
            for process in multiprocessing.active_children():
                process.kill()  # else a stuck one would keep its memory after us
            self._on_death(reason)
            self._requests.end_all(FatalWork("engine_died", reason))

    async def _answer(self, request: Request, begun: Callable[[], None]) -> Answer:
        loop = asyncio.get_running_loop()
        made, pictures = await loop.run_in_executor(self._pool, self._prompts.build, request)
        answer = VllmAnswer(request, self._prompts, self._end_ids, made)
        self._heard = self._heard if self._asked else time.monotonic()
        self._asked += 1
        try:
            outputs = self._llm.generate(
                made.prompt, self._parameters(request), request.id, priority=priority(request)
            )
            async for output in outputs:
                self._heard = time.monotonic()
                begun()
                answer.add(output)
        except WorkError:
            raise
        except Exception as error:
            raise self._told(error) from error
        finally:
            self._asked -= 1
            pictures.clear()
        return answer.done()

    def _parameters(self, request: Request) -> Any:
        types = _vllm("sampling_params")
        structured = None
        if request.constraint is not None:
            structured = types.StructuredOutputsParams(**constraint_arguments(request.constraint))
        return types.SamplingParams(
            **sampling_arguments(request, self._end_ids),
            structured_outputs=structured,
            output_kind=types.RequestOutputKind.DELTA,
            detokenize=bool(request.sampling.stop),
        )

    def _told(self, error: Exception) -> Exception:
        if self._llm.errored:
            self._die("vLLM's engine process has died")
        if isinstance(error, _vllm("exceptions").VLLMClientError):
            return InvalidWork("invalid_request", f"vLLM refuses the request: {error}")
        return step_failed(error)


class VllmAnswer:
    """What vLLM has said so far to one request."""

    def __init__(
        self, request: Request, prompts: VllmPrompts, end_ids: frozenset[int], made: VllmPrompt
    ) -> None:
        self._sampling = request.sampling
        self._tokenizer = prompts.tokenizer
        self._end_ids = end_ids
        self._prompt_tokens = made.tokens
        self._text = AnswerText(
            prompts.tokenizer, request.sampling.stop, request.on_text, opening=made.opening
        )
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._cached = 0
        self._reason: str | None = None

    def add(self, output: Any) -> None:
        """One of vLLM's RequestOutputs. FatalWork where it made another prompt of it than we did."""
        if (found := len(output.prompt_token_ids)) != self._prompt_tokens:
            raise FatalWork(
                "prompt_mismatch", f"vLLM made {found} tokens of a prompt of {self._prompt_tokens}"
            )
        said = output.outputs[0]
        for token in said.token_ids:
            self._tokens.append(token)
            self._text.add(token, hidden=token in self._end_ids)
        if said.logprobs is not None:
            tokens = zip(said.token_ids, said.logprobs, strict=True)
            self._logprobs += [self._logprob(token, shares) for token, shares in tokens]
        self._cached = output.num_cached_tokens or self._cached
        self._reason = said.finish_reason

    def done(self) -> Answer:
        reason = self._finish_reason()
        text = self._text.whole(self._tokens, cut=reason == "length")
        return Answer(
            text,
            reason,
            Usage(self._prompt_tokens, len(self._tokens), self._cached),
            tuple(self._logprobs) if self._sampling.logprobs is not None else None,
            self._notes(text, reason),
        )

    def _finish_reason(self) -> FinishReason:
        match self._reason:
            case "stop" | "length":
                return self._reason
            case other:
                raise TransientWork("engine_aborted", f"vLLM ended the request itself: {other}")

    def _notes(self, text: str, reason: FinishReason) -> tuple[Note, ...]:
        empty = () if text.strip() else (Note.EMPTY,)
        return (*empty, Note.REPETITION) if reason == "length" and repeats(self._tokens) else empty

    def _logprob(self, token: int, shares: Any) -> TokenLogprob:
        """`shares` has the token that was chosen and the likeliest ones, by id."""
        ranked = sorted(shares.items(), key=lambda item: item[1].rank)[: self._sampling.logprobs]
        return TokenLogprob(
            self._show(token),
            shares[token].logprob,
            tuple((self._show(other), share.logprob) for other, share in ranked),
        )

    def _show(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)


def _vllm(module: str) -> Any:
    """A module of vLLM's: it is not installed everywhere, and makes its classes for the machine it is on."""
    try:
        return import_module(f"vllm.{module}")
    except ImportError as error:
        raise FatalWork(
            "engine_missing", f"vLLM cannot be imported ({error}): install vqueue[vllm]"
        ) from error


async def _nothing() -> None:
    """There is nothing to stop yet."""


def _has_gpu() -> bool:
    return bool(import_module("torch").cuda.is_available())
