"""Two batches side by side in a browser: what differs first, then what is alike."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.site import Site


def test_two_batches_are_chosen_and_differences_come_first(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}")
    page.get_by_label("Second batch").select_option(site.ids["other"])
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    differing = page.locator(".pair")
    expect(differing.first.locator(".chip.differs")).to_have_count(2)
    page.get_by_role("link", name="Then those answered alike").click()
    page.wait_for_url("**show=same**")
    expect(page.locator(".chip.differs")).to_have_count(0)
    expect(page.locator(".pair").first).to_be_visible()


@at_a_desk
def test_what_stands_in_one_batch_only_is_found(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/compare?a={site.batch_id}&b={site.ids['other']}")
    page.select_option("#f-show", "missing")
    page.wait_for_url("**show=missing**")
    expect(page.locator(".pair").first).to_contain_text("not in this batch")
    page.get_by_role("link", name="Swap").click()
    page.wait_for_url(f"**a={site.ids['other']}**")
    expect(page.locator("#agreement")).to_contain_text("%")
