"""The models that clients may ask for: the one that is set, and those of workers heard of lately."""

import time

from app.db import Sessions, transaction
from app.errors import NotFound
from app.store.workers import served_models

# Twelve missed heartbeats at the default of 10 s.
HEARD_WITHIN_S = 120.0


class ServedModels:
    def __init__(self, *, sessions: Sessions, own: str) -> None:
        self._sessions = sessions
        self._own = own
        self.since = int(time.time())

    def names(self) -> list[str]:
        """The set model first, then the others by name."""
        with transaction(self._sessions) as session:
            found = {served.model for served in served_models(session, within_s=HEARD_WITHIN_S)}
        return [self._own, *sorted(found - {self._own})]

    def check(self, name: str) -> str:
        """The name again; `NotFound` if no such model is served."""
        if name not in self.names():
            raise NotFound(f"The model '{name}' does not exist.", param="model", code="model_not_found")
        return name
