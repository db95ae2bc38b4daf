"""Reviewing in a browser: by keys at a desk, by thumb on a phone, and what two people agree on."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk, on_a_phone, sign_in
from tests.browser.site import Site


def start(page: Page, site: Site, query: str) -> None:
    page.goto(f"{site.url}/review?batch={site.batch_id}&{query}")
    page.get_by_role("button", name="Start reviewing").click()
    expect(page.locator("#asked")).to_be_focused()


def job_of(page: Page) -> str:
    return page.url.partition("?")[0].rpartition("/")[2]


def next_one(page: Page, before: str) -> str:
    """Wait for another answer than this one."""
    page.wait_for_url(lambda url: before not in url.partition("?")[0])
    expect(page.locator("#asked")).to_be_focused()
    return job_of(page)


def review_of(site: Site, job: str) -> tuple[str, str, str] | None:
    found = site.api("GET", f"/answers?batch_id={site.batch_id}&question=item")["data"]
    said = next(one for one in found if one["job_id"] == job)["review"]
    return (said["verdict"], said["label"], said["note"]) if said else None


@at_a_desk
def test_answers_are_reviewed_by_keys_alone(page: Page, site: Site) -> None:
    start(page, site, "question=item")
    first = job_of(page)
    page.keyboard.press("s")
    second = next_one(page, first)
    page.keyboard.press("c")
    third = next_one(page, second)
    assert review_of(site, first) is None
    assert review_of(site, second) == ("confirm", None, None)
    page.keyboard.press("n")
    page.keyboard.type("Cut off at the left.")
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    right = page.locator("#right button[data-digit]:enabled").first
    label = right.get_attribute("value")
    page.keyboard.press(right.get_attribute("data-digit") or "")
    next_one(page, third)
    assert review_of(site, third) == ("overturn", (label or "").strip('"'), "Cut off at the left.")


@at_a_desk
def test_the_last_verdict_is_taken_back(page: Page, site: Site) -> None:
    start(page, site, "question=item")
    first = job_of(page)
    page.keyboard.press("c")
    second = next_one(page, first)
    page.keyboard.press("u")
    assert next_one(page, second) == first
    assert review_of(site, first) is None


@on_a_phone
def test_answers_are_reviewed_by_thumb(page: Page, site: Site) -> None:
    start(page, site, "question=item")
    first = job_of(page)
    expect(page.get_by_role("img").first).to_be_in_viewport()
    page.get_by_role("button", name="Confirm").tap()
    second = next_one(page, first)
    assert review_of(site, first) == ("confirm", None, None)
    page.get_by_role("button", name="Undo the last").tap()
    assert next_one(page, second) == first


@at_a_desk
def test_a_second_opinion_is_given_without_the_first_and_counted(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/review?batch={site.batch_id}&question=colour")
    page.get_by_label("Which answers").select_option("second")
    expect(page.locator("#queue")).to_contain_text("Reviewed by others")
    page.get_by_role("button", name="Start reviewing").click()
    expect(page.locator("#asked")).to_be_focused()
    expect(page.locator("#review")).not_to_contain_text("Look at the print.")
    first = job_of(page)
    page.keyboard.press("c")
    next_one(page, first)
    page.goto(f"{site.url}/review/agreement?batch={site.batch_id}&question=colour")
    both = page.get_by_role("row").filter(has_text="Mei").filter(has_text="Tom")
    expect(both.first).to_contain_text("75")
    expect(page.get_by_role("row", name="admin")).to_have_count(2)
    expect(page.locator("#differences")).to_contain_text("Tom")


@at_a_desk
def test_corrections_are_downloaded(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/review?batch={site.batch_id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download corrections").click()
    assert "Look at the print." in download.value.path().read_text()


@at_a_desk
def test_a_moderator_sees_what_a_moderator_needs(page: Page, site: Site) -> None:
    sign_in(page, site, "Mei")
    expect(page.get_by_role("link", name="Keys")).to_have_count(0)
    page.get_by_role("link", name="Review").click()
    expect(page.get_by_role("button", name="Start reviewing")).to_be_visible()
