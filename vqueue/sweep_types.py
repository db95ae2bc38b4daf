"""The objects of sweeps and of clusters of near duplicates."""

from typing import Any

from vqueue.types import Answered, ErrorDetail

RUN_ENDED = frozenset({"completed", "failed", "cancelled"})


class Sweep(Answered):
    """A source gone through again and again. Times are Unix seconds."""

    id: str
    name: str = ""
    source: dict[str, Any]
    questions: list[dict[str, Any]]
    policy_version: str = ""
    model: str = ""
    body: dict[str, Any]
    cron: str | None = None
    zone: str = "UTC"
    destination: dict[str, Any] | None = None
    completion_window: str = ""
    batch: dict[str, Any]
    alert_after_s: int = 0
    status: str = "active"
    next_due_at: int | None = None
    created_at: int = 0
    updated_at: int = 0


class SweepPage(Answered):
    """`last_id` is the `after` of the next page."""

    data: list[Sweep]
    last_id: str | None = None
    has_more: bool = False


class ItemCounts(Answered):
    """Images as a run's listing found them."""

    listed: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0


class AskedCounts(Answered):
    """Questions of a run; `differing` answers are other than those before."""

    asked: int = 0
    completed: int = 0
    failed: int = 0
    differing: int = 0


class SweepRun(Answered):
    """One going-through of a sweep."""

    id: str
    sweep_id: str = ""
    kind: str = ""
    due_at: int = 0
    status: str
    stalled: bool = False
    policy_version: str | None = None
    batch_ids: list[str]
    item_counts: ItemCounts = ItemCounts()
    request_counts: AskedCounts = AskedCounts()
    error: ErrorDetail | None = None
    created_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def ended(self) -> bool:
        return self.status in RUN_ENDED


class SweepRunPage(Answered):
    """`last_id` is the `after` of the next page."""

    data: list[SweepRun]
    last_id: str | None = None
    has_more: bool = False


class Backfill(Answered):
    """The runs that were made; due times that had theirs are left out."""

    runs: int
    run_ids: list[str]


class Change(Answered):
    """An answer that is other than the one before it."""

    id: str
    item: str
    question: str
    before: str
    after: str


class ChangePage(Answered):
    """`last_id` is the `after` of the next page."""

    data: list[Change]
    last_id: str | None = None
    has_more: bool = False


class NearImage(Answered):
    """An image by the SHA-256 of its bytes; `distance` is the bits of 64 in which the hashes differ."""

    content_hash: str
    distance: int
    reference: str | None = None


class NearImages(Answered):
    """The nearest first, at most 50. `hashed` is false until the image was looked at."""

    data: list[NearImage]
    hashed: bool = True
    error: str | None = None


class ImageCluster(Answered):
    """Images that look the same, the representative first."""

    id: str
    representative: str = ""
    size: int = 0
    members: list[NearImage]


class ImageClusterPage(Answered):
    """`last_id` is the `after` of the next page."""

    data: list[ImageCluster]
    last_id: str | None = None
    has_more: bool = False
