"""Who is followed by a trace, what its spans say, and that nothing happens without OpenTelemetry."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from app import otlp, tracing
from app.config import Settings
from app.errors import InvalidWork
from app.queue import read_traces
from app.store.records import FailureRow
from tests.collector import TRACES, Seen, edges, spans
from tests.receiver import Receiver, receiving
from workers.engine.base import Times
from workers.timing import parts_of, trace_outcomes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
YES, NO = f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-00"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver
        tracing.close()


def start(receiver: Receiver, share: float = 0.0) -> None:
    tracing.set_up(Settings(traces_endpoint=receiver.url, traces_share=share), role="test")


def sent(receiver: Receiver) -> list[Seen]:
    tracing.close()
    return spans(receiver)


def test_without_an_endpoint_nothing_is_followed() -> None:
    tracing.set_up(Settings(), role="test")
    with tracing.request(YES) as step:
        assert (tracing.is_on(), step.strands, tracing.context()) == (False, (), None)


def test_without_opentelemetry_everything_works_and_traces_are_off(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "app.otlp")
    start(receiver, 1.0)
    with tracing.request(YES):
        assert (tracing.is_on(), tracing.context()) == (False, None)


def test_variables_of_opentelemetry_that_are_wrong_stop_no_process(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    start(receiver, 1.0)
    assert not tracing.is_on()


def test_a_fault_in_telling_of_answers_costs_none_of_them(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError

    start(receiver, 1.0)
    monkeypatch.setattr(tracing, "tell", fault)
    with tracing.follow("run chunk", {7: YES}):
        trace_outcomes([FailureRow(7, 1, "step_failed", "m")])
    assert [one.name for one in sent(receiver)] == ["run chunk"]


def test_a_caller_that_samples_is_followed_in_its_own_trace(receiver: Receiver) -> None:
    start(receiver)
    with tracing.request(YES), tracing.step("inner", jobs=3):
        pass
    found = sent(receiver)
    assert edges(found) == {("request", "00f067aa0ba902b7"), ("inner", "request")}
    assert {span.trace_id for span in found} == {TRACE}
    assert found[1].attributes == {"vqueue.jobs": 3}


@pytest.mark.parametrize("header", [NO, None, "", "00-xyz", f"ff-{TRACE}-00f067aa0ba902b7-01", YES + "-more"])
def test_others_are_not_followed_unless_they_are_drawn_and_nothing_within_is_drawn_again(
    receiver: Receiver, header: str | None
) -> None:
    start(receiver)
    with tracing.request(header):
        tracing._share = 1.0
        with tracing.begin("inner"):
            assert tracing.context() is None
    assert sent(receiver) == []


def test_a_share_of_one_follows_who_says_nothing_but_not_who_says_no(receiver: Receiver) -> None:
    start(receiver, 1.0)
    for header in (None, NO, "nonsense"):
        with tracing.request(header):
            pass
    assert len({span.trace_id for span in sent(receiver)} - {TRACE}) == 2


@hypothesis_settings(max_examples=40)
@given(st.text(max_size=40), st.sampled_from([0.0, 0.001, 0.01, 0.5, 1.0]), st.integers(1, 2_000))
def test_the_share_of_a_batchs_jobs_is_even_and_always_the_same(batch: str, share: float, lines: int) -> None:
    found = tracing.sampled(batch, range(1, lines + 1), share=share)
    assert abs(len(found) - share * lines) < 4
    assert found == tracing.sampled(batch, range(1, lines + 1), share=share)


def test_jobs_have_traces_of_their_own_with_a_link_to_their_batchs(receiver: Receiver) -> None:
    start(receiver)
    with tracing.follow("ingest", YES, batch="batch_1"):
        assert tracing.begin_jobs("batch_1", {1: 11, 2: 12}, is_first=False) == {}
        traces = tracing.begin_jobs("batch_1", {1: 11, 2: 12}, is_first=True)
    ingest, job = sent(receiver)
    assert (list(traces), job.links, job.parent_id) == ([1], (ingest.id,), "")
    assert job.trace_id == traces[1].split("-")[1] != TRACE
    assert job.attributes == {"vqueue.batch": "batch_1", "vqueue.job": "job_000000000000000b"}


def test_what_is_done_for_several_jobs_has_a_span_in_each_trace(receiver: Receiver) -> None:
    start(receiver)
    other = YES.replace("4bf9", "aaaa")
    with tracing.follow("chunk", {1: YES, 2: other}), tracing.step("claim"):
        tracing.tell(2, outcome="completed")
        assert tracing.followed() == {1, 2}
    found = sent(receiver)
    assert [span.name for span in found] == ["chunk", "chunk", "claim", "claim"]
    assert [span.attributes.get("vqueue.outcome") for span in found] == [None, None, None, "completed"]
    assert len({span.trace_id for span in found}) == 2


def test_an_error_is_told_by_its_code_and_never_by_its_message(receiver: Receiver) -> None:
    start(receiver)
    with pytest.raises(InvalidWork), tracing.request(YES), tracing.step("read"):
        raise InvalidWork("image_deleted", "private")
    found = sent(receiver)
    assert [(span.failed, span.attributes["error.type"]) for span in found] == [(True, "image_deleted")] * 2
    assert not any(b"private" in one.body for one in receiver.received)


def test_a_header_of_a_message_is_read_as_far_as_it_is_one_of_ours() -> None:
    assert read_traces({"7": YES, "x": YES, "8": 5, "9": None}) == {7: YES}
    assert read_traces(None) == read_traces([1]) == {}


def test_the_engines_parts_follow_one_another_as_far_as_it_tells() -> None:
    told = parts_of(Times(1.0, 4.0, first=3.0, joined=2.0))
    assert [(part.name, part.begun, part.ended) for part in told] == [
        ("prepare", 1.0, 2.0),
        ("first step", 2.0, 3.0),
        ("answer", 3.0, 4.0),
    ]
    assert [part.name for part in parts_of(Times(1.0, 4.0, first=3.0))] == ["first step", "answer"]
    assert parts_of(Times(1.0, 4.0)) == []


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("http://tempo:4318", f"http://tempo:4318{TRACES}"),
        ("http://tempo:4318/", f"http://tempo:4318{TRACES}"),
        ("https://in.example/otlp/traces", "https://in.example/otlp/traces"),
    ],
)
def test_a_collectors_own_url_is_given_the_path_of_traces(given: str, posted: str) -> None:
    assert otlp.with_path(given) == posted
