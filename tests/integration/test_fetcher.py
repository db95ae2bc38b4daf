"""The fetcher downloads each image once, politely, and says in each job why one could not be had."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from PIL import Image

from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork, TransientWork
from app.ids import image_key
from app.images import Limits, content_hash
from app.objects import ObjectStore, make_objects
from app.states import JobState
from app.store import images, jobs
from app.store.images import ImageWish
from tests.rows import TEXT_PROMPT, Rows
from tests.waiting import eventually
from workers.fetcher import Fetcher
from workers.sources import SourceReader


def png(colour: str = "red") -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (40, 30), colour).save(buffer, "PNG")
    return buffer.getvalue()


class Web:
    """Hosts that answer as told; remembers what was asked and how much of it at once."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self.most_at_once = 0
        self.answer: Callable[[str, int], bytes] = lambda _url, _attempt: png()
        self.gate: threading.Event | None = None
        self._lock = threading.Lock()

    def download(self, url: str) -> bytes:
        with self._lock:
            self.asked[url] += 1
            attempt = self.asked[url]
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate:
                self.gate.wait(10)
            return self.answer(url, attempt)
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_tenant()
    return rows


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def objects(settings: Settings) -> ObjectStore:
    return make_objects(settings)


@pytest.fixture
def fetcher(db: Sessions, objects: ObjectStore, settings: Settings, web: Web) -> Iterator[Fetcher]:
    chosen = settings.model_copy(update={"fetch_per_host": 2, "fetch_threads": 6, "fetch_attempts": 2})
    sources = SourceReader(
        sessions=db,
        objects=objects,
        download=web.download,
        limits=Limits(10**6, 10**6),
        buckets=("catalog",),
    )
    fetcher = Fetcher(sessions=db, read=sources.read, keep=sources.keep, settings=chosen, spread=lambda: 0.0)
    yield fetcher
    fetcher.close()


def ask(db: Sessions, *refs: str, kind: str = "url") -> int:
    """A job that waits for these images."""
    with transaction(db) as session:
        wishes = [ImageWish(kind, f"hash of {ref}", ref) for ref in refs]
        found = images.want_images(session, "tenant_a", wishes, reuse_s=3600)
        ids = [found[wish.ref_hash].id for wish in wishes]
        waiting = [image.id for image in found.values() if not image.stored]
        return jobs.insert_job(
            session,
            jobs.NewJob("tenant_a", "demo", TEXT_PROMPT, {}, image_ids=ids, waiting_image_ids=waiting),
        )


def run(fetcher: Fetcher) -> None:
    """Steps until nothing is due and nothing runs."""
    assert fetcher.settle(10)
    while fetcher.step():
        assert fetcher.settle(10)


def test_a_url_is_downloaded_stored_under_its_hash_and_its_job_made_ready(
    db: Sessions, rows: Rows, fetcher: Fetcher, objects: ObjectStore
) -> None:
    job_id = ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert rows.states() == {job_id: JobState.READY}
    key = image_key("tenant_a", content_hash(png()))
    assert objects.get(key, max_bytes=10**6) == png()
    assert rows.one("SELECT width || 'x' || height || ' ' || format FROM images") == "40x30 PNG"


def test_an_image_whose_bytes_are_doomed_lives_on(db: Sessions, rows: Rows, fetcher: Fetcher) -> None:
    key = image_key("tenant_a", content_hash(png()))
    rows.run("INSERT INTO doomed_objects (key) VALUES (:key)", key=key)
    ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert rows.one("SELECT count(*) FROM doomed_objects") == 0


