"""Cuts what is read at once to a size in bytes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar


class HasJob(Protocol):
    @property
    def job_id(self) -> int: ...


Place = TypeVar("Place", bound=HasJob)


def in_parts(places: Sequence[Place], sizes: Mapping[int, int], *, most: int) -> Iterator[Sequence[Place]]:
    """The same in the same order, in parts of at most so many bytes; what is larger alone comes alone."""
    part, held = list[Place](), 0
    for place in places:
        size = sizes.get(place.job_id, 0)
        if part and held + size > most:
            yield part
            part, held = [], 0
        part.append(place)
        held += size
    if part:
        yield part
