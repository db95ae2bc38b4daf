"""The calls for images that look the same."""

import httpx

from vqueue.calls import Call, as_model
from vqueue.sweep_types import ImageClusterPage, NearImages


def image_clusters(*, limit: int = 20, after: str | None = None) -> Call[ImageClusterPage]:
    """A page of clusters of two images or more, behind the one with the id `after`."""
    params: dict[str, str | int] = {"limit": limit} | ({"after": after} if after else {})
    return Call("GET", "/image_clusters", as_model(ImageClusterPage), params=params)


def look_at_images() -> Call[int]:
    """Have all stored images compared; how many are from now on."""
    return Call("POST", "/image_clusters/look", _images)


def near_images(content_hash: str, *, distance: int = 4) -> Call[NearImages]:
    """The images that look like one of them, in all but so many bits of 64 (at most 7)."""
    return Call("GET", f"/images/{content_hash}/near", as_model(NearImages), params={"distance": distance})


def _images(answer: httpx.Response) -> int:
    return int(answer.json()["images"])
