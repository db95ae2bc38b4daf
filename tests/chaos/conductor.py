"""Deals the strikes of a run, one after the other and some beside each other, while jobs run."""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.books import Away
from tests.chaos.pace import Pace
from tests.chaos.plan import RunPlan
from tests.chaos.strikes import TICK_S, Act, Field, Kind, Strike

PATIENCE_S = 20.0  # how long a strike waits for its moment before it lets the next one go first
Say = Callable[[str], None]


@dataclass(frozen=True)
class Card:
    """A strike to be. Its random numbers are its own: the order of others does not change them."""

    kind: Kind
    rng: random.Random
    pause_s: float


def deal(kinds: Sequence[Kind], extra: Sequence[Kind], plan: RunPlan) -> deque[Card]:
    """Every kind once in every round, in an order of its own, and the extra ones spread among the rounds."""
    rng = random.Random(f"{plan.seed} strikes")
    names: list[Kind] = []
    for _ in range(plan.strikes):
        names += rng.sample(list(kinds), len(kinds))
    for kind in extra:
        names.insert(rng.randrange(len(names) + 1), kind)
    return deque(
        Card(kind, random.Random(f"{plan.seed} {number} {kind.name}"), rng.uniform(0, plan.pause_s))
        for number, kind in enumerate(names)
    )


@dataclass
class _Running:
    strike: Strike
    card: Card
    act: Act
    due: float


class Conductor:
    """`tick` does what is due. Use it from the thread that started the units: their leash is that thread."""

    def __init__(self, field: Field, deck: deque[Card], *, pace: Pace, say: Say) -> None:
        self.strikes: list[Strike] = []
        self._field = field
        self._deck = deck
        self._cards = len(deck)
        self._pace = pace
        self._say = say
        self._running: list[_Running] = []
        self._next_at = time.monotonic()
        self._waited_since: float | None = None
        self._started = time.monotonic()

    def tick(self) -> None:
        for unit in self._field.units:
            unit.keep_up()
        for running in list(self._running):
            if time.monotonic() >= running.due:
                self._move(running)
        if self._deck and time.monotonic() >= self._next_at:
            self._try_next()
        self._pace.struck = 1 - (len(self._deck) + len(self._running)) / self._cards

    def settle(self) -> None:
        """Deal no more; let what was begun come to its end."""
        while self._running:
            self._deck.clear()
            self.tick()
            time.sleep(TICK_S)

    def _try_next(self) -> None:
        card = self._deck[0]
        leases = self._leases_for(card.kind)
        if leases:
            self._deck.popleft()
            self._begin(card, leases)
        elif self._waited_since is None:
            self._waited_since = time.monotonic()
        elif time.monotonic() - self._waited_since > PATIENCE_S:
            self._deck.rotate(-1)
            self._waited_since = None
            self._say(f"{card.kind.name} had no moment and is put off")

    def _leases_for(self, kind: Kind) -> int:
        """How many leases are held at a moment that suits the kind; 0 where it does not."""
        if any(running.card.kind.alone for running in self._running) or (kind.alone and self._running):
            return 0
        if any({running.card.kind.name, kind.name} <= {"s3", "full"} for running in self._running):
            return 0
        if any(running.card.kind.name == kind.name for running in self._running):
            return 0
        try:
            return self._field.books.leases() if kind.may() else 0
        except Away:
            return 0

    def _begin(self, card: Card, leases: int) -> None:
        self._waited_since = None
        self._next_at = time.monotonic() + card.pause_s
        strike = Strike(card.kind.name, card.kind.name, leases)
        self.strikes.append(strike)
        running = _Running(strike, card, card.kind.act(card.rng, strike), 0.0)
        self._running.append(running)
        self._move(running)

    def _move(self, running: _Running) -> None:
        try:
            running.due = time.monotonic() + next(running.act)
        except StopIteration:
            self._end(running)
        except Away:
            running.strike.leases, running.strike.note = 0, "the database went away"
            self._end(running)

    def _end(self, running: _Running) -> None:
        """One that does not count is dealt once more."""
        self._running.remove(running)
        if not running.strike.counts:
            self._deck.append(running.card)
        self._tell(running.strike)

    def _tell(self, strike: Strike) -> None:
        back = "not timed" if strike.recovery_s is None else f"back in {strike.recovery_s:.1f} s"
        board = f", {strike.on_board} on board" if strike.on_board else ""
        note = f", {strike.note}" if strike.note else ""
        at = strike.at - self._started
        self._say(f"{at:7.1f} s  {strike.target}: {strike.leases} leases held{board}{note}; {back}")
