"""The report of a dry run, from what was counted and what is known. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.prices import Price
from app.schemas_report import (
    BadLines,
    ImageSample,
    Report,
    ReportCost,
    ReportImages,
    ReportTime,
    ReportTokens,
    SampleErrors,
)
from app.store.checks import Known, Probe, Rates
from app.tally import Tally
from app.visual_tokens import visual_tokens

# The processor of Qwen3-VL enlarges smaller images to this area, within the request's own budget.
MIN_PIXELS = 65_536


@dataclass(frozen=True)
class Evidence:
    """What is known beside the tally. `sizes` are widths and heights of images of the batch."""

    known: Known
    inline: int
    probes: Sequence[Probe]
    sizes: Sequence[tuple[int, int]]
    rates: Rates
    price: Price | None
    max_pixels: int
    now: float  # Unix time


def make_report(tally: Tally, evidence: Evidence) -> Report:
    per_use = {budget: _tokens_per_use(int(budget), evidence) for budget in tally.uses}
    tokens = _tokens(tally, evidence, per_use)
    distinct = evidence.known.distinct
    return Report(
        lines=tally.rows,
        requests=tally.requests,
        bad_lines=tally.bad_lines,
        errors=_bad_lines(tally),
        models=tally.models,
        images=_images(tally, evidence),
        images_per_request=round(tally.references / tally.requests, 3) if tally.requests else 0.0,
        requests_per_image=round(tally.references / distinct, 3) if distinct else 0.0,
        tokens=tokens,
        time=_time(tally, evidence.rates),
        cost=evidence.price and _cost(evidence.price, tokens),
        took_s=round(max(0.0, evidence.now - tally.began_at), 3),
    )


def _tokens_per_use(budget: int, evidence: Evidence) -> float | None:
    """The mean of the images whose size is known, under a request's pixel budget (0: the model's own)."""
    most = min(budget or evidence.max_pixels, evidence.max_pixels)
    found = [
        visual_tokens(width, height, min_pixels=min(MIN_PIXELS, most), max_pixels=most)
        for width, height in evidence.sizes
    ]
    return sum(found) / len(found) if found else None


def _tokens(tally: Tally, evidence: Evidence, per_use: Mapping[str, float | None]) -> ReportTokens:
    visual = cached = 0.0
    distinct_share = evidence.known.distinct / tally.references if tally.references else 1.0
    for budget, uses in tally.uses.items():
        one = per_use[budget] or 0.0
        visual += uses * one
        cached += uses * one * max(0.0, 1 - distinct_share)
    is_known = all(one is not None for one in per_use.values())
    answer = evidence.rates.output_tokens
    return ReportTokens(
        visual=round(visual) if is_known else None,
        text=tally.text_tokens,
        cached=round(cached) if is_known else None,
        output_expected=None if answer is None else min(round(answer * tally.requests), tally.output_most),
        output_most=tally.output_most,
    )


def _bad_lines(tally: Tally) -> list[BadLines]:
    found = sorted(tally.bad.items(), key=lambda one: (-one[1].count, one[0]))
    return [
        BadLines(code=code, count=one.count, line=one.line, param=one.param, message=one.message)
        for code, one in found
    ]


def _images(tally: Tally, evidence: Evidence) -> ReportImages:
    known = evidence.known
    return ReportImages(
        references=tally.references,
        distinct=known.distinct,
        inline=evidence.inline,
        stored=known.stored,
        failed_lately=known.failed,
        sample=_sample(evidence.probes),
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
