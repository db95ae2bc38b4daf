"""Images are looked at on wish, compared within their tenant, and stand in for each other where wanted."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from app.answer_keys import CacheMode
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import TransientWork
from app.ids import image_key
from app.images import content_hash
from app.looks import Looks, distance
from app.objects import ObjectStore
from app.store import looks
from app.store.answer_cache import CACHED, NEAR, NEAR_OF
from app.store.clusters import list_clusters
from app.store.looks import LookTask, Seen
from tests.desk import Desk, image, line
from tests.drawn import REMAKES, product, recoloured, saved
from tests.looking import data_url, grind
from tests.mill import Mill
from tests.rows import Rows
from workers.hashing import Hasher

GREY = bytes([128] * 48)
PHOTO = [remake(product(1)) for remake in REMAKES.values()]


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    with closing(Mill(sessions=db, objects=objects, settings=settings)) as mill:
        yield mill


@pytest.fixture
def hasher(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Hasher]:
    with closing(Hasher(sessions=db, objects=objects, settings=settings)) as hasher:
        yield hasher


def about(pictures: Sequence[bytes], question: str = "Which colour?") -> list[str]:
    """A batch's lines: the question about each of the pictures."""
    return [
        line(f"r{number}", [{"type": "text", "text": question}, image(data_url(picture))])
        for number, picture in enumerate(pictures)
    ]


def ask(mill: Mill, desk: Desk, hasher: Hasher, content: list[str], near: int | None = 6) -> str:
    batch_id = desk.submit(content, cache=CacheMode.ON, near_distance=near)
    grind(mill, hasher)
    return batch_id


def notes(desk: Desk, batch_id: str) -> list[list[str]]:
    rows = desk.result_lines(desk.batch(batch_id).output_file_id)
    return [row["response"]["body"].get("vqueue", {}).get("notes", []) for row in rows]


def see(
    db: Sessions, tenant: str, hashes: Sequence[int], *, colours: bytes = GREY, most: int = 6, first: int = 0
) -> list[str]:
    """Images with these hashes, numbered from `first` on; their content hashes."""
    names = [f"{first + number:064x}" for number in range(len(hashes))]
    with transaction(db) as session:
        looks.want(session, [(tenant, name) for name in names])
        seen = [
            Seen(LookTask(tenant, name, 1), Looks(phash, colours))
            for name, phash in zip(names, hashes, strict=True)
        ]
        looks.record_looks(session, tenant, seen, cluster_distance=most)
    return names


