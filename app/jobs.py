"""Direct jobs: one question about some images, posted straight and polled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from app import tracing
from app.actor import actor
from app.answer_keys import CacheMode, canonical, is_repeatable, question_hash
from app.blocks import encoded
from app.chat import ChatRequest, chat_rules, parse_chat_body
from app.checks import Json
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import Conflict, NotFound, Overloaded, RequestError
from app.ids import job_name, job_number
from app.limits import Limits
from app.lines import PARSERS
from app.placing import KeptImages, Placer, place_images
from app.references import ImageReference, RefKind, ref_hash
from app.repeats import Once, hash_request
from app.shares import has_share
from app.states import Endpoint, Priority
from app.store import audit, notices
from app.store.chats import count_open
from app.store.files import read_file
from app.store.images import WantedImage
from app.store.jobs import PREVIEW, JobView, NewJob, insert_job, read_job
from app.store.retention import delete_job

BUSY_RETRY_S = 2
JOB = "job"

log = structlog.get_logger()

_CONTENT = re.compile(r"messages\[\d+\]\.content\[(\d+)\]")


@dataclass(frozen=True)
class JobWish:
    """What a client asks. `params` are sampling parameters as a chat body has them, only those given."""

    question: str
    images: Sequence[str]
    image_params: Sequence[str]  # where each image stood in the client's body
    system: str | None
    model: str | None
    params: Mapping[str, Json]
    deadline_s: float | None
    priority: Priority = Priority.STANDARD
    cache: CacheMode | None = None  # None is the service's own


@dataclass(frozen=True)
class Terms:
    """What holds for a job beside its request; `image_params` as in `JobWish`."""

    image_params: Sequence[str]
    deadline_s: float | None
    priority: Priority
    once: Once | None = None
    is_quiet: bool = False  # too many for the audit log
    custom_id: str | None = None
    cache: CacheMode = CacheMode.OFF


class Jobs:
    def __init__(self, *, sessions: Sessions, placer: Placer, limits: Limits, settings: Settings) -> None:
        self._sessions = sessions
        self._placer = placer
        self._limits = limits
        self._rules = chat_rules(settings)
        self._model = settings.default_model
        self._reuse_s = settings.fetch_reuse_s
        self._most = settings.interactive_max
        self._timeout_s = settings.interactive_timeout_s
        self._cache = CacheMode(settings.answer_cache)

    def submit(self, tenant_id: str, wish: JobWish, *, idempotency_key: str | None = None) -> JobView:
        """Accept a job, checked as a line of a batch is. RequestError names the field that is wrong.

        With the key of an earlier request that said the same, the job that it made.
        """
        once = Once(tenant_id, JOB, idempotency_key, hash_request(vars(wish))) if idempotency_key else None
        if once is not None and (earlier := self._made(once)) is not None:
            return earlier
        if refusal := self._limits.refusal():
            raise refusal
        cache = wish.cache or self._cache
        deadline_s = wish.deadline_s
        if deadline_s is None and wish.priority is Priority.INTERACTIVE:
            deadline_s = self._timeout_s
        terms = Terms(wish.image_params, deadline_s, wish.priority, once, cache=cache)
        return self._accept(tenant_id, self._check(wish), terms)

    def submit_chat(
        self, tenant_id: str, body: Mapping[str, Json], *, endpoint: Endpoint, deadline_s: float
    ) -> JobView:
        """Accept the body of a chat completion or response as a job of the highest class."""
        if refusal := self._limits.refusal():
            raise refusal
        request = PARSERS[endpoint](body, self._rules)
        terms = Terms(request.image_params, deadline_s, Priority.INTERACTIVE, is_quiet=True)
        return self._accept(tenant_id, request, terms)

    def submit_preview(self, tenant_id: str, request: ChatRequest) -> JobView:
        """Accept what has been checked already, as a job of the highest class: somebody waits for it.

        Its answer is a try, which nobody reviews or counts; who asks for several notes them in the audit log.
        """
        if refusal := self._limits.refusal():
            raise refusal
        terms = Terms(
            request.image_params, self._timeout_s, Priority.INTERACTIVE, is_quiet=True, custom_id=PREVIEW
        )
        return self._accept(tenant_id, request, terms)

    def _accept(self, tenant_id: str, request: ChatRequest, terms: Terms) -> JobView:
        self._check_room(tenant_id, request.model, terms)
        kept = self._placer.keep(tenant_id, request.images)
        _check_kept(request.images, kept, terms)
        with tracing.begin("create job", model=request.model) as step, transaction(self._sessions) as session:
            if terms.once is not None and (earlier := _find_made(session, terms.once)) is not None:
                return earlier
            self._limits.check_jobs(session, tenant_id)
            _check_files(session, tenant_id, request.images, terms)
            placed = place_images(session, tenant_id, request.images, kept, reuse_s=self._reuse_s)
            images = [placed[ref_hash(image)] for image in request.images]
            job_id = insert_job(session, _new_job(tenant_id, request, images, terms))
            job = _found(read_job(session, tenant_id, job_id), job_name(job_id))
            if terms.once is not None:
                terms.once.note(session, job_name(job_id))
            if not terms.is_quiet:
                audit.note(session, actor(), "job.created", job_name(job_id), tenant_id=tenant_id)
            if terms.priority is Priority.INTERACTIVE:
                waits = not all(image.stored for image in images)
                notices.notify(session, notices.IMAGES if waits else notices.JOBS)
            step.note(job=job_name(job_id))
        log.info("job_submitted", job=job_name(job_id), images=len(images))
        return job

    def read(self, tenant_id: str, name: str) -> JobView:
        """A job of this tenant by its public name; `NotFound` for any other."""
        with transaction(self._sessions) as session:
            return _found(read_job(session, tenant_id, job_number(name)), name)

    def delete(self, tenant_id: str, name: str) -> None:
        """Remove a job that has ended, with its answer; `Conflict` for one that has not."""
        with transaction(self._sessions) as session:
            if not delete_job(session, tenant_id, job_number(name)):
                job = _found(read_job(session, tenant_id, job_number(name)), name)
                reason = "it belongs to a batch" if job.finished_at else f"its status is {job.state.value}"
                raise Conflict(
                    f"Job {name} cannot be deleted: {reason}.", param="job_id", code="job_not_deletable"
                )
            audit.note(session, actor(), "job.deleted", name, tenant_id=tenant_id)
        log.info("job_deleted", job=name)

    def _made(self, once: Once) -> JobView | None:
        with transaction(self._sessions) as session:
            return _find_made(session, once)

    def _check_room(self, tenant_id: str, model: str, terms: Terms) -> None:
        """More interactive jobs than are answered within seconds would only wait until their deadlines."""
        with transaction(self._sessions) as session:
            self._limits.check_jobs(session, tenant_id, is_last_word=False)
            if terms.priority is not Priority.INTERACTIVE:
                return
            open = count_open(session, model, tenant_id, cap=self._most)
        if open.all >= self._most:
            raise _overloaded(f"{self._most} interactive requests to {model!r} are open.")
        if not open.is_alone and not has_share(open.own, open=open.all, most=self._most):
            raise _overloaded(f"You have {open.own} of {self._most} interactive requests to {model!r} open.")

    def _check(self, wish: JobWish) -> ChatRequest:
        try:
            return parse_chat_body(_chat_body(wish, self._model), self._rules)
        except RequestError as error:
            error.param = _own_param(error.param, wish)
            raise


def _overloaded(reason: str) -> Overloaded:
    return Overloaded(f"{reason} Please try again later.", code="overloaded", retry_after_s=BUSY_RETRY_S)


def _find_made(session: Session, once: Once) -> JobView | None:
    """The job that the same request has made, unless it is gone by now."""
    name = once.made(session)
    return read_job(session, once.tenant_id, job_number(name)) if name else None


def _chat_body(wish: JobWish, model: str) -> dict[str, Json]:
    """The same question as a chat completion would ask it: images first, which the prefix cache likes."""
    images = [{"type": "image_url", "image_url": {"url": image}} for image in wish.images]
    turns: list[dict[str, Json]] = [
        {"role": "user", "content": [*images, {"type": "text", "text": wish.question}]}
    ]
    if wish.system is not None:
        turns.append({"role": "system", "content": wish.system})
    return {**wish.params, "model": wish.model or model, "messages": turns[::-1]}


def _own_param(param: str | None, wish: JobWish) -> str | None:
    """The client's field behind a field of the chat body."""
    if param is None or not param.startswith("messages"):
        return param
    part = _CONTENT.match(param)
    if part is None:
        return "system"
    number = int(part[1])
    return wish.image_params[number] if number < len(wish.images) else "question"


