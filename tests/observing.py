"""An observer that remembers what an engine reported."""

from workers.engine.base import FeatureTier, Observer


class Recorder(Observer):
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.joins: list[int] = []
        self.waits: list[float] = []
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.answer_tokens = 0
        self.encoded_images = 0
        self.reads: list[tuple[FeatureTier, int]] = []
        self.awaited: list[bool] = []
        self.stored: list[FeatureTier] = []
        self.evicted = 0
        self.checked: list[bool] = []
        self.refused: list[str] = []
        self.store_failures: list[str] = []
        self.out_of_memory_rows: list[int] = []

    def tiers(self) -> list[FeatureTier]:
        return [tier for tier, _ in self.reads]

    @property
    def joined(self) -> int:
        return sum(self.joins)

    def stepped(
        self,
        *,
        rows: int,
        row_limit: int,
        joined: int,
        prompt_tokens: int,
        cached_tokens: int,
        seconds: float,
    ) -> None:
        self.steps.append(rows)
        if joined:
            self.joins.append(joined)
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.answer_tokens += rows

    def waited(self, *, seconds: float) -> None:
        self.waits.append(seconds)

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        self.encoded_images += images

    def features_read(self, *, tier: FeatureTier, size: int, visual_tokens: int, seconds: float) -> None:
        self.reads.append((tier, size))

    def features_awaited(self, *, found: bool, seconds: float) -> None:
        self.awaited.append(found)

    def features_stored(self, *, tier: FeatureTier, size: int) -> None:
        self.stored.append(tier)

    def features_evicted(self, *, images: int) -> None:
        self.evicted += images

    def features_checked(self, *, matches: bool, distance: float) -> None:
        self.checked.append(matches)

    def features_refused(self, *, reason: str) -> None:
        self.refused.append(reason)

    def feature_store_failed(self, *, operation: str) -> None:
        self.store_failures.append(operation)

    def out_of_memory(self, *, rows: int) -> None:
        self.out_of_memory_rows.append(rows)
