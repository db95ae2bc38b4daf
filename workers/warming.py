"""What a job that warms the caches is told. Pure."""

from dataclasses import replace

from app.store.jobs import ClaimedJob
from app.warm import MADE, THERE
from workers.engine.base import Answer, Note


def tell_warmth(job: ClaimedJob, answer: Answer) -> Answer:
    """To a job that warms, whether what it warms was there before: its one token says nothing."""
    if not job.warm:
        return answer
    there = Note.FEATURES_CACHED in answer.notes if job.image_ids else answer.usage.cached_tokens > 0
    return replace(answer, text=THERE if there else MADE)
