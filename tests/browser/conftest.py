"""Fixtures of the browser's tests: Debian's Chromium, one running vqueue, and pages of two sizes."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    StorageState,
    expect,
    sync_playwright,
)
from sqlalchemy import Engine, text

from app.config import Settings
from app.db import make_sessions
from app.models import metadata
from tests.browser.furniture import furnish
from tests.browser.site import Site, running_site

SIZES = {"desk": (1280, 800), "phone": (390, 844)}
WITHIN_MS = 60_000
# Said by the browser of a page whose status is an error, which some tests want.
EXPECTED = ("the server responded with a status of",)

at_a_desk = pytest.mark.parametrize("size", ["desk"])
on_a_phone = pytest.mark.parametrize("size", ["phone"])
expect.set_options(timeout=WITHIN_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Closed behind these tests: its event loop runs in this thread, where others want their own."""
    path = shutil.which("chromium")
    if path is None and os.environ.get("VQUEUE_SKIP_CHROMIUM") == "1":
        pytest.skip("chromium is not installed and VQUEUE_SKIP_CHROMIUM=1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site(settings: Settings, database: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For all of these tests, which find it as others have left it; the tables are emptied behind them."""
    sessions = make_sessions(database)
    with running_site(settings, sessions, tmp_path_factory.mktemp("site")) as running:
        furnish(running)
        yield running
    tables = ", ".join(table.name for table in metadata.sorted_tables)
    with database.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="package")
def session(browser: Browser, site: Site) -> StorageState:
    """The cookies of an admin who has signed in, for tests that do not sign out."""
    with browser.new_context() as context:
        sign_in(context.new_page(), site, "admin")
        return context.storage_state()


@pytest.fixture(scope="package")
def windows(browser: Browser) -> Iterator[Mapping[str, BrowserContext]]:
    """One of each size, whose cookies are each test's own."""
    with ExitStack() as stack:
        yield {size: stack.enter_context(window(browser, size)) for size in SIZES}


@pytest.fixture
def page(windows: Mapping[str, BrowserContext], session: StorageState, size: str) -> Iterator[Page]:
    """Signed in as an admin. Nothing goes wrong in a script, or is refused by the policy, unseen."""
    context = windows[size]
    context.clear_cookies()
    context.add_cookies(session.get("cookies", []))  # pyright: ignore[reportArgumentType] - as given, so taken
    page, faults = watched(context)
    yield page
    page.close()
    assert faults == []


def window(browser: Browser, size: str, session: StorageState | None = None) -> BrowserContext:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=size == "phone",
        is_mobile=size == "phone",
        reduced_motion="reduce",
        storage_state=session,
    )
    context.set_default_timeout(WITHIN_MS)
    return context


def watched(context: BrowserContext) -> tuple[Page, list[str]]:
    """A new page, and what its scripts and its policy complain of, as it comes."""
    page = context.new_page()
    faults: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in EXPECTED):
            faults.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: faults.append(str(error)))
    return page, faults


def sign_in(page: Page, site: Site, name: str) -> None:
    """As whoever has the key of this name, instead of whoever it was."""
    page.context.clear_cookies()
    page.goto(f"{site.url}/")
    page.get_by_label("API key").fill(site.keys[name])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/batches*")
