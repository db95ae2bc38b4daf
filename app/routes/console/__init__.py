"""The console over HTTP: pages for people, under `/`."""

from fastapi import APIRouter

from app.routes.console.batches import batch_pages
from app.routes.console.compare import compare_pages
from app.routes.console.desk import Desk
from app.routes.console.home import home_pages
from app.routes.console.images import image_pages
from app.routes.console.keys import key_pages
from app.routes.console.new import new_pages
from app.routes.console.operations import operations_pages
from app.routes.console.results import result_pages
from app.routes.console.review import review_pages
from app.routes.console.sweeps import sweep_pages
from app.routes.console.webhooks import webhook_pages
from app.routes.uploads import Uploads
from app.services import Services


def console_routes(services: Services, desk: Desk, uploads: Uploads) -> APIRouter:
    """All pages; none is in the OpenAPI document."""
    router = APIRouter()
    for pages in (
        home_pages(services.console, services.thumbnails, desk),
        batch_pages(services, desk),
        result_pages(services, desk),
        image_pages(services, desk),
        new_pages(services, desk, uploads),
        compare_pages(services, desk),
        review_pages(services, desk),
        sweep_pages(services, desk),
        key_pages(services, desk),
        webhook_pages(services, desk),
        operations_pages(services, desk),
    ):
        router.include_router(pages)
    return router
