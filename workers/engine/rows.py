"""A request on its way through the steps: what it has generated, and where its KV stands."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.engine.cuts import Cut, PromptKey
from workers.engine.generation import Generation
from workers.engine.prefixes import Node
from workers.engine.prepare import Prepared


@dataclass(eq=False)
class Row:
    """A row's KV: the pieces up to `node`, then `own` tokens in its slot."""

    prepared: Prepared
    generation: Generation
    node: Node | None = None
    slot: int = -1
    own: int = 0
    cached: int = 0  # prompt tokens that somebody else computed
    pin: Node | None = None  # held since the request was prepared, until it has joined
    joined: float = 0.0  # time.monotonic(), as is `first`: when it had its first token
    first: float = 0.0

    @property
    def start(self) -> int:
        """Where the row's own tokens begin."""
        return self.node.end if self.node is not None else 0

    @property
    def tail(self) -> NDArray[np.int64]:
        """Tokens of the prompt that are the row's own."""
        return self.prepared.prompt.ids[self.start :]

    @property
    def position(self) -> tuple[int, int]:
        """Text and rope position of the newest token, which is fed next."""
        number = len(self.generation.tokens) - 1
        prompt = self.prepared.prompt
        return len(prompt) + number, prompt.next_position + number

    def cut_here(self) -> Cut:
        """The end of what is computed so far, as a place where another prompt may go on."""
        end = self.start + self.own
        fed = self.generation.tokens[: end - len(self.prepared.prompt)]
        key: PromptKey = self.prepared.plan.key.copy()
        key.feed(np.asarray(fed, np.int64))
        return Cut(end, key.digest(), built=True)

    def order(self) -> tuple[int, ...]:
        """Sorts rows so that those under one piece stand side by side."""
        return tuple(node.serial for node in chain(self.node))


def chain(node: Node | None) -> Sequence[Node]:
    return node.chain() if node is not None else ()
