"""Fixtures of the browser's tests: Debian's Chromium, a running vqueue, and pages of two sizes."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    StorageState,
    sync_playwright,
)
from sqlalchemy import Engine, text

from app.config import Settings
from app.db import make_sessions
from app.models import metadata
from tests.browser.site import Site, running_site

SIZES = {"desk": (1280, 800), "phone": (390, 844)}
# Said by the browser of a page whose status is an error, which some tests want.
EXPECTED = ("the server responded with a status of",)


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


@pytest.fixture(scope="module")
def site(settings: Settings, database: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For all tests of a file; the tables are emptied after them."""
    sessions = make_sessions(database)
    with running_site(settings, sessions, tmp_path_factory.mktemp("site")) as running:
        yield running
    tables = ", ".join(table.name for table in metadata.sorted_tables)
    with database.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def session(browser: Browser, site: Site) -> Iterator[StorageState]:
    """The cookies of an admin who has signed in, for tests that do not sign out."""
    with browser.new_context() as context:
        page, _ = watched(context)
        sign_in(page, site, site.admin)
        yield context.storage_state()


@pytest.fixture
def page(browser: Browser, session: StorageState, size: str) -> Iterator[Page]:
    """Signed in as an admin. Nothing goes wrong in a script, or is refused by the policy, unseen."""
    width, height = SIZES[size]
    with browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=size == "phone",
        reduced_motion="reduce",
        storage_state=session,
    ) as context:
        context.set_default_timeout(60_000)
        page, faults = watched(context)
        yield page
        assert faults == []


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


def sign_in(page: Page, site: Site, key: str) -> None:
    page.goto(f"{site.url}/")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/batches*")
