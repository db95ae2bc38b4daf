"""Pieces of PromQL that panels are made of. A rate is one in the second, summed over processes."""


def rate(metric: str, *, by: str = "", where: str = "") -> str:
    """A counter's increase."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, *, where: str = "", by: str = "") -> str:
    """The time within which that share was done, read from a histogram's buckets."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', by=labels, where=where)})"


def mean(histogram: str, *, where: str = "", by: str = "") -> str:
    """A histogram's mean."""
    parts = (rate(f"{histogram}_{part}", by=by, where=where) for part in ("sum", "count"))
    return " / ".join(parts)


def stage(name: str) -> str:
    """Matches stages of `vqueue_stage_seconds`, several with a bar between them."""
    return f'stage=~"{name}"'
