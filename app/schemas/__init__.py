"""Bodies of requests and responses, as OpenAI's API has them; ours are marked so."""

from app.schemas.batches import (
    BatchCreate,
    BatchDeleted,
    BatchError,
    BatchErrors,
    BatchExtras,
    BatchList,
    BatchObject,
    BatchRetry,
    BatchUsage,
    CacheUse,
    CascadeUse,
    ErrorCount,
    ErrorList,
    InputDetails,
    NearUse,
    OutputDetails,
    RequestCounts,
)
from app.schemas.chat import ChatCreate, ResponseCreate
from app.schemas.files import FileDeleted, FileList, FileObject
from app.schemas.jobs import JobAnswer, JobCreate, JobDeleted, JobError, JobObject, JobUsage, TokenDetails
from app.schemas.models import ModelList, ModelObject
from app.schemas.results import ResultError, ResultList, ResultObject, ResultResponse
from app.schemas.wishes import FailureBrake

__all__ = [
    "BatchCreate",
    "BatchDeleted",
    "BatchError",
    "BatchErrors",
    "BatchExtras",
    "BatchList",
    "BatchObject",
    "BatchRetry",
    "BatchUsage",
    "CacheUse",
    "CascadeUse",
    "ChatCreate",
    "ErrorCount",
    "ErrorList",
    "FailureBrake",
    "FileDeleted",
    "FileList",
    "FileObject",
    "InputDetails",
    "JobAnswer",
    "JobCreate",
    "JobDeleted",
    "JobError",
    "JobObject",
    "JobUsage",
    "ModelList",
    "ModelObject",
    "NearUse",
    "OutputDetails",
    "RequestCounts",
    "ResponseCreate",
    "ResultError",
    "ResultList",
    "ResultObject",
    "ResultResponse",
    "TokenDetails",
]
