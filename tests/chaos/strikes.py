"""What is done to servers and processes. Each value of an act is how long it waits for its next move."""

import random
import shutil
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from celery import Celery

from app.config import Settings
from app.errors import WorkError
from app.queue import RUN_CHUNK, make_celery
from tests.chaos.books import ENDED, Away, Books
from tests.chaos.units import Servers, Unit
from tests.servers import S3Place

Act = Generator[float]
Held = Mapping[int, int]  # jobs and their attempts
TICK_S = 0.1
FILLER = bytes(1_000_000)
FILLERS = 64  # a store that takes as many of them is not full
# One volume of a megabyte: the store answers 500 to every write once that is used up, and serves all reads.
SMALL_DISK = ("-master.volumeSizeLimitMB=1", "-volume.max=1")
PROGRESS_WITHIN_S = 20.0  # how long a server's recovery, which is told but not judged, is waited for
RECOVERED_WITHIN_S = 90.0


@dataclass
class Strike:
    """One blow, as it went. It counts if leases were held."""

    kind: str
    target: str
    leases: int
    at: float = field(default_factory=time.monotonic)
    on_board: int = 0
    recovery_s: float | None = None
    judged: bool = False  # its recovery has a limit
    note: str = ""

    @property
    def counts(self) -> bool:
        return self.leases > 0

    def recovered(self) -> None:
        self.recovery_s = time.monotonic() - self.at


@dataclass(frozen=True)
class Field:
    """Everything that can be struck, and what tells how it takes that."""

    servers: Servers
    units: Sequence[Unit]  # servers and processes
    books: Books
    settings: Settings
    s3: S3Place
    lease_s: float

    def of(self, role: str) -> list[Unit]:
        return [unit for unit in self.units if unit.role == role]

    def all_ready(self) -> bool:
        return all(unit.ready() for unit in self.units)

    def held(self) -> dict[Unit, Held]:
        """What each worker has on board."""
        return {unit: self.books.held_by(unit.holder) for unit in self.of("worker") if unit.up}

    def both_work(self) -> bool:
        """Whether all is well: then what a dead worker held should be back in time."""
        held = self.held()
        return len(held) == len(self.of("worker")) and all(held.values()) and self.all_ready()


@dataclass(frozen=True)
class Kind:
    """A sort of strike. Nothing else is done beside one that is `alone`."""

    name: str
    act: Callable[[random.Random, Strike], Act]
    may: Callable[[], bool]
    alone: bool = False


def kinds(field: Field) -> list[Kind]:
    """One kind per role and server, and those that are more than a death."""
    found = [
        Kind("worker", lambda rng, strike: _kill_worker(field, rng, strike), field.both_work, alone=True),
        Kind("frozen", lambda rng, strike: _freeze_worker(field, rng, strike), field.both_work, alone=True),
        Kind("duplicates", lambda rng, strike: _deliver_twice(field, rng, strike), lambda: _brokered(field)),
        Kind("full", lambda rng, strike: _fill(field, rng, strike), lambda: _ready(field, "s3")),
    ]
    for role in ("api", "dispatcher", "fetcher"):
        found.append(_of_role(field, role))
    for role in field.servers.units:
        found.append(_of_server(field, role))
    return found


def blackout(field: Field) -> Kind:
    """Everything at once."""
    return Kind("blackout", lambda rng, strike: _black_out(field, rng, strike), field.all_ready, alone=True)


def _of_role(field: Field, role: str) -> Kind:
    def may() -> bool:
        return _ready(field, role) and (role != "fetcher" or field.books.fetches() > 0)

    return Kind(role, lambda rng, strike: _kill_role(field, role, rng, strike), may)


def _of_server(field: Field, role: str) -> Kind:
    return Kind(
        role, lambda rng, strike: _strike_server(field, role, rng, strike), lambda: _ready(field, role)
    )


def _ready(field: Field, role: str) -> bool:
    return all(unit.ready() for unit in field.of(role))


def _brokered(field: Field) -> bool:
    return _ready(field, "rabbitmq") and _ready(field, "valkey")


def _kill_worker(field: Field, rng: random.Random, strike: Strike) -> Act:
    unit, down_s = rng.choice(field.of("worker")), rng.uniform(0, 2)
    holder = unit.holder
    unit.kill()
    strike.at = time.monotonic()
    strike.target, strike.judged = unit.name, True
    held = yield from _board(field, holder)
    yield down_s
    unit.start()
    yield from _until_back(field, strike, held)


def _freeze_worker(field: Field, rng: random.Random, strike: Strike) -> Act:
    """Past its lease; it wakes up with answers that nobody wants any more."""
    unit, frozen_s = rng.choice(field.of("worker")), field.lease_s + rng.uniform(1, 4)
    unit.send(signal.SIGSTOP)
    strike.at = time.monotonic()
    strike.target, strike.judged = unit.name, True
    held = yield from _board(field, unit.holder)
    back = _until_back(field, strike, held)
    for pause_s in back:
        if time.monotonic() - strike.at > frozen_s:
            break
        yield pause_s
    yield max(0.0, strike.at + frozen_s - time.monotonic())
    unit.send(signal.SIGCONT)
    yield from back


