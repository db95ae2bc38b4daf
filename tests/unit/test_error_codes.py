"""Codes of errors are a promise: all that are raised are documented, and the other way round."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = (ROOT / "docs" / "images.md").read_text()
PAGES = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))

WORK_ERRORS = {"InvalidWork", "TransientWork", "FatalWork", "ImageError", "UnusableImage", "LineError"}
# What reads, fetches or checks an image, and nothing else.
IMAGE_FILES = (
    "app/imaging/*.py",
    "app/images.py",
    "app/data_urls.py",
    "app/references.py",
    "app/guard.py",
    "app/download.py",
    "app/http_exchange.py",
    "app/messages.py",
    "workers/sources.py",
)
# Raised when a process starts or a file is written: its log has them, no client sees them.
NEVER_TOLD = {
    "broker_unavailable",
    "counts_differ",
    "device_unavailable",
    "engine_missing",
    "engine_settings",
}
# Not the image's: what a request lacks is told of its parts, too.
OF_REQUESTS = {"invalid_request", "missing_required_field"}


def codes_of(path: Path) -> Iterator[str]:
    """The codes of work errors that a file makes, by the text of its calls."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORK_ERRORS:
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "code")]
            for one in given:
                if isinstance(one, ast.Constant) and re.fullmatch("[a-z][a-z0-9_]+", str(one.value)):
                    yield str(one.value)


def raised(*patterns: str) -> set[str]:
    return {code for pattern in patterns for path in ROOT.glob(pattern) for code in codes_of(path)}


def documented_of_images() -> set[str]:
    """The codes in the first column of the table of codes."""
    table = IMAGES.partition("## Codes")[2].partition("\n## ")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return {code for cell in first for code in re.findall(r"`(\w+)`", cell)}


def test_the_codes_of_images_are_those_that_are_raised() -> None:
    told = {code for code in documented_of_images() if not code.startswith("http_")}
    assert told == raised(*IMAGE_FILES)


def test_every_other_code_is_documented() -> None:
    codes = raised("app/**/*.py", "workers/**/*.py") - NEVER_TOLD
    assert {code for code in codes if f"`{code}`" not in PAGES} == set()


def test_the_words_of_the_taxonomy_are_among_the_codes() -> None:
    wanted = "dns refused timeout too_large not_an_image truncated unsupported_format too_many_pixels"
    assert {*wanted.split(), "aspect_ratio", "blocked_address"} <= raised(*IMAGE_FILES)
    assert {"http_403", "http_404"} <= documented_of_images()
