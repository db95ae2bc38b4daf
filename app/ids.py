"""The public names of things: `batch_…`, `file-…`, `job_…`, and the keys of stored objects."""

import re
import secrets
from dataclasses import dataclass

from app.errors import NotFound

_FILE_KEY = re.compile(r"files/([^/]+)/(file-([0-9a-f]{32})(?:-output|-error)?)")
_IMAGE_KEY = re.compile(r"images/([^/]+)/([0-9a-f]{2})/(\2[0-9a-f]{62})")


@dataclass(frozen=True)
class KeyParts:
    """What the key of an object of ours says; `batch_id` is whose result file it is, if it is one."""

    tenant_id: str
    file_id: str | None = None
    batch_id: str | None = None
    content_hash: str | None = None


def new_batch_id() -> str:
    return f"batch_{secrets.token_hex(16)}"


def new_file_id() -> str:
    return f"file-{secrets.token_hex(16)}"


def new_tenant_id() -> str:
    return f"tenant_{secrets.token_hex(8)}"


def new_sweep_id() -> str:
    return f"sweep_{secrets.token_hex(16)}"


def new_run_id() -> str:
    return f"run_{secrets.token_hex(16)}"


def job_name(job_id: int) -> str:
    return f"job_{job_id:016x}"


def job_number(name: str) -> int:
    """The row id behind a public job name; NotFound for anything else."""
    digits = name.removeprefix("job_")
    if len(digits) == 16 and name.startswith("job_"):
        try:
            number = int(digits, 16)
        except ValueError:
            number = -1
        if 0 <= number < 2**63 and job_name(number) == name:
            return number
    raise NotFound(f"No job has the id {name!r}.", param="job_id", code="job_not_found")


def file_key(tenant_id: str, file_id: str) -> str:
    return f"files/{tenant_id}/{file_id}"


def image_key(tenant_id: str, content_hash: str) -> str:
    return f"images/{tenant_id}/{content_hash[:2]}/{content_hash}"


def result_file_id(batch_id: str, part: str) -> str:
    """The id of a batch's output or error file: fixed by the batch, so that writing it twice is harmless."""
    return f"file-{batch_id.removeprefix('batch_')}-{part}"


def key_parts(key: str) -> KeyParts | None:
    """What `file_key` or `image_key` made this of; None for a key that is none of ours."""
    if found := _FILE_KEY.fullmatch(key):
        return KeyParts(found[1], file_id=found[2], batch_id=f"batch_{found[3]}")
    if found := _IMAGE_KEY.fullmatch(key):
        return KeyParts(found[1], content_hash=found[3])
    return None
