"""The object store (S3): bytes in and out in streams, and its errors translated into ours."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError
from botocore.response import StreamingBody

from app.config import MIB, Settings
from app.errors import FatalWork, InvalidWork, TooLarge, TransientWork, WorkError
from app.states import OUR_STORE_AWAY

# S3 takes 10,000 parts of at least 5 MiB: 6 MiB carries 58 GiB and keeps a writer's memory small, which is
# four parts: one gathered, one in hand, and what sending makes of it.
PART_BYTES = 6 * MIB
READ_BYTES = 256 * 1024
CONNECT_S, READ_S, RETRIES = 5.0, 30.0, 3
# How often a broken stream is taken up again without a byte of progress.
RESUMES = 3
UNAVAILABLE = OUR_STORE_AWAY


class ObjectMissing(InvalidWork):
    """There is no such object (or bucket, when the caller named one)."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__("not_found", f"NoSuchKey: the object {key!r} in bucket {bucket!r} was not found.")


@dataclass(frozen=True)
class ObjectInfo:
    """What the store says of an object: its size in `bytes`, its type, and the tag of this version."""

    bytes: int
    content_type: str
    etag: str


@dataclass(frozen=True)
class Listed:
    key: str
    changed_at: float  # Unix time
    bytes: int
    etag: str


