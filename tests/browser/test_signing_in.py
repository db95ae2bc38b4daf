"""Coming and going, and how the pages look to whoever has come."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk, sign_in
from tests.browser.site import Site


def test_signing_in_and_out(page: Page, site: Site) -> None:
    sign_in(page, site, "admin")
    expect(page.get_by_role("heading", level=1)).to_have_text("Batches")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.goto(f"{site.url}/batches/{site.batch_id}")
    expect(page.get_by_label("API key")).to_be_visible()


@at_a_desk
def test_signing_in_leads_to_the_page_that_was_asked_for(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    page.goto(f"{site.url}/sweeps/{site.ids['sweep']}")
    page.get_by_label("API key").fill(site.keys["admin"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("shelf-nightly")


@at_a_desk
def test_a_wrong_key_is_told_where_it_was_typed(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    page.goto(f"{site.url}/")
    page.get_by_label("API key").fill("vq_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not open")


def test_the_theme_and_the_language_are_chosen(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches")
    page.get_by_role("button", name="Dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("批次")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Batches")


@at_a_desk
def test_who_may_only_look_is_offered_nothing_else(page: Page, site: Site) -> None:
    sign_in(page, site, "viewer")
    page.goto(f"{site.url}/batches/{site.batch_id}")
    expect(page.get_by_role("link", name="CSV")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failed jobs")).to_have_count(0)
    for absent in ("New", "Review", "Keys", "Webhooks"):
        expect(page.get_by_role("link", name=absent, exact=True)).to_have_count(0)
