"""How a request is told what is wrong with it, and the checks that many fields share. Pure."""

from reprlib import Repr
from typing import Any

from app.errors import RequestError

# JSON as the client gave it: any type at any depth.
Json = Any

_NAMES: dict[Json, str] = {None: "null", True: "true", False: "false"}


class _Short(Repr):
    """As `repr`, but with JSON's words for what it has words for."""

    def repr1(self, x: Json, level: int) -> str:
        is_named = x is None or isinstance(x, bool)
        return _NAMES[x] if is_named else super().repr1(x, level)


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxstring = 2, 3, 3, 60


def wrong(param: str, message: str, code: str = "invalid_request") -> RequestError:
    return RequestError(message, code=code, param=param or None)


def missing(param: str) -> RequestError:
    return wrong(param, f"{param} is missing: every request needs it.", "missing_required_field")


def shown(value: Json) -> str:
    """A value for a message: short, in ASCII, so that it can be stored and printed anywhere."""
    return _SHORT.repr(value).encode("ascii", "backslashreplace").decode()


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON may smuggle in halves of UTF-16 pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def integer(name: str, value: Json, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise wrong(name, f"{name} must be a whole number from {low} to {high}, not {shown(value)}.")
    return value


def number(name: str, value: Json, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise wrong(name, f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}.")
    return float(value)
