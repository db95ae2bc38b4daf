"""What the pages of sweeps show beyond what the API tells, read from the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.db import Sessions, transaction
from app.store import console_sweeps as store
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow


@dataclass(frozen=True)
class Board:
    """`stuck` are all sweeps of the tenant that stand still; `runs` the newest of each sweep asked for."""

    stuck: Sequence[SweepRow]
    runs: Mapping[str, RunRow]


class SweepBoard:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def read(self, tenant_id: str, sweeps: Sequence[SweepRow]) -> Board:
        """`sweeps` are the tenant's own, as its `Sweeps` have found them."""
        with transaction(self._sessions) as session:
            stuck = store.list_stuck(session, tenant_id)
            wanted = {one.id for one in (*sweeps, *stuck)}
            return Board(stuck, store.newest_runs(session, sorted(wanted)))

    def newest(self, sweep: SweepRow) -> RunRow | None:
        """The run that says most of one sweep, as in `Board.runs`."""
        with transaction(self._sessions) as session:
            return store.newest_runs(session, [sweep.id]).get(sweep.id)

    def pictures(self, sweep: SweepRow, keys: Sequence[str]) -> Mapping[str, str]:
        """Content hashes of items, by key."""
        with transaction(self._sessions) as session:
            return store.item_pictures(session, sweep.id, keys)
