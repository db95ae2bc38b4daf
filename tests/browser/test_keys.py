"""Keys in a browser: made and shown once, rotated, revoked after a question."""

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import at_a_desk, sign_in
from tests.browser.looking import grave_faults, take_picture, width_too_much
from tests.browser.site import Site


def create(page: Page, site: Site, name: str) -> str:
    """The secret, as it is shown."""
    page.goto(f"{site.url}/keys")
    page.get_by_text("Create a key").first.click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create a key").click()
    secret = page.locator("#secret")
    expect(secret).to_be_visible()
    return secret.input_value()


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Keys", exact=True).get_by_role("row", name=name)


def test_a_key_is_made_and_shown_this_once(page: Page, site: Site, size: str) -> None:
    site.keys = {**site.keys, size: create(page, site, f"Made at a {size}")}
    take_picture(page, f"key-made-{size}")
    assert grave_faults(page) == []
    assert width_too_much(page) <= 0
    page.reload()
    expect(row_of(page, f"Made at a {size}")).to_contain_text("active")
    assert page.get_by_text(site.keys[size]).count() == 0
    sign_in(page, site, size)
    expect(page.get_by_role("heading", level=1)).to_have_text("Batches")


@at_a_desk
def test_a_key_is_copied(page: Page, site: Site) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    secret = create(page, site, "Spare")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == secret


@at_a_desk
def test_a_key_is_rotated_and_the_old_one_lasts_for_a_day(page: Page, site: Site) -> None:
    secret = create(page, site, "Rotated")
    page.get_by_role("button", name="Rotate Rotated").click()
    expect(page.locator("#secret")).not_to_have_value(secret)
    expect(row_of(page, "Rotated")).to_have_count(2)
    expect(row_of(page, "Rotated").filter(has_text="ends soon")).to_have_count(1)
    expect(page.locator("#log tbody tr").first).to_contain_text("key.rotate")


@at_a_desk
def test_a_key_is_revoked_after_a_question(page: Page, site: Site) -> None:
    site.keys = {**site.keys, "revoked": create(page, site, "Revoked")}
    page.get_by_role("button", name="Revoke Revoked").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row_of(page, "Revoked")).to_have_count(0)
    page.context.clear_cookies()
    page.goto(f"{site.url}/")
    page.get_by_label("API key").fill(site.keys["revoked"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not open")
