"""A stored image read back: bytes from the object store, pixels when the engine asks for them."""

from functools import partial

import numpy as np

from app.errors import InvalidWork
from app.ids import image_key
from app.images import Limits, normalise
from app.objects import ObjectMissing, ObjectStore
from app.store.images import ImageRow
from workers.engine.base import Image, Pixels


class PictureReader:
    """Reads images on the worker's own threads; the engine decodes them on its own, few at a time.

    A file is small beside its picture: 50 million pixels in one bit take 150 MB as RGB.
    """

    def __init__(self, *, objects: ObjectStore, limits: Limits) -> None:
        self._objects = objects
        self._limits = limits

    def __call__(self, row: ImageRow) -> Image:
        """The image, not yet decoded: its `load` raises ImageError if that cannot be done.

        Raises InvalidWork if the bytes were deleted, TransientWork if the store is away.
        """
        try:
            key = image_key(row.tenant_id, row.content_hash)
            data = self._objects.get(key, max_bytes=self._limits.max_bytes)
        except ObjectMissing as error:
            raise InvalidWork("image_deleted", "The image is no longer in the object store.") from error
        return Image(row.content_hash, row.width, row.height, partial(self._decode, data))

    def _decode(self, data: bytes) -> Pixels:
        return np.asarray(normalise(data, self._limits))
