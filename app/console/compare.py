"""Two batches side by side: their differences page by page, and how often they agree, counted bit by bit."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from app.db import Sessions, transaction
from app.store import console_compare as store
from app.store.console_compare import DIFFERING, MISSING, ONLY_A, ONLY_B, SAME, Pair, PairFilters

PAGE = 40  # items: each is two answers
PIECES = (200, 1_000, 3_000)
MOST_LOOKED = 10_000
MOST_S = 0.4
TALLY_PIECE = 5_000
TALLY_S = 0.15  # of a request for counting on
KEPT_ENDED_S, KEPT_OPEN_S = 600, 30
MOST_KEPT = 100
DIFFERENCES = (DIFFERING, ONLY_A, ONLY_B)


@dataclass(frozen=True)
class FoundPairs:
    """Items of a page in the order of batch `a`.

    `line` is where to go on in the direction that was asked for; `is_short`: it ended before it was full.
    """

    pairs: Sequence[Pair]
    line: int | None
    is_short: bool


@dataclass(frozen=True)
class Agreement:
    """How often two batches have answered alike, of the `looked` items so far."""

    counts: Mapping[str, int]
    looked: int
    is_done: bool

    @property
    def both(self) -> int:
        """Items that both have answered."""
        return self.counts.get(SAME, 0) + self.counts.get(DIFFERING, 0)

    @property
    def is_apart(self) -> bool:
        """Whether all of A has been looked at, and nothing of it is in B."""
        return self.is_done and 0 < self.looked == self.counts.get(MISSING, 0)

    @property
    def share(self) -> float | None:
        return self.counts.get(SAME, 0) / self.both if self.both else None


@dataclass
class _Tally:
    counts: Counter[str] = field(default_factory=Counter)
    line: int = 0
    is_done: bool = False
    until: float = 0.0  # once it is done
    lock: Lock = field(default_factory=Lock)


class Comparisons:
    """The batches are known to be the tenant's."""

    def __init__(self, *, sessions: Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._lock = Lock()
        self._tallies: OrderedDict[tuple[str, str], _Tally] = OrderedDict()

    def find(
        self, a: str, b: str, filters: PairFilters, *, at: int = 0, backwards: bool = False
    ) -> FoundPairs:
        """The next page of the items that fit behind line `at` of batch `a`, or the one before it."""
        found = self._find(a, b, filters, at=at, backwards=backwards)
        return replace(found, pairs=found.pairs[::-1]) if backwards else found

    def _find(self, a: str, b: str, filters: PairFilters, *, at: int, backwards: bool) -> FoundPairs:
        until = self._clock() + MOST_S
        pairs: list[Pair] = []
        looked, line = 0, at
        sizes = iter([*PIECES, *[PIECES[-1]] * (MOST_LOOKED // PIECES[-1])])
        with transaction(self._sessions) as session:
            for size in sizes:
                piece = store.find_pairs(session, a, b, filters, at=line, backwards=backwards, piece=size)
                pairs += piece.pairs
                looked += piece.scanned
                if len(pairs) > PAGE:
                    return FoundPairs(pairs[:PAGE], pairs[PAGE - 1].line, is_short=False)
                if piece.scanned < size or piece.line is None:
                    return FoundPairs(pairs, None, is_short=False)
                line = piece.line
                if looked >= MOST_LOOKED or self._clock() > until:
                    break
        return FoundPairs(pairs, line, is_short=True)

    def agreement(self, a: str, b: str, *, is_open: bool) -> Agreement:
        """As far as it has been counted: each call counts on for a while, until all items have been."""
        tally = self._tally(a, b)
        if tally.lock.acquire(blocking=False):
            try:
                self._count_on(tally, a, b, is_open=is_open)
            finally:
                tally.lock.release()
        return Agreement(dict(tally.counts), sum(tally.counts.values()), tally.is_done)

    def _tally(self, a: str, b: str) -> _Tally:
        with self._lock:
            tally = self._tallies.get((a, b))
            if tally is None or (tally.is_done and tally.until < self._clock()):
                tally = self._tallies[a, b] = _Tally()
            self._tallies.move_to_end((a, b))
            while len(self._tallies) > MOST_KEPT:
                self._tallies.popitem(last=False)
            return tally

    def _count_on(self, tally: _Tally, a: str, b: str, *, is_open: bool) -> None:
        until = self._clock() + TALLY_S
        while not tally.is_done:
            with transaction(self._sessions) as session:
                piece = store.tally_pairs(session, a, b, after=tally.line, piece=TALLY_PIECE)
            tally.counts.update(piece.counts)
            tally.line = piece.line if piece.line is not None else tally.line
            tally.is_done = piece.scanned < TALLY_PIECE
            if self._clock() > until:
                break
        if tally.is_done and not tally.until:
            tally.until = self._clock() + (KEPT_OPEN_S if is_open else KEPT_ENDED_S)
