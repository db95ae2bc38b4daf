"""The KV of what running rows have for themselves: the tail of the prompt and the answer so far."""

from dataclasses import dataclass

import torch

# Tokens a slot holds. A row that fills its slot hands it over as a piece of its prefix and goes on with an
# empty one, so that the padded step stays short however long one answer grows.
SLOT_TOKENS = 192
FIRST_SLOTS = 8


@dataclass(frozen=True)
class Shape:
    """What one token's KV looks like."""

    layers: int
    heads: int  # key-value heads
    width: int  # of one head
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.width * self.dtype.itemsize

    def piece(self, tokens: int) -> torch.Tensor:
        """Memory for a piece of KV: (layers, 2, heads, tokens, width)."""
        size = (self.layers, 2, self.heads, tokens, self.width)
        return torch.empty(size, dtype=self.dtype, device=self.device)


class Slots:
    """Slots 0 to `used` are taken, without gaps; `kv` is (layers, 2, slots, heads, SLOT_TOKENS, width)."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.used = 0
        self.kv = self._memory(FIRST_SLOTS)

    def take(self) -> int:
        """A new slot's number."""
        if self.used == self.kv.shape[2]:
            larger = self._memory(2 * self.used)
            larger[:, :, : self.used] = self.kv
            self.kv = larger
        self.used += 1
        return self.used - 1

    def give_back(self, slot: int) -> None:
        """Free a slot; what the last one holds moves into the gap."""
        self.used -= 1
        if slot != self.used:
            self.kv[:, :, slot] = self.kv[:, :, self.used]

    def wipe(self, slot: int) -> None:
        """Whoever has the slot next multiplies what it does not fill by a weight of 0."""
        self.kv[:, :, slot] = 0

    def copy_out(self, slot: int, tokens: int) -> torch.Tensor:
        """The first tokens of a slot as a piece of its own."""
        return self.kv[:, :, slot, :, :tokens].clone()

    def _memory(self, slots: int) -> torch.Tensor:
        shape = self.shape
        # Zeros, as padding is multiplied by a weight of 0, which a NaN would survive.
        size = (shape.layers, 2, slots, shape.heads, SLOT_TOKENS, shape.width)
        return torch.zeros(size, dtype=shape.dtype, device=shape.device)
