"""Examples of the calls about images that look the same."""

from collections.abc import Mapping
from typing import Any

ONE, OTHER = "0a4f" * 16, "93be" * 16
MEMBERS = [
    {"object": "image", "content_hash": ONE, "distance": 0, "reference": "https://shop.example/1.jpg"},
    {
        "object": "image",
        "content_hash": OTHER,
        "distance": 2,
        "reference": "https://shop.example/1-small.jpg",
    },
]
REQUESTS: Mapping[str, Any] = {}
ANSWERS: Mapping[str, Any] = {
    "images_near": {
        "object": "list",
        "data": MEMBERS[1:],
        "hashed": True,
        "error": None,
        "has_more": False,
    },
    "images_list_clusters": {
        "object": "list",
        "data": [
            {
                "object": "image_cluster",
                "id": ONE,
                "representative": ONE,
                "size": 2,
                "members": MEMBERS,
            }
        ],
        "first_id": ONE,
        "last_id": ONE,
        "has_more": False,
    },
    "images_look": {"object": "image_clusters.look", "images": 48_210},
}
