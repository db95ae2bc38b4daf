"""Results as the console's pages find them: page by page, and never more rows than a page may read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

# The words of index predicates: whoever asks otherwise reads the whole batch.
UNANSWERED = "j.state IN ('failed', 'cancelled', 'expired') AND j.batch_id IS NOT NULL"
VERDICTS: Mapping[str, str] = {"confirmed": "confirm", "overturned": "overturn"}
# Prompts are looked at as they stand in JSON first, which is cheap but finds the words of its form, too; by
# ASCII's cases, which is twice as fast. What cannot become text (a NUL, half a pair) is taken as it is.
IN_PROMPT = r"""CASE WHEN lower(j.prompt::text COLLATE "C") NOT LIKE :like_json THEN false
    WHEN regexp_replace(j.prompt::text, '\\ud[89ab]..\\ud[c-f]..', '', 'g') ~ '\\u(0000|d[89a-f])' THEN true
    ELSE EXISTS (SELECT FROM json_array_elements(j.prompt->'turns') AS turn,
                 json_array_elements(turn->'parts') AS part WHERE part->>'text' ILIKE :like) END"""
# One by one by its key: to hash all answers that there are would be the faster way for a planner that sees
# thousands of jobs, and is not once there are millions of answers.
ANSWER = """LEFT JOIN LATERAL (
    SELECT text, confidence FROM answers WHERE job_id = j.id OFFSET 0) AS a ON true"""
CHECKS: Mapping[str, str] = {
    "answered": "j.state = 'completed'",
    "unanswered": UNANSWERED,
    "open": "j.state NOT IN ('completed', 'failed', 'cancelled', 'expired')",
    "code": "j.error_code = :code",
    "below": "a.confidence < :below",
    "field": "EXISTS (SELECT FROM labels l WHERE l.job_id = j.id AND l.field = :field)",
    "unreviewed": """EXISTS (SELECT FROM labels l
        WHERE l.job_id = j.id AND l.field = coalesce(:in_field, l.field) AND NOT EXISTS (
            SELECT FROM reviews r WHERE r.job_id = l.job_id AND r.field = l.field))""",
    "reviewed": """EXISTS (SELECT FROM reviews r
        WHERE r.job_id = j.id AND r.verdict = :verdict AND r.field = coalesce(:in_field, r.field))""",
    "text": f"(a.text ILIKE :like OR j.custom_id ILIKE :like OR {IN_PROMPT})",
}
BEGUN = "\\u"  # what a letter in JSON begins with that is not ASCII
# Where candidates come from, in the order of a batch's jobs, each by an index of its own.
BY_LINE = """(SELECT j.id, j.batch_id, j.line, j.state, j.error_code, j.custom_id, j.prompt FROM jobs j
    WHERE j.batch_id = :batch
      AND j.line {beyond} coalesce((SELECT line FROM jobs WHERE id = :at AND batch_id = :batch), 0)
    ORDER BY j.line {order} LIMIT :piece) AS j"""
UNANSWERED_BY_LINE = BY_LINE.replace("ORDER BY", f"AND {UNANSWERED} {{narrow}} ORDER BY")
BY_LABEL = """(SELECT l.job_id FROM labels l WHERE l.batch_id = :batch AND l.field = :label_field
    AND l.value = :label AND l.job_id {beyond} :at ORDER BY l.job_id {order} LIMIT :piece) AS d
    JOIN jobs j ON j.id = d.job_id"""
BY_REVIEW = """(SELECT r.job_id FROM reviews r WHERE r.tenant_id = :tenant AND r.verdict = :verdict
    AND r.job_id {beyond} :at AND r.job_id BETWEEN :first AND :last
    GROUP BY r.job_id ORDER BY r.job_id {order} LIMIT :piece) AS d JOIN jobs j ON j.id = d.job_id"""
BY_CONFIDENCE = """(SELECT c.job_id FROM answers c WHERE c.confidence IS NOT NULL AND c.confidence < :below
    AND c.job_id {beyond} :at AND c.job_id BETWEEN :first AND :last
    ORDER BY c.job_id {order} LIMIT :piece) AS d JOIN jobs j ON j.id = d.job_id"""


@dataclass(frozen=True)
class Filters:
    """Which jobs of a batch; None asks for any.

    `outcome` is one of answered, failed, open; `label` a field and its value; `review` one of none,
    confirmed, overturned.
    """

    outcome: str | None = None
    code: str | None = None
    label: tuple[str, str] | None = None
    field: str | None = None
    below: float | None = None
    review: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Span:
    """A batch's first and last job: in the order of the lines, and so in that of the ids."""

    first: int
    last: int


@dataclass(frozen=True)
class Piece:
    """What came of looking at some candidates: the jobs that fit, how many were looked at, and the last one
    with its line.
    """

    found: Sequence[int]
    scanned: int
    last: int | None
    line: int | None


@dataclass(frozen=True)
class CardRow:
    """A job of a page. `text` and `prompt` are cut; `chars` is how long the answer is."""

    id: int
    batch_id: str | None
    line: int
    custom_id: str | None
    state: str
    model: str
    error_code: str | None
    error_message: str | None
    image_ids: Sequence[int]
    prompt: Any
    text: str | None
    chars: int | None
    notes: Sequence[str] | None
    confidence: float | None
    escalated: bool


@dataclass(frozen=True)
class LabelCount:
    field: str
    value: str
    jobs: int


def read_span(session: Session, batch_id: str) -> Span | None:
    """None for a batch without jobs."""
    row = session.execute(
        text(
            """
            SELECT (SELECT id FROM jobs WHERE batch_id = :batch ORDER BY line LIMIT 1) AS first,
                   (SELECT id FROM jobs WHERE batch_id = :batch ORDER BY line DESC LIMIT 1) AS last
            """
        ),
        {"batch": batch_id},
    ).one()
    return Span(row.first, row.last) if row.first is not None else None


