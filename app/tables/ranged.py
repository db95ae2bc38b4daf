"""A stored object as a file that can be read anywhere, by ranged reads."""

import io

from app.objects import ObjectMissing, ObjectStore
from app.tables.base import refused


class RangedFile(io.RawIOBase):
    """Reads no more at once than `most`: what a file says of its own parts may be false."""

    def __init__(self, objects: ObjectStore, key: str, *, most: int) -> None:
        found = objects.head(key)
        if found is None:
            raise ObjectMissing(objects.bucket, key)
        self.size = found.bytes
        self._objects = objects
        self._key = key
        self._most = most
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise OSError("The file has no place before its start.")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        size = max(0, min(len(buffer), self.size - self._position))
        if size > self._most:
            raise refused("file_too_complex", f"The file has a part of over {self._most:,} bytes: split it.")
        at, stop = 0, self._position + size
        if size:
            for chunk in self._objects.open(self._key, start=self._position, stop=stop):
                buffer[at : at + len(chunk)] = chunk
                at += len(chunk)
        self._position += at
        return at
