"""The report of a dry run, from what was counted and what is known. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.prices import Price
from app.report import (
    BadLines,
    ImageSample,
    Report,
    ReportCost,
    ReportImages,
    ReportTime,
    ReportTokens,
    SampleErrors,
)
from app.store.checks import Probe, Rates
from app.tally import Tally
from app.visual_tokens import MIN_PIXELS, visual_tokens


@dataclass(frozen=True)
class Evidence:
    """What is known beside the tally."""

    probes: Sequence[Probe]
    rates: Rates
    price: Price | None
    max_pixels: int
    now: float  # Unix time


def make_report(tally: Tally, evidence: Evidence) -> Report:
    tokens = _tokens(tally, evidence)
    return Report(
        lines=tally.rows,
        requests=tally.requests,
        bad_lines=tally.bad_lines,
        errors=_bad_lines(tally),
        models=tally.models,
        images=_images(tally, evidence.probes),
        images_per_request=round(tally.references / tally.requests, 3) if tally.requests else 0.0,
        requests_per_image=round(tally.references / tally.distinct, 3) if tally.distinct else 0.0,
        tokens=tokens,
        time=_time(tally, evidence.rates),
        cost=evidence.price and _cost(evidence.price, tokens),
        took_s=round(max(0.0, evidence.now - tally.began_at), 3),
    )


def _tokens_per_use(budget: int, sizes: Collection[tuple[int, int]]) -> float:
    """The mean of images of these sizes, of which there is one at least, under a pixel budget."""
    found = [
        visual_tokens(width, height, min_pixels=min(MIN_PIXELS, budget), max_pixels=budget)
        for width, height in sizes
    ]
    return sum(found) / len(found)


def _tokens(tally: Tally, evidence: Evidence) -> ReportTokens:
    visual = _visual(tally, evidence)
    repeated = 1 - tally.distinct / tally.references if tally.references else 0.0
    answer = evidence.rates.output_tokens
    return ReportTokens(
        visual=None if visual is None else round(visual),
        text=tally.text_tokens,
        cached=None if visual is None else round(visual * repeated),
        output_expected=None if answer is None else min(round(answer * tally.requests), tally.output_most),
        output_most=tally.output_most,
    )


def _visual(tally: Tally, evidence: Evidence) -> float | None:
    """Of all requests; None where they name images and no image's size is known."""
    sizes = {key: (width, height) for key, (width, height) in tally.sizes.items()}
    for probe in evidence.probes:
        if probe.width is not None and probe.height is not None:
            sizes[probe.ref_hash] = probe.width, probe.height
    if tally.uses and not sizes:
        return None
    most = evidence.max_pixels
    return sum(
        uses * _tokens_per_use(min(int(budget) or most, most), sizes.values())
        for budget, uses in tally.uses.items()
    )


def _bad_lines(tally: Tally) -> list[BadLines]:
    found = sorted(tally.bad.items(), key=lambda one: (-one[1].count, one[0]))
    return [
        BadLines(code=code, count=one.count, line=one.line, param=one.param, message=one.message)
        for code, one in found
    ]


def _images(tally: Tally, probes: Sequence[Probe]) -> ReportImages:
    return ReportImages(
        references=tally.references,
        distinct=tally.distinct,
        inline=tally.inline,
        stored=tally.stored,
        failed_lately=tally.failed,
        sample=_sample(probes),
    )


def _sample(probes: Sequence[Probe]) -> ImageSample:
    states = Counter(probe.state for probe in probes)
    stored, failed = states["stored"], states["failed"]
    codes = Counter(probe.code or "" for probe in probes if probe.state == "failed")
    first = {probe.code: probe.message or "" for probe in reversed(probes) if probe.state == "failed"}
    return ImageSample(
        asked=len(probes),
        stored=stored,
        failed=failed,
        pending=len(probes) - stored - failed,
        errors=[
            SampleErrors(code=code, count=count, message=first[code]) for code, count in codes.most_common()
        ],
        failed_share=round(failed / (stored + failed), 3) if stored + failed else None,
    )


def _time(tally: Tally, rates: Rates) -> ReportTime:
    pace = rates.jobs_per_second
    return ReportTime(
        seconds=round(tally.requests / pace, 1) if pace else None,
        jobs_per_second=None if pace is None else round(pace, 3),
        based_on_batches=rates.batches,
    )


def _cost(price: Price, tokens: ReportTokens) -> ReportCost:
    if tokens.visual is None:
        return ReportCost(currency=price.currency, expected=None, most=None)
    prompt, cached = tokens.visual + tokens.text, tokens.cached or 0
    most = price.of(prompt=prompt, cached=0, completion=tokens.output_most)
    expected = None
    if tokens.output_expected is not None:
        expected = price.of(prompt=prompt, cached=cached, completion=tokens.output_expected)
    return ReportCost(
        currency=price.currency,
        expected=None if expected is None else round(expected, 6),
        most=round(most, 6),
    )
