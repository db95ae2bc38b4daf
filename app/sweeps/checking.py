"""Tells which images are the same in spite of another version, by the hash of their content."""

from collections.abc import Iterator, Mapping, Sequence

from app.db import Sessions, transaction
from app.errors import InvalidWork
from app.references import RefKind, parse_reference, ref_hash
from app.store import sweep_items
from app.store.images import ImageWish, want_images
from app.store.sweep_items import StaleItem
from app.store.sweep_runs import RunTask, hold_run

PAGE_ITEMS = 1_000


class ContentCheck:
    """An image with another version is fetched before it is asked about: it has to be fetched anyway."""

    def __init__(self, *, sessions: Sessions, lease_s: float) -> None:
        self._sessions = sessions
        self._lease_s = lease_s

    def begin(self, task: RunTask) -> None:
        """Have them fetched; from here on no job takes what was stored of them before."""
        tenant = task.sweep.tenant_id
        for page in self._pages(task):
            wishes = wishes_of(page)
            with transaction(self._sessions) as session:
                hold_run(session, task, lease_s=self._lease_s)
                sweep_items.forget_stored(session, tenant, [one.ref_hash for one in wishes.values()])
                wanted = [wishes[one.key] for one in page if one.content_hash and one.key in wishes]
                if wanted:
                    want_images(session, tenant, wanted, reuse_s=0)

    def settle(self, task: RunTask) -> int:
        """Note those that turn out the same; how many are still on their way."""
        open_ = 0
        for page in self._pages(task):
            known = [one for one in page if one.content_hash]
            wishes = wishes_of(known)
            with transaction(self._sessions) as session:
                hold_run(session, task, lease_s=self._lease_s)
                hashes = [one.ref_hash for one in wishes.values()]
                fetched = sweep_items.read_fetched(session, task.sweep.tenant_id, hashes)
                sweep_items.note_same(session, task.sweep.id, same(known, wishes, fetched))
            open_ += sum(one.ref_hash not in fetched for one in wishes.values())
        return open_

    def _pages(self, task: RunTask) -> Iterator[Sequence[StaleItem]]:
        after = ""
        while True:
            with transaction(self._sessions) as session:
                page = sweep_items.read_stale(session, task.sweep.id, after=after, limit=PAGE_ITEMS)
            if not page:
                return
            after = page[-1].key
            yield page


def same(
    items: Sequence[StaleItem], wishes: Mapping[str, ImageWish], fetched: Mapping[str, str | None]
) -> list[str]:
    """The keys of those whose content is what it was."""
    return [
        one.key
        for one in items
        if one.content_hash
        and one.key in wishes
        and fetched.get(wishes[one.key].ref_hash) == one.content_hash
    ]


def wishes_of(items: Sequence[StaleItem]) -> dict[str, ImageWish]:
    """Images that can be fetched, by key; what is no reference will be told by its job."""
    found: dict[str, ImageWish] = {}
    for one in items:
        try:
            reference = parse_reference(one.ref)
        except InvalidWork:
            continue
        if reference.kind in (RefKind.S3, RefKind.URL):
            found[one.key] = ImageWish(reference.kind, ref_hash(reference), reference.ref)
    return found