def test_a_batch_asks_about_one_of_the_pictures_that_look_the_same(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    other = saved(product(2))
    batch_id = ask(mill, desk, hasher, about([*PHOTO, other]))
    assert mill.runs == 2
    batch = desk.batch(batch_id)
    assert (batch.completed, batch.near_answers, batch.cached_answers) == (8, 6, 6)


def test_an_answer_about_another_picture_says_so_and_about_which(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    batch_id = ask(mill, desk, hasher, about(PHOTO[1:2]))
    assert notes(desk, batch_id) == [[CACHED, NEAR, f"{NEAR_OF}{content_hash(PHOTO[0])}"]]
    assert mill.runs == 1


def test_the_pictures_own_answer_goes_before_anothers(mill: Mill, desk: Desk, hasher: Hasher) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    ask(mill, desk, hasher, about(PHOTO[1:2]), near=None)
    assert mill.runs == 2
    assert notes(desk, ask(mill, desk, hasher, about(PHOTO[1:2]))) == [[CACHED]]


def test_nothing_is_kept_of_a_picture_that_was_not_asked_about(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    ask(mill, desk, hasher, about(PHOTO[1:2]))
    batch_id = ask(mill, desk, hasher, about(PHOTO[1:2]), near=None)
    assert (mill.runs, notes(desk, batch_id)) == (2, [[]])


def test_another_question_or_another_colour_is_asked(mill: Mill, desk: Desk, hasher: Hasher) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    ask(mill, desk, hasher, about(PHOTO[1:2], "Which shape?"))
    ask(mill, desk, hasher, about([saved(recoloured(product(1)))]))
    assert mill.runs == 3


def test_a_batch_that_does_not_want_it_is_asked_about_every_picture(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    ask(mill, desk, hasher, about(PHOTO), near=None)
    assert mill.runs == len(PHOTO)
    assert desk.count("image_looks") == 0


def test_jobs_of_two_images_are_asked_themselves(mill: Mill, desk: Desk, hasher: Hasher) -> None:
    parts = [image(data_url(PHOTO[0])), image(data_url(PHOTO[1]))]
    content = [line(f"r{place}", parts[place:] + parts[:place]) for place in range(2)]
    ask(mill, desk, hasher, content)
    assert (mill.runs, desk.count("image_looks")) == (2, 0)


def test_no_tenant_is_answered_by_anothers_picture(
    mill: Mill, desk: Desk, hasher: Hasher, objects: ObjectStore, settings: Settings
) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    other = Desk(sessions=mill.sessions, objects=objects, settings=settings)
    ask(mill, other, hasher, about(PHOTO[1:2]))
    assert mill.runs == 2


def test_jobs_wait_until_their_pictures_were_looked_at_and_no_longer(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    batch_id = desk.submit(about(PHOTO[:2]), cache=CacheMode.ON, near_distance=6)
    mill.read()
    mill.send()
    assert {job.state for job in desk.jobs(batch_id)} == {"waiting"}
    while hasher.step():
        pass
    assert {job.state for job in desk.jobs(batch_id)} == {"ready"}


def test_where_nobody_looks_jobs_are_asked_themselves(mill: Mill, desk: Desk) -> None:
    batch_id = desk.submit(about(PHOTO[:2]), cache=CacheMode.ON, near_distance=6)
    mill.read()
    mill.send()
    patience = timedelta(seconds=looks.PATIENCE_S)
    desk.execute("UPDATE image_looks SET wanted_at = wanted_at - :patience", patience=patience)
    mill.dispatcher.reap()
    mill.grind()
    assert (desk.counts(batch_id), mill.runs) == ((2, 2, 0), 2)


def test_a_picture_that_cannot_be_compared_is_asked_about(
    mill: Mill, desk: Desk, hasher: Hasher, objects: ObjectStore, db: Sessions
) -> None:
    batch_id = desk.submit(about(PHOTO[:3]), cache=CacheMode.ON, near_distance=6)
    mill.read()
    mill.send()
    objects.delete(image_key(desk.tenant, content_hash(PHOTO[0])))
    objects.put(image_key(desk.tenant, content_hash(PHOTO[1])), PHOTO[1][:300], content_type="image/jpeg")
    desk.execute("UPDATE image_looks SET attempt = 9 WHERE content_hash = :n", n=content_hash(PHOTO[2]))
    grind(mill, hasher)
    assert Rows(db).all("SELECT error FROM image_looks ORDER BY error") == [
        "gone",
        "unreadable",
        "unreadable",
    ]
    assert (desk.counts(batch_id), mill.runs) == ((3, 3, 0), 3)


def test_an_outage_of_the_object_store_makes_no_picture_unreadable(
    db: Sessions, desk: Desk, settings: Settings
) -> None:
    class Away(ObjectStore):
        def __init__(self) -> None: ...

        def get(self, key: str, *, max_bytes: int | None = None, bucket: str | None = None) -> bytes:
            raise TransientWork("object_store_unavailable", "away")

    with transaction(db) as session:
        looks.want(session, [(desk.tenant, "a" * 64)])
    with closing(Hasher(sessions=db, objects=Away(), settings=settings)) as hasher:
        for _ in range(10):
            desk.execute("UPDATE image_looks SET due_at = now()")
            assert hasher.step()
    assert Rows(db).table("SELECT attempt, error FROM image_looks") == [(0, None)]


@checks(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(0, 7))
def test_a_search_finds_all_that_a_scan_would(db: Sessions, desk: Desk, seed: int, within: int) -> None:
    dice = random.Random(seed)
    start = dice.getrandbits(64)
    hashes = [start ^ sum(1 << bit for bit in dice.sample(range(64), dice.randrange(12))) for _ in range(40)]
    desk.execute("DELETE FROM image_looks")
    names = see(db, desk.tenant, hashes)
    see(db, "tenant_other", hashes, first=1_000)
    with transaction(db) as session:
        found = looks.find_near(session, {(desk.tenant, names[0]): within})[desk.tenant, names[0]]
    scan = [
        (name, distance(hashes[0], other))
        for name, other in zip(names, hashes, strict=True)
        if name != names[0] and distance(hashes[0], other) <= within
    ]
    assert [(one.content_hash, one.distance) for one in found] == sorted(
        scan, key=lambda one: (one[1], one[0])
    )


def test_a_cluster_does_not_grow_by_chains(db: Sessions, desk: Desk) -> None:
    names = see(db, desk.tenant, [0b0, 0b1111, 0b1111_1111], most=4)
    with transaction(db) as session:
        (cluster,) = list_clusters(session, desk.tenant, limit=10, after=None)
    assert [(one.content_hash, one.distance) for one in cluster.members] == [(names[0], 0), (names[1], 4)]
    assert Rows(db).one("SELECT leader FROM image_looks WHERE content_hash = :n", n=names[2]) == names[2]


def test_the_same_outline_in_another_colour_is_not_near(db: Sessions, desk: Desk) -> None:
    (one,) = see(db, desk.tenant, [12345])
    see(db, desk.tenant, [12345], colours=bytes([200] * 48), first=1)
    with transaction(db) as session:
        assert looks.find_near(session, {(desk.tenant, one): 7}) == {(desk.tenant, one): []}
        assert list_clusters(session, desk.tenant, limit=10, after=None) == []


def test_each_batch_goes_by_its_own_distance_also_about_the_same_picture(
    mill: Mill, desk: Desk, hasher: Hasher
) -> None:
    ask(mill, desk, hasher, about(PHOTO[:1]))
    ask(mill, desk, hasher, about(PHOTO[1:2], "Which shape?"))
    desk.execute(
        "UPDATE image_looks SET phash = phash # 3, band0 = band0 # 3 WHERE content_hash = :name",
        name=content_hash(PHOTO[1]),
    )
    batches = [
        desk.submit(about(PHOTO[1:2]), cache=CacheMode.ON, near_distance=distance) for distance in (0, 6)
    ]
    mill.grind()
    assert [desk.batch(one).near_answers for one in batches] == [0, 1]


def test_clusters_come_page_by_page(db: Sessions, desk: Desk) -> None:
    names = see(db, desk.tenant, [0, 1, 2**16 - 1, 2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2])
    with transaction(db) as session:
        first = list_clusters(session, desk.tenant, limit=2, after=None)
        rest = list_clusters(session, desk.tenant, limit=2, after=first[-1].id)
    assert [one.id for one in (*first, *rest)] == [names[0], names[3], names[5]]
    assert [one.size for one in (*first, *rest)] == [2, 2, 2]


def test_what_an_image_looks_like_goes_with_its_last_row(mill: Mill, desk: Desk, hasher: Hasher) -> None:
    ask(mill, desk, hasher, about(PHOTO[:2]))
    assert desk.count("image_looks") == 2
    name = content_hash(PHOTO[0])
    with transaction(mill.sessions) as session:
        looks.forget(session, [(desk.tenant, name)])
    assert desk.count("image_looks") == 2
    desk.execute("DELETE FROM images WHERE content_hash = :name", name=name)
    with transaction(mill.sessions) as session:
        looks.forget(session, [(desk.tenant, name)])
    assert desk.count("image_looks") == 1
