"""The prefix cache: KV of prompt beginnings as a tree of pieces, shared by all requests that begin alike."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workers.engine.cuts import Cut

# Share of the kept bytes that pieces which only answers made may take: few of them are ever asked for again.
ANSWERS_SHARE = 0.125


class Piece(Protocol):
    """What a node keeps: a tensor, of which the tree only knows its size."""

    @property
    def nbytes(self) -> int: ...


@dataclass(eq=False)
class Node:
    """The KV of tokens `start` to `end` of every prompt that begins with `key`; whole once it is `built`."""

    key: bytes
    parent: "Node | None"
    end: int
    kv: Piece | None = None
    built: bool = False
    from_answer: bool = False
    indexed: bool = True
    refs: int = 0  # rows and preparers that hold it, and nodes that continue it
    users: int = 0  # rows and preparers that hold it or what continues it
    serial: int = 0

    @property
    def start(self) -> int:
        return self.parent.end if self.parent is not None else 0

    def chain(self) -> list["Node"]:
        """From the root to this node."""
        above: list[Node] = []
        node: Node | None = self
        while node is not None:
            above.append(node)
            node = node.parent
        return above[::-1]


@dataclass
class Kept:
    """Nodes that nobody holds or continues, least recently used first."""

    nodes: OrderedDict[bytes, Node] = field(default_factory=OrderedDict)
    size: int = 0

    def add(self, node: Node) -> None:
        self.nodes[node.key] = node
        self.size += _size(node)

    def remove(self, node: Node) -> None:
        if self.nodes.get(node.key) is node:  # a dropped one may have a successor under its key
            del self.nodes[node.key]
            self.size -= _size(node)

    def oldest(self) -> Node | None:
        return next(iter(self.nodes.values()), None)


class PrefixCache:
    """Used from any thread. `budget` bounds the bytes that are kept while nobody holds them.

    What rows hold is never dropped: the scheduler bounds that. But what is kept makes room for it within
    `limit` bytes of all.
    """

    def __init__(self, *, budget: int, limit: int | None = None) -> None:
        self._budget = budget
        self._limit = limit
        self._index: dict[bytes, Node] = {}
        self._asked, self._answers = Kept(), Kept()
        self._held = self._used = 0
        self._serial = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes of all nodes, held by rows or kept."""
        return self._held

    @property
    def kept(self) -> int:
        """Bytes that are only there for who may come."""
        return self._held - self._used

    @property
    def keeps_answers(self) -> bool:
        return self._budget > 0

    def __contains__(self, key: bytes) -> bool:
        node = self._index.get(key)
        return node is not None and node.built

    def acquire(self, cuts: Sequence[Cut]) -> Node | None:
        """The longest beginning that is here whole, held for the caller."""
        with self._lock:
            node = self._longest(cuts, pending=False)
            self._use(node)
            return node

    def claim(self, cuts: Sequence[Cut], pin: Node | None = None) -> Node | None:
        """The node at the last built cut, held for the caller, with new nodes for whatever is missing.

        New nodes are not `built`: the caller computes them and says so by `complete`, or gives up by `drop`.
        What the caller's `pin` holds is not missing, even if it was dropped since.
        """
        with self._lock:
            node = self._longest(cuts, pending=True)
            if pin is not None and (node is None or node.end < pin.end):
                node = pin
            start = node.end if node is not None else 0
            for cut in cuts:
                if cut.built and cut.end > start:
                    node = self._insert(node, cut.key, cut.end)
            self._use(node)
            return node

    def release(self, node: Node | None) -> None:
        """Let go what `acquire`, `claim` or `extend` gave."""
        with self._lock:
            self._unuse(node)
            self._let_go(node)
            self._shrink()

    def extend(self, parent: Node | None, key: bytes, end: int, kv: Piece) -> Node:
        """A node of what a row computed for itself, held for the caller; if one is there whole, that one."""
        with self._lock:
            node = self._index.get(key)
            if node is not None and node.built:
                self._use(node)
                return node
            node = self._insert(parent, key, end)
            node.from_answer = True
            self._use(node)
            self._fill(node, kv)
            node.built = True
            return node

    def fill(self, node: Node, kv: Piece) -> None:
        """Give a pending node its memory; counted from here on."""
        with self._lock:
            if node.kv is None:
                self._fill(node, kv)

    def complete(self, node: Node) -> None:
        with self._lock:
            node.built = True

    def drop(self, node: Node) -> None:
        """Nobody finds this node any more; its memory goes with the last who holds it."""
        with self._lock:
            if node.indexed:
                self._forget(node)
                if node.refs == 0:
                    self._free(node)

    def _fill(self, node: Node, kv: Piece) -> None:
        node.kv = kv
        self._held += kv.nbytes
        self._used += kv.nbytes if node.users else 0
        self._shrink()

    def _longest(self, cuts: Sequence[Cut], *, pending: bool) -> Node | None:
        for cut in reversed(cuts):
            node = self._index.get(cut.key)
            if node is not None and (node.built or pending):
                return node
        return None

    def _insert(self, parent: Node | None, key: bytes, end: int) -> Node:
        self._serial += 1
        node = Node(key, parent, end, serial=self._serial)
        if parent is not None:
            self._hold(parent)
        if (displaced := self._index.get(key)) is not None:
            displaced.indexed = False
        self._index[key] = node
        return node

    def _use(self, node: Node | None) -> None:
        """Hold for a caller; its beginnings are then in use as well."""
        if node is None:
            return
        self._hold(node)
        for each in node.chain():
            self._used += 0 if each.users else _size(each)
            each.users += 1

    def _unuse(self, node: Node | None) -> None:
        for each in node.chain() if node is not None else ():
            each.users -= 1
            self._used -= 0 if each.users else _size(each)

    def _hold(self, node: Node) -> None:
        if node.refs == 0:
            self._kept_of(node).remove(node)
            if node.built:
                node.from_answer = False
        node.refs += 1

    def _let_go(self, node: Node | None) -> None:
        if node is None:
            return
        node.refs -= 1
        if node.refs > 0:
            return
        if node.built and node.indexed:
            self._kept_of(node).add(node)
        else:
            self._forget(node)
            self._free(node)

    def _shrink(self) -> None:
        while self._too_much():
            node = self._answers.oldest() or self._asked.oldest()
            if node is None:
                return
            self._kept_of(node).remove(node)
            self._forget(node)
            self._free(node)

    def _too_much(self) -> bool:
        if self._limit is not None and self._held > self._limit:
            return True
        return self._answers.size > ANSWERS_SHARE * self._budget or self.kept > self._budget

    def _forget(self, node: Node) -> None:
        if node.indexed:
            node.indexed = False
            del self._index[node.key]
        if node.refs == 0:
            self._kept_of(node).remove(node)

    def _free(self, node: Node) -> None:
        self._held -= _size(node)
        node.kv = None
        self._let_go(node.parent)

    def _kept_of(self, node: Node) -> Kept:
        return self._answers if node.from_answer else self._asked


def _size(node: Node) -> int:
    return node.kv.nbytes if node.kv is not None else 0
