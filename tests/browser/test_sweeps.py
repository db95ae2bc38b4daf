"""Sweeps in a browser: what the last run changed, a run by hand, a pause."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.furniture import SWEPT
from tests.browser.site import Site


def open_sweep(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/sweeps")
    page.get_by_role("link", name="shelf-nightly").click()
    expect(page.get_by_role("region", name="About this sweep")).to_contain_text("Every day at 02:30")


def test_a_run_tells_what_changed_and_leads_to_the_picture(page: Page, site: Site) -> None:
    open_sweep(page, site)
    page.get_by_role("link", name="All changes of this run").click()
    page.wait_for_url(f"**/runs/{site.ids['run']}")
    expect(page.get_by_role("region", name="About this sweep")).to_contain_text("completed")
    first = page.get_by_role("region", name="Changed answers").get_by_role("listitem").first
    expect(first).to_contain_text("Before")
    first.get_by_role("link").click()
    page.wait_for_url("**/images/*")
    expect(page.get_by_role("heading", name="What colour is the item?")).to_be_visible()


@at_a_desk
def test_a_sweep_is_run_by_hand_and_its_run_moves_by_itself(page: Page, site: Site) -> None:
    open_sweep(page, site)
    runs = page.locator("#runs tbody tr")
    before = runs.count()
    page.get_by_role("button", name="Run now").click()
    expect(runs).to_have_count(before + 1)
    runs.first.get_by_role("link").first.click()
    about = page.get_by_role("region", name="About this sweep")
    expect(about).to_contain_text("completed")
    expect(about.locator(".fact", has_text="unchanged")).to_contain_text(str(SWEPT))


@at_a_desk
def test_a_sweep_is_paused_and_goes_on(page: Page, site: Site) -> None:
    open_sweep(page, site)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#about .badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


@at_a_desk
def test_a_run_that_stands_still_is_told_first_of_all(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/sweeps")
    expect(page.get_by_role("region", name="Standing still: 1")).to_contain_text("uploads")
    page.get_by_role("link", name="To the run").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing has moved")