def test_twenty_jobs_of_one_url_are_one_download(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    for _ in range(20):
        ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert web.asked == {"https://shop.example/a.png": 1}
    assert set(rows.states().values()) == {JobState.READY}


def test_a_host_is_asked_for_few_images_at_once(db: Sessions, rows: Rows, fetcher: Fetcher, web: Web) -> None:
    web.gate = threading.Event()
    ask(db, *(f"https://shop.example/{number}.png" for number in range(6)))
    fetcher.step()
    eventually(lambda: web.at_once == 2)
    web.gate.set()
    run(fetcher)
    assert (web.most_at_once, web.asked.total()) == (2, 6)


def test_a_page_that_is_gone_fails_its_job_at_once_with_the_code(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    def gone(url: str, attempt: int) -> bytes:
        raise InvalidWork("http_404", "shop.example answered 404.")

    web.answer = gone
    ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert web.asked.total() == 1
    assert rows.one("SELECT state || ' ' || error_code FROM jobs") == "failed http_404"


def test_a_host_that_fails_is_asked_again_later(db: Sessions, rows: Rows, fetcher: Fetcher, web: Web) -> None:
    def flaky(url: str, attempt: int) -> bytes:
        if attempt == 1:
            raise TransientWork("http_503", "busy", retry_after_s=30)
        return png()

    web.answer = flaky
    ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert rows.one("SELECT due_at > now() + interval '25 seconds' FROM images")
    rows.run("UPDATE images SET due_at = now()")
    rows.run("UPDATE host_pauses SET until = now()")
    run(fetcher)
    assert set(rows.states().values()) == {JobState.READY}


def test_a_host_that_asks_for_a_pause_is_left_alone_by_all_images(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    def busy(url: str, attempt: int) -> bytes:
        if "busy" in url:
            raise TransientWork("http_429", "busy", retry_after_s=30)
        return png()

    web.answer = busy
    ask(db, "https://busy.example/a.png")
    run(fetcher)
    ask(db, "https://busy.example/b.png", "https://calm.example/b.png")
    run(fetcher)
    assert set(web.asked) == {"https://busy.example/a.png", "https://calm.example/b.png"}
    rows.run("UPDATE host_pauses SET until = now()")
    run(fetcher)
    assert web.asked["https://busy.example/b.png"] == 1


@pytest.mark.parametrize(("asked", "pause"), [(86_400.0, 600), (5.0, 30)])
def test_a_pause_has_an_end_and_is_not_cut_short(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web, asked: float, pause: int
) -> None:
    def busy(url: str, attempt: int) -> bytes:
        raise TransientWork("http_503", "busy", retry_after_s=asked)

    web.answer = busy
    rows.run("INSERT INTO host_pauses VALUES ('shop.example', now() + interval '30 seconds')")
    fetcher.fetch(images.FetchTask(1, "tenant_a", "url", "https://shop.example/a", "shop.example", 1, 1))
    left = rows.one("SELECT extract(epoch FROM until - now())::float FROM host_pauses")
    assert pause - 5 < left <= pause


def test_a_host_that_always_fails_is_given_up(db: Sessions, rows: Rows, fetcher: Fetcher, web: Web) -> None:
    def down(url: str, attempt: int) -> bytes:
        raise TransientWork("http_500", "500")

    web.answer = down
    ask(db, "https://shop.example/a.png")
    run(fetcher)
    rows.run("UPDATE images SET due_at = now()")
    run(fetcher)
    assert web.asked.total() == 2
    assert rows.one("SELECT error_code FROM jobs") == "http_500"


def test_an_outage_of_our_own_store_is_no_reason_to_give_up(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    def away(url: str, attempt: int) -> bytes:
        raise TransientWork("object_store_unavailable", "away")

    web.answer = away
    job_id = ask(db, "https://shop.example/a.png")
    for _ in range(5):
        run(fetcher)
        rows.run("UPDATE images SET due_at = now()")
    assert rows.states() == {job_id: JobState.WAITING}


def test_a_slow_host_does_not_hold_up_the_others(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    web.gate = threading.Event()
    ask(db, *(f"https://slow.example/{number}.png" for number in range(20)))
    fetcher.step()
    ask(db, "https://fast.example/a.png")
    fetcher.step()
    eventually(lambda: web.asked["https://fast.example/a.png"] == 1)
    web.gate.set()
    run(fetcher)
    assert rows.all("SELECT DISTINCT attempt FROM images") == [1]


def test_what_is_no_image_fails_its_job(db: Sessions, rows: Rows, fetcher: Fetcher, web: Web) -> None:
    web.answer = lambda _url, _attempt: b"<html>Robot check</html>"
    ask(db, "https://shop.example/a.png")
    run(fetcher)
    assert rows.one("SELECT error_code FROM jobs") == "not_an_image"


def test_an_unexpected_fault_of_one_image_leaves_the_others_alone(
    db: Sessions, rows: Rows, fetcher: Fetcher, web: Web
) -> None:
    def odd(url: str, attempt: int) -> bytes:
        if "odd" in url:
            raise RuntimeError("a bug")
        return png()

    web.answer = odd
    ask(db, "https://shop.example/odd.png")
    fine = ask(db, "https://shop.example/fine.png")
    run(fetcher)
    assert rows.states()[fine] == JobState.READY
    assert rows.one("SELECT count(*) FROM images WHERE state = 'pending'") == 1


def test_an_image_of_a_dead_fetcher_is_taken_again(db: Sessions, rows: Rows, fetcher: Fetcher) -> None:
    job_id = ask(db, "https://shop.example/a.png")
    with transaction(db) as session:
        assert images.claim_fetches(session, limit=1, lease_s=30, per_host=1, active={})
    rows.run("UPDATE images SET due_at = now() - interval '1 second'")
    run(fetcher)
    assert rows.states() == {job_id: JobState.READY}


def test_a_bucket_that_is_not_allowed_is_refused_by_name(
    db: Sessions, rows: Rows, fetcher: Fetcher, settings: Settings
) -> None:
    ask(db, f"s3://{settings.s3_bucket}/files/tenant_b/file-1", kind="s3")
    run(fetcher)
    assert rows.one("SELECT error_code FROM jobs") == "blocked_bucket"


def test_an_uploaded_file_of_another_tenant_is_not_found(db: Sessions, rows: Rows, fetcher: Fetcher) -> None:
    rows.add_tenant("tenant_b")
    rows.run(
        "INSERT INTO files (id, tenant_id, purpose, filename, content_type, bytes, object_key)"
        " VALUES ('file-1', 'tenant_b', 'vision', 'a.png', 'image/png', 9, 'files/tenant_b/file-1')"
    )
    ask(db, "file-1", kind="file")
    run(fetcher)
    assert rows.one("SELECT error_code FROM jobs") == "not_found"


def test_an_uploaded_file_is_stored_as_an_image(
    db: Sessions, rows: Rows, fetcher: Fetcher, objects: ObjectStore
) -> None:
    objects.put("files/tenant_a/file-2", png("blue"), content_type="image/png")
    rows.run(
        "INSERT INTO files (id, tenant_id, purpose, filename, content_type, bytes, object_key)"
        " VALUES ('file-2', 'tenant_a', 'vision', 'a.png', 'image/png', 9, 'files/tenant_a/file-2')"
    )
    job_id = ask(db, "file-2", kind="file")
    run(fetcher)
    assert rows.states() == {job_id: JobState.READY}


def test_a_fetch_task_of_an_unknown_kind_is_refused(fetcher: Fetcher, db: Sessions, rows: Rows) -> None:
    ask(db, "gopher://x", kind="gopher")
    run(fetcher)
    assert rows.one("SELECT error_code FROM jobs") == "bad_url"
