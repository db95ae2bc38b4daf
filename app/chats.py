"""Chat completions whose callers hold the line: jobs of the highest class, waited for until they end."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.checks import Json
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import Fault, RequestError, TooLate, Unavailable
from app.hearing import Ear
from app.ids import job_name
from app.jobs import Jobs
from app.live_text import HeardText, Piece, text_channel
from app.results import OUR_FAULTS, AnsweredJob, UnansweredJob
from app.states import Endpoint, JobState
from app.store import chats, workers
from app.store.jobs import JobView

# Ends of jobs of which nothing was heard are noticed this late at most, by one statement for all lines.
POLL_S = 0.5
# Proxies and balancers cut lines that are silent for a minute, some for half of that.
SILENCE_S = 15.0
# A line outlasts its job's deadline by this, so that Postgres, whose clock counts, has the last word.
GRACE_S = 2.0
NO_WORKER_RETRY_S = 10

log = structlog.get_logger()


@dataclass(eq=False)
class Chat:
    """One held line: its job, what was heard of it, and how it ended."""

    tenant_id: str
    job: JobView
    asked_at: float  # time.monotonic()
    until: float
    heard: HeardText = field(default_factory=HeardText)
    ended: AnsweredJob | UnansweredJob | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def texts(self) -> AsyncIterator[str]:
        """The answer piece by piece, as it comes; "" where nothing has come for a while.

        All pieces together are the recorded answer. Raises RequestError: what the job failed of, `TooLate`
        at the deadline, `Fault` when another attempt answered otherwise than the one that was sent.
        """
        sent = ""
        while self.ended is None:
            if text := self.heard.after(sent):
                self._note_first(sent)
                sent += text
                yield text
            elif not await self._news():
                yield ""
        answer = self.answer()
        if not answer.text.startswith(sent):
            raise Fault(
                "The answer was begun anew by another worker, and goes on otherwise than what was sent.",
                code="answer_changed",
            )
        if rest := answer.text[len(sent) :]:
            self._note_first(sent)
            yield rest

    async def whole(self) -> AnsweredJob:
        while self.ended is None:
            await self._news()
        return self.answer()

    def answer(self) -> AnsweredJob:
        """Of a job that has ended; raises RequestError where it has none."""
        assert self.ended is not None
        if isinstance(self.ended, UnansweredJob):
            raise _refusal(self.ended)
        return self.ended

    def _note_first(self, sent: str) -> None:
        if not sent:
            telemetry.FIRST_TEXT_SECONDS.observe(time.monotonic() - self.asked_at)

    async def _news(self) -> bool:
        """Wait until something is heard or ended; False when it was silent for long."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise _too_late()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, SILENCE_S)):
                await self.changed.wait()
        changed = self.changed.is_set()
        self.changed.clear()
        return changed or left < SILENCE_S


