"""(ours) Images that look the same, over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from app.auth import Tenant
from app.clusters import Clusters
from app.looks import MOST_DISTANCE
from app.routes.caller import Caller
from app.routes.render import ends
from app.routes.strict import STRICT
from app.schemas.clusters import ClusterList, ClusterObject, LooksWanted, NearImageList, NearImageObject
from app.store.clusters import Cluster

MOST_CLUSTERS = 100
HASH = "[0-9a-f]{64}"


def cluster_routes(*, clusters: Clusters, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["images"], dependencies=STRICT)

    @router.get("/images/{content_hash}/near")
    def near(
        tenant: Annotated[Tenant, Depends(caller.read)],
        content_hash: Annotated[str, Path(pattern=f"^{HASH}$")],
        distance: Annotated[int, Query(ge=0, le=MOST_DISTANCE)] = 4,
    ) -> NearImageList:
        """The images that look like one of them, known by the SHA-256 of its bytes."""
        found = clusters.near(tenant.id, content_hash, within=distance)
        return NearImageList(
            data=[
                NearImageObject(
                    content_hash=one.content_hash,
                    distance=one.distance,
                    reference=found.references.get(one.content_hash),
                )
                for one in found.images
            ],
            hashed=found.seen,
            error=found.error,
        )

    @router.get("/image_clusters")
    def list_clusters(
        tenant: Annotated[Tenant, Depends(caller.read)],
        limit: Annotated[int, Query(ge=1, le=MOST_CLUSTERS)] = 20,
        after: Annotated[str | None, Query(pattern=f"^{HASH}$")] = None,
    ) -> ClusterList:
        """Images that look the same, two or more together, in the order of the clusters' ids."""
        page = clusters.list(tenant.id, limit=limit, after=after)
        data = [_cluster(one) for one in page.rows]
        return ClusterList(data=data, **ends(data), has_more=page.has_more)

    @router.post("/image_clusters/look")
    def look(tenant: Annotated[Tenant, Depends(caller.write)]) -> LooksWanted:
        """Have all stored images compared; without it only those are whose batches want it."""
        return LooksWanted(images=clusters.look(tenant.id))

    return router


def _cluster(one: Cluster) -> ClusterObject:
    return ClusterObject(
        id=one.id,
        representative=one.members[0].content_hash,
        size=one.size,
        members=[NearImageObject(**vars(member)) for member in one.members],
    )
