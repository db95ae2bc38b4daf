"""Values of Parquet as cells: the text that a person would write, or the bytes of an image. Pure."""

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta

import pyarrow as pa

from app.checks import Json
from app.tables.base import Cell

# How many of a unit a second has, and how many digits that makes.
_DIGITS: Mapping[str, int] = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_S = 86_400
# What Arrow raises for a value that Python has none for, an unknown zone (a KeyError) among it.
_NO_VALUE = (ValueError, OverflowError, KeyError, NotImplementedError, pa.ArrowException)


def cell_of(scalar: pa.Scalar) -> Cell:
    """A value as a cell; UnicodeDecodeError for a text that is none."""
    if _is_fine_time(scalar.type):  # what Python makes of it depends on which packages there are
        return as_cell(_by_hand(scalar))
    try:
        return as_cell(scalar.as_py())
    except UnicodeDecodeError:
        raise
    except _NO_VALUE:
        return as_cell(_by_hand(scalar))


def as_cell(value: Json) -> Cell:
    """A value as the text that a person would write, or the bytes of an image (at Hugging Face: a struct)."""
    match value:
        case None | str() | bytes():
            return value
        case bool():
            return "true" if value else "false"
        case float():  # whole numbers beside nulls are often kept as such
            return repr(value).removesuffix(".0")
        case datetime() | date() | time():
            return value.isoformat()
        case {"bytes": bytes() as data}:
            return data
        case {"path": str() as path}:
            return path
        case {"bytes": None}:
            return None
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=_shown)
        case _:
            return str(value)


def date_text(days: int) -> str:
    """A day by its number from 1970-01-01, in any year: the calendar repeats itself every 400 of them."""
    eras, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    number = year + 400 * eras + (month >= 10)
    return f"{number:04d}-{(month + 2) % 12 + 1:02d}-{day - (153 * month + 2) // 5 + 1:02d}"


def _shown(value: Json) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(as_cell(value))


def _is_fine_time(kind: pa.DataType) -> bool:
    return getattr(kind, "unit", None) == "ns"


def _by_hand(scalar: pa.Scalar) -> Json:
    """What `as_py` has no value for: times of nanoseconds, far dates, unknown zones, and what holds such."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        return _by_hand(scalar.value)
    if pa.types.is_struct(kind):
        return {kind.field(at).name: _by_hand(scalar[at]) for at in range(kind.num_fields)}
    if isinstance(scalar, pa.MapScalar):
        return [[_by_hand(one["key"]), _by_hand(one["value"])] for one in scalar.values]
    if isinstance(scalar, pa.ListScalar):
        return [_by_hand(one) for one in scalar.values]
    if pa.types.is_temporal(kind):
        return _time_text(kind, scalar.value)
    return scalar.as_py()


def _time_text(kind: pa.DataType, value: int) -> str:
    if pa.types.is_date32(kind):
        return date_text(value)
    if pa.types.is_date64(kind):
        return date_text(value // (1000 * _DAY_S))
    per_second = 10 ** _DIGITS[kind.unit]
    seconds, rest = divmod(value, per_second)
    fraction = _fraction(rest, _DIGITS[kind.unit])
    if pa.types.is_time(kind):
        return _clock_text(seconds) + fraction
    if pa.types.is_duration(kind):
        return f"{timedelta(seconds=seconds)}{fraction}" if abs(seconds) < 10**13 else f"{value} {kind.unit}"
    return _moment_text(seconds, fraction, kind.tz)


def _moment_text(seconds: int, fraction: str, zone: str | None) -> str:
    """ISO 8601; in UTC with the zone's name behind it (RFC 9557) where nobody here knows the zone."""
    if zone:
        try:
            there = pa.scalar(seconds, pa.timestamp("s", zone)).as_py().isoformat()
        except _NO_VALUE:
            pass
        else:
            return there[:19] + fraction + there[19:]
    days, of_day = divmod(seconds, _DAY_S)
    return f"{date_text(days)}T{_clock_text(of_day)}{fraction}" + (f"+00:00[{zone}]" if zone else "")


def _fraction(rest: int, digits: int) -> str:
    """Of a second: six digits as Python writes them, nine where they are needed."""
    text = f"{rest:0{digits}d}".ljust(9, "0") if rest else ""
    return f".{text[:6] if text.endswith('000') else text}" if text else ""


def _clock_text(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
