"""What a client may wish of a batch, beside its requests; ours but for the first two."""

import itertools
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from app.cascade import MOST_STEPS
from app.looks import MOST_DISTANCE
from app.schemas.base import Request, Str
from app.warm import WARM
from app.windows import MONTH_S, window_seconds

Share = Annotated[float, Field(ge=0, le=1)]
NEAR_DUPLICATES = "vqueue_near_duplicates"


def _window(value: str) -> str:
    window_seconds(value)
    return value


def _wishes(value: dict[str, str]) -> dict[str, str]:
    """Metadata that we read: a wish that is misspelt would go unheard."""
    for name in (NEAR_DUPLICATES, WARM):
        if (wish := value.get(name, "off")) not in ("on", "off"):
            raise ValueError(f"{name} must be 'on' or 'off', not {wish!r}")
    return value


Window = Annotated[str, AfterValidator(_window)]


Metadata = Annotated[
    dict[Annotated[Str, Field(max_length=64)], Annotated[Str, Field(max_length=512)]],
    Field(max_length=16),
    AfterValidator(_wishes),
]


class ExpiresAfter(Request):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=MONTH_S)


class FailureBrake(Request):
    """(ours) Stop the batch when `share` of its requests, of at least `after`, has failed; share 0 never."""

    share: float = Field(ge=0, le=1)
    after: int | None = Field(default=None, ge=1, le=10**9)


class CascadeWish(Request):
    """(ours) `steps`, of `vqueue calibrate`, are rising pairs: a probability, the share of right ones."""

    model: Annotated[Str, Field(min_length=1)]
    threshold: float = Field(ge=0, le=1)
    steps: list[Annotated[list[Share], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, max_length=MOST_STEPS
    )

    @field_validator("steps")
    @classmethod
    def _rise(cls, steps: list[list[float]]) -> list[list[float]]:
        if any(a >= b for (a, _), (b, _) in itertools.pairwise(steps)):
            raise ValueError("the pairs must rise by their first number")
        return steps


CacheWish = Literal["on", "off", "read", "write"]


class NearDuplicates(Request):
    """(ours) The answer about one picture stands in for others that look the same."""

    distance: int = Field(
        default=4, ge=0, le=MOST_DISTANCE, description="bits of 64 in which their hashes may differ"
    )


def check_near(near: NearDuplicates | None, cache: CacheWish | None) -> None:
    """ValueError where the answers of near duplicates cannot be taken."""
    if near is not None and cache in ("off", "write"):
        raise ValueError(f"near_duplicates takes kept answers, which cache '{cache}' forbids")