def _board(field: Field, holder: str) -> Generator[float, None, Held]:
    """What a worker holds that can hold nothing more; asked until the database answers."""
    while True:
        try:
            return field.books.held_by(holder)
        except Away:
            yield TICK_S


def _until_back(field: Field, strike: Strike, held: Held) -> Act:
    """Until the last of these attempts has ended or was followed by another."""
    strike.on_board = len(held)
    strike.leases = len(held)
    while time.monotonic() - strike.at < RECOVERED_WITHIN_S:
        try:
            if not field.books.left_of(held):
                strike.recovered()
                return
        except Away:
            pass
        yield TICK_S


def _kill_role(field: Field, role: str, rng: random.Random, strike: Strike) -> Act:
    unit, down_s = rng.choice(field.of(role)), rng.uniform(0, 2)
    unit.kill()
    strike.at, strike.target = time.monotonic(), unit.name
    yield down_s
    unit.start()
    yield from _until_progress(field, role, strike)


def _strike_server(field: Field, role: str, rng: random.Random, strike: Strike) -> Act:
    """A kill or a stop; Valkey loses all that it held."""
    unit, down_s = field.servers.units[role], rng.uniform(0, 3)
    gentle = rng.random() < 0.5
    if gentle:
        unit.stop(signal.SIGQUIT if role == "postgres" else signal.SIGTERM)
    else:
        unit.kill()
    strike.at, strike.target = time.monotonic(), f"{role} ({'stopped' if gentle else 'killed'})"
    if role == "valkey":
        shutil.rmtree(field.servers.valkey_data, ignore_errors=True)
    yield down_s
    unit.start()
    yield from _until_progress(field, role, strike)


def _fill(field: Field, rng: random.Random, strike: Strike) -> Act:
    """Take the object store's room away, fill what is left, and give it back after a while."""
    unit, full_s = field.servers.units["s3"], rng.uniform(2, 5)
    roomy = unit.program
    unit.kill()
    strike.at, strike.target = time.monotonic(), "s3 (full)"
    unit.program = replace(roomy, command=(*roomy.command, *SMALL_DISK))
    unit.start()
    try:
        while not unit.ready():
            yield TICK_S
        taken = _fill_up(field.s3)
        yield full_s
        strike.note = f"full: refused writes once {taken} MB more had been stored"
        if taken == FILLERS or _fill_up(field.s3):
            strike.leases, strike.note = 0, "did not get full"
    finally:
        unit.kill()
        unit.program = roomy
        unit.start()
    yield from _until_progress(field, "s3", strike)


def _fill_up(place: S3Place) -> int:
    """Put fillers until the store refuses; how many it took."""
    with closing(place.store()) as store:
        for number in range(FILLERS):
            try:
                store.put(f"filler/{number}", FILLER, content_type="application/octet-stream")
            except WorkError:
                return number
    return FILLERS


def _deliver_twice(field: Field, rng: random.Random, strike: Strike) -> Act:
    """Messages of jobs that run, that wait and that have ended, once more."""
    most = field.settings.chunk_jobs
    sets = [field.books.some_jobs(states, most) for states in (("running",), ("queued",), ENDED)]
    chunks = [ids for ids in sets if ids]
    chunks += [[job_id] for ids in chunks for job_id in rng.sample(ids, min(2, len(ids)))]
    sent = _publish(make_celery(field.settings), chunks)
    strike.target, strike.note = "broker", f"{sent} messages"
    if not sent:
        strike.leases = 0
    yield 0.0


def _publish(celery: Celery, chunks: Sequence[Sequence[int]]) -> int:
    """Send chunks to all queues of the model, whatever their classes; how many were taken."""
    sent = 0
    try:
        with celery.connection_for_write(connect_timeout=3) as connection:
            for queue in celery.conf.task_queues:
                for ids in chunks:
                    celery.send_task(
                        RUN_CHUNK, args=[list(ids)], queue=queue, connection=connection, retry=False
                    )
                    sent += 1
    except Exception:  # the broker was struck in between: what was sent was sent
        return sent
    return sent


def _black_out(field: Field, rng: random.Random, strike: Strike) -> Act:
    """A power cut: all at once, and servers that come back before or after those who need them."""
    order = list(field.units)
    rng.shuffle(order)
    for unit in order:
        unit.kill()
    strike.at, strike.target = time.monotonic(), "everything"
    for unit in order:
        yield rng.uniform(0, 0.5)
        unit.start()
    yield from _until_progress(field, "worker", strike, within_s=RECOVERED_WITHIN_S)


def _until_progress(field: Field, role: str, strike: Strike, *, within_s: float = PROGRESS_WITHIN_S) -> Act:
    """Until what was struck does its work again: told for information."""
    since, started = time.time(), time.monotonic()
    what = {"dispatcher": "sent", "fetcher": "stored", "s3": "stored"}.get(role, "claimed")
    while time.monotonic() - started < within_s:
        yield TICK_S
        if not _ready(field, role):
            continue
        try:
            if role == "api" or field.books.happened(what, since):
                strike.recovered()
                return
        except Away:
            pass
