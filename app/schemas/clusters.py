"""Bodies about images that look the same (ours)."""

from typing import Literal

from pydantic import BaseModel, Field


class NearImageObject(BaseModel):
    object: Literal["image"] = "image"
    content_hash: str = Field(description="SHA-256 of the image's bytes")
    distance: int = Field(description="bits of 64 in which the hashes differ")
    reference: str | None = Field(description="where it came from; null for one that came with a request")


class NearImageList(BaseModel):
    object: Literal["list"] = "list"
    data: list[NearImageObject] = Field(description="the nearest first, at most 50")
    hashed: bool = Field(description="whether the image was looked at; nothing is near before that")
    error: str | None = Field(description="why it has no hash: plain, unreadable, gone")
    has_more: Literal[False] = False


class ClusterObject(BaseModel):
    object: Literal["image_cluster"] = "image_cluster"
    id: str = Field(description="the content hash of the image that the cluster began with")
    representative: str
    size: int
    members: list[NearImageObject] = Field(
        description="the representative first; distances from it; at most 100"
    )


class ClusterList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ClusterObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class LooksWanted(BaseModel):
    object: Literal["image_clusters.look"] = "image_clusters.look"
    images: int = Field(description="that are looked at from now on; the others were before")
