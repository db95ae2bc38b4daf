"""The demo: 200 drawn products and three broken pictures, five questions each, asked through vqueue."""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from openai.types import Batch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from demo.catalog import PICTURES, Entry, make_catalog, right, write_catalog
from demo.client import Results, batch_lines, count_right, read_results, run_batch
from demo.products import KINDS
from demo.system import NotStarted, System, running
from demo.web import serve_folder

SHOWN = 12
console = Console()


def main() -> int:
    try:
        return _demonstrate(_options())
    except KeyboardInterrupt:
        _say("Stopped.")
        return 130
    except NotStarted as error:
        _say(f"vqueue did not start:\n{error}")
        return 1


def _demonstrate(options: argparse.Namespace) -> int:
    started = time.monotonic()
    data = Path(options.data).resolve()
    _say(f"Drawing {options.pictures} products and three broken pictures ...")
    entries = make_catalog(options.pictures)
    with serve_folder(data / "catalog") as port:
        base_url = f"http://127.0.0.1:{port}"
        table = write_catalog(entries, data / "catalog", base_url=base_url)
        _say(f"Catalog: {table}\nStarting vqueue ...")
        # The pictures lie on this machine, which the guard of the fetcher refuses unless it is told.
        variables = {"VQUEUE_FETCH_ALLOW_HOSTS": "127.0.0.1", "VQUEUE_FETCH_PORTS": f"80,443,{port}"}
        with running(data / "vqueue", variables=variables) as system:
            # What scripts/demo took before it came here, to install things.
            setup_s = float(os.environ.get("VQUEUE_SETUP_S") or 0) + time.monotonic() - started
            share = _run(system, entries, base_url, data, setup_s)
            if not options.exit:
                _stay(system)
    return 0 if share >= options.least else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--exit", action="store_true", help="stop everything when the answers are shown")
    parser.add_argument("--pictures", type=int, default=PICTURES, help="how many products")
    parser.add_argument("--data", default=".vqueue/demo", help="where catalog, servers and logs are kept")
    parser.add_argument("--least", type=float, default=0.95, help="share of right answers that is a success")
    return parser.parse_args()


def _run(system: System, entries: Sequence[Entry], base_url: str, data: Path, setup_s: float) -> float:
    """Ask everything, show what came of it; the share that is right."""
    client = system.client()
    model = client.models.list().data[0].id
    lines = data / "catalog" / "batch.jsonl"
    lines.write_text("".join(batch_lines(entries, base_url, model)))
    begun = time.monotonic()
    with _progress(len(entries) * len(KINDS)) as show:
        batch = run_batch(client, lines, show)
    run_s = time.monotonic() - begun
    results = read_results(client, batch)
    _show_answers(entries, results)
    _show_failures(results)
    hits, counted = count_right(entries, results)
    answered = sum(result.answer is not None for result in results.values())
    share = hits / counted
    print(
        f"demo: jobs={len(entries) * len(KINDS)} answered={answered} failed={len(results) - answered} "
        f"right={share:.4f} setup_s={setup_s:.1f} run_s={run_s:.1f}",
        flush=True,
    )
    return share


@contextmanager
def _progress(jobs: int) -> Iterator[Callable[[Batch], None]]:
    """A bar that follows the batch: status, done, failed, rate and time left."""
    columns = (
        TextColumn("{task.fields[status]:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("failed {task.fields[failed]}  {task.fields[rate]:.1f} jobs/s  left"),
        TimeRemainingColumn(),
    )
    begun = time.monotonic()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("batch", total=jobs, status="uploading", failed=0, rate=0.0)

        def show(batch: Batch) -> None:
            counts = batch.request_counts
            done, failed = (counts.completed, counts.failed) if counts else (0, 0)
            rate = (done + failed) / max(1e-9, time.monotonic() - begun)
            bar.update(task, completed=done + failed, status=batch.status, failed=failed, rate=rate)

        yield show


def _show_answers(entries: Sequence[Entry], results: Results) -> None:
    table = Table("id", *KINDS, title=f"The first {SHOWN} of {len(entries)} products; wrong answers in red")
    for entry in entries[:SHOWN]:
        cells = []
        for kind in KINDS:
            result = results.get((entry.id, kind))
            answer = (result.answer if result else None) or "-"
            wanted = right(entry, kind)
            cells.append(answer if answer == wanted else f"[red]{answer}[/red] ({wanted})")
        table.add_row(entry.id, *cells)
    console.print(table)


def _show_failures(results: Results) -> None:
    table = Table("product", "jobs", "code", "reason", title="Failed jobs")
    failed = Counter(
        (entry_id, result.code, result.message)
        for (entry_id, _), result in results.items()
        if result.answer is None
    )
    for (entry_id, code, reason), jobs in sorted(failed.items()):
        table.add_row(entry_id, str(jobs), code, reason)
    console.print(table)


def _stay(system: System) -> None:
    _say(
        f"\nThis vqueue keeps running at {system.url}; its key is in {system.data / 'api-key'}.\n"
        "Ctrl-C stops it. `.venv/bin/vqueue up` starts one of your own, as README.md says."
    )
    while True:
        time.sleep(3600)


def _say(text: str) -> None:
    """Plain lines: paths and URLs are neither coloured nor broken."""
    console.print(text, soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    raise SystemExit(main())
