"""Operations, an image and a job in a browser: where the pages lead, and what they say."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.site import Site


def test_operations_tell_who_works_and_what_is_open(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/operations")
    for part in ("Dispatcher", "Fetcher", "Workers"):
        expect(page.locator("#glance .badge", has_text=part)).to_have_text(f"{part}: up")
    workers = page.get_by_role("region", name="Workers").first
    expect(workers).to_contain_text(site.settings.served_model)
    expect(page.locator("#own")).to_contain_text(site.settings.served_model)


@at_a_desk
def test_an_image_leads_to_each_job_that_asked_about_it_and_back(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/images/{site.ids['image']}")
    page.get_by_role("link", name=":item").first.click()
    page.wait_for_url("**/results/job_*")
    expect(page.get_by_role("heading", level=1)).to_contain_text(":item")
    page.get_by_role("main").get_by_role("link").filter(has=page.get_by_role("img")).first.click()
    page.wait_for_url("**/images/**")
    expect(page.locator("[aria-current=true]")).to_be_visible()
