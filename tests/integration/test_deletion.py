"""What is deleted is gone: for its owner at once, in the object store as soon as that answers."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from openai import OpenAI
from sqlalchemy import text

from app.config import Settings
from app.db import Sessions, transaction
from app.deleter import Deleter
from app.errors import TransientWork
from app.files import Files
from app.ids import file_key, image_key, job_name, new_file_id, result_file_id
from app.ingest import Ingest
from app.limits import Limits
from app.objects import ObjectStore, make_objects
from app.orphans import EVERY_S, OLD_S, Orphans
from app.placing import Placer
from app.references import parse_reference
from app.store import doomed
from app.store.images import StoredImage, keep_image
from tests.desk import PIXEL, Desk, lines
from tests.rows import Rows
from tests.servers import S3Place
from tests.serving import new_key

LINES = b'{"custom_id": "a"}\n'


@pytest.fixture
def deleter(desk: Desk) -> Iterator[Deleter]:
    work = Deleter(sessions=desk.sessions, objects=desk.objects, block_objects=2)
    yield work
    work.close()


@pytest.fixture
def away(settings: Settings) -> Iterator[ObjectStore]:
    """An object store that does not answer."""
    store = make_objects(settings.model_copy(update={"s3_endpoint_url": "http://127.0.0.1:9"}))
    yield store
    store.close()


class Hooked(ObjectStore):
    """Calls `at` with the key before each deletion."""

    def __init__(self, place: S3Place, at: Callable[[str], None]) -> None:
        super().__init__(
            bucket=place.bucket,
            endpoint_url=place.endpoint_url,
            access_key_id=place.access_key_id,
            secret_access_key=place.secret_access_key,
        )
        self._at = at

    def delete(self, key: str) -> None:
        self._at(key)
        super().delete(key)


@pytest.fixture
def hooked(s3: S3Place, desk: Desk) -> Iterator[Callable[[Callable[[str], None]], Deleter]]:
    """Makes deleters whose store calls a test before each deletion."""
    made: list[Deleter] = []

    def make(at: Callable[[str], None]) -> Deleter:
        made.append(Deleter(sessions=desk.sessions, objects=Hooked(s3, at)))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Died(Exception):
    """What a killed process would be."""


def die(_: str) -> None:
    raise Died


def put(desk: Desk, *, doom: bool = True) -> str:
    """An object under a file's key that no row knows."""
    key = file_key(desk.tenant, new_file_id())
    desk.objects.put(key, b"bytes", content_type="text/plain")
    if doom:
        with transaction(desk.sessions) as session:
            doomed.doom(session, [key])
    return key


def there(desk: Desk, *keys: str) -> list[bool]:
    return [desk.objects.head(key) is not None for key in keys]


def test_a_deleted_batch_is_gone_for_every_call(http: httpx.Client, client: OpenAI, db: Sessions) -> None:
    batch_id = finished(db, client)
    output = client.batches.retrieve(batch_id).output_file_id
    answer = http.delete(f"/v1/batches/{batch_id}")
    assert answer.json() == {"id": batch_id, "object": "batch", "deleted": True}
    assert client.batches.list().data == []
    gone = [
        http.get(f"/v1/batches/{batch_id}"),
        http.post(f"/v1/batches/{batch_id}/cancel"),
        http.get(f"/v1/batches/{batch_id}/results"),
        http.get("/v1/batches", params={"after": batch_id}),
        http.delete(f"/v1/batches/{batch_id}"),
        http.get(f"/v1/files/{output}/content"),
    ]
    assert [answer.status_code for answer in gone] == [404] * 6


def test_the_input_file_of_a_deleted_batch_stays(http: httpx.Client, client: OpenAI, db: Sessions) -> None:
    batch_id = finished(db, client)
    source = client.batches.retrieve(batch_id).input_file_id
    http.delete(f"/v1/batches/{batch_id}")
    assert [file.id for file in client.files.list()] == [source]


