"""What has no answer when a run is over: the rows and the reasons, retries counted in."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from vqueue import Batch, Client, ErrorDetail, Result

MOST_LISTED = 20
NOT_AN_IMAGE = "bad_url"
# Of rows that were no requests: there is nothing of them that could be tried again.
NO_REQUESTS = frozenset(
    {
        *(NOT_AN_IMAGE, "bad_data_url", "bad_base64", "empty_body", "unsupported_modality"),
        *("missing_image", "missing_id", "missing_question", "duplicate_id", "invalid_custom_id"),
        *("wrong_cell_count", "invalid_encoding", "invalid_character", "invalid_cell", "invalid_json"),
        "invalid_zip_member",
    }
)


@dataclass
class Tally:
    """Counts of a run, and its first failures in words."""

    jobs: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    listed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reasons = ", ".join(f"{code} x {count}" for code, count in self.reasons.most_common())
        told = f" ({reasons})" if reasons else ""
        return f"run: jobs={self.jobs} answered={self.jobs - self.failed} failed={self.failed}{told}"


def advice(found: Tally) -> list[str]:
    """How what failed can be had again."""
    lost = sum(count for code, count in found.reasons.items() if code in NO_REQUESTS)
    lines = ["--only-failed tries these again"] if found.failed > lost else []
    if lost:
        which = "these" if not lines else f"{lost:,} of them"
        lines.append(f"{which} were no requests: put them right, and run without --only-failed")
    return lines if found.failed else []


def tally(
    api: Client, batches: Sequence[Batch], *, questions: int, own: Callable[[set[int]], Mapping[int, str]]
) -> Tally:
    """Of a batch and its retries; `questions` a row, 0 where the input has lines.

    `own` has the reasons that are known here of rows whose pictures were not sent.
    """
    found = Tally(jobs=batches[0].request_counts.total)
    if not batches[-1].request_counts.failed and len(batches) == 1:
        return found
    first = nsmallest(MOST_LISTED, _counted(found, _failures(api, batches)), key=lambda one: one[0].line)
    not_sent = {_row(result, questions) for result, failure in first if failure.code == NOT_AN_IMAGE}
    reasons = own(not_sent) if questions else {}
    for result, failure in first:
        why = reasons.get(_row(result, questions)) if failure.code == NOT_AN_IMAGE else None
        found.listed.append(f"{_place(result, questions)}: {failure.code}: {why or failure.message}")
    return found


def _counted(
    found: Tally, failures: Iterator[tuple[Result, ErrorDetail]]
) -> Iterator[tuple[Result, ErrorDetail]]:
    for result, failure in failures:
        found.failed += 1
        found.reasons[failure.code or "unknown"] += 1
        yield result, failure


def _failures(api: Client, batches: Sequence[Batch]) -> Iterator[tuple[Result, ErrorDetail]]:
    """The newest result of each job, where that is no answer."""
    settled: set[int] = set()
    for batch in reversed(batches):
        is_first = batch is batches[0]
        for result in api.results(batch.id, status="failed" if is_first else None):
            if result.line not in settled and (failure := result.failure) is not None:
                yield result, failure
            if not is_first:
                settled.add(result.line)


def _place(result: Result, questions: int) -> str:
    name = f" ({result.custom_id})" if result.custom_id else ""
    return f"row {_row(result, questions)}{name}" if questions else f"line {result.line}{name}"


def _row(result: Result, questions: int) -> int:
    return (result.line - 1) // max(1, questions) + 1
