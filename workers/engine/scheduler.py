"""Who joins the next step, and how large a step may be: pure deciding, no clock and no threads."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

# Steps that must pass before a budget that was lowered for want of memory is doubled again.
CALM_STEPS = 200
# Seconds for which rows of an image that has just joined may overtake others, so that they share its step.
OVERTAKING_S = 2.0


@dataclass(frozen=True)
class Waiting:
    """A prepared request that waits to join: the pieces of its prefix with their tokens, and its tail's."""

    number: int
    arrived: float  # seconds, on the caller's clock
    pieces: tuple[tuple[bytes, int], ...]
    tail: int
    urgent: bool = False

    @property
    def group(self) -> bytes | int:
        """Rows with the same first piece show the same image, or share instructions."""
        return self.pieces[0][0] if self.pieces else self.number


@dataclass(frozen=True)
class Room:
    """What the next step can still take; `running` rows decode in it anyway.

    `coming` requests are not among those that wait yet, as they are being prepared.
    """

    running: int
    rows: int
    tokens: int  # to compute
    kv_tokens: int  # of pieces to keep
    coming: int = 0


@dataclass(frozen=True)
class Wait:
    """Nobody joins yet: look again after so many seconds, or when somebody arrives."""

    seconds: float


@dataclass(frozen=True)
class Join:
    """These join now, by number."""

    numbers: tuple[int, ...]


def next_join(
    waiting: Sequence[Waiting], *, now: float, room: Room, resident: Container[bytes], max_wait_s: float
) -> Join | Wait:
    """Decide for a non-empty waiting room.

    While rows run, whoever fits joins at once. An idle engine waits for those who are coming, but not longer
    than `max_wait_s` after the first arrival. The oldest always joins an idle engine, whatever it needs, and
    nobody is overtaken once it has waited OVERTAKING_S: so nobody starves.

    Urgent ones wait for nobody and overtake all others, who leave them the step that they join: it is the one
    that gives the first token, and every other prompt in it would make it longer. One that needs more than a
    step computes joins all the same, as it would wait until the last row has ended.
    """
    if urgent := [row for row in waiting if row.urgent]:
        return Join(_fitting(_in_order(urgent, now), room, resident))
    left = min(row.arrived for row in waiting) + max_wait_s - now
    if room.running == 0 and room.coming > 0 and len(waiting) < room.rows and left > 0:
        return Wait(left)
    return Join(_fitting(_in_order(waiting, now), room, resident))


def _in_order(waiting: Sequence[Waiting], now: float) -> list[Waiting]:
    """By arrival, rows of one image side by side unless that makes others wait too long."""
    ordered = sorted(waiting, key=lambda row: (row.arrived, row.number))
    if now - ordered[0].arrived > OVERTAKING_S:
        return ordered
    first: dict[bytes | int, int] = {}
    for place, row in enumerate(ordered):
        first.setdefault(row.group, place)
    return sorted(ordered, key=lambda row: first[row.group])


def _fitting(ordered: Sequence[Waiting], room: Room, resident: Container[bytes]) -> tuple[int, ...]:
    """The first rows that fit together; a piece that several need is counted once."""
    chosen: list[int] = []
    planned: set[bytes] = set()
    tokens = kept = 0
    for row in ordered[: room.rows]:
        new = {key: size for key, size in row.pieces if key not in planned and key not in resident}
        tokens += sum(new.values()) + row.tail
        kept += sum(new.values())
        alone = room.running == 0 and not chosen
        is_long = tokens > room.tokens and (bool(chosen) or not row.urgent)
        if not alone and (is_long or kept > room.kv_tokens):
            break
        planned |= new.keys()
        chosen.append(row.number)
    return tuple(chosen)


@dataclass
class Budget:
    """How large a step may be. Want of memory lowers it to what is known to work; calm raises it again."""

    most_rows: int
    most_tokens: int
    rows: int = field(init=False)
    tokens: int = field(init=False)
    _calm: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.rows, self.tokens = self.most_rows, self.most_tokens

    def lower(self, *, rows: int, tokens: int) -> None:
        """A step of so many rows, with so many tokens of new prompts, did not fit."""
        self.rows = max(1, min(self.rows, rows // 2))
        if tokens:
            self.tokens = max(1, min(self.tokens, tokens // 2))
        self._calm = 0

    def passed(self) -> None:
        """A step has fitted."""
        self._calm += 1
        if self._calm >= CALM_STEPS:
            self._calm = 0
            self.rows = min(self.most_rows, 2 * self.rows)
            self.tokens = min(self.most_tokens, 2 * self.tokens)
