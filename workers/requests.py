"""From a job's stored prompt and params to the request that the engine takes. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.answer_keys import SHARED
from app.config import Settings
from app.errors import FatalWork
from app.states import Priority
from app.store.jobs import ClaimedJob, Json
from workers.engine.base import (
    Choice,
    Constraint,
    Image,
    ImagePart,
    JsonObject,
    JsonSchema,
    Part,
    Request,
    Sampling,
    TextPart,
    Turn,
)


@dataclass(frozen=True)
class Uses:
    """How often an image is known to be wanted, and how many of those uses are in no worker's hands yet."""

    expected: int
    later: int

    def of(self, image: Image) -> Image:
        return replace(image, expected_uses=self.expected, later_uses=self.later)


def expect_uses(claimed: Sequence[ClaimedJob], awaited: Collection[int]) -> dict[int, Uses]:
    """By image, for the jobs of a chunk; `awaited` are the images that later jobs show."""
    here = Counter(image_id for job in claimed for image_id in set(job.image_ids))
    later = {*awaited, *(image_id for job in claimed if job.warm for image_id in job.image_ids)}
    return {
        image_id: Uses(count + (image_id in later), int(image_id in later))
        for image_id, count in here.items()
    }


def read_request(
    job: ClaimedJob,
    images: tuple[Image, ...],
    settings: Settings,
    *,
    deadline: float | None = None,
    on_text: Callable[[str], None] | None = None,
) -> Request:
    """The engine's view of a job; FatalWork if what is stored is not what ingest writes."""
    try:
        return Request(
            id=f"{job.id}.{job.attempt}",
            tenant=job.tenant_id,
            turns=tuple(_turn(turn) for turn in job.prompt["turns"]),
            images=images,
            sampling=_sampling(_telling(job), settings),
            max_pixels=job.params.get("max_pixels"),
            constraint=_constraint(job.params.get("constraint")),
            scope=_scope(job, settings),
            near_duplicates=job.near_duplicates,
            warm=job.warm,
            urgent=job.priority is Priority.INTERACTIVE,
            deadline=deadline,
            on_text=on_text,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FatalWork("bad_prompt", f"The stored prompt cannot be read: {error!r}.") from error


def _telling(job: ClaimedJob) -> Mapping[str, Json]:
    """A model that a cascade asks first must say how sure it is."""
    return job.params if job.cascade is None else {"logprobs": 0, **job.params}


def _scope(job: ClaimedJob, settings: Settings) -> str | None:
    """None where the tenant keeps its caches to itself."""
    sharing = {job.tenant_id, job.tenant_name} & set(settings.shared_cache_tenants)
    return SHARED if sharing else None


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
        repetition_penalty=float(params.get("repetition_penalty", 1.0)),
        logprobs=params.get("logprobs"),
    )


def _constraint(stored: Mapping[str, Json] | None) -> Constraint | None:
    match stored:
        case None:
            return None
        case {"json_object": True}:
            return JsonObject()
        case {"json_schema": str(schema)}:
            return JsonSchema(schema)
        case {"choice": [*options]}:
            return Choice(tuple(options))
        case _:
            raise ValueError("an unknown constraint")
