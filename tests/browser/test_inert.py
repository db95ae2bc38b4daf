"""What models and clients say is text on every page: no element, handler, link or request comes from it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.site import Site

EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '<iframe srcdoc="<script>alert(1)</script>">',
    "[click](javascript:alert(1))",
    '" onmouseover="alert(1)',
    "{{constructor.constructor('alert(1)')()}}",
    '"><img src=x onerror=alert(1)>.jpg',
    "</textarea></title></style><script>alert(1)</script>",
]
FAR = datetime.now(UTC) + timedelta(hours=1)
# Whatever would have come of them, were they markup.
# The only drawing of our own is the bar of a batch's progress.
OURS = "svg.bar"
ALIVE = f"""main :is(script, iframe, object, [onerror], [onload], [onmouseover], a[href^='javascript:'],
    svg:not({OURS}))"""


@pytest.fixture(scope="module")
def evil_batch(site: Site) -> str:
    """A batch that says evil things wherever a client or a model may say something."""
    rows = site.rows
    rows.add_batch("batch_evil")
    rows.run(
        "UPDATE batches SET metadata = jsonb_build_object('name', CAST(:name AS text)) "
        "WHERE id = 'batch_evil'",
        name=EVIL[0],
    )
    for said in EVIL:
        # Running already, so that the dispatcher leaves them alone.
        running = {"state": "running", "attempt": 1, "worker": "w1", "lease_until": FAR}
        answered, failed = rows.add_jobs(2, batch_id="batch_evil", **running)
        rows.run(
            """UPDATE jobs SET custom_id = :said || id, prompt = CAST(:prompt AS json) WHERE id = :id""",
            said=said,
            prompt=json.dumps({"turns": [{"role": "user", "parts": [{"text": said}]}]}),
            id=answered,
        )
        rows.complete(answered, text=said)
        rows.fail(failed, code=said)
    rows.run("UPDATE batches SET status = 'completed', ended_at = now() WHERE id = 'batch_evil'")
    return "batch_evil"


@at_a_desk
@pytest.mark.parametrize(
    "path",
    ["/batches", "/batches/{}", "/batches/{}/results", "/batches/{}/results?text=img", "/compare?a={}&b={}"],
)
def test_nothing_that_is_said_comes_alive(page: Page, site: Site, evil_batch: str, path: str) -> None:
    alarms: list[str] = []
    page.on("dialog", lambda dialog: alarms.append(dialog.message))
    page.goto(site.url + path.format(evil_batch, site.batch_id))
    expect(page.locator(ALIVE)).to_have_count(0)
    assert alarms == []


@at_a_desk
def test_what_is_said_is_shown_as_it_is(page: Page, site: Site, evil_batch: str) -> None:
    page.goto(f"{site.url}/batches/{evil_batch}/results")
    shown = [text.strip() for text in page.locator(".answer").all_text_contents()]
    assert set(EVIL) <= set(shown)
