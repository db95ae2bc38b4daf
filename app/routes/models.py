"""The models that are served, over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Depends

from app.auth import Tenant
from app.routes.caller import Caller
from app.schemas import ModelList, ModelObject
from app.served import ServedModels


def model_routes(*, models: ServedModels, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/models", tags=["models"])

    def shown(name: str) -> ModelObject:
        return ModelObject(id=name, created=models.since, root=models.behind(name))

    @router.get("")
    def list_models(_: Annotated[Tenant, Depends(caller.any)]) -> ModelList:
        """The models by their names, then their aliases."""
        return ModelList(data=[shown(name) for name in models.names()])

    # A hub id such as Qwen/Qwen3-VL-2B-Instruct has a slash in it.
    @router.get("/{model:path}")
    def read(_: Annotated[Tenant, Depends(caller.any)], model: str) -> ModelObject:
        """One model, by a name or an alias."""
        return shown(model)

    return router
