"""Traces: who is followed, and the spans of work done for them; where nobody is, next to nothing happens.

A context variable holds the spans that are open here: one in each trace that the work belongs to, as a chunk
has jobs of several. Through Postgres and the broker a trace goes as a W3C `traceparent`. OpenTelemetry is
optional.
"""

import os
import random
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar
from zlib import crc32

import structlog

from app import telemetry
from app.config import Settings
from app.ids import job_name

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from app.otlp import Kind, Spans, Value

log = structlog.get_logger()

# Steps by it never fall into a rhythm with the lines of a file, and spread evenly (Weyl, golden ratio).
WEYL, WORD = 0x9E3779B97F4A7C15, 2**64
NOBODY = 0  # the key of what belongs to no single job


class Strand(NamedTuple):
    """A span that is open in one trace; `key` is the id of the job that it follows."""

    key: int
    span: "Span"


Strands: TypeAlias = tuple[Strand, ...]


class NewJob(Protocol):
    """A job of a batch that is about to be written, a dataclass; one with an `error` will not run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> int: ...

    @property
    def line(self) -> int: ...

    @property
    def error(self) -> object: ...

    @property
    def trace(self) -> str | None: ...


J = TypeVar("J", bound=NewJob)

_spans: "Spans | None" = None
_share = 0.0
# None where nobody has decided yet whether to follow.
_open: ContextVar[Strands | None] = ContextVar("strands", default=None)


def set_up(settings: Settings, *, role: str) -> None:
    """Once per process. Without an endpoint, or without OpenTelemetry that works, no traces are made."""
    global _spans, _share
    if not settings.traces_endpoint:
        return
    try:
        from app.otlp import Spans
    except ImportError:
        log.warning("traces_off", reason="OpenTelemetry is not installed: pip install vqueue[tracing]")
        return
    _share = settings.traces_share
    instance = f"{socket.gethostname()}-{os.getpid()}"
    with harmless():  # OpenTelemetry's own variables may be wrong
        _spans = Spans(
            settings.traces_endpoint, service=f"vqueue-{role}", instance=instance, version=version("vqueue")
        )


@contextmanager
def harmless() -> Iterator[None]:
    """What only tells of work, and must not undo it: a fault is logged."""
    try:
        yield
    except Exception:
        log.exception("trace_failed")


def close() -> None:
    """Send what has ended, and make no more spans; a process that ends does so by itself."""
    global _spans
    if _spans is not None:
        _spans.close()
    _spans = None


def is_on() -> bool:
    return _spans is not None


def sampled(batch_id: str, lines: Iterable[int], *, share: float) -> frozenset[int]:
    """The lines of a batch whose jobs are followed: always the same, and evenly spread over its lines."""
    if share <= 0:
        return frozenset()
    seed, limit = crc32(batch_id.encode()) << 32, share * WORD
    return frozenset(line for line in lines if (seed + line * WEYL) % WORD < limit)


class Step:
    """Work that is done once, with its span in each trace that it belongs to: in none, mostly."""

    def __init__(self, strands: Strands = ()) -> None:
        self.strands = strands

    @property
    def contexts(self) -> dict[int, str]:
        """The `traceparent` of what is done within, by job."""
        return {strand.key: _written(strand.span) for strand in self.strands}

    def note(self, **attributes: "Value") -> None:
        """Say more of it, in all traces: ids, counts and names, never what clients have sent."""
        for strand in self.strands:
            strand.span.set_attributes(_named(attributes))

    def rename(self, name: str) -> None:
        for strand in self.strands:
            strand.span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark it as failed of this kind of error."""
        for strand in self.strands:
            if _spans is not None:
                _spans.fail(strand.span, kind)


class _Nothing:
    """The step of nobody's traces, made once."""

    step = Step()

    def __enter__(self) -> Step:
        return self.step

    def __exit__(self, *_: object) -> None: ...


NOTHING = _Nothing()
Stepping: TypeAlias = AbstractContextManager[Step]


def step(name: str, **attributes: "Value") -> Stepping:
    """A part of what is done here, if that is followed."""
    strands = _open.get()
    if not strands or _spans is None:
        return NOTHING
    return _within(_spans, name, strands, attributes)


@contextmanager
def stage(name: str) -> Iterator[Step]:
    """A step that is counted as a metric, too."""
    with telemetry.stage(name), step(name) as taken:
        yield taken


def follow(
    name: str, contexts: Mapping[int, str] | str | None, *, kind: "Kind" = "internal", **attributes: "Value"
) -> Stepping:
    """Go on with traces that were begun elsewhere, by job or the one of something else."""
    if not contexts or _spans is None:
        return NOTHING
    found = {NOBODY: contexts} if isinstance(contexts, str) else contexts
    return _following(_spans, name, found, kind, attributes)


def begin(name: str, **attributes: "Value") -> Stepping:
    """A step of what is followed here; where nobody has decided that yet, maybe the first of a trace."""
    if _open.get() is not None or _spans is None:
        return step(name, **attributes)
    return _first(_spans, name, None, "internal", attributes)


def request(traceparent: str | None) -> Stepping:
    """What a client asks: followed if it asks for that, and without a word of its own a share of all."""
    if _spans is None:
        return NOTHING
    return _first(_spans, "request", traceparent, "server", {})


