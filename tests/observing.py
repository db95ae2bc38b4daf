"""An observer that remembers what an engine reported."""

from workers.engine.base import FeatureTier, Observer


class Recorder(Observer):
    def __init__(self) -> None:
        self.groups: list[int] = []
        self.padding: list[int] = []
        self.waits: list[float] = []
        self.prefilled_tokens = 0
        self.decoded_tokens = 0
        self.encoded_images = 0
        self.reads: list[tuple[FeatureTier, int]] = []
        self.refused: list[str] = []
        self.store_failures: list[str] = []
        self.out_of_memory_rows: list[int] = []

    def tiers(self) -> list[FeatureTier]:
        return [tier for tier, _ in self.reads]

    def group_started(self, *, rows: int, row_limit: int, prompt_tokens: int, padding_tokens: int) -> None:
        self.groups.append(rows)
        self.padding.append(padding_tokens)

    def waited(self, *, seconds: float) -> None:
        self.waits.append(seconds)

    def prefilled(self, *, seconds: float, tokens: int) -> None:
        self.prefilled_tokens += tokens

    def decoded(self, *, seconds: float, steps: int, tokens: int) -> None:
        self.decoded_tokens += tokens

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        self.encoded_images += images

    def features_read(self, *, tier: FeatureTier, size: int, seconds: float) -> None:
        self.reads.append((tier, size))

    def features_refused(self, *, reason: str) -> None:
        self.refused.append(reason)

    def feature_store_failed(self, *, operation: str) -> None:
        self.store_failures.append(operation)

    def out_of_memory(self, *, rows: int) -> None:
        self.out_of_memory_rows.append(rows)
