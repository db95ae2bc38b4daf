"""What the bodies of requests share."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def _without_nul(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL characters")
    return value


# Postgres has no NUL in text.
Str = Annotated[str, AfterValidator(_without_nul)]


class Request(BaseModel):
    """A parameter that we do not know is refused: ignoring it would do something else than was asked."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
