"""From a job's stored prompt and params to the request that the engine takes. Pure."""

from collections.abc import Mapping, Sequence

from app.config import Settings
from app.errors import FatalWork
from app.store.jobs import ClaimedJob, Json
from workers.engine.base import Image, ImagePart, Part, Request, Sampling, TextPart, Turn


def read_request(job: ClaimedJob, images: tuple[Image, ...], settings: Settings) -> Request:
    """The engine's view of a job; FatalWork if what is stored is not what ingest writes."""
    try:
        return Request(
            id=f"{job.id}.{job.attempt}",
            tenant=job.tenant_id,
            turns=tuple(_turn(turn) for turn in job.prompt["turns"]),
            images=images,
            sampling=_sampling(job.params, settings),
            max_pixels=job.params.get("max_pixels"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FatalWork("bad_prompt", f"The stored prompt cannot be read: {error!r}.") from error


def _turn(turn: Mapping[str, Json]) -> Turn:
    return Turn(turn["role"], tuple(_part(part) for part in turn["parts"]))


def _part(part: Mapping[str, Json]) -> Part:
    if "image" in part:
        return ImagePart(int(part["image"]))
    return TextPart(part["text"])


def _sampling(params: Mapping[str, Json], settings: Settings) -> Sampling:
    stop: Sequence[str] = params.get("stop") or ()
    return Sampling(
        max_tokens=int(params.get("max_tokens") or settings.max_new_tokens),
        temperature=float(params.get("temperature", 0.0)),
        top_p=float(params.get("top_p", 1.0)),
        top_k=int(params.get("top_k", 0)),
        seed=params.get("seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
    )
