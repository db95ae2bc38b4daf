"""What people do with batches in a browser."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk, on_a_phone
from tests.browser.site import Site, submit

MANY = b"id,image_url\n" + b"".join(b"x%d,http://127.0.0.1:1/x%d.jpg\n" % (n, n) for n in range(40))


@on_a_phone
def test_a_batch_tells_what_came_of_it(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches")
    page.get_by_role("link", name="Spring catalogue", exact=True).click()
    expect(page.get_by_role("region", name="Progress")).to_contain_text("39 of 39")
    expect(page.get_by_role("region", name="Errors").first).to_contain_text("http_404")


@at_a_desk
def test_answers_are_downloaded(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "colour" in download.value.path().read_text()


@on_a_phone
def test_failed_jobs_are_tried_again(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}")
    page.get_by_role("button", name="Retry failed jobs").click()
    expect(page.get_by_text("Retry of")).to_be_visible()
    assert not page.url.endswith(site.batch_id)


@at_a_desk
def test_a_batch_is_cancelled_after_a_question_and_moves_by_itself(page: Page, site: Site) -> None:
    batch = submit(site, MANY, name="to be cancelled")
    page.goto(f"{site.url}/batches/{batch}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("#progress .badge").first).to_have_text("cancelled")
