"""(ours) Labelled answers over HTTP: found, counted, reviewed, handed out as a calibration set."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from app.answers import Answers, ReviewWish, entry_name, read_groups
from app.auth import Tenant
from app.ids import job_name
from app.opinions import Agreement
from app.reviewing import ReviewQueue
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.render import ends, unix, unix_or_none
from app.routes.strict import STRICT
from app.schemas.labels import (
    AgreementList,
    LabelCount,
    LabelCounts,
    LabelledAnswer,
    LabelledAnswerList,
    PairAgreement,
    ReviewDeleted,
    ReviewObject,
    ReviewPut,
    ReviewState,
)
from app.store.labels import GROUPS, Count, Filters, LabelRow
from app.store.reviews import Review

BODY_BYTES = 512 * 1024
MOST_ANSWERS = 1_000
JSON_LINES = "application/jsonl"
DOC: dict[int | str, dict[str, Any]] = {
    200: {"content": {JSON_LINES: {"schema": {"type": "string", "format": "binary"}}}}
}
Given = Annotated[str | None, Query(min_length=1, max_length=512)]
MaybeEmpty = Annotated[str | None, Query(max_length=512)]
Moment = Annotated[datetime | None, Query()]
Share = Annotated[float | None, Query(ge=0, le=1)]
GROUP_BY = Query(max_length=100, description=f"up to three of {', '.join(GROUPS)}, with commas between")


def _filters(
    batch_id: Given = None,
    question: Given = None,
    item: Given = None,
    label: MaybeEmpty = None,
    field: MaybeEmpty = None,
    policy_version: Given = None,
    model: Given = None,
    review: ReviewState | None = None,
    since: Moment = None,
    until: Moment = None,
    min_confidence: Share = None,
    max_confidence: Share = None,
    sweep: Given = None,
) -> Filters:
    """`since` and `until` are times of answers: Unix seconds or ISO 8601, UTC where no zone is given."""
    return Filters(
        batch_id,
        question,
        item,
        label,
        field,
        policy_version,
        model,
        review,
        since,
        until,
        below=max_confidence,
        sweep=sweep,
        at_least=min_confidence,
    )


Wanted = Annotated[Filters, Depends(_filters)]


def answer_routes(*, answers: Answers, queue: ReviewQueue, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/answers", tags=["answers"], dependencies=STRICT)
    read_body = json_body(ReviewPut, max_bytes=BODY_BYTES)

    @router.get("")
    def list_answers(
        tenant: Annotated[Tenant, Depends(caller.read)],
        filters: Wanted,
        limit: Annotated[int, Query(ge=1, le=MOST_ANSWERS)] = 100,
        after: Given = None,
    ) -> LabelledAnswerList:
        """Answers under a choice list or a JSON schema, an entry for each label, newest first."""
        page = answers.list(tenant.id, filters, limit=limit, after=after)
        data = [_entry(row) for row in page.rows]
        return LabelledAnswerList(data=data, **ends(data), has_more=page.has_more)

    @router.get("/count", response_model_exclude_unset=True)
    def count(
        tenant: Annotated[Tenant, Depends(caller.read)],
        filters: Wanted,
        group_by: Annotated[str, GROUP_BY] = "label",
    ) -> LabelCounts:
        """How many labels there are of each group, by the same filters."""
        by = read_groups(group_by)
        counts = answers.count(tenant.id, filters, by=by)
        return LabelCounts(
            object="label_counts",
            group_by=by,
            data=[_count(by, one) for one in counts],
            total=sum(one.labels for one in counts),
        )

    @router.get("/agreement")
    def agreement(tenant: Annotated[Tenant, Depends(caller.read)], filters: Wanted) -> AgreementList:
        """How often two people said the same of the same answers, by question and pair of keys."""
        return AgreementList(data=[_pair(one) for one in queue.agreement(tenant.id, filters)])

    @router.get("/corrections", response_class=StreamingResponse, responses=DOC)
    def corrections(tenant: Annotated[Tenant, Depends(caller.read)], filters: Wanted) -> StreamingResponse:
        """The reviewed answers as JSON Lines: what was asked, what the model said, and what is right."""
        return sent_corrections(answers.corrections(tenant.id, filters))

    @router.put("/{job_id}/review", openapi_extra=documented(ReviewPut))
    def review(
        tenant: Annotated[Tenant, Depends(caller.review)],
        job_id: str,
        body: Annotated[ReviewPut, Depends(read_body)],
    ) -> ReviewObject:
        """Confirm an answer, or overturn it with the right label; in place of what was said before."""
        return _review(answers.review(tenant.id, job_id, _wish(body)))

    @router.delete("/{job_id}/review")
    def delete_review(
        tenant: Annotated[Tenant, Depends(caller.review)], job_id: str, field: MaybeEmpty = None
    ) -> ReviewDeleted:
        """Take a review back."""
        answers.drop_review(tenant.id, job_id, field)
        return ReviewDeleted(job_id=job_id)

    return router


def _pair(one: Agreement) -> PairAgreement:
    return PairAgreement(
        question=one.question,
        field=one.field,
        key_ids=[one.one, one.other],
        answers=one.answers,
        agreed=one.agreed,
        agreement=one.rate,
        kappa=one.kappa,
    )


def sent_corrections(lines: Iterator[bytes]) -> StreamingResponse:
    """As a file to keep."""
    headers = {
        "Content-Disposition": 'attachment; filename="corrections.jsonl"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(lines, media_type=JSON_LINES, headers=headers)


def _wish(body: ReviewPut) -> ReviewWish:
    return ReviewWish(
        verdict=body.verdict,
        field=body.field,
        label=body.label,
        has_label="label" in body.model_fields_set,
        note=body.note,
    )


def _entry(row: LabelRow) -> LabelledAnswer:
    return LabelledAnswer(
        id=entry_name(row.job_id, row.field, row.place),
        job_id=job_name(row.job_id),
        batch_id=row.batch_id,
        item=row.item,
        question=row.question,
        field=row.field,
        label=row.value,
        text=row.text,
        model=row.model,
        revision=row.revision,
        notes=list(row.notes or ()),
        policy_version=row.policy_version,
        created_at=unix(row.created_at),
        confidence=row.confidence,
        review=_review_of(row),
    )


def _review_of(row: LabelRow) -> ReviewObject | None:
    if row.verdict is None:
        return None
    return _review(
        Review(row.job_id, row.field, row.verdict, row.right_label, row.note, row.key_id, row.reviewed_at)
    )


def _review(row: Review) -> ReviewObject:
    values: Mapping[str, Any] = {
        "job_id": job_name(row.job_id),
        "field": row.field,
        "verdict": row.verdict,
        "label": row.label,
        "note": row.note,
        "key_id": row.key_id,
        "reviewed_at": unix_or_none(row.at),
    }
    return ReviewObject(**values)


def _count(by: list[str], count: Count) -> LabelCount:
    group = {name: _shown(value) for name, value in zip(by, count.group, strict=True)}
    values: Mapping[str, Any] = {"object": "label_count", **group, "count": count.labels}
    return LabelCount(**values)


def _shown(value: str | date | None) -> str | None:
    return value.isoformat() if isinstance(value, date) else value
