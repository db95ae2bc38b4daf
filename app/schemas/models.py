"""Bodies about models, as OpenAI's API has them; ours are marked so."""

from typing import Literal

from pydantic import BaseModel


class ModelObject(BaseModel):
    """`root` (ours, as vLLM has it) is the model that answers: an alias differs from it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "vqueue"
    root: str


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelObject]
