"""Near duplicates as clients see them: a batch that wants them, one image's neighbours, clusters."""

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from app.config import Settings
from app.db import Sessions
from app.images import content_hash
from app.objects import ObjectStore
from tests.drawn import REMAKES, product, saved
from tests.integration.test_looks import about, grind
from tests.mill import Mill
from tests.rows import Rows
from vqueue import BadRequest, Client
from workers.hashing import Hasher

PHOTO = [remake(product(1)) for remake in REMAKES.values()][:3]
OTHER = saved(product(2))


@pytest.fixture
def api(api_url: str, api_key: str) -> Iterator[Client]:
    with Client(f"{api_url}/v1", api_key) as client:
        yield client


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    with closing(Mill(sessions=db, objects=objects, settings=settings)) as mill:
        yield mill


@pytest.fixture
def hasher(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Hasher]:
    with closing(Hasher(sessions=db, objects=objects, settings=settings)) as hasher:
        yield hasher


def upload(api: Client) -> str:
    content = "".join(f"{one}\n" for one in about([*PHOTO, OTHER]))
    return api.upload(content.encode(), name="in.jsonl").id


def test_a_batch_tells_how_many_answers_are_about_other_pictures(
    api: Client, mill: Mill, hasher: Hasher
) -> None:
    batch = api.create_batch(upload(api), near_duplicates=6)
    grind(mill, hasher)
    told = api.batch(batch.id).vqueue.near_duplicates
    assert told
    assert (told.distance, told.answered, mill.runs) == (6, 2, 2)


def test_a_batch_of_its_own_accord_says_nothing_of_near_duplicates(api: Client) -> None:
    assert api.create_batch(upload(api)).vqueue.near_duplicates is None


def test_the_distance_is_four_bits_unless_it_is_said(http: httpx.Client, api: Client, db: Sessions) -> None:
    body = {"input_file_id": upload(api), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert http.post("/v1/batches", json={**body, "near_duplicates": {}}).status_code == 200
    assert http.post("/v1/batches", json={**body, "near_duplicates": {"distance": 0}}).status_code == 200
    assert Rows(db).all("SELECT near_distance FROM batches ORDER BY created_at") == [4, 0]


@pytest.mark.parametrize("cache", ["off", "write"])
def test_near_duplicates_without_kept_answers_are_refused(api: Client, cache: str) -> None:
    with pytest.raises(BadRequest, match="takes kept answers"):
        api.create_batch(upload(api), near_duplicates=4, cache=cache)  # pyright: ignore[reportArgumentType]


def test_a_wish_for_them_goes_before_the_services_own_word_on_the_cache(
    api: Client, db: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create_batch(upload(api), near_duplicates=4)
    assert Rows(db).all("SELECT cache FROM batches") == ["on"]


def test_images_are_compared_on_wish_and_found_by_one_of_them(
    api: Client, http: httpx.Client, mill: Mill, hasher: Hasher, db: Sessions
) -> None:
    api.create_batch(upload(api))
    mill.read()
    name = content_hash(PHOTO[0])
    assert http.get(f"/v1/images/{name}/near").json()["hashed"] is False
    assert http.post("/v1/image_clusters/look").json()["images"] == 4
    while hasher.step():
        pass
    found = http.get(f"/v1/images/{name}/near", params={"distance": 6}).json()
    assert {one["content_hash"] for one in found["data"]} == set(map(content_hash, PHOTO[1:]))
    assert http.post("/v1/image_clusters/look").json()["images"] == 0
    actions = Rows(db).all("SELECT action FROM audit_log ORDER BY id DESC LIMIT 1")
    assert actions == ["image_clusters.looked"]


def test_clusters_are_of_two_or_more_with_the_first_one_ahead(
    api: Client, http: httpx.Client, mill: Mill, hasher: Hasher
) -> None:
    api.create_batch(upload(api), near_duplicates=6)
    grind(mill, hasher)
    (cluster,) = http.get("/v1/image_clusters").json()["data"]
    assert cluster["size"] == len(cluster["members"]) == 3
    assert cluster["members"][0] == {
        "object": "image",
        "content_hash": cluster["representative"],
        "distance": 0,
        "reference": None,
    }
    behind = http.get("/v1/image_clusters", params={"after": cluster["id"]}).json()
    assert (behind["data"], behind["has_more"]) == ([], False)


@pytest.mark.parametrize(("name", "status"), [("0" * 64, 404), ("short", 400)])
def test_an_image_that_is_not_there_is_told(http: httpx.Client, name: str, status: int) -> None:
    assert http.get(f"/v1/images/{name}/near").status_code == status
