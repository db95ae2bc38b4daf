"""(ours) What a tenant has used, and what it cost, over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.auth import Tenant
from app.routes.caller import Caller
from app.routes.strict import STRICT
from app.schemas.usage import UsageCost, UsageCounts, UsageReport, UsageRow
from app.usage import PARTS, Line, Usage

Day = Annotated[str | None, Query(min_length=1, json_schema_extra={"format": "date"})]


def usage_routes(*, usage: Usage, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["tenant"], dependencies=STRICT)

    @router.get("/usage")
    def read_usage(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        start: Day = None,
        end: Day = None,
        group_by: Annotated[
            str, Query(max_length=100, description=f"some of {', '.join(PARTS)}, with commas between")
        ] = ",".join(PARTS),
    ) -> UsageReport:
        """Jobs, tokens and cost by day (UTC), key and model; of the last 30 days unless told otherwise."""
        report = usage.report(tenant.id, start=start, end=end, group_by=group_by)
        return UsageReport(
            start=report.start.isoformat(),
            end=report.end.isoformat(),
            group_by=list(report.by),
            data=[_row(line) for line in report.lines],
            total=_counts(report.total),
        )

    return router


def _row(line: Line) -> UsageRow:
    _, day, key_id, model = line.group
    shown = day.isoformat() if day else None
    return UsageRow(**_counts(line).model_dump(), day=shown, key_id=key_id, model=model)


def _counts(line: Line) -> UsageCounts:
    return UsageCounts(
        completed=line.completed,
        failed=line.failed,
        prompt_tokens=line.prompt_tokens,
        cached_tokens=line.cached_tokens,
        completion_tokens=line.completion_tokens,
        cost=UsageCost(**vars(line.cost)) if line.cost else None,
    )
