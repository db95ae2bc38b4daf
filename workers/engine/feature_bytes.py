"""Features as bytes: safetensors with a header that says whose they are and a checksum. Never pickle."""

import json
import zlib
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from workers.engine.feature_codec import Format, Kept, Shape

VERSION = "vqueue-features-2"
VALUES, SCALES = "values", "scales"
HEADER_LIMIT = 4096  # bytes; ours is about 400
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


class RefusedBytes(Exception):
    """These bytes are not the features that were asked for; the argument is one fixed word."""


def pack(name: str, kept: Kept) -> bytes:
    """`name` is the cache key, so that bytes under a wrong key are noticed."""
    tensors = {VALUES: kept.values.detach().cpu().contiguous()}
    if kept.scales is not None:
        tensors[SCALES] = kept.scales.detach().cpu().contiguous()
    form = Format.NATIVE if kept.scales is None else Format.INT8
    facts = {"version": VERSION, "name": name, "format": form.value}
    # What safetensors writes after the header depends on its own order of tensors: each has its checksum.
    return save(tensors, metadata={**facts, **{f"crc32.{key}": _crc(part) for key, part in tensors.items()}})


def unpack(name: str, data: bytes, *, shape: Shape, dtype: torch.dtype, form: Format) -> Kept:
    """Header first, then checksums; raises RefusedBytes."""
    header = _header(data)
    facts = header.get("__metadata__")
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise RefusedBytes("foreign")
    if facts.get("name") != name:
        raise RefusedBytes("name")
    if facts.get("format") != form:
        raise RefusedBytes("format")
    wanted = _wanted(shape, dtype, form)
    found = {key: _kind(entry) for key, entry in header.items() if key != "__metadata__"}
    if found != wanted:
        raise RefusedBytes("shape")
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedBytes("foreign") from error
    if any(facts.get(f"crc32.{key}") != _crc(part) for key, part in tensors.items()):
        raise RefusedBytes("checksum")
    return Kept(tensors[VALUES], tensors.get(SCALES))


def _wanted(shape: Shape, dtype: torch.dtype, form: Format) -> dict[str, tuple[str | None, list[int]]]:
    """The tensors that a header must announce."""
    if form is Format.NATIVE:
        return {VALUES: (DTYPES.get(dtype), list(shape))}
    return {VALUES: ("I8", list(shape)), SCALES: ("F32", [*shape[:2], 1])}


def _kind(entry: object) -> tuple[object, object] | None:
    return (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else None


def _crc(tensor: torch.Tensor) -> str:
    return str(zlib.crc32(tensor.view(torch.uint8).numpy().data))


def _header(data: bytes) -> dict[str, Any]:
    """The JSON header, of unknown content until checked."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(HEADER_LIMIT, len(data) - 8):
        raise RefusedBytes("foreign")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise RefusedBytes("foreign") from error
    if not isinstance(header, dict):
        raise RefusedBytes("foreign")
    return header
