"""The last line of scripts/test: counts from pytest's reports. `python -m tests.tally SECONDS REPORT...`"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

OUTCOMES = ("failed", "errors", "skipped")


def tally(reports: Sequence[Path]) -> Counter[str]:
    """How many tests passed, failed, ended in errors and were skipped."""
    found: Counter[str] = Counter()
    for report in reports:
        for suite in ElementTree.parse(report).iter("testsuite"):  # noqa: S314 - written by our own pytest
            found["tests"] += int(suite.get("tests", 0))
            found["failed"] += int(suite.get("failures", 0))
            found["errors"] += int(suite.get("errors", 0))
            found["skipped"] += int(suite.get("skipped", 0))
    found["passed"] = found["tests"] - sum(found[outcome] for outcome in OUTCOMES)
    return found


def main() -> None:
    seconds, *reports = sys.argv[1:]
    found = tally([Path(report) for report in reports])
    counts = " ".join(f"{outcome}={found[outcome]}" for outcome in ("passed", *OUTCOMES))
    print(f"test: {counts} seconds={seconds}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
