"""OpenTelemetry, known here only: spans, and their way to a collector. Imported where traces are on."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | bool | int | float
Attributes = Mapping[str, Value]

# A collector that is away delays the end of a process by so much at most, and nothing else.
EXPORT_S = 5.0
TRACES_PATH = "/v1/traces"

_KINDS: Mapping[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
# By https://www.w3.org/TR/trace-context; OpenTelemetry's own reader takes several times as long.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Spans:
    """Opens spans, which are sent in the background once they end; what is left goes at exit.

    Whoever opens one has decided that it is wanted: nothing is sampled here. Where the collector does not
    keep up, spans are dropped.
    """

    def __init__(self, endpoint: str, *, service: str, instance: str, version: str) -> None:
        resource = Resource.create(
            {"service.name": service, "service.instance.id": instance, "service.version": version}
        )
        self._provider = TracerProvider(resource=resource, sampler=ALWAYS_ON)
        exporter = OTLPSpanExporter(endpoint=with_path(endpoint), timeout=EXPORT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("vqueue", version)

    def open(
        self,
        name: str,
        *,
        parent: Span | str | None,
        kind: Kind = "internal",
        links: Sequence[str] = (),
        attributes: Attributes | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """A span that its caller ends; `parent` is none for the first of a trace. `start_ns` is Unix time."""
        return self._tracer.start_span(
            name,
            context=_under(parent),
            kind=_KINDS[kind],
            links=[Link(found) for link in links if (found := _read(link)) is not None],
            attributes=attributes,
            start_time=start_ns,
        )

    def fail(self, span: Span, kind: str) -> None:
        """Mark it as failed of this kind of error; what an error says may be private."""
        span.set_status(Status(StatusCode.ERROR))
        span.set_attribute("error.type", kind)

    def is_sampled(self, traceparent: str) -> bool | None:
        """What the caller has decided; None where it said nothing that can be read."""
        found = _read(traceparent)
        return None if found is None else found.trace_flags.sampled

    def close(self) -> None:
        self._provider.shutdown()


def _read(traceparent: str) -> SpanContext | None:
    """None for what is no W3C `traceparent`."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return context if context.is_valid else None


def with_path(endpoint: str) -> str:
    """The URL that traces are posted to, where only a collector's own was given."""
    base = endpoint.rstrip("/")
    return base if "/" in base.split("://", 1)[1] else base + TRACES_PATH


def _under(parent: Span | str | None) -> Context:
    if isinstance(parent, str):
        found = _read(parent)
        parent = NonRecordingSpan(found) if found is not None else None
    return trace.set_span_in_context(parent, Context()) if parent is not None else Context()