def _check_kept(images: Sequence[ImageReference], kept: KeptImages, terms: Terms) -> None:
    for image, param in zip(images, terms.image_params, strict=True):
        if error := kept.unusable.get(ref_hash(image)):
            raise RequestError(error.message, code=error.code, param=param)


def _check_files(session: Session, tenant_id: str, images: Sequence[ImageReference], terms: Terms) -> None:
    for image, param in zip(images, terms.image_params, strict=True):
        if image.kind is RefKind.FILE and read_file(session, tenant_id, image.ref) is None:
            raise NotFound(f"No such File object: {image.ref}", param=param, code="file_not_found")


def _new_job(tenant_id: str, request: ChatRequest, images: Sequence[WantedImage], terms: Terms) -> NewJob:
    deadline_s = terms.deadline_s
    question = _question_hash(request, terms)
    return NewJob(
        tenant_id=tenant_id,
        key_id=actor().key_id,
        custom_id=terms.custom_id,
        model=request.model,
        prompt=request.prompt,
        params=request.params,
        image_ids=[image.id for image in images],
        waiting_image_ids=[image.id for image in images if not image.stored],
        deadline=None if deadline_s is None else datetime.now(UTC) + timedelta(seconds=deadline_s),
        priority=terms.priority,
        cache=terms.cache.bits if question else 0,
        question_hash=question,
        trace=tracing.context(),
    )


def _question_hash(request: ChatRequest, terms: Terms) -> bytes | None:
    """Where its answer may be kept. Who holds the line is told word by word, by the worker that answers."""
    is_urgent = terms.priority is Priority.INTERACTIVE
    if is_urgent or terms.cache is CacheMode.OFF or not is_repeatable(request.params):
        return None
    return question_hash(encoded(request.prompt), canonical(request.params))


def _found(job: JobView | None, name: str) -> JobView:
    if job is None:
        raise NotFound(f"No job has the id {name!r}.", param="job_id", code="job_not_found")
    return job
