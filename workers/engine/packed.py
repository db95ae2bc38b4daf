"""Attention of one step whose rows are packed into a single sequence, without padding and without copies.

A token attends to its row's own tokens and to the pieces of prefix before them. Pieces stay where they are
and serve all rows below them at once; the parts are joined by their log-sum-exps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import AttentionInterface

from workers.engine.slots import Slots

NAME = "vqueue_packed"
Partial = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Span:
    """A piece (layers, 2, heads, tokens, width) and the packed tokens that attend to all of it."""

    kv: torch.Tensor
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """Where everything stands in the packed sequence of one step.

    First the pieces that are computed in it (`builds`), then the tails of rows that join, then one token of
    each row that decodes. `levels[d]` are the spans of the pieces at depth d, from left to right.
    """

    builds: tuple[Span, ...]
    levels: tuple[tuple[Span, ...], ...]
    slots: Slots
    own_tokens: torch.Tensor  # packed numbers of all tokens that go into slots
    own_slots: torch.Tensor  # their slots
    own_places: torch.Tensor  # their places in these
    tails: "Tails | None"
    decode: "Decode | None"


@dataclass(frozen=True)
class Tails:
    """The tails as a batch, padded on the right: causal attention never looks there."""

    padded: torch.Tensor  # (tails, longest): packed numbers
    tokens: torch.Tensor  # packed numbers, one after the other
    batch_rows: torch.Tensor  # where each of `tokens` is in the batch
    batch_places: torch.Tensor


@dataclass(frozen=True)
class Decode:
    """The decoding rows as a batch over their slots."""

    tokens: torch.Tensor  # (rows,): packed numbers
    slots: torch.Tensor | None  # (rows,); None where row n decodes in slot n, so that nothing is copied
    mask: torch.Tensor  # (rows, 1, 1, longest): 0 where a slot holds a token, else minus infinity


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    *,
    scaling: float,
    layout: Layout,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The library's attention interface: query (1, heads, tokens, width), key and value with fewer heads."""
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    step = _Step(layer, layout, query[0].transpose(0, 1), key[0], value[0], scaling)
    step.store()
    out, weight = step.own()
    for spans in layout.levels:
        step.above(spans, out, weight)
    return out.to(query.dtype).flatten(1)[None], None


AttentionInterface.register(NAME, attend)


