"""Backs up in the middle of batches, loses every server with its data, and goes on from the backup."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.config import Settings
from app.local.postgres import binary
from deploy.drill import Drill, Ground, Report, Step
from deploy.fleet import Version
from deploy.trees import NEW
from tests.chaos.books import Books
from tests.chaos.inputs import Fate
from tests.chaos.units import start_servers
from tests.chaos.verdict import Files
from tests.servers import S3Place
from tests.waiting import eventually

SERVERS = ("postgres", "valkey", "seaweed", "rabbitmq")  # their folders
MOST_BYTES = 2**30
SLOW_MS = 300.0  # so that much is open while the dump is made
OPEN_JOBS = 30
FORGOTTEN_S = 120.0  # what half of the open jobs may take, whose end no backup knows


def drill(place: Ground, quiet: Mapping[str, Files]) -> Report:
    """Every batch that was handed in before the backup ends with one result for every line."""
    version = place.version(NEW, "backup")
    held = Drill(place, "backup", version, job_ms=SLOW_MS)
    kept = place.data.subfolder("kept")

    def back_up() -> None:
        # What is handed in after the backup is its client's to hand in again.
        eventually(lambda: _open_jobs(held) >= OPEN_JOBS, within_s=FORGOTTEN_S)
        held.let_go()
        dump(version.settings, kept / "vqueue.dump")
        copied = copy_bucket(place.servers.s3(version.settings.s3_bucket), kept / "bucket")
        place.say(f"          {copied} objects, {_open_jobs(held)} jobs have not ended")
        aim = _open_jobs(held) / 2
        eventually(lambda: _open_jobs(held) <= aim, within_s=FORGOTTEN_S)
        _lose_all(place, held)
        _restore(place, held, version, kept)
        place.say(f"          of the backup {_open_jobs(held)} jobs have not ended")
        held.come_again()

    steps: list[Step] = [
        ("a backup was made, all servers were lost and everything runs on the backup", back_up)
    ]
    inputs = place.inputs
    # Nobody is there to cancel a batch while its customer is away.
    place.inputs = [
        replace(one, fate=Fate.COMPLETED) if one.fate is Fate.CANCELLED else one for one in inputs
    ]
    try:
        return held.go(steps, quiet)
    finally:
        place.inputs = inputs


def _open_jobs(held: Drill) -> int:
    return held.books.one("SELECT count(*) FROM jobs WHERE finished_at IS NULL")


def dump(settings: Settings, file: Path) -> None:
    """`pg_dump` of the database as it is at one moment, while everything runs."""
    _run("pg_dump", "--format=custom", f"--file={file}", settings.database_url.get_secret_value())


def restore(settings: Settings, file: Path) -> None:
    """`pg_restore` into an empty database."""
    url = settings.database_url.get_secret_value()
    _run("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={url}", str(file))


def copy_bucket(place: S3Place, folder: Path) -> int:
    """All objects with their types into files, as any tool for S3 does; how many."""
    folder.mkdir(parents=True)
    index: list[tuple[str, str]] = []
    with closing(place.store()) as store:
        for key in store.keys("", bucket=place.bucket):
            info = store.head(key)
            if info is None:
                continue  # deleted meanwhile, and so not needed
            (folder / str(len(index))).write_bytes(store.get(key, max_bytes=MOST_BYTES))
            index.append((key, info.content_type))
    (folder / "index.json").write_text(json.dumps(index))
    return len(index)


def fill_bucket(place: S3Place, folder: Path) -> None:
    place.create()
    with closing(place.store()) as store:
        for number, (key, content_type) in enumerate(json.loads((folder / "index.json").read_text())):
            store.put(key, (folder / str(number)).read_bytes(), content_type=content_type)


def _lose_all(place: Ground, held: Drill) -> None:
    held.fleet.kill()
    held.books.close()
    place.servers.close()
    for name in SERVERS:
        shutil.rmtree(place.data.path / name, ignore_errors=True)


def _restore(place: Ground, held: Drill, version: Version, kept: Path) -> None:
    place.servers = start_servers(place.data, broker=place.plan.broker)
    place.servers.postgres.create_database(version.settings.s3_bucket)
    restore(version.settings, kept / "vqueue.dump")
    fill_bucket(place.servers.s3(version.settings.s3_bucket), kept / "bucket")
    held.books = Books(version.settings.database_url.get_secret_value())
    held.fleet.start(version)


def _run(name: str, *arguments: str) -> None:
    done = subprocess.run([str(binary(name)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed: {done.stderr}")