class ObjectStore:
    """One bucket to keep things in, and reading from others by name. Safe to share among threads.

    Every method may raise `TransientWork("object_store_unavailable")` when the store is away or busy, and
    `FatalWork` when it refuses us (credentials, our bucket missing).
    """

    def __init__(
        self,
        *,
        bucket: str,
        endpoint_url: str | None = None,
        region: str = "us-east-1",
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        connections: int = 16,
    ) -> None:
        session = Session(
            aws_access_key_id=access_key_id, aws_secret_access_key=secret_access_key, region_name=region
        )
        self.bucket = bucket
        self._s3 = _client(session, endpoint_url, connections=connections, retries=RETRIES)
        self._probe = _client(session, endpoint_url, connections=1, retries=0, connect_s=2.0, read_s=2.0)

    def put(self, key: str, data: bytes, *, content_type: str, bucket: str | None = None) -> None:
        bucket = bucket or self.bucket
        with self._translated(bucket, key):
            self._s3.put_object(Bucket=bucket, Key=key, Body=data, ContentType=content_type)

    def put_stream(
        self,
        key: str,
        chunks: Iterable[bytes],
        *,
        content_type: str,
        max_bytes: int | None = None,
        bucket: str | None = None,
    ) -> int:
        """Write an object from chunks with flat memory and return its size in bytes.

        The object appears whole or not at all: any error, also one raised by `chunks`, leaves nothing behind.
        Raises `TooLarge` once the chunks sum up to more than `max_bytes`.
        """
        parts = _parts(_limited(chunks, max_bytes))
        first = next(parts, b"")
        if len(first) < PART_BYTES:
            self.put(key, first, content_type=content_type, bucket=bucket)
            return len(first)
        whole = chain([first], parts)
        del first  # else it is kept until the last one is sent
        return self._put_parts(bucket or self.bucket, key, whole, content_type)

    def open(
        self, key: str, *, start: int = 0, stop: int | None = None, bucket: str | None = None
    ) -> Generator[bytes]:
        """The object's bytes from offset `start` on, up to `stop`, in chunks; what breaks off is taken up.

        Raises `ObjectMissing` at once, not at the first chunk. An object that was replaced in the middle of
        reading ends in `TransientWork("object_changed")`.
        """
        stream = self._read(bucket or self.bucket, key, start, stop)
        next(stream)
        return stream

    def get(self, key: str, *, max_bytes: int, bucket: str | None = None) -> bytes:
        """The whole object; `InvalidWork("too_large")` when it is larger than `max_bytes`."""
        data = bytearray()
        with closing(self._read(bucket or self.bucket, key, 0)) as stream:
            for chunk in stream:
                data += chunk
                if len(data) > max_bytes:
                    raise InvalidWork("too_large", f"The object {key!r} is over {max_bytes:,} bytes.")
        return bytes(data)

    def head(self, key: str, bucket: str | None = None) -> ObjectInfo | None:
        """What is known of an object; None where there is none."""
        try:
            with self._translated(bucket or self.bucket, key):
                answer = self._s3.head_object(Bucket=bucket or self.bucket, Key=key)
        except ObjectMissing:
            return None
        return ObjectInfo(answer["ContentLength"], answer.get("ContentType", ""), answer.get("ETag", ""))

    def keys(self, prefix: str, *, bucket: str) -> Iterator[str]:
        """The keys of another bucket that begin so, in the store's order; "folders" are none."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        with self._translated(bucket, prefix):
            for page in pages:
                found = (item["Key"] for item in page.get("Contents", ()))
                yield from (key for key in found if not key.endswith("/"))

    def page(self, prefix: str, *, after: str) -> Sequence[Listed]:
        """The next thousand of our objects whose keys begin so and come behind `after`."""
        with self._translated(self.bucket, prefix):
            answer = self._s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, StartAfter=after)
        return [_listed(item) for item in answer.get("Contents", ())]

    def pages(self, prefix: str, *, bucket: str) -> Iterator[Sequence[Listed]]:
        """What another bucket has whose keys begin so, by the thousand; "folders" are none."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        with self._translated(bucket, prefix):
            for page in pages:
                found = [_listed(item) for item in page.get("Contents", ())]
                yield [one for one in found if not one.key.endswith("/")]

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        with self._translated(self.bucket, key):
            self._s3.delete_object(Bucket=self.bucket, Key=key)

    def ensure_bucket(self) -> None:
        """Create our bucket unless it is there; several processes may try at once."""
        with self._translated(self.bucket, ""):
            try:
                self._s3.head_bucket(Bucket=self.bucket)
            except ClientError as error:
                if _status(error) != 404:
                    raise
                self._create_bucket()

    def reachable(self) -> bool:
        """Whether our bucket answers, within a few seconds and without retries."""
        try:
            self._probe.head_bucket(Bucket=self.bucket)
        except (ClientError, BotoCoreError):
            return False
        return True

    def close(self) -> None:
        self._s3.close()
        self._probe.close()

    def _create_bucket(self) -> None:
        region = self._s3.meta.region_name
        place = {} if region == "us-east-1" else {"LocationConstraint": region}
        try:
            self._s3.create_bucket(
                Bucket=self.bucket, **({"CreateBucketConfiguration": place} if place else {})
            )
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    def _put_parts(self, bucket: str, key: str, parts: Iterator[bytes], content_type: str) -> int:
        where = {"Bucket": bucket, "Key": key}
        with self._translated(bucket, key):
            upload = self._s3.create_multipart_upload(**where, ContentType=content_type)["UploadId"]
        try:
            done: list[dict[str, object]] = []
            size = 0
            for part in parts:
                done.append(self._put_part(where, upload, len(done) + 1, part))
                size += len(part)
                del part  # before the next one is gathered
            with self._translated(bucket, key):
                self._s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": done})
        except BaseException:
            self._abort(where, upload)
            raise
        return size

    def _put_part(self, where: dict[str, str], upload: str, number: int, part: bytes) -> dict[str, object]:
        with self._translated(where["Bucket"], where["Key"]):
            answer = self._s3.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _abort(self, where: dict[str, str], upload: str) -> None:
        # The error that led here is what counts; parts that stay behind fall to the bucket's lifecycle rule.
        try:
            self._s3.abort_multipart_upload(**where, UploadId=upload)
        except (ClientError, BotoCoreError):
            return

    def _read(self, bucket: str, key: str, start: int, stop: int | None = None) -> Generator[bytes]:
        """Yields one empty chunk once the object is open, so that a started generator always closes it."""
        body, end, etag = self._get(bucket, key, start, stop, etag=None)
        position, failures = start, 0
        yield b""
        while True:
            try:
                with closing(body):
                    for chunk in body.iter_chunks(READ_BYTES):
                        position, failures = position + len(chunk), 0
                        yield chunk
                return
            except BotoCoreError as error:
                failures += 1
                if failures > RESUMES:
                    raise TransientWork(UNAVAILABLE, f"Reading {key!r} broke off: {error}") from error
            if position >= end:
                return
            body, end, etag = self._get(bucket, key, position, stop, etag)

    def _get(
        self, bucket: str, key: str, start: int, stop: int | None, etag: str | None
    ) -> tuple[StreamingBody, int, str]:
        """An open body from `start` on, where it ends, and the tag that says which version it is of."""
        where: dict[str, str] = {"Bucket": bucket, "Key": key}
        if start or stop is not None:
            where["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        if etag:
            where["IfMatch"] = etag
        with self._translated(bucket, key):
            try:
                answer = self._s3.get_object(**where)
            except ClientError as error:
                if _status(error) != 416:
                    raise
                return StreamingBody(BytesIO(), 0), start, ""
        return answer["Body"], start + answer["ContentLength"], answer.get("ETag", "")

    @contextmanager
    def _translated(self, bucket: str, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise _refused(error, bucket=bucket, key=key, own=bucket == self.bucket) from error
        except NoCredentialsError as error:
            raise FatalWork("object_store_refused", "The object store needs credentials.") from error
        except ParamValidationError as error:
            raise InvalidWork("bad_object_name", f"{bucket!r} / {key!r} cannot name an object.") from error
        except BotoCoreError as error:
            raise TransientWork(UNAVAILABLE, f"The object store does not answer: {error}") from error


def make_objects(settings: Settings, *, connections: int = 16) -> ObjectStore:
    """The store that the settings name; `connections` bounds its pool."""
    key_id, secret = settings.s3_access_key_id, settings.s3_secret_access_key
    return ObjectStore(
        bucket=settings.s3_bucket,
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        access_key_id=key_id.get_secret_value() if key_id else None,
        secret_access_key=secret.get_secret_value() if secret else None,
        connections=connections,
    )


def _client(
    session: Session,
    endpoint_url: str | None,
    *,
    connections: int,
    retries: int = RETRIES,
    connect_s: float = CONNECT_S,
    read_s: float = READ_S,
) -> Any:  # boto3 makes its clients at run time: there is no type to name
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        max_pool_connections=connections,
        connect_timeout=connect_s,
        read_timeout=read_s,
        retries={"mode": "standard", "total_max_attempts": retries + 1},
        # Trailing checksums are a novelty that many S3-compatible servers do not take.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session.client("s3", endpoint_url=endpoint_url, config=config)


def _listed(item: Any) -> Listed:  # as boto3 gives it
    return Listed(item["Key"], item["LastModified"].timestamp(), item["Size"], item.get("ETag", ""))


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _refused(error: ClientError, *, bucket: str, key: str, own: bool) -> WorkError:
    """Our error for an answer of the store; a bucket that is not ours is the caller's business."""
    status, code = _status(error), error.response.get("Error", {}).get("Code", "")
    if code in ("NoSuchKey", "404", "NotFound") or (status == 404 and not own):
        return ObjectMissing(bucket, key)
    if status == 412:
        return TransientWork("object_changed", f"The object {key!r} was replaced while it was read.")
    if status >= 500 or status in (408, 429) or code == "NoSuchUpload":
        return TransientWork(UNAVAILABLE, f"The object store answered {status} {code}.")
    if own:
        return FatalWork("object_store_refused", f"The object store answered {status} {code} for {key!r}.")
    return InvalidWork("object_refused", f"Bucket {bucket!r} answered {status} {code} for {key!r}.")


def _limited(chunks: Iterable[bytes], max_bytes: int | None) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if max_bytes is not None and total > max_bytes:
            raise TooLarge(f"The data is over {max_bytes:,} bytes.", code="too_large")
        yield chunk


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of PART_BYTES; only the last one is shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART_BYTES:
            with memoryview(held) as all_held:
                part = bytes(all_held[:PART_BYTES])
            del held[:PART_BYTES]  # before the part is sent: two of them are in memory at most
            yield part
    if held:
        yield bytes(held)
