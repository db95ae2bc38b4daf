"""The models that clients may ask for."""

import time

from app.errors import NotFound


class ServedModels:
    """One model serves an installation: the one that its settings name."""

    def __init__(self, *, own: str) -> None:
        self._own = own
        self.since = int(time.time())

    def names(self) -> list[str]:
        return [self._own]

    def check(self, name: str) -> str:
        """The name again; `NotFound` if no such model is served."""
        if name not in self.names():
            raise NotFound(f"The model '{name}' does not exist.", param="model", code="model_not_found")
        return name
