"""A broker that remembers what was published, can be switched off, and says how much waits."""

from collections.abc import Callable, Sequence

from app.errors import TransientWork
from app.planner import Chunk
from app.states import Priority


class Broker:
    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.away = False
        self.waiting = 0
        self.put_aside = 0
        self.after_send: Callable[[], None] | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.away:
            raise TransientWork("broker_unavailable", "away")
        self.chunks.extend(chunks)
        if self.after_send:
            self.after_send()

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int:
        return self.waiting

    def dead(self) -> int:
        if self.away:
            raise TransientWork("broker_unavailable", "away")
        return self.put_aside

    @property
    def sent(self) -> list[int]:
        return [job_id for chunk in self.chunks for job_id in chunk.job_ids]
