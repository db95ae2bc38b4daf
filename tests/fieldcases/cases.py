"""A field case as its folder describes it, and whether what the product did is what it expects."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

# The folder names meanings, the product codes. A meaning that is missing here is the code itself.
_FETCH_FAILED = frozenset(
    {
        "bad_encoding",
        "bad_redirect",
        "bad_response",
        "connection_lost",
        "dns",
        "incomplete_body",
        "refused",
        "timeout",
        "tls",
        "unreachable",
    }
)
_CODES: Mapping[str, frozenset[str]] = {
    "too_large_bytes": frozenset({"too_large"}),
    "too_many_pixels": frozenset({"too_many_pixels", "too_complex"}),
    "bad_aspect_ratio": frozenset({"aspect_ratio"}),
    "blocked_url": frozenset({"blocked_url", "blocked_address"}),
    "corrupt_image": frozenset({"corrupt_image", "truncated"}),
}

# Foreign JSON: every field is read with a default or an assertion by the one function that needs it.
Expectation = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One row of cases.jsonl."""

    id: str
    kind: str
    firm: bool
    folder: Path
    file: str | None
    payload: Mapping[str, Any]
    expectations: tuple[Expectation, ...]  # the expected one, then the alternatives
    must_not: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)  # of a table: which is the id, image, question

    def read(self, name: str | None = None) -> bytes:
        name = name or self.file
        assert name is not None, f"{self.id} has no file"
        return (self.folder / name).read_bytes()


@dataclass(frozen=True)
class Accepted:
    """A picture came out."""

    image: Image.Image


@dataclass(frozen=True)
class Refused:
    """The product raised a work error."""

    code: str
    message: str


@dataclass(frozen=True)
class Did:
    """Anything else: the verdict it amounts to, and what there is to say about it."""

    verdict: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class NotServed:
    """The product cannot act this row out yet."""

    reason: str


Outcome = Accepted | Refused | Did | NotServed


def read_cases(folder: Path) -> list[Case]:
    rows = (
        json.loads(line) for line in (folder / "cases.jsonl").read_text("utf-8").split("\n") if line.strip()
    )
    return [_case(folder, row) for row in rows]


def _case(folder: Path, row: Mapping[str, Any]) -> Case:
    return Case(
        id=row["id"],
        kind=row["kind"],
        firm=row["certainty"] == "firm",
        folder=folder,
        file=row.get("file"),
        payload=row.get("payload") or {},
        expectations=(row["expect"], *row.get("alternatives", ())),
        must_not=tuple(row.get("must_not", ())),
        columns=row.get("columns") or {},
    )


def shortfalls(case: Case, outcome: Outcome) -> list[str | None]:
    """For each expectation what the outcome lacks, None where it holds."""
    return [_shortfall(expectation, outcome) for expectation in case.expectations]


def _shortfall(expect: Expectation, outcome: Outcome) -> str | None:
    match outcome:
        case Accepted(image):
            return _picture(expect, image) if expect["verdict"] == "accept" else f"accepted {image.size}"
        case Refused(code, message):
            return _refusal(expect, code, message)
        case Did(verdict, details):
            return None if verdict == expect["verdict"] else f"{verdict} {dict(details)}"
        case NotServed(reason):
            return reason


def _refusal(expect: Expectation, code: str, message: str) -> str | None:
    said = f"{code}: {message}"
    if expect["verdict"] not in ("reject", "blocked", "rejected_as_malformed"):
        return said
    meaning = expect.get("error_class", code)
    codes = _CODES.get(meaning, frozenset({meaning}))
    fetch_failed = meaning == "fetch_failed" and (code in _FETCH_FAILED or code.startswith("http_"))
    if code not in codes and not fetch_failed:
        return said
    words: Sequence[str] = expect.get("message_should_mention_any", ())
    return None if not words or any(word.lower() in message.lower() for word in words) else said


def _picture(expect: Expectation, image: Image.Image) -> str | None:
    """What is wrong with a picture; the folder's README says what the fields mean."""
    if image.mode != "RGB":
        return f"mode {image.mode}"
    if list(image.size) != list(expect.get("size", image.size)):
        return f"size {image.size}"
    for probe in expect.get("probes", ()):
        if _distance(image, probe) > probe["tol"]:
            return f"{_at(image, probe['xy'])} at {probe['xy']}"
    for probe in expect.get("not_rgb", ()):
        if _distance(image, probe) <= probe["tol"]:
            return f"{_at(image, probe['xy'])} at {probe['xy']}, the colour that must not show"
    alike = {_at(image, point) for point in expect.get("same_colour", ())}
    if len(alike) > 1:
        return f"several colours where one belongs: {sorted(alike)}"
    falling = [sum(_at(image, point)) for point in expect.get("brighter_first", ())]
    return None if falling == sorted(falling, reverse=True) else f"brightness {falling}"


def _at(image: Image.Image, point: Sequence[int]) -> tuple[int, ...]:
    pixel = image.getpixel((point[0], point[1]))
    assert isinstance(pixel, tuple)
    return pixel


def _distance(image: Image.Image, probe: Expectation) -> int:
    return max(abs(is_ - want) for is_, want in zip(_at(image, probe["xy"]), probe["rgb"], strict=True))