def is_exact(filters: Filters) -> bool:
    """Whether an index finds just the jobs that fit, so that nothing is left to look at in each."""
    return not _checks(filters, _driver(filters)) and _driver(filters) not in (BY_REVIEW, BY_CONFIDENCE)


def find_jobs(
    session: Session,
    tenant_id: str,
    batch_id: str,
    filters: Filters,
    *,
    span: Span,
    at: int,
    backwards: bool,
    piece: int,
) -> Piece:
    """Look at the next `piece` candidates behind job `at`, or before it."""
    driver = _driver(filters)
    narrow = "AND j.error_code = :code" if filters.code is not None else ""
    beyond, order, end = ("<", "DESC", "min") if backwards else (">", "ASC", "max")
    candidates = driver.format(beyond=beyond, order=order, narrow=narrow)
    checks = " AND ".join(["j.batch_id = :batch", *_checks(filters, driver)])
    row = session.execute(
        text(
            f"""
            SELECT count(*) AS scanned, {end}(j.id) AS last, {end}(j.line) AS line,
                   array_agg(j.id ORDER BY j.id {order}) FILTER (WHERE {checks}) AS found
            FROM {candidates} {ANSWER}
            """  # noqa: S608 - constants
        ),
        {
            **_values(filters),
            "tenant": tenant_id,
            "batch": batch_id,
            "first": span.first,
            "last": span.last,
            "at": at,
            "piece": piece,
        },
    ).one()
    return Piece(row.found or [], row.scanned, row.last, row.line)


def read_cards(
    session: Session, job_ids: Sequence[int], *, most_chars: int, most_prompt_bytes: int
) -> list[CardRow]:
    """What is shown of these jobs, in the order given; prompts of more bytes are left out."""
    rows = session.execute(
        text(
            """
            SELECT j.id, j.batch_id, j.line, j.custom_id, j.state, coalesce(a.model, j.model), j.error_code,
                   left(j.error_message, :chars), j.image_ids,
                   CASE WHEN octet_length(j.prompt::text) <= :bytes THEN j.prompt END,
                   left(a.text, :chars), length(a.text), a.notes, a.confidence, j.first_answer IS NOT NULL
            FROM unnest(CAST(:ids AS bigint[])) WITH ORDINALITY AS given(id, place)
            JOIN jobs j ON j.id = given.id LEFT JOIN answers a ON a.job_id = j.id ORDER BY given.place
            """
        ),
        {"ids": list(job_ids), "chars": most_chars, "bytes": most_prompt_bytes},
    )
    return [CardRow(*row) for row in rows]


def count_values(session: Session, batch_id: str, *, most: int) -> list[LabelCount]:
    """How many jobs of a batch have which label, the commonest `most` values of each field."""
    rows = session.execute(
        text(
            """
            SELECT field, value, jobs FROM (
                SELECT field, value, count(*) AS jobs,
                       row_number() OVER (PARTITION BY field ORDER BY count(*) DESC, value) AS place
                FROM labels WHERE batch_id = :batch GROUP BY field, value) AS counted
            WHERE place <= :most ORDER BY field, jobs DESC, value
            """
        ),
        {"batch": batch_id, "most": most},
    )
    return [LabelCount(*row) for row in rows]


def _driver(filters: Filters) -> str:
    """The index that leaves the fewest candidates."""
    if filters.label is not None:
        return BY_LABEL
    if filters.code is not None or filters.outcome == "failed":
        return UNANSWERED_BY_LINE
    if filters.review in VERDICTS:
        return BY_REVIEW
    return BY_CONFIDENCE if filters.below is not None else BY_LINE


def _checks(filters: Filters, driver: str) -> list[str]:
    """What is left to be looked at in each candidate of a driver."""
    wanted = {
        "answered": filters.outcome == "answered",
        "unanswered": filters.outcome == "failed" and driver is not UNANSWERED_BY_LINE,
        "open": filters.outcome == "open",
        "code": filters.code is not None and driver is not UNANSWERED_BY_LINE,
        "below": filters.below is not None and driver is not BY_CONFIDENCE,
        "field": filters.field is not None,
        "unreviewed": filters.review == "none",
        "reviewed": filters.review in VERDICTS and (driver is not BY_REVIEW or filters.field is not None),
        "text": filters.text is not None,
    }
    return [CHECKS[name] for name, is_wanted in wanted.items() if is_wanted]


def _values(filters: Filters) -> dict[str, object]:
    field, value = filters.label or (None, None)
    like, like_json = patterns(filters.text or "")
    return {
        "code": filters.code,
        "below": filters.below,
        "field": filters.field,
        "in_field": filters.field if filters.field is not None else field,
        "label_field": field,
        "label": value,
        "verdict": VERDICTS.get(filters.review or ""),
        "like": like,
        "like_json": like_json,
    }


def patterns(words: str) -> tuple[str, str]:
    """Of LIKE, for words anywhere in a text, and anywhere in JSON that is in lower case."""
    return _anywhere(_plain(words)), _anywhere("".join(map(_in_json, words.lower())))


def _in_json(letter: str) -> str:
    if letter.isascii():
        return _plain(f"\\{letter}" if letter in '"\\' else letter)
    if letter.upper() != letter:
        return f"{_plain(BEGUN)}____"  # another letter where it is a capital
    codes = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(_plain(f"{BEGUN}{codes[start : start + 4]}") for start in range(0, len(codes), 4))


def _plain(text: str) -> str:
    """Without the meaning that some letters have for LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _anywhere(pattern: str) -> str:
    return f"%{pattern}%"
