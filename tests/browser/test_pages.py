"""Every page in a browser, on a desk and on a phone: whole, light, within reach of everybody."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, StorageState

from tests.browser.conftest import SIZES
from tests.browser.looking import (
    Visit,
    contrast_faults,
    grave_faults,
    take_picture,
    visiting,
    width_too_much,
)
from tests.browser.site import Site

# Pages by the name of their picture; in braces is what stands on the site.
PAGES = {
    "sign-in": "/sign-in",
    "batches": "/batches",
    "batch": "/batches/{batch}",
    "batch-open": "/batches/{open}",
    "results": "/batches/{batch}/results",
    "results-none": "/batches/{batch}/results?text=zzyzx",
    "job": "/batches/{batch}/results/{job}",
    "image": "/images/{image}",
    "new": "/new",
    "new-file": "/new/{file}",
    "compare-choose": "/compare?a={batch}",
    "compare": "/compare?a={batch}&b={other}",
    "review": "/review",
    "review-answer": "/review/{job}",
    "agreement": "/review/agreement",
    "sweeps": "/sweeps",
    "sweep": "/sweeps/{sweep}",
    "run": "/sweeps/{sweep}/runs/{run}",
    "operations": "/operations",
    "keys": "/keys",
    "webhooks": "/webhooks",
    "webhook": "/webhooks/{endpoint}",
    "not-found": "/batches/batch_none",
}
MOST_BYTES = 300_000
# Those that docs/console shows in dark colours and in Chinese, too.
SHOWN_MORE = ("batch", "batches", "results", "review-answer")


@pytest.fixture(scope="module", params=[(name, size) for name in PAGES for size in SIZES], ids="-".join)
def visit(
    request: pytest.FixtureRequest, browser: Browser, site: Site, session: StorageState
) -> Iterator[Visit]:
    """One visit for all that is asked of a page of one size."""
    name, size = request.param
    with visiting(browser, session, name, size, site.url + PAGES[name].format(**site.ids)) as visited:
        yield visited


def test_a_page_is_light(visit: Visit, site: Site) -> None:
    """No more than 300 kB without its images, and nothing from elsewhere."""
    assert {one.url for one in visit.asked if not one.url.startswith(site.url)} == set()
    sent = [one.sizes()["responseBodySize"] for one in visit.asked if one.resource_type != "image"]
    assert 0 < sum(sent) < MOST_BYTES


def test_a_page_is_no_wider_than_its_window(visit: Visit) -> None:
    assert width_too_much(visit.page) <= 0


def test_nothing_of_a_page_is_out_of_reach(visit: Visit) -> None:
    """axe-core finds no serious fault, in light and in dark colours."""
    assert grave_faults(visit.page) == []
    visit.page.emulate_media(color_scheme="dark")
    assert contrast_faults(visit.page) == []
    if visit.name in SHOWN_MORE:
        take_picture(visit.page, f"{visit.name}-{visit.size}-dark")
    visit.page.emulate_media(color_scheme="light")


def test_the_keyboard_reaches_the_content_first(visit: Visit) -> None:
    visit.page.evaluate("document.body.tabIndex = -1, document.body.focus()")
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"


def test_a_page_can_be_read_in_chinese(visit: Visit, site: Site) -> None:
    visit.page.context.add_cookies([{"name": "vqueue_language", "value": "zh", "url": site.url}])
    visit.page.reload()
    assert visit.page.locator("html").get_attribute("lang") == "zh"
    assert width_too_much(visit.page) <= 0
    if visit.name in SHOWN_MORE:
        take_picture(visit.page, f"{visit.name}-{visit.size}-zh")


def test_no_script_of_a_page_fails_and_nothing_of_it_is_refused(visit: Visit) -> None:
    assert visit.faults == []
