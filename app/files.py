"""Files: streamed in from a form, listed, read back, deleted."""

import hashlib
import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from app.actor import actor
from app.db import Sessions, transaction
from app.errors import Conflict, NotFound, Overloaded, RequestError, TooLarge, WorkError
from app.ids import file_key, new_file_id
from app.limits import Limits
from app.multipart import Part
from app.objects import ObjectStore
from app.pages import Page, page_of
from app.removal import remove_file
from app.repeats import Once, hash_request
from app.store import audit
from app.store import files as store
from app.store.files import FileRow, NewFile
from app.tables.formats import TABLES, format_of

BATCH = "batch"
FILE = "file"
# What clients may upload: input of batches, and images that jobs name by file id.
PURPOSES = (BATCH, "vision", "user_data")
# OpenAI's limit for files of other purposes than batch.
FILE_BYTES = 512 * 10**6
# OpenAI's: input files go after 30 days unless the client says otherwise; others stay.
BATCH_FILE_S = 30 * 86_400
EXPIRES_S = range(3600, BATCH_FILE_S + 1)
FILENAME_CHARS = 255
# A form of ours has four fields.
MOST_FIELDS = 16
OCTETS = "application/octet-stream"

log = structlog.get_logger()


@dataclass(frozen=True)
class _Draft:
    """A file whose bytes lie in the object store, but which is not known yet."""

    id: str
    key: str
    filename: str
    content_type: str
    bytes: int
    digest: str  # hex sha256 of the bytes


class Files:
    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        limits: Limits,
        batch_max_bytes: int,
        table_max_bytes: int,
        longest_s: int = 0,
    ) -> None:
        """A file lives for at most `longest_s` seconds, whatever is asked for; 0 sets no limit."""
        self._sessions = sessions
        self._objects = objects
        self._limits = limits
        self._longest_s = longest_s
        self._batch_max_bytes = batch_max_bytes
        self._table_max_bytes = table_max_bytes

    def upload(self, tenant_id: str, parts: Iterable[Part], *, idempotency_key: str | None = None) -> FileRow:
        """Keep the file of a form. Its bytes pass through unheld; the fields may come in any order.

        With the key of an earlier form that said the same, bytes included, the file that it made.

        What was stored is taken back when the form turns out to be wrong. Only a crash, or Postgres failing
        at the end, may leave bytes behind that no file points to: `app.orphans` finds those.
        """
        if refusal := self._limits.disk_refusal():
            raise refusal
        self._limits.check_bytes(tenant_id)
        file_id = new_file_id()
        fields: dict[str, str] = {}
        draft: _Draft | None = None
        try:
            for part in parts:
                if part.name != "file" or part.filename is None:
                    _keep_field(fields, part)
                elif draft is not None:
                    raise _wrong("file", "send one file at a time")
                else:
                    draft = self._store(tenant_id, file_id, part, fields.get("purpose"))
            new = self._check(tenant_id, draft, fields)
        except BaseException:
            if draft is not None:
                self._drop(draft.key)
            raise
        if not idempotency_key:
            return self._insert_new(new)
        digest = draft.digest if draft else ""
        said = [digest, new.purpose, new.filename, new.content_type, new.expires_after_s]
        return self._insert_once(new, Once(tenant_id, FILE, idempotency_key, hash_request(said)))

    def read(self, tenant_id: str, file_id: str) -> FileRow:
        """A file of this tenant; `NotFound` for one that is not, or has expired."""
        with transaction(self._sessions) as session:
            file = store.read_file(session, tenant_id, file_id)
        if file is None:
            raise _not_found(file_id)
        return file

    def list(
        self,
        tenant_id: str,
        *,
        limit: int,
        newest_first: bool = True,
        after: str | None = None,
        purpose: str | None = None,
    ) -> Page[FileRow]:
        cursor = self.read(tenant_id, after) if after else None
        with transaction(self._sessions) as session:
            found = store.list_files(
                session,
                tenant_id,
                limit=limit + 1,
                newest_first=newest_first,
                after=cursor,
                purpose=purpose,
            )
        return page_of(found, limit)

    def content(self, file: FileRow) -> Iterator[bytes]:
        """The file's bytes in blocks; `ObjectMissing` at once when they are gone."""
        return self._objects.open(file.object_key)

    def delete(self, tenant_id: str, file_id: str) -> None:
        """Remove a file and, if the object store answers, its bytes; else the dispatcher does it later.

        A batch that still reads it fails with `file_not_found`, as at OpenAI: what its owner deletes is gone,
        and no queue has a say in that.
        """
        with transaction(self._sessions) as session:
            file = remove_file(session, tenant_id, file_id)
            if file is not None:
                audit.note(session, actor(), "file.deleted", file_id, tenant_id=tenant_id)
        if file is None:
            raise _not_found(file_id)
        try:
            self._objects.delete(file.object_key)
        except WorkError as error:
            log.info("file_bytes_left", file=file_id, code=error.code)

    def _insert_new(self, new: NewFile) -> FileRow:
        try:
            with transaction(self._sessions) as session:
                return self._insert(session, new)
        except Overloaded:
            self._drop(new.object_key)
            raise

    def _insert_once(self, new: NewFile, once: Once) -> FileRow:
        """The file, or the one that the same request has made; then the bytes of this one are let go."""
        try:
            with transaction(self._sessions) as session:
                made = once.made(session)
                earlier = store.read_file(session, new.tenant_id, made) if made else None
                if earlier is None:
                    once.note(session, new.id)
                    return self._insert(session, new)
        except (Conflict, Overloaded):
            self._drop(new.object_key)
            raise
        self._drop(new.object_key)
        return earlier

    def _insert(self, session: Session, new: NewFile) -> FileRow:
        """`Overloaded` for one that is more than its tenant may have."""
        self._limits.check_file(session, new.tenant_id, size=new.bytes)
        details = {"purpose": new.purpose, "filename": new.filename, "bytes": new.bytes}
        audit.note(session, actor(), "file.created", new.id, details, tenant_id=new.tenant_id)
        return store.insert_file(session, new)

    def _drop(self, key: str) -> None:
        with suppress(WorkError):  # the first error is the one to tell
            self._objects.delete(key)

    def _store(self, tenant_id: str, file_id: str, part: Part, purpose: str | None) -> _Draft:
        """Stream the file's bytes away. What is known of its purpose by now is checked before."""
        filename = _clean_filename(part.filename or "")
        if purpose is not None:
            _check_purpose(purpose, filename)
        key, content_type = file_key(tenant_id, file_id), _content_type(part.content_type, filename)
        most = self._most_bytes(purpose, filename)
        digest = hashlib.sha256()

        def noted() -> Iterator[bytes]:
            for block in part.blocks():
                digest.update(block)
                yield block

        try:
            size = self._objects.put_stream(key, noted(), content_type=content_type, max_bytes=most)
        except TooLarge:
            raise _too_large(most) from None
        return _Draft(file_id, key, filename, content_type, size, digest.hexdigest())

    def _most_bytes(self, purpose: str | None, filename: str) -> int:
        """Of a file of this purpose; the most of all purposes while that is not known."""
        of_batch = self._table_max_bytes if format_of(filename) in TABLES else self._batch_max_bytes
        if purpose is None:
            return max(FILE_BYTES, of_batch)
        return of_batch if purpose == BATCH else FILE_BYTES

    def _check(self, tenant_id: str, draft: _Draft | None, fields: Mapping[str, str]) -> NewFile:
        """The file as the whole form describes it."""
        if "purpose" not in fields:
            raise _missing("purpose")
        if draft is None:
            raise _missing("file")
        purpose = fields["purpose"]
        _check_purpose(purpose, draft.filename)
        if draft.bytes > (most := self._most_bytes(purpose, draft.filename)):
            raise _too_large(most)
        if not draft.bytes:
            raise RequestError("The file is empty.", param="file", code="empty_file")
        return NewFile(
            id=draft.id,
            tenant_id=tenant_id,
            purpose=purpose,
            filename=draft.filename,
            content_type=draft.content_type,
            bytes=draft.bytes,
            object_key=draft.key,
            expires_after_s=_shorter(_expires_after_s(fields), self._longest_s),
        )


