"""A report's sums hold together, whatever was counted, and what nobody knows is left out of it."""

from hypothesis import given
from hypothesis import strategies as st

from app.estimates import Evidence, make_report
from app.prices import Price
from app.store.checks import Probe, Rates
from app.tally import Example, Picture, Tally
from app.visual_tokens import visual_tokens

MOST_PIXELS = 1_003_520
PRICE = Price(input=1.0, cached=0.25, output=2.0)
NOTHING_KNOWN = Rates(batches=0, jobs_per_second=None, output_tokens=None)
SIZES = st.tuples(st.integers(1, 4000), st.integers(1, 4000)).filter(lambda size: max(size) < 100 * min(size))


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    """A count of requests that may name images, each distinct one at least once."""
    requests, distinct = draw(st.integers(0, 1000)), draw(st.integers(0, 50))
    uses = {"0": distinct + draw(st.integers(0, 1000))} if distinct else {}
    tally = Tally(rows=requests, requests=requests, uses=uses, models={"demo": requests} if requests else {})
    tally.text_tokens, tally.output_most = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    pictures = st.builds(
        Picture, st.integers().map(str), st.booleans(), st.booleans(), size=st.none() | SIZES
    )
    tally.add_pictures(
        draw(st.lists(pictures, min_size=distinct, max_size=distinct, unique_by=lambda one: one.ref_hash))
    )
    return tally


def evidence(*probes: Probe, rates: Rates = NOTHING_KNOWN, price: Price | None = PRICE) -> Evidence:
    return Evidence(probes=probes, rates=rates, price=price, max_pixels=MOST_PIXELS, now=1.0)


@given(tallies(), st.floats(0, 5000))
def test_a_part_is_never_more_than_the_whole(tally: Tally, answer: float) -> None:
    report = make_report(tally, evidence(rates=Rates(1, 2.0, answer)))
    tokens, cost = report.tokens, report.cost
    assert report.images.distinct <= report.images.references
    assert (tokens.output_expected or 0) <= tokens.output_most
    assert 0 <= (tokens.cached or 0) <= (tokens.visual or 0)
    assert cost is not None
    assert 0 <= (cost.expected or 0) <= (cost.most or 0)
    nothing_known = [one is None for one in (tokens.visual, tokens.cached, cost.expected, cost.most)]
    assert all(nothing_known) or not any(nothing_known)


@given(tallies(), SIZES)
def test_visual_tokens_are_exact_where_all_images_are_alike(tally: Tally, size: tuple[int, int]) -> None:
    tally.sizes = {key: list(size) for key in tally.sizes}
    report = make_report(tally, evidence(Probe("sampled", "stored", *size, None, None)))
    one = visual_tokens(*size, min_pixels=65_536, max_pixels=MOST_PIXELS)
    assert report.tokens.visual == tally.references * one
    assert report.tokens.cached == (tally.references - tally.distinct) * one


def test_a_lower_budget_has_fewer_visual_tokens() -> None:
    tally = Tally(requests=2, uses={"0": 1, "65536": 1}, distinct=1, sizes={"a": [1024, 1024]})
    low = visual_tokens(1024, 1024, min_pixels=65_536, max_pixels=65_536)
    full = visual_tokens(1024, 1024, min_pixels=65_536, max_pixels=MOST_PIXELS)
    assert low < full
    assert make_report(tally, evidence()).tokens.visual == low + full


def test_an_image_that_was_stored_and_sampled_counts_once() -> None:
    tally = Tally(requests=2, uses={"0": 2}, distinct=2, sizes={"a": [256, 256], "b": [1024, 512]})
    alone = make_report(tally, evidence()).tokens.visual
    assert make_report(tally, evidence(Probe("a", "stored", 256, 256, None, None))).tokens.visual == alone


def test_questions_without_images_have_no_visual_tokens() -> None:
    report = make_report(Tally(requests=3), evidence())
    assert (report.tokens.visual, report.tokens.cached, report.requests_per_image) == (0, 0, 0)


def test_what_nobody_knows_is_null() -> None:
    report = make_report(Tally(requests=3, uses={"0": 3}, distinct=3), evidence(price=None))
    assert (report.tokens.visual, report.tokens.cached, report.tokens.output_expected) == (None, None, None)
    assert (report.time.seconds, report.cost, report.images.sample.failed_share) == (None, None, None)


@given(st.lists(st.sampled_from(["stored", "failed", "pending", "fetching"]), max_size=20))
def test_every_sampled_image_is_stored_failed_or_pending(states: list[str]) -> None:
    probes = [
        Probe(str(number), state, None, None, "http_404" if state == "failed" else None, "gone")
        for number, state in enumerate(states)
    ]
    sample = make_report(Tally(), evidence(*probes)).images.sample
    assert sample.stored + sample.failed + sample.pending == sample.asked == len(states)
    assert sum(one.count for one in sample.errors) == sample.failed
    assert sample.failed_share is None or 0 <= sample.failed_share <= 1


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 9), max_size=5))
def test_the_commonest_mistake_comes_first(counts: dict[str, int]) -> None:
    tally = Tally(bad={code: Example(count, 1, None, "bad") for code, count in counts.items()})
    report = make_report(tally, evidence())
    assert [one.count for one in report.errors] == sorted(counts.values(), reverse=True)
    assert report.bad_lines == sum(counts.values())
