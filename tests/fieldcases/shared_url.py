"""The row about one URL in all jobs of a batch: ingest, the fetcher and the picture server together."""

import ast
from contextlib import closing
from urllib.parse import urlsplit

import httpx

from app.download import make_downloader
from app.images import image_limits
from tests.desk import image, line
from tests.fieldcases.cases import Case, Did, Outcome
from tests.fieldcases.pictures import accept
from tests.fieldcases.services import Services
from tests.fieldcases.web import PictureServer
from workers.fetcher import Fetcher
from workers.sources import SourceReader

JOBS = 20


def serve_shared_url(case: Case, server: PictureServer, services: Services) -> Outcome:
    """The picture that was stored, or what went wrong."""
    base, path, desk = server.base(), case.payload["path"], services.lonely_desk()
    before = _visits(base, path)
    content = [{"type": "text", "text": "Which colour?"}, image(base + path)]
    batch_id = desk.submit([line(f"r{number}", content) for number in range(JOBS)])
    services.read()
    _fetch(services, urlsplit(base).netloc)
    desk.answer(batch_id)
    services.end()
    visits, counts = _visits(base, path) - before, desk.counts(batch_id)
    if (visits, counts) != (1, (JOBS, JOBS, 0)):
        return Did("something else", {"visits": visits, "counts": counts})
    (stored,) = services.objects.page(f"images/{desk.tenant}/", after="")
    return accept(services.objects.get(stored.key, max_bytes=stored.bytes))


def _fetch(services: Services, host: str) -> None:
    settings = services.settings.model_copy(update={"fetch_allow_hosts": (host,)})
    sources = SourceReader(
        sessions=services.sessions,
        objects=services.objects,
        download=make_downloader(settings).fetch,
        limits=image_limits(settings),
        buckets=(),
    )
    fetcher = Fetcher(sessions=services.sessions, read=sources.read, keep=sources.keep, settings=settings)
    with closing(fetcher):
        while fetcher.step():
            assert fetcher.settle(30)


def _visits(base: str, path: str) -> int:
    return ast.literal_eval(httpx.get(f"{base}/_seen").text).get(path, 0)
