"""The last line of scripts/test: counts from pytest's reports. `python -m tests.tally SECONDS REPORT...`

A report called again.xml is of tests that had failed and were run once more alone. `--failed REPORT` prints
how many failed in one.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

BAD = ("failed", "errors")
OUTCOMES = (*BAD, "skipped")
AGAIN = "again.xml"


def tally(reports: Sequence[Path]) -> Counter[str]:
    """How many tests passed, failed, ended in errors, were skipped, and were flaky: passed when run alone."""
    found: Counter[str] = Counter()
    for report in reports:
        if report.name != AGAIN:
            found += _count(report)
    for report in reports:
        if report.name == AGAIN:
            found = _with_again(found, _count(report))
    found["passed"] = found["tests"] - sum(found[outcome] for outcome in OUTCOMES)
    return found


def _with_again(first: Counter[str], again: Counter[str]) -> Counter[str]:
    """A test may fail and end in an error, too: what counts of the first run is whether it was well."""
    still = sum(again[outcome] for outcome in BAD)
    rest = Counter({"tests": first["tests"], "skipped": first["skipped"]})
    rest.update({outcome: again[outcome] for outcome in BAD})
    rest["flaky"] = max(sum(first[outcome] for outcome in BAD) - still, 0)
    return rest


def _count(report: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for suite in ElementTree.parse(report).iter("testsuite"):  # noqa: S314 - written by our own pytest
        found["tests"] += int(suite.get("tests", 0))
        found["failed"] += int(suite.get("failures", 0))
        found["errors"] += int(suite.get("errors", 0))
        found["skipped"] += int(suite.get("skipped", 0))
    return found


def main() -> None:
    if sys.argv[1] == "--failed":
        found = _count(Path(sys.argv[2]))
        print(sum(found[outcome] for outcome in BAD))  # noqa: T201 - a command
        return
    seconds, *reports = sys.argv[1:]
    found = tally([Path(report) for report in reports])
    counts = " ".join(f"{outcome}={found[outcome]}" for outcome in ("passed", *OUTCOMES, "flaky"))
    print(f"test: {counts} seconds={seconds}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
