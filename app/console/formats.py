"""Numbers, times and shares as people read them. Pure."""

from datetime import datetime

from markupsafe import Markup, escape

DASH = "–"
STEPS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
SIZES = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None) -> str:
    """`1,234,567`, with two decimals where it is no whole number."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def share(part: float | None, of: float | None = 1) -> str:
    """`12.3 %`; a dash where there is nothing to have a share of. Never 100 % while something is missing."""
    if part is None or not of:
        return DASH
    percent = 100 * part / of
    if percent in (0, 100):
        return f"{percent:.0f} %"
    return f"{min(max(percent, 0.1), 99.9):.1f} %" if 0 < percent < 100 else f"{percent:.0f} %"


def size(amount: float | None) -> str:
    """Bytes, by thousands: `1.2 MB`."""
    if amount is None:
        return DASH
    step = 0
    while amount >= 1000 and step < len(SIZES) - 1:
        amount, step = amount / 1000, step + 1
    return f"{amount:.0f} {SIZES[step]}" if step == 0 or amount >= 100 else f"{amount:.1f} {SIZES[step]}"


def duration(seconds: float | None) -> str:
    """The two largest units: `3 h 20 min`, `0.4 s`."""
    if seconds is None:
        return DASH
    if seconds <= 0:
        return "0 s"
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s"
    for place, (unit, length) in enumerate(STEPS):
        if seconds >= length:
            whole, rest = divmod(int(seconds), length)
            if place + 1 == len(STEPS):
                return f"{whole} {unit}"
            lower, shorter = STEPS[place + 1]
            less = rest // shorter
            return f"{whole} {unit} {less} {lower}" if less else f"{whole} {unit}"
    return DASH


def moment(at: datetime | None) -> str | Markup:
    """A time as UTC, which a script turns into the reader's own."""
    if at is None:
        return DASH
    return Markup('<time datetime="{}">{}</time>').format(escape(at.isoformat(timespec="seconds")), utc(at))


def utc(at: datetime) -> str:
    """`2026-11-30 16:05 UTC`."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def short(name: str | None) -> str:
    """An id by its kind and last characters, where the whole stands in a title beside it."""
    if name is None:
        return DASH
    kind, mark, rest = name.partition("_" if "_" in name else "-")
    return f"{kind}{mark}…{rest[-6:]}" if len(rest) > 10 else name


def clipped(text: str, chars: int) -> str:
    """Its first characters, with dots where there are more."""
    return text if len(text) <= chars else f"{text[:chars]}…"


FILTERS = {
    "number": number,
    "share": share,
    "size": size,
    "duration": duration,
    "moment": moment,
    "utc": utc,
    "short": short,
}
