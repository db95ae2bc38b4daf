"""A worker that is told to stop in the middle of many chunks ends what it runs, and is gone in time."""

import time

from app.config import Settings
from app.states import JobState
from tests.chaos.conftest import Start
from tests.chaos.test_crash_windows import ask
from tests.rows import Rows
from tests.waiting import eventually

DRAIN_S = 3.0
EXIT_S = 7.0  # to close connections and the interpreter, on a busy machine


def test_a_stop_in_the_middle_of_many_chunks_leaves_nothing_running(
    rows: Rows, on_broker: Settings, start: Start
) -> None:
    small = on_broker.model_copy(update={"chunk_jobs": 4, "step_rows": 2, "drain_s": DRAIN_S})
    ask(rows, small, "middle?", 80)
    start("dispatcher", small)
    worker = start("slow worker", small)
    eventually(lambda: rows.one("SELECT count(*) FROM answers") > 8)
    stopped_at = time.time()
    worker.send_stop()
    assert worker.ended(within_s=DRAIN_S + EXIT_S) == 0
    late = "SELECT count(*) FROM jobs WHERE started_at > to_timestamp(:stopped) + interval '1 second'"
    assert rows.one(late, stopped=stopped_at) == 0
    assert JobState.RUNNING not in rows.states().values()
    start("worker", small)
    eventually(lambda: set(rows.states().values()) == {JobState.COMPLETED}, within_s=60)
    assert rows.all("SELECT DISTINCT attempt - returns FROM jobs") == [1], "a try was lost"
    assert rows.one("SELECT count(*) FROM answers") == 80
