"""A bucket prefix as input: listed once, into a CSV that is the batch's input file from then on."""

import csv
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork
from app.files import BATCH, BATCH_FILE_S
from app.ids import file_key, new_file_id
from app.objects import Listed, ObjectStore
from app.store import ingest as store
from app.store.files import NewFile, insert_file
from app.store.ingest import IngestTask, LostBatch
from app.tables.base import refused
from app.tables.names import is_image_name
from app.tables.places import Place

COLUMNS = ("image", "name", "size", "etag", "modified")
NAME = "listing.csv"


class Lister:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self._sessions = sessions
        self._objects = objects
        self._settings = settings

    def keep(self, task: IngestTask, place: Place, *, most_rows: int) -> IngestTask:
        """The batch with a file that lists what lies there now.

        Keys that are named like images, or all where none is. Raises InputError where there is nothing, or
        too much of it.
        """
        file_id = new_file_id()
        key = file_key(task.tenant_id, file_id)
        try:
            size = self._objects.put_stream(
                key, self._content(task, place, most_rows), content_type="text/csv"
            )
        except InvalidWork as error:
            raise refused("listing_failed", f"{place.name} cannot be listed: {error.message}") from error
        file = NewFile(file_id, task.tenant_id, BATCH, NAME, "text/csv", size, key, BATCH_FILE_S)
        with transaction(self._sessions) as session:
            insert_file(session, file)
            if not store.name_input(session, task, file_id):
                raise LostBatch  # the bytes fall to app.orphans, as after a crash
        return replace(task, input_file_id=file_id, object_key=key, filename=NAME)

    def _content(self, task: IngestTask, place: Place, most_rows: int) -> Iterator[bytes]:
        yield _csv([COLUMNS])
        rows = 0
        for images_only in (True, False):
            for page in self._pages(task, place):
                found = [one for one in page if not images_only or is_image_name(one.key)]
                rows += len(found)
                if rows > most_rows:
                    raise refused("too_many_tasks", f"{place.name} has over {most_rows:,} images: split it.")
                yield _csv([_row(place, one) for one in found])
            if rows:
                return
        raise refused("empty_file", f"There is nothing below {place.name}: it is empty.")

    def _pages(self, task: IngestTask, place: Place) -> Iterator[Sequence[Listed]]:
        """Page after page; the lease is kept meanwhile, as a million keys take a minute."""
        renewed = time.monotonic()
        for page in self._objects.pages(place.prefix, bucket=place.bucket):
            yield page
            if time.monotonic() - renewed > self._settings.lease_s / 3:
                renewed = time.monotonic()
                with transaction(self._sessions) as session:
                    store.hold_batch(session, task, lease_s=self._settings.lease_s)


def _row(place: Place, one: Listed) -> Sequence[str]:
    modified = datetime.fromtimestamp(one.changed_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (f"s3://{place.bucket}/{one.key}", one.key, str(one.bytes), one.etag.strip('"'), modified)


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
