"""Holds what a run left behind against its inputs and against a quiet run. Pure."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.inputs import Fate, Input

# Ids and times are a run's own, and what an engine found in its caches is history.
OWN = [
    (re.compile(rb'"(batch_req|req|chatcmpl)[_-][0-9a-f]{16}"'), rb'"\1"'),
    (re.compile(rb'"created":\d+'), rb'"created":0'),
    (re.compile(rb'"cached_tokens":\d+'), rb'"cached_tokens":0'),
]
NEVER_RUN = {Fate.CANCELLED: "batch_cancelled", Fate.EXPIRED: "batch_expired"}
Files = Mapping[str, bytes]  # by `output` and `error`


@dataclass
class Verdict:
    """What is wrong, in words; how many lines have no result, and how many results are one too many."""

    lost: int = 0
    duplicated: int = 0
    problems: list[str] = field(default_factory=list)


def masked(data: bytes) -> bytes:
    for pattern, mask in OWN:
        data = pattern.sub(mask, data)
    return data


def judge(given: Input, status: str, files: Files, quiet: Files) -> Verdict:
    """One batch: how it ended, and its files beside those of the quiet run."""
    verdict = Verdict()
    if status != given.fate:
        verdict.problems.append(f"{given.name} ended as {status}, not {given.fate}")
    if given.fate is Fate.FAILED:
        return verdict
    _count(given, files, verdict)
    if given.fate is Fate.COMPLETED:
        _compare(given, files, quiet, verdict)
    else:
        _compare_lines(given, files, quiet, verdict)
    return verdict


def _count(given: Input, files: Files, verdict: Verdict) -> None:
    wanted = Counter(_id_of(line) for line in given.lines)
    found = Counter(_id_of(line) for line in _lines(files.values()))
    verdict.lost = (wanted - found).total()
    verdict.duplicated = (found - wanted).total()
    for custom_id, count in [*(wanted - found).items()][:5]:
        verdict.problems.append(f"{given.name}: {custom_id} lacks {count} results")
    for custom_id, count in [*(found - wanted).items()][:5]:
        verdict.problems.append(f"{given.name}: {custom_id} has {count} results too many")


def _compare(given: Input, files: Files, quiet: Files, verdict: Verdict) -> None:
    for part in sorted({*files, *quiet}):
        ours, theirs = masked(files.get(part, b"")), masked(quiet.get(part, b""))
        if ours != theirs:
            verdict.problems.append(f"{given.name}: the {part} file differs: {_difference(ours, theirs)}")


def _compare_lines(given: Input, files: Files, quiet: Files, verdict: Verdict) -> None:
    """Of a batch that ended early: each line as in the quiet run, or never run."""
    expected = Counter(masked(line) for line in _lines(quiet.values()))
    for line in _lines(files.values()):
        if expected[masked(line)] == 0 and not _never_run(line, NEVER_RUN[given.fate]):
            verdict.problems.append(f"{given.name}: nobody else has the line {line[:300]!r}")


def _never_run(line: bytes, code: str) -> bool:
    return ((json.loads(line)["error"] or {}).get("code")) == code


def _difference(ours: bytes, theirs: bytes) -> str:
    for mine, other in zip(ours.splitlines(), theirs.splitlines(), strict=False):
        if mine != other:
            return f"{mine[:400]!r} against {other[:400]!r}"
    return f"{len(ours)} against {len(theirs)} bytes"


def _lines(files: Iterable[bytes]) -> Sequence[bytes]:
    return [line for data in files for line in data.split(b"\n") if line]


def _id_of(line: bytes) -> Any:
    """A line that is no JSON, and its result, have none."""
    try:
        return json.loads(line)["custom_id"]
    except ValueError:
        return None