class Chats:
    """Opens chats from any coroutine of one event loop, on which `run` goes on beside them."""

    def __init__(self, *, sessions: Sessions, jobs: Jobs, ear: Ear, settings: Settings) -> None:
        self._sessions = sessions
        self._jobs = jobs
        self._ear = ear
        self._timeout_s = settings.interactive_timeout_s
        self._live_s = settings.lease_s
        self._names: Mapping[str, str] = settings.model_names
        self._held: dict[int, Chat] = {}
        self._said_to_end: set[int] = set()
        self._look = asyncio.Event()
        # Of our own: those of the loop may all be busy with pictures on their way in.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="chats")
        self._leaving: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Hear what workers say, and look in Postgres for what has ended, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ear.run())
            tasks.create_task(self._watch())

    async def close(self) -> None:
        """Wait for those who are leaving."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        self._threads.shutdown()
        await self._ear.close()

    async def ask(self, tenant_id: str, body: Mapping[str, Json], endpoint: Endpoint = Endpoint.CHAT) -> Chat:
        """Accept an endpoint's body as a job; RequestError names what is wrong with it.

        `Overloaded` when too many are open, `Unavailable` when no worker serves the model. Whoever gets the
        chat enters `holding` with it.
        """
        started = time.monotonic()
        job = await asyncio.to_thread(self._submit, tenant_id, body, endpoint)
        return Chat(tenant_id, job, started, time.monotonic() + self._timeout_s + GRACE_S)

    @contextmanager
    def holding(self, chat: Chat) -> Iterator[None]:
        """Follow the chat's job while the block runs; what has not begun by then is cancelled.

        It waits for nothing, as the task may be cancelled.
        """

        def hear(piece: Piece) -> None:
            chat.heard.hear(piece)
            chat.changed.set()
            if piece.ended:
                self._said_to_end.add(chat.job.id)
                self._look.set()

        self._held[chat.job.id] = chat
        telemetry.CHATS_HELD.set(len(self._held))
        try:
            with self._ear.hearing(text_channel(chat.tenant_id, chat.job.id), hear):
                yield
        finally:
            del self._held[chat.job.id]
            telemetry.CHATS_HELD.set(len(self._held))
            if chat.ended is None:
                self._leave(chat.job.id)

    def _submit(self, tenant_id: str, body: Mapping[str, Json], endpoint: Endpoint) -> JobView:
        if (model := self._names.get(str(body.get("model")))) is not None:
            self._check_served(model)
        return self._jobs.submit_chat(tenant_id, body, endpoint=endpoint, deadline_s=self._timeout_s)

    def _check_served(self, model: str) -> None:
        with transaction(self._sessions) as session:
            live = workers.count_live(session, within_s=self._live_s)
        if not live.get(model):
            raise Unavailable(
                f"No worker serves {model!r} at the moment. Batches and jobs are accepted, and wait for one.",
                code="no_worker",
                retry_after_s=NO_WORKER_RETRY_S,
            )

    async def _watch(self) -> None:
        look_at_all = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(look_at_all - time.monotonic()):
                    await self._look.wait()
            self._look.clear()
            said, self._said_to_end = self._said_to_end & self._held.keys(), set()
            if time.monotonic() >= look_at_all:
                said = self._held.keys()
                look_at_all = time.monotonic() + POLL_S
            if said:
                await self._look_for(sorted(said))

    async def _look_for(self, job_ids: list[int]) -> None:
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._threads, self._read_ended, job_ids)
            ended = await reading
        except Exception as error:  # the top of a loop: Postgres may be away, and comes back
            log.warning("ends_not_read", error=type(error).__name__, chats=len(job_ids))
            return
        for job in ended:
            if chat := self._held.get(job.id):
                chat.ended = job
                chat.changed.set()

    def _read_ended(self, job_ids: list[int]) -> list[AnsweredJob | UnansweredJob]:
        with transaction(self._sessions) as session:
            return chats.read_ended(session, job_ids)

    def _leave(self, job_id: int) -> None:
        leaving = asyncio.get_running_loop().run_in_executor(self._threads, self._hang_up, job_id)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _hang_up(self, job_id: int) -> None:
        try:
            with transaction(self._sessions) as session:
                state = chats.hang_up(session, job_id)
        except Exception as error:  # its deadline ends it as well
            log.warning("chat_left_unsaid", job=job_name(job_id), error=type(error).__name__)
            return
        telemetry.JOBS_ENDED.labels("cancelled", "").inc(state is JobState.CANCELLED)
        log.info("chat_left", job=job_name(job_id), state=state)


def _refusal(job: UnansweredJob) -> RequestError:
    """The response that a job without an answer has."""
    match job.state:
        case JobState.EXPIRED:
            return _too_late()
        case JobState.CANCELLED:
            return Fault("The request was cancelled before it ran.", code="job_cancelled")
        case _:
            kind = Fault if job.error_code in OUR_FAULTS else RequestError
            message = job.error_message or "The request failed."
            return kind(message, code=job.error_code, param=job.error_param)


def _too_late() -> TooLate:
    return TooLate(
        "There was no time left to answer the request. Please try again later.", code="job_expired"
    )
