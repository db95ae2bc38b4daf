"""Batch files of any size: questions about products, as a catalog analyst asks them, in text alone."""

import json
from collections.abc import Iterator
from pathlib import Path

MODEL = "fake"
URL = "/v1/chat/completions"
SYSTEM = "You fill in product catalogs. Answer with one word or a short list, without a full stop."
QUESTIONS = (
    "What is the main colour of the item?",
    "Which material is it most likely made of?",
    "Is there a person in the picture? Answer yes or no.",
    "What kind of item is shown?",
    "Does the title fit the item? Answer yes or no.",
)
WORDS = ("cotton", "shirt", "with", "long", "sleeves", "for", "men", "and", "women", "in", "five", "sizes")
LINES_AT_ONCE = 2_000


def write_lines(path: Path, count: int, *, line_bytes: int) -> int:
    """Write a file of `count` lines of about `line_bytes` each; its size in bytes."""
    with path.open("wb") as file:
        for start in range(0, count, LINES_AT_ONCE):
            numbers = range(start, min(start + LINES_AT_ONCE, count))
            file.write(b"".join(lines(numbers, line_bytes=line_bytes)))
        return file.tell()


def lines(numbers: range, *, line_bytes: int) -> Iterator[bytes]:
    spare = line_bytes - len(_line(0, ""))
    for number in numbers:
        yield _line(number, _description(number, spare))


def _line(number: int, description: str) -> bytes:
    question = f"Product {number}: {description}\n{QUESTIONS[number % len(QUESTIONS)]}"
    body = {
        "model": MODEL,
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        "max_tokens": 32,
        "temperature": 0,
    }
    line = {"custom_id": f"product-{number:08}", "method": "POST", "url": URL, "body": body}
    return json.dumps(line).encode() + b"\n"


def _description(number: int, size: int) -> str:
    """Words of about `size` characters, no two products' alike."""
    offset = number % len(WORDS)
    words = " ".join((*WORDS[offset:], *WORDS[:offset])) + f" no. {number}, "
    return (words * (max(size, 0) // len(words) + 1))[: max(size, 0)]
