"""`VQUEUE_SHADOWS` read: of which model's answers a share is asked of another one, too. Pure."""

from dataclasses import dataclass

FORM = "'demo demo-int8 0.02' (a model, another, the share of 1), with a comma between two"


@dataclass(frozen=True)
class Shadow:
    """A `share` (0 to 1) of what `model` has answered is asked of `other`."""

    model: str
    other: str
    share: float


def read_shadows(text: str) -> tuple[Shadow, ...]:
    """The shadows that a text lists. ValueError for what is wrong."""
    found = tuple(_shadow(part) for part in text.split(",") if part.strip())
    pairs = [(shadow.model, shadow.other) for shadow in found]
    if twice := [pair for pair in pairs if pairs.count(pair) > 1]:
        raise ValueError(f"{' '.join(twice[0])!r} stands twice")
    return found


def _shadow(part: str) -> Shadow:
    words = part.split()
    if len(words) != 3:
        raise ValueError(f"{part.strip()!r} does not read like {FORM}")
    model, other, share = words
    if model == other:
        raise ValueError(
            f"{model!r} would be its own shadow: give another name in VQUEUE_MODELS to a setting"
        )
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise ValueError(f"the share {share!r} of {model} {other} is no number above 0 and at most 1")
    return Shadow(model, other, value)
