"""What a page is looked at for: faults by axe-core, what it asked for, and its pictures for docs/console."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, Request, StorageState

from tests.browser.conftest import watched, window

GRAVE = {"serious", "critical"}
# `scripts/screenshots` sets it: where pictures of all pages are put.
PICTURES = os.environ.get("VQUEUE_SCREENSHOTS")
# Of a picture; longer pages are cut off below.
MOST_PX = 1400
CONTRAST = "axe.run(document, {runOnly: ['color-contrast']}).then((found) => found.violations)"


@dataclass
class Visit:
    """A page that was opened by a browser that had nothing of it yet."""

    page: Page
    name: str
    size: str
    asked: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of its scripts, and what the policy refused


@contextmanager
def visiting(browser: Browser, session: StorageState, name: str, size: str, url: str) -> Iterator[Visit]:
    with window(browser, size, session) as context:
        page, faults = watched(context)
        visit = Visit(page, name, size, faults=faults)
        page.on("requestfinished", lambda request: visit.asked.append(request))
        page.goto(url)
        take_picture(page, f"{name}-{size}")
        yield visit


def grave_faults(page: Page) -> list[str]:
    """What axe-core finds serious, with where it is."""
    return _grave(Axe().run(page).response["violations"])


def contrast_faults(page: Page) -> list[str]:
    """The same of what depends on colours alone, behind `grave_faults`, which has loaded axe-core."""
    return _grave(page.evaluate(CONTRAST))


def _grave(violations: list[dict[str, list[dict[str, str]]]]) -> list[str]:
    return [
        f"{one['id']}: {one['help']} {[node['target'] for node in one['nodes'][:3]]}"
        for one in violations
        if one["impact"] in GRAVE
    ]


def width_too_much(page: Page) -> int:
    """How many pixels a page is wider than its screen; a phone's window itself grows with what is in it."""
    return (
        page.evaluate("document.scrollingElement.scrollWidth") - (page.viewport_size or {"width": 0})["width"]
    )


def take_picture(page: Page, name: str, *, most_px: int = MOST_PX) -> None:
    """Only where pictures are wanted."""
    if not PICTURES:
        return
    usual = page.viewport_size or {"width": 0, "height": 0}
    height = min(page.evaluate("document.scrollingElement.scrollHeight"), most_px)
    page.set_viewport_size({"width": usual["width"], "height": height})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_load_state("networkidle")
    shown = Image.open(io.BytesIO(page.screenshot()))
    shown.save(Path(PICTURES) / f"{name}.webp", quality=70, method=6)
    page.set_viewport_size(usual)
