"""Features as bytes: safetensors with a header that says whose they are and a checksum. Never pickle."""

import json
import zlib
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

FORMAT = "vqueue-features-1"
TENSOR = "features"
HEADER_LIMIT = 4096  # bytes; ours is about 300
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


class RefusedBytes(Exception):
    """These bytes are not the features that were asked for; the argument is one fixed word."""


def pack(name: str, features: torch.Tensor) -> bytes:
    """`name` is the cache key, so that bytes under a wrong key are noticed."""
    tensor = features.detach().cpu().contiguous()
    checksum = zlib.crc32(tensor.view(torch.uint8).numpy().data)
    return save({TENSOR: tensor}, metadata={"format": FORMAT, "name": name, "crc32": str(checksum)})


def unpack(name: str, data: bytes, *, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Everything is checked before the tensor is made; raises RefusedBytes."""
    header, body = _split(data)
    entry, metadata = header.get(TENSOR), header.get("__metadata__")
    if not isinstance(entry, dict) or not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise RefusedBytes("foreign")
    if metadata.get("name") != name:
        raise RefusedBytes("name")
    if entry.get("dtype") != DTYPES.get(dtype) or entry.get("shape") != list(shape):
        raise RefusedBytes("shape")
    if metadata.get("crc32") != str(zlib.crc32(body)):
        raise RefusedBytes("checksum")
    try:
        return load(data)[TENSOR]
    except (SafetensorError, KeyError, ValueError) as error:
        raise RefusedBytes("foreign") from error


def _split(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """The JSON header, of unknown content until checked, and the tensor's bytes."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(HEADER_LIMIT, len(data) - 8):
        raise RefusedBytes("foreign")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise RefusedBytes("foreign") from error
    if not isinstance(header, dict):
        raise RefusedBytes("foreign")
    return header, memoryview(data)[8 + size :]
