"""The processes of one vqueue, two of each role, which are exchanged one by one while jobs run."""

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from app.config import Settings
from deploy.trees import Tree
from tests.chaos.units import READY_S, Unit, own_unit
from tests.processes import free_port
from tests.waiting import eventually

# Who answers comes before who asks: nothing new is asked for until every process can do it.
ORDER = ("worker", "fetcher", "dispatcher", "api")
OF_EACH = 2


@dataclass(frozen=True)
class Version:
    """What a process is started from."""

    tree: Tree
    settings: Settings


@dataclass
class Fleet:
    """Slots, such as `api-1`, each with a process of some version. API slots keep their port."""

    logs: Path
    variables: dict[str, str]
    units: dict[str, Unit] = field(default_factory=dict)
    gone: list[Unit] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports.values()]

    @property
    def deaths(self) -> list[str]:
        """Of processes that nobody asked to end."""
        return [death for unit in (*self.units.values(), *self.gone) for death in unit.own_deaths]

    def errors(self) -> Counter[str]:
        """What all processes, those that are gone too, have logged at that level: slot and event."""
        found: Counter[str] = Counter()
        for log in sorted(self.logs.glob("*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if '"level": "error"' in line:
                    found[f"{log.stem}: {json.loads(line)['event']}"] += 1
        return found

    def start(self, version: Version, slots: Iterable[str] = ()) -> None:
        """Start a process in each slot, in all by default, and wait until they are ready."""
        chosen = list(slots) or names()
        for slot in chosen:
            self.units[slot] = self._unit(slot, version)
            self.units[slot].start()
        for slot in chosen:
            eventually(self.units[slot].ready, within_s=READY_S)

    def exchange(self, slot: str, version: Version) -> None:
        """Have the slot's process drain and end, then start one of that version in its place."""
        self.stop([slot])
        self.start(version, [slot])

    def stop(self, slots: Iterable[str] = ()) -> None:
        """Have them drain, all by default."""
        leaving = [self.units.pop(slot) for slot in list(slots) or list(self.units)]
        for unit in leaving:
            unit.send(signal.SIGTERM)
        for unit in leaving:
            unit.stop(signal.SIGTERM)
        self.gone += leaving

    def kill(self) -> None:
        """At once, all."""
        for unit in self.units.values():
            unit.kill()
        self.gone += self.units.values()
        self.units.clear()

    def keep_up(self) -> None:
        for unit in self.units.values():
            unit.keep_up()

    def rolling(
        self, version: Version, slots: Iterable[str], told: str
    ) -> list[tuple[str, Callable[[], None]]]:
        """One step per process, each with what it is called."""
        return [(f"{slot} {told}", lambda slot=slot: self.exchange(slot, version)) for slot in slots]

    def _unit(self, slot: str, version: Version) -> Unit:
        settings = version.settings
        if slot.startswith("api"):
            port = self.ports.setdefault(slot, free_port())
            settings = settings.model_copy(update={"port": port})
        return own_unit(slot, settings, self.logs, variables=self.variables, checkout=version.tree.folder)


def names(order: Iterable[str] = ORDER) -> list[str]:
    """All slots, role by role."""
    return [f"{role}-{number}" for role in order for number in range(1, OF_EACH + 1)]
