"""Looking through results in a browser: by keyboard, by filter, one image."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk, on_a_phone
from tests.browser.looking import grave_faults
from tests.browser.site import Site

CARDS = "[data-cards] .open"
FOCUSED = "[...document.querySelectorAll('[data-cards] .open')].indexOf(document.activeElement)"


def open_results(page: Page, site: Site, query: str = "") -> None:
    page.goto(f"{site.url}/batches/{site.batch_id}/results{query}")


@at_a_desk
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
    assert grave_faults(page) == []


@at_a_desk
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


@at_a_desk
def test_words_find_what_has_them_while_they_are_typed(page: Page, site: Site) -> None:
    open_results(page, site)
    page.locator("#f-text").press_sequentially("p3:")
    page.wait_for_url("**text=p3**")
    expect(page.locator(CARDS)).to_have_count(3)


@on_a_phone
def test_a_label_leads_to_all_that_have_it(page: Page, site: Site) -> None:
    open_results(page, site)
    chip = page.locator(".chip a").first
    value = chip.inner_text()
    chip.click()
    page.wait_for_url("**label=**")
    chips = page.locator(".chip a")
    expect(chips.first).to_be_visible()
    assert set(chips.all_inner_texts()) == {value}
