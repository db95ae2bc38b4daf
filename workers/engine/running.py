"""The rows that run: each takes pieces and a slot when it enters, and gives them back when it leaves."""

from collections.abc import Sequence

from workers.engine.layout import Build
from workers.engine.prefixes import Node, PrefixCache
from workers.engine.rows import Row, chain
from workers.engine.slots import SLOT_TOKENS, Slots


class Running:
    """By slot, for the engine's thread only. A row holds its pieces once, and its pin until it has joined."""

    def __init__(self, *, slots: Slots, prefixes: PrefixCache) -> None:
        self._slots = slots
        self._prefixes = prefixes
        self._rows: list[Row] = []  # row n is in slot n

    def __len__(self) -> int:
        return len(self._rows)

    def all(self) -> list[Row]:
        return list(self._rows)

    def enter(self, rows: Sequence[Row]) -> list[Build]:
        """Hold each row's pieces and a slot; the pieces that are not there yet, parents first."""
        builds: dict[Node, Build] = {}
        for row in rows:
            row.node = self._prefixes.claim(row.prepared.plan.cuts, row.pin)
            row.cached = row.start
            for node in chain(row.node):
                if not node.built and node not in builds:
                    builds[node] = Build(node, row.prepared)
                    row.cached -= node.end - node.start
        for node in builds:
            self._prefixes.fill(node, self._slots.shape.piece(node.end - node.start))
        for row in rows:
            row.slot = self._slots.take()
            self._rows.append(row)
        return sorted(builds.values(), key=lambda build: build.node.serial)

    def joined(self, builds: Sequence[Build], rows: Sequence[Row]) -> None:
        """The model has run: the pieces are whole, and the prompts' tails stand in their slots."""
        for build in builds:
            self._prefixes.complete(build.node)
        for row in rows:
            row.own = len(row.tail)
            self._unpin(row)

    def undo(self, builds: Sequence[Build], rows: Sequence[Row]) -> None:
        """As if these had never entered; they keep their pins for another try."""
        for row in rows:
            if row.slot >= 0:
                self._slots.wipe(row.slot)
            self._free(row)
        for build in builds:
            self._prefixes.drop(build.node)

    def leave(self, row: Row) -> None:
        self._free(row)
        self._unpin(row)

    def leave_spoiled(self, row: Row) -> None:
        """The row's pieces may hold what is no number: nobody finds them again."""
        for node in chain(row.node):
            self._prefixes.drop(node)
        self._slots.wipe(row.slot)
        self.leave(row)

    def make_place(self, row: Row) -> None:
        """A full slot becomes a piece of the row's prefix, and the row goes on with an empty one."""
        if row.own < SLOT_TOKENS:
            return
        cut = row.cut_here()
        node = self._prefixes.extend(row.node, cut.key, cut.end, self._slots.copy_out(row.slot, row.own))
        self._prefixes.release(row.node)
        row.node, row.own = node, 0

    def keep_answer(self, row: Row) -> None:
        """A next turn that repeats this one finds its KV."""
        if not self._prefixes.keeps_answers or not row.own:
            return
        try:
            kv = self._slots.copy_out(row.slot, row.own)
        except (
            RuntimeError,
            MemoryError,
        ):  # no memory, as GPU and CPU say it: the answer is there all the same
            return
        cut = row.cut_here()
        self._prefixes.release(self._prefixes.extend(row.node, cut.key, cut.end, kv))

    def _free(self, row: Row) -> None:
        if row.slot >= 0:
            self._slots.give_back(row.slot)
            moved = self._rows.pop()
            if moved is not row:
                moved.slot = row.slot
                self._rows[row.slot] = moved
            row.slot = -1
        self._prefixes.release(row.node)
        row.node = None

    def _unpin(self, row: Row) -> None:
        self._prefixes.release(row.pin)
        row.pin = None
