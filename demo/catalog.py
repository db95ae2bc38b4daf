"""The demo's catalog: drawn products with known attributes, a few broken pictures, and a CSV of it all.

`python -m demo.catalog FOLDER` writes the pictures and `catalog.csv` there.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from demo.pictures import as_jpeg, draw, product_for
from demo.products import FIRST_HELD_OUT_SEED, KINDS, Kind, Product
from demo.questions import question_for, right_answer

PICTURES = 200
BROKEN = ("missing", "cut off", "a web page")
# The same table with the pictures at a made-up host, for a look without running anything.
SAMPLE = Path(__file__).resolve().parents[1] / "docs" / "examples" / "catalog.csv"
SAMPLE_URL = "https://shop.example"
FIRST_SEED = FIRST_HELD_OUT_SEED + 500_000  # beyond the pictures that the evaluation uses


@dataclass(frozen=True)
class Entry:
    """One row of the catalog. A broken one has no product; a missing one not even bytes."""

    id: str
    seed: int
    product: Product | None
    picture: bytes | None
    broken: str = ""

    @property
    def path(self) -> str:
        return f"pictures/{self.id}.jpg"


def make_catalog(pictures: int = PICTURES, *, broken: Sequence[str] = BROKEN) -> list[Entry]:
    """The catalog, the same every time: `pictures` good entries and one for each way of being broken."""
    good = [_good(number) for number in range(pictures)]
    return good + [_broken(pictures + number, how) for number, how in enumerate(broken)]


def write_catalog(entries: Sequence[Entry], folder: Path, *, base_url: str) -> Path:
    """Write the pictures and the CSV; the CSV's path. `base_url` is where the pictures will be served."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for entry in entries:
        if entry.picture is not None:
            (folder / entry.path).write_bytes(entry.picture)
    table = folder / "catalog.csv"
    with table.open("w", newline="", encoding="utf-8") as output:
        write_csv(entries, output, base_url)
    return table


def write_csv(entries: Sequence[Entry], output: TextIO, base_url: str) -> None:
    rows = csv.writer(output, lineterminator="\n")
    rows.writerow(
        ["id", "image_url", *(f"ask_{kind}" for kind in KINDS), *(f"right_{kind}" for kind in KINDS)]
    )
    for entry in entries:
        asked = [question_for(kind, entry.seed) for kind in KINDS]
        rows.writerow([entry.id, f"{base_url}/{entry.path}", *asked, *(right(entry, kind) for kind in KINDS)])


def right(entry: Entry, kind: Kind) -> str:
    """The right answer, empty where the picture is broken."""
    return right_answer(entry.product, kind) if entry.product else ""


def _good(number: int) -> Entry:
    seed = FIRST_SEED + number
    product = product_for(seed, held_out=True)
    return Entry(f"p{number:04}", seed, product, as_jpeg(draw(product, seed)))


def _broken(number: int, how: str) -> Entry:
    seed = FIRST_SEED + number
    whole = as_jpeg(draw(product_for(seed, held_out=True), seed))
    pictures = {
        "missing": None,
        "cut off": whole[: len(whole) // 2],
        "a web page": b"<!doctype html><title>Please sign in</title>",
    }
    return Entry(f"p{number:04}", seed, None, pictures[how], broken=how)


if __name__ == "__main__":
    print(write_catalog(make_catalog(), Path(sys.argv[1]), base_url="http://127.0.0.1:8900"))