@dataclass(frozen=True)
class _Step:
    """One layer of one step. Partial results are float32 (tokens, heads, width), weights (tokens, heads)."""

    layer: int
    layout: Layout
    query: torch.Tensor  # (tokens, heads, width)
    key: torch.Tensor  # (key heads, tokens, width)
    value: torch.Tensor
    scaling: float

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.query.shape[1] // self.key.shape[0]

    def store(self) -> None:
        """Write the new keys and values where later steps find them."""
        layout = self.layout
        for build in layout.builds:
            build.kv[self.layer, 0] = self.key[:, build.start : build.stop]
            build.kv[self.layer, 1] = self.value[:, build.start : build.stop]
        if len(layout.own_tokens):
            kv = layout.slots.kv[self.layer]
            for number, new in enumerate((self.key, self.value)):
                kv[number][layout.own_slots, :, layout.own_places] = new[:, layout.own_tokens].transpose(0, 1)

    def own(self) -> Partial:
        """Every token over its own piece, tail or slot."""
        out = self.query.new_empty(self.query.shape, dtype=torch.float32)
        weight = self.query.new_empty(self.query.shape[:2], dtype=torch.float32)
        for build in self.layout.builds:
            self._build(build, out, weight)
        if self.layout.tails is not None:
            self._tails(self.layout.tails, out, weight)
        if self.layout.decode is not None:
            self._decode(self.layout.decode, out, weight)
        return out, weight

    def above(self, spans: Sequence[Span], out: torch.Tensor, weight: torch.Tensor) -> None:
        """Join what the pieces of one level of the tree give to what is there."""
        for run in _runs(spans):
            parts = [self._over(span) for span in run]
            place = slice(run[0].start, run[-1].stop)
            part, logs = (torch.cat(each) for each in zip(*parts, strict=True))
            _join(out[place], weight[place], part, logs)

    def _over(self, span: Span) -> Partial:
        """The tokens of a span over its piece."""
        heads, _, width = self.key.shape
        size = span.stop - span.start
        grouped = self.query[span.start : span.stop].unflatten(1, (heads, self.group))
        query = grouped.transpose(0, 1).reshape(1, heads, -1, width)
        part, logs = partial(query, *_piece(span.kv[self.layer]), scaling=self.scaling)
        return (
            part[0].view(heads, size, -1).transpose(0, 1).reshape(size, -1, width),
            logs[0].view(heads, size, self.group).transpose(0, 1).reshape(size, -1),
        )

    def _build(self, build: Span, out: torch.Tensor, weight: torch.Tensor) -> None:
        place = slice(build.start, build.stop)
        query = self.query[place].transpose(0, 1)[None]
        key, value = (self._spread(each[:, place], 0)[None] for each in (self.key, self.value))
        part, logs = partial(query, key, value, scaling=self.scaling, causal=True)
        out[place] = part[0].transpose(0, 1)
        weight[place] = logs[0].transpose(0, 1)

    def _tails(self, tails: Tails, out: torch.Tensor, weight: torch.Tensor) -> None:
        query = self.query[tails.padded].transpose(1, 2)
        key, value = (
            self._spread(each[:, tails.padded].transpose(0, 1), 1) for each in (self.key, self.value)
        )
        part, logs = partial(query, key, value, scaling=self.scaling, causal=True)
        out[tails.tokens] = part[tails.batch_rows, :, tails.batch_places]
        weight[tails.tokens] = logs[tails.batch_rows, :, tails.batch_places]

    def _decode(self, decode: Decode, out: torch.Tensor, weight: torch.Tensor) -> None:
        rows, _, _, longest = decode.mask.shape
        chosen = slice(rows) if decode.slots is None else decode.slots
        key, value = self.layout.slots.kv[self.layer][:, chosen, :, :longest]
        query = self.query[decode.tokens].unflatten(1, (key.shape[1], self.group))
        part, logs = partial(query, key, value, scaling=self.scaling, mask=decode.mask)
        out[decode.tokens] = part.flatten(1, 2)
        weight[decode.tokens] = logs.flatten(1)

    def _spread(self, heads: torch.Tensor, dim: int) -> torch.Tensor:
        """Key heads repeated for the query heads that share them."""
        return heads.repeat_interleave(self.group, dim) if self.group > 1 else heads


def partial(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> Partial:
    """Attention (batch, heads, queries, width) with the log-sum-exp (batch, heads, queries) of its scores.

    Both in float32, as parts are yet to be joined.
    """
    if query.device.type == "cpu":
        out, logs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scaling
        )
        return out.float(), logs.float()
    return partial_by_products(query, key, value, scaling=scaling, causal=causal, mask=mask)


def partial_by_products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> Partial:
    """The same by plain products, for devices on which no kernel hands out the log-sum-exp with a mask."""
    scores = (query @ key.transpose(-1, -2)).float() * scaling
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if mask is not None:
        scores = scores + mask
    logs = scores.logsumexp(-1)
    return ((scores - logs[..., None]).exp().to(value.dtype) @ value).float(), logs


def _piece(kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    key, value = kv
    return key[None], value[None]


def _runs(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans that follow one another without a gap."""
    runs: list[list[Span]] = []
    for span in spans:
        if runs and runs[-1][-1].stop == span.start:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _join(out: torch.Tensor, weight: torch.Tensor, part: torch.Tensor, logs: torch.Tensor) -> None:
    """Two softmaxes over different tokens as the one over all of them, in the first one's place."""
    both = torch.logaddexp(weight, logs)
    out.mul_((weight - both).exp_()[..., None])
    out.addcmul_(part, (logs - both).exp_()[..., None])
    weight.copy_(both)
