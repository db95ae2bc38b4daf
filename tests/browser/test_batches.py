"""What people do with batches in a browser."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import sign_in
from tests.browser.site import Site, submit

MANY = b"id,kind,image_url\n" + b"".join(
    b"x%d,product,http://127.0.0.1:1/x%d.jpg\n" % (n, n) for n in range(40)
)


def test_signing_in_and_out(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    sign_in(page, site, site.admin)
    expect(page.get_by_role("heading", level=1)).to_have_text("Batches")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.goto(f"{site.url}/batches/{site.batch_id}")
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_wrong_key_is_told_where_it_was_typed(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    page.goto(f"{site.url}/")
    page.get_by_label("API key").fill("vq_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not open")


def test_a_batch_tells_what_came_of_it(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches")
    page.get_by_role("link", name="catalog").first.click()
    progress = page.get_by_role("region", name="Progress")
    expect(progress).to_contain_text("26 of 26")
    expect(page.get_by_role("region", name="Errors").first).to_contain_text("http_404")


def test_answers_are_downloaded(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "colour" in download.value.path().read_text()


def test_failed_jobs_are_tried_again(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}")
    page.get_by_role("button", name="Retry failed jobs").click()
    expect(page.get_by_text("Retry of")).to_be_visible()
    assert not page.url.endswith(site.batch_id)


def test_a_batch_is_cancelled_after_a_question_and_moves_by_itself(page: Page, site: Site) -> None:
    batch = submit(site, MANY, name="to be cancelled")
    page.goto(f"{site.url}/batches/{batch}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="OK").click()
    expect(page.locator("#progress .badge").first).to_have_text("cancelled", timeout=60_000)


def test_the_theme_and_the_language_are_chosen(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches")
    page.get_by_role("button", name="Dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("批次")


def test_who_may_only_look_is_offered_nothing_else(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    sign_in(page, site, site.viewer)
    page.goto(f"{site.url}/batches/{site.batch_id}")
    expect(page.get_by_role("link", name="CSV")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failed jobs")).to_have_count(0)
