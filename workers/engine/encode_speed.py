"""How long this worker's tower takes for an image of some size, by what it took lately. Pure."""

WEIGHT = 0.1  # of the newest encoding in the average


class EncodeSpeed:
    """Seconds per visual token, by powers of two of an image's size: attention makes large ones dearer.

    Asked and told from several threads: a number lost in between does not matter to an average.
    """

    def __init__(self) -> None:
        self._per_token: dict[int, float] = {}

    def record(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        """Images that were encoded together count as ones of their average size."""
        if images < 1 or visual_tokens < 1:
            return
        size, newest = (visual_tokens // images).bit_length(), seconds / visual_tokens
        before = self._per_token.get(size, newest)
        self._per_token[size] = before + WEIGHT * (newest - before)

    def estimate(self, visual_tokens: int) -> float:
        """By images of the nearest size; 0 before the first encoding."""
        sizes = list(self._per_token)
        if not sizes:
            return 0.0
        nearest = min(sizes, key=lambda size: abs(size - visual_tokens.bit_length()))
        return visual_tokens * self._per_token[nearest]
