"""The demo catalog end to end, in jobs per second, against one-by-one `generate()` over the same jobs."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from app.images import Limits, normalise
from bench.oracle import one_by_one
from demo.catalog import Entry, make_catalog, right, write_catalog
from demo.client import MAX_TOKENS, batch_lines, read_results, run_batch
from demo.products import KINDS
from demo.questions import question_for
from demo.system import MODEL, running
from demo.web import serve_folder
from workers.engine.base import Image, ImagePart, Request, Sampling, TextPart, Turn

Answers = dict[str, str]  # by custom id


@dataclass(frozen=True)
class Run:
    """One way of answering every job of the catalog."""

    answers: Answers
    seconds: float

    @property
    def jobs_s(self) -> float:
        return len(self.answers) / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2, help="torch threads of either side")
    options = parser.parse_args()
    entries = make_catalog(options.pictures, broken=())
    ours = through_vqueue(entries, options.threads)
    theirs = by_generate(entries, options.threads)
    report(entries, ours, theirs)


def through_vqueue(entries: Sequence[Entry], threads: int) -> Run:
    """From the upload of the batch file to the downloaded output file; images by URL, caches cold."""
    with TemporaryDirectory() as folder, serve_folder(Path(folder) / "catalog") as port:
        base_url = f"http://127.0.0.1:{port}"
        write_catalog(entries, Path(folder) / "catalog", base_url=base_url)
        variables = {
            "VQUEUE_FETCH_ALLOW_HOSTS": "127.0.0.1",
            "VQUEUE_FETCH_PORTS": str(port),
            "VQUEUE_TORCH_THREADS": str(threads),
            "VQUEUE_DTYPE": "float32",
            "VQUEUE_ANSWER_CACHE": "off",
        }
        with running(Path(folder) / "vqueue", variables=variables) as system:
            client = system.client()
            lines = Path(folder) / "batch.jsonl"
            lines.write_text("".join(batch_lines(entries, base_url, client.models.list().data[0].id)))
            started = time.perf_counter()
            batch = run_batch(client, lines, lambda _: None)
            results = read_results(client, batch)
            seconds = time.perf_counter() - started
    return Run({f"{entry}/{kind}": row.answer or "" for (entry, kind), row in results.items()}, seconds)


def by_generate(entries: Sequence[Entry], threads: int) -> Run:
    """One job after the other through the library alone; pictures are decoded beforehand, in its favour."""
    torch.set_num_threads(threads)
    requests = [request for entry in entries for request in requests_about(entry)]
    answers, seconds = one_by_one(MODEL, requests)
    pairs = zip(requests, answers, strict=True)
    return Run({request.id: answer.text for request, answer in pairs}, seconds)


def requests_about(entry: Entry) -> list[Request]:
    """One for each kind of question, the picture decoded already."""
    pixels = np.asarray(normalise(entry.picture or b"", Limits()))
    image = Image.of(entry.id, pixels)
    return [
        Request(
            id=f"{entry.id}/{kind}",
            tenant="bench",
            turns=(Turn("user", (ImagePart(0), TextPart(question_for(kind, entry.seed)))),),
            images=(image,),
            sampling=Sampling(max_tokens=MAX_TOKENS),
        )
        for kind in KINDS
    ]


def report(entries: Sequence[Entry], ours: Run, theirs: Run) -> None:
    wanted = {f"{entry.id}/{kind}": right(entry, kind) for entry in entries for kind in KINDS}
    for name, run in (("vqueue, end to end", ours), ("generate(), one by one", theirs)):
        share = _equal(run.answers, wanted) / len(wanted)
        print(f"{name:<24}{run.seconds:8.1f} s {run.jobs_s:8.2f} jobs/s   right {share:.4f}")
    print(
        f"demo: jobs={len(wanted)} jobs_s={ours.jobs_s:.2f} generate_jobs_s={theirs.jobs_s:.2f} "
        f"vs_generate={ours.jobs_s / theirs.jobs_s:.2f} "
        f"right={_equal(ours.answers, wanted) / len(wanted):.4f} "
        f"identical={_equal(ours.answers, theirs.answers)}/{len(wanted)}"
    )


def _equal(some: Answers, others: Answers) -> int:
    return sum(some.get(name) == other for name, other in others.items())


if __name__ == "__main__":
    main()
