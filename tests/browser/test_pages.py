"""Every page in a browser, on a desk and on a phone: whole, light, within reach of everybody."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Request

from tests.browser.site import Site

# Pages by the name of their picture; {batch} is the catalog's.
PAGES = {
    "batches": "/batches",
    "batch": "/batches/{batch}",
    "results": "/batches/{batch}/results",
    "results-none": "/batches/{batch}/results?text=zzyzx",
    "compare-choose": "/compare?a={batch}",
    "image": "/images/{image}",
    "new": "/new",
    "compare": "/compare?a={batch}&b={batch}",
    "review": "/review",
    "agreement": "/review/agreement",
    "sweeps": "/sweeps",
    "operations": "/operations",
    "keys": "/keys",
    "webhooks": "/webhooks",
    "not-found": "/batches/batch_none",
}
MOST_BYTES = 300_000
GRAVE = {"serious", "critical"}
# `scripts/screenshots` sets it: where pictures of all pages are put.
PICTURES = os.environ.get("VQUEUE_SCREENSHOTS")

at_a_desk = pytest.mark.parametrize("size", ["desk"])
each_page = pytest.mark.parametrize("name", PAGES)


def open_page(page: Page, site: Site, name: str) -> list[Request]:
    """Go there; what was asked for on the way."""
    asked: list[Request] = []
    page.on("requestfinished", lambda request: asked.append(request))
    page.goto(site.url + PAGES[name].format(batch=site.batch_id, image=site.image), wait_until="networkidle")
    if PICTURES:
        size = "desk" if (page.viewport_size or {"width": 0})["width"] > 800 else "phone"
        page.screenshot(path=Path(PICTURES) / f"{name}-{size}.png", full_page=True)
    return asked


def faults(page: Page) -> list[str]:
    """What axe-core finds serious, with where it is."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']} {[node['target'] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in GRAVE
    ]


@each_page
def test_nothing_of_a_page_is_out_of_reach(page: Page, site: Site, name: str) -> None:
    """axe-core finds no serious fault, in light and in dark colours."""
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        open_page(page, site, name)
        assert faults(page) == [], colours


@each_page
def test_a_page_is_no_wider_than_its_window(page: Page, site: Site, name: str) -> None:
    open_page(page, site, name)
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0


@each_page
def test_a_page_is_light(page: Page, site: Site, name: str) -> None:
    """No more than 300 kB without its images, and nothing from elsewhere."""
    asked = open_page(page, site, name)
    assert {one.url for one in asked if not one.url.startswith(site.url)} == set()
    sent = [one.sizes()["responseBodySize"] for one in asked if one.resource_type != "image"]
    assert 0 < sum(sent) < MOST_BYTES


@at_a_desk
@each_page
def test_a_page_can_be_read_in_chinese(page: Page, site: Site, name: str) -> None:
    page.context.add_cookies([{"name": "vqueue_language", "value": "zh", "url": site.url}])
    open_page(page, site, name)
    assert page.locator("html").get_attribute("lang") == "zh"


@at_a_desk
@each_page
def test_the_keyboard_reaches_the_content_first(page: Page, site: Site, name: str) -> None:
    open_page(page, site, name)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
