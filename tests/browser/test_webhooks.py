"""Webhooks in a browser: made, tried, their log, sent once more, changed, rotated, deleted."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.site import Site
from tests.waiting import eventually


def open_shop(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/webhooks")
    page.get_by_role("link", name="Shop", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Shop")


@at_a_desk
def test_an_endpoint_is_made_changed_rotated_and_deleted(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/webhooks")
    page.get_by_text("Create an endpoint").first.click()
    page.get_by_label("Name").fill("Lab")
    page.get_by_label("URL").fill(f"{site.receiver.url}/lab")
    page.get_by_role("button", name="Create an endpoint").click()
    first = page.locator("#secret").input_value()
    page.get_by_role("button", name="Rotate").click()
    expect(page.locator("#secret")).not_to_have_value(first)
    page.get_by_text("Change", exact=True).click()
    page.get_by_label("Name").fill("Laboratory")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Laboratory")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/webhooks")
    expect(page.get_by_role("link", name="Laboratory")).to_have_count(0)


@at_a_desk
def test_an_address_that_cannot_be_is_told(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/webhooks")
    page.get_by_text("Create an endpoint").first.click()
    page.get_by_label("Name").fill("Nowhere")
    page.get_by_label("URL").fill("http://example.com/hook")
    page.get_by_role("button", name="Create an endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text("https://")
    expect(page.get_by_label("URL")).to_have_value("http://example.com/hook")


def test_a_test_event_is_sent_and_its_answer_told(page: Page, site: Site) -> None:
    open_shop(page, site)
    page.get_by_label("Event", exact=True).select_option("sweep.run.failed")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("answered 204")
    assert any(b"sweep.run.failed" in one.body for one in site.receiver.received)


@at_a_desk
def test_what_was_sent_is_logged_and_sent_once_more(page: Page, site: Site) -> None:
    open_shop(page, site)
    row = page.locator("#log tbody tr", has_text="batch.completed").last
    expect(row).to_contain_text("204")
    sent = len(site.receiver.received)
    row.get_by_role("button", name="Redeliver").click()
    eventually(lambda: len(site.receiver.received) > sent)
    expect(page.locator("#log")).to_contain_text("delivered")
