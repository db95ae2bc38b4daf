"""Chat completions beside a batch: time to the first token on an idle and on a busy installation."""

import argparse
import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from app.local.servers import Broker
from bench.interactive_batch import RunningBatch, write_lines
from bench.interactive_calls import Body, Times, ask_at_once, ask_steadily, times_of
from bench.queue_lines import MODEL as FAKE
from bench.queue_runs import connect
from bench.queue_site import MODULES, Site, open_servers, open_site
from demo.catalog import Entry, make_catalog, write_catalog
from demo.client import MAX_TOKENS
from demo.products import KINDS
from demo.questions import question_for
from demo.system import MODEL as DEMO
from demo.web import serve_folder

ROLES = ("api", "dispatcher", "fetcher", "worker")
SHOWN = 20  # pictures of the chat completions, none of which the batch has
MOST_OPEN = 16  # VQUEUE_INTERACTIVE_MAX of the installation
BURST = 4 * MOST_OPEN  # calls at once
WARM_JOBS = 200  # of the batch are done before anything is measured beside it


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    model = FAKE if options.fake else DEMO.name
    entries = make_catalog(options.pictures + SHOWN, broken=())
    mine, others = entries[:SHOWN], entries[SHOWN:]
    bodies = list(islice(_bodies(model, mine), options.calls))
    with TemporaryDirectory() as folder, _open(options, Path(folder), others) as (site, pictures_url):
        ask_steadily(site, bodies[:SHOWN], rate=options.rate)
        idle = _measure(site, bodies, options.rate, "idle")
        lines = write_lines(Path(folder) / "batch.jsonl", model, others, pictures_url, options.jobs)
        with connect(site) as http:
            batch = RunningBatch.submit(http, lines)
            batch.wait_for(WARM_JOBS)
            before = batch.jobs_s(options.alone_s / 2)
            with batch.measuring() as beside:
                busy = _measure(site, bodies, options.rate, "busy")
            alone = (before + batch.jobs_s(options.alone_s / 2)) / 2
            print(f"batch: {batch.told()}; {alone:.1f} jobs/s alone, {beside.jobs_s:.1f} beside the calls")
            burst = ask_at_once(site, list(islice(cycle(bodies), BURST)))
    refused = [call.status for call in burst].count(429)
    print(last_line(idle, busy, beside.jobs_s, alone, refused))


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=20_000, help="in the batch, which is cancelled at the end")
    add("--pictures", type=int, default=200, help="of the batch")
    add("--calls", type=int, default=60, help="on the idle and on the busy installation each")
    add("--rate", type=float, default=2.0, help="calls per second")
    add("--alone-s", type=float, default=20.0, help="how long the batch is measured without calls")
    add("--broker", type=Broker, default=Broker.RABBITMQ, choices=list(Broker))
    add("--fake", action="store_true", help="an engine that costs nothing, in place of the demo model")
    return parser.parse_args(arguments)


def last_line(idle: Times, busy: Times, beside: float, alone: float, refused: int) -> str:
    return (
        f"interactive: idle_first_token_p50_s={idle.first_s(0.5):.3f} "
        f"busy_first_token_p50_s={busy.first_s(0.5):.3f} busy_first_token_p95_s={busy.first_s(0.95):.3f} "
        f"batch_jobs_s={beside:.1f} batch_jobs_s_alone={alone:.1f} overload_429={refused}/{BURST}"
    )


def _measure(site: Site, bodies: Sequence[Body], rate: float, name: str) -> Times:
    times = times_of(ask_steadily(site, bodies, rate=rate))
    print(times.told(name))
    return times


@contextmanager
def _open(options: argparse.Namespace, folder: Path, entries: Sequence[Entry]) -> Iterator[tuple[Site, str]]:
    """An installation, and where it finds the batch's pictures."""
    modules = MODULES if options.fake else {**MODULES, "worker": "workers.main"}
    with (
        serve_folder(folder / "catalog") as port,
        open_servers([options.broker]) as servers,
        open_site(
            servers,
            options.broker,
            ROLES,
            modules,
            model=FAKE if options.fake else str(DEMO),
            dtype="float32",
            torch_threads="1",
            interactive_max=str(MOST_OPEN),
            fetch_allow_hosts="127.0.0.1",
            fetch_ports=str(port),
        ) as site,
    ):
        url = f"http://127.0.0.1:{port}"
        write_catalog(entries, folder / "catalog", base_url=url)
        yield site, url


def _bodies(model: str, entries: Sequence[Entry]) -> Iterator[Body]:
    """One picture after the other, which come along with their calls."""
    for number, entry in enumerate(cycle(entries)):
        picture = base64.b64encode(entry.picture or b"").decode()
        question = question_for(KINDS[number // len(entries) % len(KINDS)], entry.seed)
        content = [
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}},
            {"type": "text", "text": question},
        ]
        yield {
            "model": model,
            "max_tokens": MAX_TOKENS,
            "messages": [{"role": "user", "content": content}],
        }


if __name__ == "__main__":
    main()
