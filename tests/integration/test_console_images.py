"""The page of an image: every question about it, across batches, and what looks like it."""

import re
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from app.ids import image_key
from app.objects import ObjectStore
from tests.console import Visitor
from tests.labelled import Labelled

HASH, OTHER = "ab" * 32, "cd" * 32
PAGE = f"/images/{HASH}"


def ask(mine: Labelled, batch: str, text: str, images: list[int], **columns: Any) -> str:
    return mine.answer(text, batch_id=batch, image_ids=images, image_group=images[0], **columns)


def told(page: str) -> list[str]:
    """The answers in the order of the page; one that is its label is said by that."""
    said = re.findall(r'class="(?:answer|chip review-none)">([^\n]*)', page)
    return [re.sub(r"<.*", "", one).strip() for one in said]


def test_an_image_has_its_answers_across_batches_the_newest_first(visitor: Visitor, mine: Labelled) -> None:
    mine.batch("batch_1", policy="v1")
    mine.batch("batch_2", policy="v2")
    image = mine.rows.add_image(HASH)
    ask(mine, "batch_1", "red", [image])
    ask(mine, "batch_1", " RED", [image], custom_id="again")
    ask(mine, "batch_2", "blue", [image])
    page = visitor.get(PAGE).text
    assert told(page) == ["blue", "RED", "red"]
    assert page.count("differs from before") == 1
    assert "policy v2" in page
    assert f"/thumbnails/{mine.rows.tenant}/{HASH}/1600?" in page


def test_an_image_leads_back_to_the_results_that_one_comes_from(visitor: Visitor, mine: Labelled) -> None:
    image = mine.rows.add_image(HASH)
    first, _ = (ask(mine, mine.batch(name), "red", [image]) for name in ("batch_1", "batch_2"))
    trails = [
        re.findall(r'<p class="trail">.*href="(/batches/\w+/results)"', visitor.get(PAGE, **query).text)
        for query in ({"job": first}, {})
    ]
    assert trails == [["/batches/batch_1/results"], ["/batches/batch_2/results"]]


def test_an_image_is_found_in_jobs_about_several(visitor: Visitor, mine: Labelled) -> None:
    mine.batch("batch_1")
    first, second = mine.rows.add_image(OTHER), mine.rows.add_image(HASH)
    ask(mine, "batch_1", "red", [first, second])
    page = visitor.get(PAGE).text
    assert told(page) == ["red"]
    assert "with 2 images" in page


def test_another_image_and_a_deleted_batch_are_left_out(visitor: Visitor, mine: Labelled) -> None:
    mine.batch("batch_1")
    mine.batch("batch_2")
    image, other = mine.rows.add_image(HASH), mine.rows.add_image(OTHER)
    ask(mine, "batch_1", "red", [image])
    ask(mine, "batch_2", "blue", [other])
    mine.rows.run("UPDATE batches SET deleted_at = now() WHERE id = 'batch_1'")
    page = visitor.get(PAGE).text
    assert told(page) == []
    assert "Nothing asked yet" in page


def test_a_long_history_goes_on_where_a_page_ended(visitor: Visitor, mine: Labelled) -> None:
    mine.batch("batch_1")
    image = mine.rows.add_image(HASH)
    ids = mine.rows.add_jobs(120, batch_id="batch_1", image_ids=[image], image_group=image)
    mine.rows.complete(*ids, text="red")
    first = visitor.get(PAGE).text
    older = re.search(r'href="([^"]+)" rel="next"', first)
    assert older is not None
    assert [len(told(first)), len(told(visitor.get(older[1]).text))] == [100, 20]


def test_images_that_look_the_same_are_shown(visitor: Visitor, mine: Labelled) -> None:
    for name in (HASH, OTHER):
        mine.rows.add_image(name)
        mine.rows.run(
            """
            INSERT INTO image_looks (tenant_id, content_hash, phash, leader, seen_at)
            VALUES (:t, :h, 1, :l, now())
            """,
            t=mine.rows.tenant,
            h=name,
            l=OTHER,
        )
    page = visitor.get(PAGE).text
    assert f'href="/images/{OTHER}"' in page
    assert f'href="/images/{HASH}"' not in page


def test_an_image_that_is_not_there_is_not_found(visitor: Visitor, mine: Labelled) -> None:
    assert visitor.get(PAGE).status_code == 404


@pytest.mark.parametrize("broken", [False, True])
def test_small_pictures_are_made_of_what_is_a_picture(
    visitor: Visitor, mine: Labelled, objects: ObjectStore, broken: bool
) -> None:
    mine.rows.add_image(HASH)
    drawn = BytesIO()
    Image.new("RGB", (64, 64), "red").save(drawn, "PNG")
    data = drawn.getvalue()
    objects.put(image_key(mine.rows.tenant, HASH), data[:60] if broken else data, content_type="image/png")
    link = re.search(r'<img src="([^"]+)"', visitor.get(PAGE).text)
    assert link is not None
    answer = visitor.get(link[1].replace("&amp;", "&"))
    assert answer.status_code == (404 if broken else 200)
    assert (answer.headers["content-type"] == "image/webp") is not broken
