"""The remote engine: any server that speaks OpenAI's chat completions, such as vllm serve, SGLang or TGI."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import PIL.Image

from app.errors import FatalWork, TransientWork
from app.visual_tokens import FACTOR
from workers.engine.base import Answer, Observer, Request
from workers.engine.checks import check_answer_length, image_grid, placed_images
from workers.engine.loop import RequestLoop
from workers.engine.openai_wire import (
    Dialect,
    Gathered,
    Json,
    bad_reply,
    body,
    data_url,
    dialect,
    events,
    model_entry,
    read_reply,
    refusal,
)
from workers.engine.places import Places
from workers.engine.preprocess import Preprocessor

CONNECT_S = 10.0
UNBOUNDED = 2**62  # pixels


class RemoteEngine:
    """Asks at most `concurrency` requests at once; opening it asks the server for its model list.

    Raises FatalWork where the server has no such model, TransientWork where it does not answer.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        url: str,
        observer: Observer,
        max_pixels: int,
        api_key: str | None = None,
        revision: str | None = None,
        concurrency: int = 32,
        timeout_s: float = 300.0,
        prepare_threads: int = 2,
    ) -> None:
        self.model = name
        self._asked_model = model
        self._preprocessor = Preprocessor(min_pixels=FACTOR**2, max_pixels=max_pixels)
        self._unbounded = replace(self._preprocessor, max_pixels=UNBOUNDED)
        self._places = Places(concurrency)
        self._pool = ThreadPoolExecutor(prepare_threads, thread_name_prefix="engine-prepare")
        self._requests = RequestLoop("remote", self._answer, observer=observer)
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=concurrency),
        )
        try:
            entry = self._requests.run(self._find_model())
        except BaseException:
            self.close()
            raise
        self.number_format = "remote"  # whatever it is there: `revision` must tell
        self._speaks = dialect(str(entry.get("owned_by")))
        self.revision = revision or f"remote:{entry.get('root') or entry['id']}"

    @property
    def speaks(self) -> Dialect:
        return self._speaks

    def submit(self, request: Request) -> Future[Answer]:
        return self._requests.submit(request)

    def close(self) -> None:
        """Let what the server has begun end, fail the rest; may be called again."""
        self._requests.close(self._client.aclose)
        self._pool.shutdown()

    async def _find_model(self) -> Json:
        async with self._reaching("models", "GET") as reply:
            await reply.aread()
            return model_entry(_json(reply), self._asked_model)

    async def _answer(self, request: Request, begun: Callable[[], None]) -> Answer:
        async with self._places.place(urgent=request.urgent):
            loop = asyncio.get_running_loop()
            wanted = await loop.run_in_executor(self._pool, self._body, request)
            async with self._reaching("chat/completions", "POST", wanted) as reply:
                if "stream" in wanted:
                    return await _read_stream(request, reply, begun)
                await reply.aread()
                begun()
                return read_reply(request, _json(reply))

    def _body(self, request: Request) -> Json:
        """On a thread of the pool, as it decodes pictures and packs them again."""
        check_answer_length(request.sampling.max_tokens)
        urls = {index: data_url(self._sized(request, index)) for index in set(placed_images(request))}
        return body(request, urls, model=self._asked_model, speaks=self._speaks)

    def _sized(self, request: Request, index: int) -> PIL.Image.Image:
        """Resized where it is over the budget, to a grid that the server leaves alone; else as it is.

        So a server's processor does what the library's would: one resize, by one rule.
        """
        grid = image_grid(self._preprocessor, request, index)
        image = request.images[index]
        if grid == self._unbounded.grid(image.width, image.height):
            return PIL.Image.fromarray(image.load())
        return self._preprocessor.resized(image.load(), grid)

    @asynccontextmanager
    async def _reaching(self, path: str, method: str, wanted: Json = None) -> AsyncIterator[httpx.Response]:
        """A reply that is no refusal, its body yet to be read."""
        try:
            async with self._client.stream(method, path, json=wanted) as reply:
                if reply.status_code != httpx.codes.OK:
                    await reply.aread()
                    raise refusal(reply.status_code, reply.text, retry_after_s=_retry_after(reply))
                yield reply
        except httpx.TimeoutException as error:
            raise TransientWork(
                "server_timeout", f"the server did not answer ({type(error).__name__})"
            ) from error
        except httpx.TransportError as error:
            raise TransientWork("server_unreachable", f"the server cannot be reached ({error})") from error
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise FatalWork("bad_reply", f"the server cannot be talked to ({error})") from error


async def _read_stream(request: Request, reply: httpx.Response, begun: Callable[[], None]) -> Answer:
    gathered = Gathered(request)
    try:
        async for line in reply.aiter_lines():
            event = events(line)
            if event is None:
                continue
            gathered.usage = event.get("usage") or gathered.usage
            for choice in event.get("choices") or ():
                if gathered.add(choice, choice["delta"]):
                    begun()
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise bad_reply(error) from error
    return gathered.answer()


def _json(reply: httpx.Response) -> Json:
    try:
        return reply.json()
    except ValueError as error:
        raise bad_reply(error) from error


def _retry_after(reply: httpx.Response) -> float | None:
    """Seconds; a date, which the header may be too, is left aside."""
    given = reply.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else None
