"""Images on their way in with jobs: bytes that came along into the object store, rows for all."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.config import Settings
from app.db import Sessions, transaction
from app.deleter import spare
from app.errors import InvalidWork
from app.ids import image_key
from app.images import content_hash, image_limits, inspect
from app.objects import ObjectStore
from app.references import ImageReference, RefKind, ref_hash
from app.store.images import ImageWish, StoredImage, WantedImage, find_kept, keep_image, want_images

# Puts of small objects wait for the store, not for us: a local one took 250/s one by one.
PUT_THREADS = 8


@dataclass(frozen=True)
class KeptImages:
    """Images whose bytes came along, by ref_hash: ids of rows, what needs a row, what cannot be used."""

    rows: Mapping[str, int]
    fresh: Mapping[str, StoredImage]
    unusable: Mapping[str, InvalidWork]


class Placer:
    """Puts the images of data URLs into the object store, each once. Safe to share among threads."""

    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self._sessions = sessions
        self._objects = objects
        self._limits = image_limits(settings)
        self._threads = ThreadPoolExecutor(PUT_THREADS, thread_name_prefix="put-image")

    def keep(self, tenant_id: str, references: Iterable[ImageReference]) -> KeptImages:
        """Check and store what came along. Call it before the transaction that `place_images` is part of.

        Raises TransientWork when the object store is away.
        """
        given = {ref_hash(one): one for one in references if one.kind is RefKind.DATA}
        if not given:
            return KeptImages({}, {}, {})
        with transaction(self._sessions) as session:
            rows = find_kept(session, tenant_id, list(given))
            new = {key: one.data for key, one in given.items() if key not in rows}
            # Their refs are their content hashes. Before the puts, as app.deleter says.
            spare(session, [image_key(tenant_id, given[key].ref) for key in new])
        put = self._threads.map(lambda data: self._put(tenant_id, data), new.values())
        found = dict(zip(new, put, strict=True))
        return KeptImages(
            rows,
            {key: one for key, one in found.items() if isinstance(one, StoredImage)},
            {key: one for key, one in found.items() if isinstance(one, InvalidWork)},
        )

    def close(self) -> None:
        self._threads.shutdown()

    def _put(self, tenant_id: str, data: bytes) -> StoredImage | InvalidWork:
        try:
            info = inspect(data, self._limits)
        except InvalidWork as error:
            return error
        name = content_hash(data)
        self._objects.put(image_key(tenant_id, name), data, content_type=info.content_type)
        return StoredImage(name, info.format, info.width, info.height, len(data))


def place_images(
    session: Session,
    tenant_id: str,
    references: Sequence[ImageReference],
    kept: KeptImages,
    *,
    reuse_s: int,
) -> dict[str, WantedImage]:
    """Rows for the images of jobs that are about to be inserted in this transaction, by ref_hash.

    `kept` is what `Placer.keep` made of the same references; those that it found unusable have no row.
    """
    wishes = [
        ImageWish(one.kind, ref_hash(one), one.ref) for one in references if one.kind is not RefKind.DATA
    ]
    wanted = want_images(session, tenant_id, wishes, reuse_s=reuse_s) if wishes else {}
    ids = dict(kept.rows)
    for key in sorted(kept.fresh):
        ids[key] = keep_image(session, tenant_id, key, kept.fresh[key])
    return wanted | {key: WantedImage(image_id, stored=True) for key, image_id in ids.items()}
