"""What is true of the queues and of what waits: by the chunks that were sent, and by counting the tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.config import Settings
from app.planner import Chunk, ChunkLimits, ReadyJob, plan_chunks
from app.queue import ChunkSender, queue_name
from app.states import Priority
from app.visual_tokens import MIN_PIXELS, visual_tokens
from deploy.scaling import Waiting, demand
from tests.rows import Rows

WAITING = """
    SELECT j.id, j.batch_id, extract(epoch FROM b.expires_at - now())::float8 AS left_s, j.image_ids,
           b.priority = 'background' AS patient
    FROM jobs j JOIN batches b ON b.id = j.batch_id
    WHERE j.state = 'ready' AND j.model = :model ORDER BY j.batch_id, j.image_group, j.id
"""
ON_BOARD = "SELECT id, state, lease_until IS NOT NULL AS held FROM jobs WHERE state IN ('queued', 'running')"


class CountingSender:
    """A sender that remembers the chunks which the broker has confirmed."""

    def __init__(self, sender: ChunkSender) -> None:
        self._sender = sender
        self.chunks: list[Chunk] = []

    def send(self, chunks: Sequence[Chunk]) -> None:
        self._sender.send(chunks)
        self.chunks.extend(chunks)

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int:
        return self._sender.depth(model, priority)

    def dead(self) -> int:
        return self._sender.dead()


def chunks_on_board(rows: Rows, sent: Sequence[Chunk]) -> tuple[Counter[str], Counter[str]]:
    """Chunks whose jobs have not ended, by queue: those that wait there, and those that workers hold.

    A job that was handed back counts with the chunk that it was sent in last.
    """
    found: Mapping[int, Any] = {row.id: row for row in rows.table(ON_BOARD)}
    last = {job_id: place for place, chunk in enumerate(sent) for job_id in chunk.job_ids}
    waiting: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for place, chunk in enumerate(sent):
        jobs = [found[job_id] for job_id in chunk.job_ids if job_id in found and last[job_id] == place]
        is_held = any(job.state == "running" or job.held for job in jobs)
        (held if is_held else waiting)[queue_name(chunk.model, chunk.priority)] += bool(jobs)
    return waiting, held


def true_demand(rows: Rows, settings: Settings) -> float:
    """By the planner's own chunks of every single job that is ready, batch by batch."""
    sizes = {row.id: row for row in rows.table("SELECT id, width, height FROM images WHERE state = 'stored'")}
    batches: dict[str, list[Any]] = {}
    for row in rows.table(WAITING, model=settings.served_model):
        batches.setdefault(row.batch_id, []).append(row)
    return demand([_waiting(jobs, sizes, settings) for jobs in batches.values()])


def _waiting(jobs: Sequence[Any], sizes: Mapping[int, Any], settings: Settings) -> Waiting:
    ready = [
        ReadyJob(job.id, settings.served_model, {one: _tokens(sizes[one], settings) for one in job.image_ids})
        for job in jobs
    ]
    chunks = plan_chunks(ready, ChunkLimits(settings.chunk_jobs, settings.chunk_visual_tokens))
    return Waiting(len(chunks), jobs[0].left_s, jobs[0].patient)


def _tokens(image: Any, settings: Settings) -> int:
    return visual_tokens(image.width, image.height, min_pixels=MIN_PIXELS, max_pixels=settings.max_pixels)


def true_fetch_demand(rows: Rows, settings: Settings) -> float:
    """Of the web: a download a second and thread, and no more threads than a host may have."""
    hosts = rows.table("SELECT host, count(*) AS n FROM images WHERE state = 'pending' GROUP BY host")
    return float(sum(min(settings.fetch_per_host, row.n / 60) for row in hosts))
