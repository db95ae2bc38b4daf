"""The models that clients may ask for."""

import time
from collections.abc import Mapping

from app.errors import NotFound


class ServedModels:
    """The models of an installation by all their names, as its settings have them."""

    def __init__(self, *, names: Mapping[str, str]) -> None:
        self._names = names
        self.since = int(time.time())

    def names(self) -> list[str]:
        """The models' own names, then the aliases."""
        return list(self._names)

    def behind(self, name: str) -> str:
        """The own name of the model that answers to this name; `NotFound` if there is none."""
        if name not in self._names:
            raise NotFound(
                f"The model '{name}' does not exist; there are {', '.join(self._names)}.",
                param="model",
                code="model_not_found",
            )
        return self._names[name]