def begin_jobs(batch_id: str, jobs: Mapping[int, int], *, is_first: bool) -> dict[int, str]:
    """Traces of their own for some of a batch's new jobs, whose ids are given by line; by line.

    For the usual share, and where the batch is followed here, for its first job in any case: `is_first` says
    that it has none yet. Each has a link to the batch's trace.
    """
    lines = sampled(batch_id, jobs, share=_share)
    strands = _open.get() or ()
    if is_first and strands:
        lines |= {*sorted(jobs)[:1]}
    links = [_written(strand.span) for strand in strands]
    return {line: trace for line in lines if (trace := _begin_job(batch_id, jobs[line], links))}


def with_traces(batch_id: str, jobs: Sequence[J], *, is_first: bool) -> Sequence[J]:
    """A batch's new jobs, those that are followed with their traces; one that has failed already is not."""
    if not is_on():
        return jobs
    runs = {job.line: job.id for job in jobs if job.error is None}
    traces = begin_jobs(batch_id, runs, is_first=is_first)
    return [replace(job, trace=traces.get(job.line)) for job in jobs] if traces else jobs


def _begin_job(batch_id: str, job_id: int, links: Sequence[str]) -> str | None:
    if _spans is None:
        return None
    named = _named({"batch": batch_id}) | _job(job_id)
    span = _spans.open("create job", parent=None, links=links, attributes=named)
    span.end()
    return _written(span)


def context() -> str | None:
    """The `traceparent` of what is done here, if it is followed; for what goes on elsewhere."""
    strands = _open.get()
    return _written(strands[0].span) if strands else None


def followed() -> frozenset[int]:
    """The jobs that are followed here."""
    return frozenset(strand.key for strand in _open.get() or ())


def note(**attributes: "Value") -> None:
    """Say more of what is open here, as `Step.note`."""
    Step(_open.get() or ()).note(**attributes)


def tell(job_id: int, **attributes: "Value") -> None:
    """Say something of one job on the span that is open here."""
    for strand in _open.get() or ():
        if strand.key == job_id:
            strand.span.set_attributes(_named(attributes))


class Past(NamedTuple):
    """Something that is over, on the clock of `time.monotonic()`, with its parts one after the other."""

    name: str
    begun: float
    ended: float
    parts: Sequence["Past"] = ()


def add(job_id: int, past: Past, *, error: str | None = None, **attributes: "Value") -> None:
    """A span for what was done for one job before."""
    if _spans is None:
        return
    offset_ns = time.time_ns() - time.monotonic_ns()
    for strand in _open.get() or ():
        if strand.key == job_id:
            _add(_spans, strand.span, past, offset_ns, _named(attributes), error)


def _add(
    spans: "Spans",
    parent: "Span",
    past: Past,
    offset_ns: int,
    attributes: Mapping[str, "Value"],
    error: str | None = None,
) -> None:
    start_ns = offset_ns + round(past.begun * 1e9)
    span = spans.open(past.name, parent=parent, attributes=attributes, start_ns=start_ns)
    for part in past.parts:
        _add(spans, span, part, offset_ns, {})
    if error is not None:
        spans.fail(span, error)
    span.end(offset_ns + round(past.ended * 1e9))


@contextmanager
def _within(spans: "Spans", name: str, strands: Strands, attributes: Mapping[str, "Value"]) -> Iterator[Step]:
    named = _named(attributes)
    opened = tuple(Strand(key, spans.open(name, parent=parent, attributes=named)) for key, parent in strands)
    with _opened(opened) as taken:
        yield taken


@contextmanager
def _following(
    spans: "Spans", name: str, contexts: Mapping[int, str], kind: "Kind", attributes: Mapping[str, "Value"]
) -> Iterator[Step]:
    named = _named(attributes)
    opened = tuple(
        Strand(key, spans.open(name, parent=parent, kind=kind, attributes=named | _job(key)))
        for key, parent in contexts.items()
    )
    with structlog.contextvars.bound_contextvars(**_trace_ids(opened)), _opened(opened) as taken:
        yield taken


@contextmanager
def _first(
    spans: "Spans", name: str, parent: str | None, kind: "Kind", attributes: Mapping[str, "Value"]
) -> Iterator[Step]:
    """The first span in this process, if its parent or a draw wants it; else nothing is followed within."""
    opened: Strands = ()
    if _wants(spans, parent):
        opened = (Strand(NOBODY, spans.open(name, parent=parent, kind=kind, attributes=_named(attributes))),)
    with structlog.contextvars.bound_contextvars(**_trace_ids(opened)), _opened(opened) as taken:
        yield taken


@contextmanager
def _opened(strands: Strands) -> Iterator[Step]:
    token = _open.set(strands)
    taken = Step(strands)
    try:
        yield taken
    except BaseException as error:
        taken.fail(str(getattr(error, "code", None) or type(error).__name__))
        raise
    finally:
        _open.reset(token)
        for strand in strands:
            strand.span.end()


def _wants(spans: "Spans", parent: str | None) -> bool:
    wanted = spans.is_sampled(parent) if parent is not None else None
    return random.random() < _share if wanted is None else wanted


def _named(attributes: Mapping[str, "Value"]) -> dict[str, "Value"]:
    """Names of ours; those with a double underscore are OpenTelemetry's own, which have a dot there."""
    return {
        name.replace("__", ".") if "__" in name else f"vqueue.{name}": value
        for name, value in attributes.items()
    }


def _job(key: int) -> dict[str, "Value"]:
    return {} if key == NOBODY else {"vqueue.job": job_name(key)}


def _trace_ids(strands: Strands) -> dict[str, str]:
    """For the log lines; those of several, with spaces between."""
    ids = {f"{strand.span.get_span_context().trace_id:032x}" for strand in strands}
    return {"trace_id": " ".join(sorted(ids))} if ids else {}


def _written(span: "Span") -> str:
    of = span.get_span_context()
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-01"