def _keep_field(fields: dict[str, str], part: Part) -> None:
    if len(fields) == MOST_FIELDS:
        raise _wrong(part.name, "the form has too many fields")
    fields[part.name] = part.text()


def _check_purpose(purpose: str, filename: str) -> None:
    if purpose not in PURPOSES:
        raise _wrong("purpose", f"it must be one of {', '.join(PURPOSES)}")
    if purpose == BATCH and format_of(filename) is None:
        raise RequestError(
            f"Invalid file format for Batch API. Must be .jsonl, or a table: .{', .'.join(TABLES)}",
            param="file",
            code="invalid_file_format",
        )


def _expires_after_s(fields: Mapping[str, str]) -> int | None:
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return BATCH_FILE_S if fields["purpose"] == BATCH else None
    if anchor != "created_at":
        raise _wrong("expires_after[anchor]", "it must be 'created_at'")
    if seconds is None or not seconds.isdecimal() or len(seconds) > 9 or int(seconds) not in EXPIRES_S:
        raise _wrong("expires_after[seconds]", f"it must be from {EXPIRES_S[0]} to {EXPIRES_S[-1]}")
    return int(seconds)


def _shorter(asked_s: int | None, longest_s: int) -> int | None:
    """How long a file lives for which a client asks for so long, None being for ever."""
    if not longest_s:
        return asked_s
    return min(asked_s or longest_s, longest_s)


def _clean_filename(filename: str) -> str:
    """The last part of a path, without control characters; a client's folders are not our business."""
    name = filename.replace("\\", "/").rsplit("/", 1)[-1]
    name = "".join(character for character in name if character.isprintable()).strip()
    if not name or len(name) > FILENAME_CHARS:
        raise _wrong("file", f"its name must have 1 to {FILENAME_CHARS} characters")
    return name


def _content_type(given: str | None, filename: str) -> str:
    """What the client says, unless that is nothing; then by the file's name."""
    if given and given != OCTETS and given.isascii() and given.isprintable():
        return given
    if filename.lower().endswith(".jsonl"):
        return "application/jsonl"
    return mimetypes.guess_type(filename)[0] or OCTETS


def _not_found(file_id: str) -> NotFound:
    return NotFound(f"No such File object: {file_id}", param="id", code="file_not_found")


def _wrong(param: str, reason: str) -> RequestError:
    return RequestError(f"Invalid '{param}': {reason}.", param=param, code="invalid_value")


def _missing(param: str) -> RequestError:
    return RequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_parameter")


def _too_large(most: int) -> RequestError:
    message = f"File is too large. The limit for this purpose is {most:,} bytes."
    return RequestError(message, param="file", code="file_too_large")
