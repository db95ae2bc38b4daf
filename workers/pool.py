"""The models that are resident in one worker, each with its engine and its settings."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from app.config import Settings
from app.errors import FatalWork, TransientWork
from workers.engine.base import Engine
from workers.shared_time import SharedTime

OpenEngine = Callable[[Settings], Engine]


@dataclass(frozen=True)
class Resident:
    """A loaded model: its engine, the settings that hold for it, and how its time is shared."""

    engine: Engine
    settings: Settings
    time: SharedTime = field(default_factory=SharedTime)


class EnginePool:
    """Engines by the name of the model that each serves; asking another one loads nothing."""

    def __init__(self, residents: Mapping[str, Resident]) -> None:
        self._residents = dict(residents)

    @property
    def residents(self) -> Mapping[str, Resident]:
        return self._residents

    def resident(self, model: str) -> Resident:
        """TransientWork for a model that is not here, but may be in another worker."""
        if model not in self._residents:
            raise TransientWork("model_not_resident", f"This worker does not serve the model {model!r}.")
        return self._residents[model]

    def close(self) -> None:
        """Close all engines at once, so that none takes new requests while another ends its own."""
        with ThreadPoolExecutor(len(self._residents), thread_name_prefix="close-engine") as threads:
            list(threads.map(lambda resident: resident.engine.close(), self._residents.values()))


def open_pool(settings: Settings, open_one: OpenEngine) -> EnginePool:
    """Load the models that a worker with these settings serves; all or none.

    `open_one` is given the settings of one model. Its FatalWork is raised again with the model's name.
    """
    residents: dict[str, Resident] = {}
    with ExitStack() as opened:
        for name in settings.resident_models:
            own = settings.for_model(name)
            engine = _open(name, own, open_one)
            opened.callback(engine.close)
            residents[name] = Resident(engine, own)
        opened.pop_all()
    return EnginePool(residents)


def _open(name: str, settings: Settings, open_one: OpenEngine) -> Engine:
    try:
        return open_one(settings)
    except FatalWork as error:
        raise FatalWork(error.code, f"The model {name!r} cannot be loaded: {error.message}") from error
