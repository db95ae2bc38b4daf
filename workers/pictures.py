"""A stored image read back: bytes from the object store, pixels for the engine."""

import numpy as np

from app.errors import InvalidWork
from app.ids import image_key
from app.images import Limits, normalise
from app.objects import ObjectMissing, ObjectStore
from app.store.images import ImageRow
from workers.engine.base import Image


class PictureReader:
    """Reads images on the worker's own threads, off the engine's."""

    def __init__(self, *, objects: ObjectStore, limits: Limits) -> None:
        self._objects = objects
        self._limits = limits

    def __call__(self, row: ImageRow) -> Image:
        """The normalised image; ImageError if it cannot be read, TransientWork if the store is away."""
        try:
            key = image_key(row.tenant_id, row.content_hash)
            data = self._objects.get(key, max_bytes=self._limits.max_bytes)
        except ObjectMissing as error:
            raise InvalidWork("image_deleted", "The image is no longer in the object store.") from error
        return Image(row.content_hash, np.asarray(normalise(data, self._limits)))
