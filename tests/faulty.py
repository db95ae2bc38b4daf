"""A real object store in whose streams things happen where a test wants them."""

from collections.abc import Callable, Generator, Iterable

from app.errors import TransientWork
from app.objects import ObjectStore
from tests.servers import S3Place


def break_off() -> None:
    raise TransientWork("object_store_unavailable", "broke off")


class FaultyStore(ObjectStore):
    """Calls `at` after the first `readable` bytes of every stream, and after every stream is written.

    `puts` are the keys that were put.
    """

    def __init__(
        self, place: S3Place, *, readable: int | None = None, at: Callable[[], None] = break_off
    ) -> None:
        super().__init__(
            bucket=place.bucket,
            endpoint_url=place.endpoint_url,
            region=place.region,
            access_key_id=place.access_key_id,
            secret_access_key=place.secret_access_key,
        )
        self._readable = readable
        self._at = at
        self.puts: list[str] = []

    def put(self, key: str, data: bytes, *, content_type: str, bucket: str | None = None) -> None:
        super().put(key, data, content_type=content_type, bucket=bucket)
        self.puts.append(key)

    def open(
        self, key: str, *, start: int = 0, stop: int | None = None, bucket: str | None = None
    ) -> Generator[bytes]:
        data = b"".join(super().open(key, start=start, stop=stop, bucket=bucket))
        first = len(data) if self._readable is None else self._readable
        yield data[:first]
        self._at()
        yield data[first:]

    def put_stream(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        content_type: str,
        max_bytes: int | None = None,
        bucket: str | None = None,
    ) -> int:
        size = super().put_stream(key, chunks, content_type=content_type, max_bytes=max_bytes, bucket=bucket)
        self._at()
        return size
