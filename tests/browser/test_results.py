"""Looking through results in a browser: by keyboard, by filter, one image, two batches."""

from playwright.sync_api import Page, expect

from tests.browser.site import Site, submit
from tests.browser.test_pages import faults
from tests.waiting import eventually

CARDS = "[data-cards] .open"
FOCUSED = "[...document.querySelectorAll('[data-cards] .open')].indexOf(document.activeElement)"


def open_results(page: Page, site: Site, query: str = "") -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}/results{query}", wait_until="networkidle")


def test_arrows_go_from_card_to_card_and_enter_opens_one(page: Page, site: Site) -> None:
    open_results(page, site)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == 0
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == 1
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) > 1
    page.keyboard.press("Enter")
    page.wait_for_url("**/images/*")
    expect(page.locator("[aria-current=true]")).to_be_visible()
    assert faults(page) == []


def test_the_keys_are_told_and_lead_to_the_search(page: Page, site: Site) -> None:
    open_results(page, site)
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "f-text"


def test_a_filter_changes_the_cards_and_the_address(page: Page, site: Site) -> None:
    open_results(page, site)
    all_cards = page.locator(CARDS).count()
    page.select_option("#f-outcome", "failed")
    page.wait_for_url("**outcome=failed**")
    expect(page.locator(".result:not(.state-failed)")).to_have_count(0)
    assert 0 < page.locator(CARDS).count() < all_cards
    page.go_back()
    expect(page.locator(CARDS)).to_have_count(all_cards)


def test_a_label_leads_to_all_that_have_it(page: Page, site: Site) -> None:
    open_results(page, site)
    chip = page.locator(".chip a").first
    value = chip.inner_text()
    chip.click()
    page.wait_for_url("**label=**")
    chips = page.locator(".chip a")
    expect(chips.first).to_be_visible()
    assert set(chips.all_inner_texts()) == {value}


def test_what_a_client_asks_is_never_run(page: Page, site: Site) -> None:
    open_results(page, site)
    assert "broken" not in page.title()
    assert page.get_by_text("<script>document.title").count() > 0


def test_two_batches_stand_side_by_side(page: Page, site: Site) -> None:
    table = b"id,kind,image_url\nother,product,http://127.0.0.1/none.jpg\n"
    other = submit(site, table, name="other")
    eventually(lambda: site.api("GET", f"/batches/{other}")["status"] == "completed", within_s=120)
    page.goto(f"{site.url}/compare?a={site.batch_id}&b={other}", wait_until="networkidle")
    page.select_option("#f-show", "missing")
    page.wait_for_url("**show=missing**")
    expect(page.locator(".pair").first).to_be_visible()
    assert faults(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
