"""What there is to be seen on the site: batches, a sweep that ran twice, reviews, a webhook and its log."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from demo.pictures import as_jpeg, draw, product_for
from demo.products import ITEMS, PATTERNS
from tests.browser.site import COLOURS, WITHIN_S, Site, submit
from tests.waiting import eventually

PICTURES, SWEPT, OPEN_JOBS = 12, 6, 24
COLOUR = "What colour is the {kind}?"
DETAILS = {
    "type": "object",
    "properties": {"pattern": {"enum": list(PATTERNS)}, "count": {"type": "integer"}},
    "required": ["pattern", "count"],
}
QUESTIONS = (
    {"name": "colour", "ask": COLOUR, "choices": COLOURS},
    {"name": "item", "ask": "Which item is shown?", "choices": list(ITEMS)},
    {"name": "details", "ask": "Answer in JSON with keys pattern and count.", "schema": DETAILS},
)
# The same ids and questions, with fewer colours to choose from: some answers must differ.
FEW_COLOURS = (
    {"name": "colour", "ask": COLOUR, "choices": ["red", "green", "blue", "black"]},
    {"name": "item", "ask": "What is the item?", "choices": list(ITEMS)},
)


def furnish(site: Site) -> None:
    """Takes its time where the model answers: all that can go on at once does."""
    site.ids["endpoint"] = add_endpoint(site)
    site.ids["sweep"] = add_sweep(site)
    add_stuck_sweep(site)
    table = draw_catalogue(site)
    site.ids["other"] = submit(site, table, name="Spring catalogue, few colours", questions=FEW_COLOURS)
    site.ids["batch"] = submit(site, table, name="Spring catalogue", questions=QUESTIONS, policy="2")
    site.ids["open"] = add_open_batch(site)
    site.ids["run"] = run_twice(site)
    site.wait_for_batch(site.ids["other"])
    site.wait_for_batch(site.batch_id)
    site.ids["file"] = site.api("GET", f"/batches/{site.batch_id}")["input_file_id"]
    site.ids["image"] = site.rows.one("SELECT min(content_hash) FROM images")
    site.ids["job"] = review(site)


def add_endpoint(site: Site) -> str:
    body = {
        "name": "Shop",
        "url": f"{site.receiver.url}/vqueue",
        "event_types": ["batch.completed", "batch.failed", "sweep.run.completed"],
    }
    return site.api("POST", "/webhook_endpoints", json=body)["id"]


def add_sweep(site: Site, name: str = "shelf-nightly", folder: str = "shelf/") -> str:
    body = {
        "name": name,
        "source": {"kind": "bucket", "prefix": f"s3://{site.objects.bucket}/{folder}"},
        "questions": [{"name": "colour", "ask": "What colour is the item?", "choices": COLOURS}],
        "policy_version": "3",
        "model": site.settings.served_model,
        "body": {"max_tokens": 8},
        "cron": "30 2 * * *",
        "zone": "Europe/Berlin",
    }
    return site.api("POST", "/sweeps", json=body)["id"]


def add_stuck_sweep(site: Site) -> None:
    """Its run is held by a dispatcher that is not there."""
    site.rows.run(
        """
        INSERT INTO sweep_runs (id, sweep_id, kind, due_at, state, policy_version, started_at, listed, new,
                                changed, asked, completed, differing, batch_ids, moved_at,
                                stalled_at, lease_until)
        VALUES ('run_stuck', :sweep, 'scheduled', now() - interval '3 hours', 'running', '3',
                now() - interval '3 hours', 40, 40, 0, 40, 22, 0, ARRAY[]::text[],
                now() - interval '3 hours', now() - interval '2 hours', now() + interval '1 day')
        """,
        sweep=add_sweep(site, "uploads-nightly", "uploads/"),
    )


def hang(site: Site, seeds: Sequence[int]) -> None:
    """Put pictures where the sweep looks, the first under the first name."""
    for place, seed in enumerate(seeds):
        key = f"shelf/{place}.jpg"
        site.objects.put(key, drawn(seed), content_type="image/jpeg")


def run_twice(site: Site) -> str:
    """The second run finds every picture in another's place; its id."""
    hang(site, range(SWEPT))
    run_now(site)
    hang(site, [*range(1, SWEPT), 0])
    return run_now(site)


def run_now(site: Site) -> str:
    path = f"/sweeps/{site.ids['sweep']}"
    run = site.api("POST", f"{path}/run")["id"]
    eventually(lambda: site.api("GET", f"{path}/runs/{run}")["status"] == "completed", within_s=WITHIN_S)
    return run


def draw_catalogue(site: Site) -> bytes:
    """A table of drawn products, the last of which has no picture."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "kind", "image_url"])
    for seed in range(PICTURES):
        (site.pictures / f"{seed}.jpg").write_bytes(drawn(seed))
        writer.writerow([f"p{seed}", "product", f"{site.pictures_url}/{seed}.jpg"])
    writer.writerow(["gone", "product", f"{site.pictures_url}/gone.jpg"])
    return table.getvalue().encode()


def drawn(seed: int) -> bytes:
    return as_jpeg(draw(product_for(seed, held_out=False), seed))


def add_open_batch(site: Site) -> str:
    """Half done, and held by a worker that is not there: it stays as it is."""
    rows, batch = site.rows, "batch_returns"
    rows.add_batch(batch, total=OPEN_JOBS)
    held = {"state": "running", "attempt": 1, "worker": "w1", "model": site.settings.served_model}
    until = datetime.now(UTC) + timedelta(days=1)
    jobs = rows.add_jobs(OPEN_JOBS, batch_id=batch, lease_until=until, **held)
    rows.run(
        """UPDATE batches SET metadata = '{"name": "Returns, November"}', model = :model, total = :total
           WHERE id = :id""",
        model=site.settings.served_model,
        total=OPEN_JOBS,
        id=batch,
    )
    rows.complete(*jobs[:13])
    rows.fail(*jobs[13:15], code="bad_prompt")
    return batch


def review(site: Site) -> str:
    """Two people look at four answers and differ about one; the name of one that nobody has looked at."""
    answers = site.api("GET", f"/answers?batch_id={site.batch_id}&question=colour")["data"]
    for number, one in enumerate(answers[:4]):
        right = next(colour for colour in COLOURS if colour != one["label"])
        overturned = {"verdict": "overturn", "label": right, "note": "Look at the print."}
        for person in ("Mei", "Tom"):
            said = overturned if number == 0 and person == "Tom" else {"verdict": "confirm"}
            site.api("PUT", f"/answers/{one['job_id']}/review", by=person, json=said)
    return answers[-1]["job_id"]