def test_a_batch_that_has_not_ended_is_not_deleted(http: httpx.Client, client: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    answer = http.delete(f"/v1/batches/{batch.id}")
    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
    assert answer.json()["error"]["code"] == "batch_not_deletable"
    assert client.batches.retrieve(batch.id).status == "validating"


def test_another_tenants_batch_is_not_deleted(api_url: str, client: OpenAI, db: Sessions) -> None:
    batch_id = finished(db, client)
    stranger = {"Authorization": f"Bearer {new_key(db, 'Bob')}"}
    assert httpx.delete(f"{api_url}/v1/batches/{batch_id}", headers=stranger).status_code == 404
    assert client.batches.retrieve(batch_id).id == batch_id


def test_an_idempotency_key_is_free_again(client: OpenAI, http: httpx.Client, db: Sessions) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    key = {"Idempotency-Key": "monday"}
    first = http.post("/v1/batches", json=body, headers=key).json()["id"]
    Rows(db).run("UPDATE batches SET status = 'failed', ended_at = now()")
    http.delete(f"/v1/batches/{first}")
    assert http.post("/v1/batches", json=body, headers=key).json()["id"] != first


def test_a_direct_job_that_has_ended_is_deleted_with_its_answer(http: httpx.Client, db: Sessions) -> None:
    name = http.post("/v1/jobs", json={"question": "Hello?"}).json()["id"]
    open_one = http.delete(f"/v1/jobs/{name}")
    assert (open_one.status_code, open_one.headers["x-should-retry"]) == (409, "false")
    rows = Rows(db)
    rows.run("UPDATE jobs SET state = 'completed', finished_at = now()")
    rows.run("INSERT INTO answers SELECT id, 'Hi', 'stop', 1, 0, 1, 'demo', 'rev1' FROM jobs")
    assert http.delete(f"/v1/jobs/{name}").json() == {"id": name, "object": "job", "deleted": True}
    assert http.get(f"/v1/jobs/{name}").status_code == 404
    assert rows.one("SELECT count(*) FROM answers") == 0


def test_a_job_of_a_batch_goes_only_with_the_batch(http: httpx.Client, client: OpenAI, db: Sessions) -> None:
    batch_id = finished(db, client)
    rows = Rows(db, tenant=Rows(db).one("SELECT tenant_id FROM batches"))
    (job,) = rows.add_jobs(1, batch_id=batch_id, state="failed", finished_at="now")
    answer = http.delete(f"/v1/jobs/{job_name(job)}")
    assert answer.json()["error"]["message"].endswith("it belongs to a batch.")
    http.delete(f"/v1/batches/{batch_id}")
    assert http.get(f"/v1/jobs/{job_name(job)}").status_code == 404


def test_a_file_is_deleted_while_the_object_store_is_away(
    desk: Desk, away: ObjectStore, deleter: Deleter
) -> None:
    desk.submit(lines(1))
    file = desk.file(desk_files(desk)[0])
    files(desk, away).delete(desk.tenant, file.id)
    assert desk_files(desk) == []
    assert there(desk, file.object_key) == [True]
    assert deleter.step()
    assert there(desk, file.object_key) == [False]


def test_a_batch_whose_input_was_deleted_fails_with_the_reason(desk: Desk) -> None:
    batch_id = desk.submit(lines(1))
    files(desk, desk.objects).delete(desk.tenant, desk.batch(batch_id).input_file_id)
    ingest = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    ingest.step()
    ingest.close()
    assert [error.code for error in desk.batch(batch_id).errors] == ["file_not_found"]


def test_what_is_doomed_is_deleted_block_by_block(desk: Desk, deleter: Deleter) -> None:
    keys = [put(desk) for _ in range(5)]
    assert [deleter.step() for _ in range(4)] == [True, True, True, False]
    assert there(desk, *keys) == [False] * 5
    assert desk.count("doomed_objects") == 0


def test_what_is_doomed_for_later_waits(desk: Desk, deleter: Deleter) -> None:
    key = put(desk, doom=False)
    with transaction(desk.sessions) as session:
        doomed.doom(session, [key], after_s=60)
    assert not deleter.step()
    assert there(desk, key) == [True]


def test_an_outage_of_the_store_loses_no_deletion(desk: Desk, away: ObjectStore, deleter: Deleter) -> None:
    key = put(desk)
    cut_off = Deleter(sessions=desk.sessions, objects=away)
    with pytest.raises(TransientWork):
        cut_off.step()
    cut_off.close()
    assert not deleter.step()  # not at once again
    desk.execute("UPDATE doomed_objects SET doomed_at = now()")
    assert deleter.step()
    assert there(desk, key) == [False]


def test_an_object_that_cannot_be_deleted_holds_up_no_other(
    desk: Desk, hooked: Callable[[Callable[[str], None]], Deleter]
) -> None:
    stuck, free = put(desk), put(desk)

    def refuse(key: str) -> None:
        if key == stuck:
            raise TransientWork("object_store_unavailable", "no")

    with pytest.raises(TransientWork):
        hooked(refuse).step()
    assert there(desk, stuck, free) == [True, False]
    assert desk.count("doomed_objects") == 1


def test_two_deleters_share_the_work(
    desk: Desk, deleter: Deleter, hooked: Callable[[Callable[[str], None]], Deleter]
) -> None:
    put(desk)
    found: list[bool] = []
    assert hooked(lambda _: found.append(deleter.step())).step()
    assert found == [False]


def test_an_object_that_a_row_needs_is_spared(desk: Desk, deleter: Deleter) -> None:
    desk.submit(lines(1))
    key = file_key(desk.tenant, desk_files(desk)[0])
    with transaction(desk.sessions) as session:
        doomed.doom(session, [key])
    assert deleter.step()
    assert there(desk, key) == [True]
    assert desk.count("doomed_objects") == 0


def test_an_image_stored_again_before_the_deletion_stays(desk: Desk, deleter: Deleter) -> None:
    key = doomed_pixel(desk)
    keep_pixel(desk)
    deleter.step()
    assert there(desk, key) == [True]


def test_an_image_is_not_stored_again_during_its_deletion_but_after_it(
    desk: Desk, hooked: Callable[[Callable[[str], None]], Deleter]
) -> None:
    key = doomed_pixel(desk)

    def store_again(_: str) -> None:
        with pytest.raises(TransientWork):
            keep_pixel(desk)

    assert hooked(store_again).step()
    assert there(desk, key) == [False]
    keep_pixel(desk)
    assert there(desk, key) == [True]


def test_an_image_whose_deletion_was_not_answered_is_deleted_before_it_is_stored_again(
    desk: Desk, hooked: Callable[[Callable[[str], None]], Deleter], deleter: Deleter
) -> None:
    key = doomed_pixel(desk)
    with pytest.raises(Died):
        hooked(die).step()
    with pytest.raises(TransientWork):
        keep_pixel(desk)
    assert not deleter.step()  # the dead one's deletion may still come
    desk.execute("UPDATE doomed_objects SET doomed_at = now()")
    assert deleter.step()
    keep_pixel(desk)
    assert there(desk, key) == [True]


def test_an_image_doomed_between_its_put_and_its_row_stays(desk: Desk, deleter: Deleter) -> None:
    key = keep_pixel(desk)
    with transaction(desk.sessions) as session:
        doomed.doom(session, [key], after_s=3600)
    with transaction(desk.sessions) as session:
        keep_image(session, desk.tenant, "r1", StoredImage(Desk.content_hash(PIXEL), "PNG", 1, 1, 70))
    desk.execute("UPDATE doomed_objects SET doomed_at = now()")  # its grace is over
    assert deleter.step()
    assert there(desk, key) == [True]


def test_an_object_that_no_row_knows_is_doomed_once_it_is_old(desk: Desk) -> None:
    key = put(desk, doom=False)
    assert found_orphans(desk, days=0.9) == []
    assert found_orphans(desk, days=1.1) == [key]


def test_what_a_row_knows_is_no_orphan(desk: Desk) -> None:
    desk.submit(lines(1))
    data = image_key(desk.tenant, "a" * 64)
    desk.objects.put(data, b"bytes", content_type="image/png")
    with transaction(desk.sessions) as session:
        keep_image(session, desk.tenant, "r1", StoredImage("a" * 64, "PNG", 1, 1, 5))
    assert found_orphans(desk, days=2) == []


def test_a_result_file_of_an_open_batch_is_no_orphan(desk: Desk) -> None:
    batch_id = desk.submit(lines(1))
    key = file_key(desk.tenant, result_file_id(batch_id, "output"))
    desk.objects.put(key, b"bytes", content_type="text/plain")
    assert found_orphans(desk, days=2) == []
    desk.execute("UPDATE batches SET status = 'failed', ended_at = now()")
    assert found_orphans(desk, days=2) == [key]


@pytest.mark.parametrize(
    "key", ["files/tenant_of_others/file-" + "0" * 32, "files/{tenant}/notes.txt", "images/{tenant}/cat.png"]
)
def test_objects_of_others_are_left_alone(desk: Desk, key: str) -> None:
    desk.objects.put(key.format(tenant=desk.tenant), b"bytes", content_type="text/plain")
    assert found_orphans(desk, days=2) == []


def test_a_bucket_is_listed_once_a_day(desk: Desk) -> None:
    now = [1e10]
    orphans = Orphans(sessions=desk.sessions, objects=desk.objects, clock=lambda: now[0])
    for _ in range(10):
        orphans.step()
    key = put(desk, doom=False)
    for _ in range(10):
        orphans.step()
    assert list(all_doomed(desk)) == []
    now[0] += EVERY_S
    for _ in range(10):
        orphans.step()
    assert list(all_doomed(desk)) == [key]


def all_doomed(desk: Desk) -> Iterator[str]:
    with transaction(desk.sessions) as session:
        yield from session.execute(text("SELECT key FROM doomed_objects ORDER BY key")).scalars()


def desk_files(desk: Desk) -> list[str]:
    with transaction(desk.sessions) as session:
        return list(session.execute(text("SELECT id FROM files")).scalars())


def files(desk: Desk, objects: ObjectStore) -> Files:
    limits = Limits(sessions=desk.sessions, backlog_max_jobs=1, disk_min_free_bytes=0, data_dir=None)
    return Files(
        sessions=desk.sessions, objects=objects, limits=limits, batch_max_bytes=1000, table_max_bytes=1000
    )


def finished(db: Sessions, client: OpenAI) -> str:
    """A batch that has ended, with an output file."""
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    output = client.files.create(file=("out.jsonl", LINES), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    Rows(db).run(
        "UPDATE batches SET status = 'completed', ended_at = now(), output_file_id = :f",
        f=output.id,
    )
    return batch.id


def doomed_pixel(desk: Desk) -> str:
    key = image_key(desk.tenant, Desk.content_hash(PIXEL))
    desk.objects.put(key, b"bytes", content_type="image/png")
    with transaction(desk.sessions) as session:
        doomed.doom(session, [key])
    return key


def keep_pixel(desk: Desk) -> str:
    """What ingest does with a data URL before its transaction."""
    placer = Placer(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    placer.keep(desk.tenant, [parse_reference(PIXEL)])
    placer.close()
    return image_key(desk.tenant, Desk.content_hash(PIXEL))


def found_orphans(desk: Desk, *, days: float) -> list[str]:
    """The orphans of the desk's tenant, so many days from now."""
    later = time.time() + days * OLD_S
    orphans = Orphans(sessions=desk.sessions, objects=desk.objects, clock=lambda: later)
    for _ in range(10):
        orphans.step()
    return list(all_doomed(desk))
