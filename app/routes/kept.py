"""(ours) The answer cache over HTTP: what is kept, and forgetting it."""

from typing import Annotated

from fastapi import APIRouter, Depends

from app.auth import Tenant
from app.kept import Forgetting, KeptAnswers
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.strict import STRICT
from app.schemas.kept import CacheForget, CacheForgotten, CacheModel, CacheStock

BODY_BYTES = 1_100_000  # a question of the longest prompt


def kept_routes(*, kept: KeptAnswers, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/answer_cache", tags=["cache"], dependencies=STRICT)
    read_body = json_body(CacheForget, max_bytes=BODY_BYTES)

    @router.get("")
    def read(tenant: Annotated[Tenant, Depends(caller.read)]) -> CacheStock:
        """How many answers are kept, by model."""
        rows = kept.count(tenant.id)
        return CacheStock(
            data=[
                CacheModel(model=model, answers=answers, model_seconds=round(seconds, 3))
                for model, (answers, seconds) in rows.items()
            ]
        )

    @router.post("/forget", openapi_extra=documented(CacheForget))
    def forget(
        tenant: Annotated[Tenant, Depends(caller.write)], body: Annotated[CacheForget, Depends(read_body)]
    ) -> CacheForgotten:
        """Forget kept answers: those of a model, those to a question, or all."""
        wish = Forgetting(model=body.model, question=body.question, all=body.all)
        return CacheForgotten(forgotten=kept.forget(tenant.id, wish))

    return router
