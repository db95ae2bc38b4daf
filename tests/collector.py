"""A collector of our own: reads the spans that came over OTLP, and draws a trace as a tree."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.receiver import Receiver

TRACES = "/v1/traces"


@dataclass(frozen=True)
class Seen:
    """A span as it came; times are Unix times in seconds."""

    name: str
    service: str
    trace_id: str
    id: str
    parent_id: str
    begun: float
    ended: float
    kind: int
    failed: bool
    links: tuple[str, ...]  # ids of spans
    attributes: dict[str, Any]


def spans(receiver: Receiver) -> list[Seen]:
    """All that have come by now, in the order in which they began."""
    bodies = [one.body for one in receiver.received if one.path == TRACES]
    return sorted((span for body in bodies for span in _read(body)), key=lambda span: span.begun)


def of_trace(found: Iterable[Seen], trace_id: str) -> list[Seen]:
    return [span for span in found if span.trace_id == trace_id]


def edges(trace: Sequence[Seen]) -> set[tuple[str, str]]:
    """Each span's name with its parent's; where that is none of these, with its id."""
    names = {span.id: span.name for span in trace}
    return {(span.name, names.get(span.parent_id, span.parent_id)) for span in trace}


def drawn(trace: Sequence[Seen]) -> str:
    """As a tree: what was done where, when since the beginning, and for how long, in milliseconds."""
    rows = [("", "in", "at ms", "took ms")]
    ids = {span.id for span in trace}
    start = min(span.begun for span in trace)
    for depth, span in _walk(trace, [span for span in trace if span.parent_id not in ids]):
        took = (span.ended - span.begun) * 1000
        place = span.service.removeprefix("vqueue-")
        rows.append(("  " * depth + span.name, place, f"{(span.begun - start) * 1000:.1f}", f"{took:.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {place:<{widths[1]}}  {at:>{widths[2]}}  {took:>{widths[3]}}"
        for name, place, at, took in rows
    )


def _walk(trace: Sequence[Seen], level: Iterable[Seen], depth: int = 0) -> Iterator[tuple[int, Seen]]:
    for span in level:
        yield depth, span
        yield from _walk(trace, [one for one in trace if one.parent_id == span.id], depth + 1)


def _read(body: bytes) -> Iterator[Seen]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    name=span.name,
                    service=str(service),
                    trace_id=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    begun=span.start_time_unix_nano / 1e9,
                    ended=span.end_time_unix_nano / 1e9,
                    kind=span.kind,
                    failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    links=tuple(link.span_id.hex() for link in span.links),
                    attributes=_values(span.attributes),
                )


def _values(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
