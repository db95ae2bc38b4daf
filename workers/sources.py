"""Where images come from (a URL, an S3 bucket, an uploaded file) and where their bytes are kept."""

from collections.abc import Callable

from app.db import Sessions, transaction
from app.deleter import spare
from app.errors import InvalidWork
from app.ids import image_key
from app.images import Limits, content_hash, inspect
from app.objects import ObjectMissing, ObjectStore
from app.references import RefKind, parse_reference
from app.store import files
from app.store.images import FetchTask, StoredImage


class SourceReader:
    """Reads the bytes of an image from its source, checks the header, stores them under their hash."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        download: Callable[[str], bytes],
        limits: Limits,
        buckets: tuple[str, ...],
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._download = download
        self._limits = limits
        self._buckets = buckets

    def read(self, task: FetchTask) -> bytes:
        """The bytes; InvalidWork or TransientWork with a code of docs/images.md."""
        match task.kind:
            case RefKind.URL:
                return self._download(task.ref)
            case RefKind.S3:
                return self._from_bucket(task.ref)
            case RefKind.FILE:
                return self._from_file(task)
            case _:
                raise InvalidWork("bad_url", f"A reference of kind {task.kind!r} cannot be fetched.")

    def keep(self, task: FetchTask, data: bytes) -> StoredImage:
        """Check and store; ImageError if it is no image that we take."""
        info = inspect(data, self._limits)
        digest = content_hash(data)
        key = image_key(task.tenant_id, digest)
        with transaction(self._sessions) as session:  # before the put, as app.deleter says
            spare(session, [key])
        self._objects.put(key, data, content_type=info.content_type)
        return StoredImage(digest, info.format, info.width, info.height, len(data))

    def _from_bucket(self, ref: str) -> bytes:
        reference = parse_reference(ref)
        if reference.bucket not in self._buckets:
            raise InvalidWork(
                "blocked_bucket",
                f"Images are not read from the bucket {reference.bucket!r}; "
                "the operator can allow it in VQUEUE_S3_SOURCE_BUCKETS.",
            )
        return self._objects.get(reference.key, max_bytes=self._limits.max_bytes, bucket=reference.bucket)

    def _from_file(self, task: FetchTask) -> bytes:
        with transaction(self._sessions) as session:
            file = files.read_file(session, task.tenant_id, task.ref)
        if file is None:
            raise InvalidWork("not_found", f"No file has the id {task.ref!r}.")
        try:
            return self._objects.get(file.object_key, max_bytes=self._limits.max_bytes)
        except ObjectMissing as error:
            raise InvalidWork("not_found", f"The file {task.ref!r} was deleted.") from error
