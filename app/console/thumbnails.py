"""Small pictures for pages, behind links that hold for an hour or two and are signed."""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from app.db import Sessions, transaction
from app.errors import ImageError, NotFound
from app.ids import image_key
from app.images import Limits, normalise
from app.objects import ObjectStore
from app.store.console_sessions import ensure_secret

# Pixels of the longer side: in a grid (sharp on a screen of twice the density), and alone on a page.
SMALL, LARGE = 320, 1600
SIZES = (SMALL, LARGE)
# Links are the same for so long, so that browsers find their pictures again; they hold for twice as long.
SAME_S = 3600
KEPT_BYTES = 32 * 2**20
QUALITY = 80
SECRET_BYTES = 32


@dataclass(frozen=True)
class Thumbnail:
    """Whose picture, which, how large, and until when (Unix time) its link holds."""

    tenant_id: str
    content_hash: str
    side: int
    until: int


def sign(secret: bytes, one: Thumbnail) -> str:
    """Hex HMAC-SHA256 over all that a link says."""
    said = f"{one.tenant_id}\n{one.content_hash}\n{one.side}\n{one.until}"
    return hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()


def link(secret: bytes, tenant_id: str, content_hash: str, side: int, *, now: float) -> str:
    """The address of a picture, the same within the hour."""
    until = (int(now) // SAME_S + 2) * SAME_S
    mark = sign(secret, Thumbnail(tenant_id, content_hash, side, until))
    return f"/thumbnails/{tenant_id}/{content_hash}/{side}?until={until}&mark={mark}"


def holds(secret: bytes, one: Thumbnail, mark: str, *, now: float) -> bool:
    """Whether we have made this link, and not too long ago."""
    return one.until > now and hmac.compare_digest(sign(secret, one).encode(), mark.encode())


class Thumbnails:
    """Makes and remembers small pictures; nothing of them is stored, so nothing outlives its image."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        limits: Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._secret: bytes | None = None
        self._kept: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._kept_bytes = 0

    def linker(self, tenant_id: str, side: int) -> Callable[[str], str]:
        """What makes links to pictures of this size by their content hashes, for one page."""
        now = self._clock()
        return lambda content_hash: link(self._known_secret(), tenant_id, content_hash, side, now=now)

    def read(self, wanted: Thumbnail, mark: str) -> bytes:
        """WebP. `NotFound` for a link that is not ours, is over, or whose image is gone or broken."""
        if wanted.side not in SIZES or not holds(self._known_secret(), wanted, mark, now=self._clock()):
            raise NotFound("This link is not valid any more.", code="unknown_url")
        key = (wanted.tenant_id, wanted.content_hash, wanted.side)
        with self._lock:
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known
        original = self._objects.get(
            image_key(wanted.tenant_id, wanted.content_hash), max_bytes=self._limits.max_bytes
        )
        try:
            made = shrink(original, self._limits, wanted.side)
        except ImageError as error:
            raise NotFound(
                f"This picture cannot be shown: {error.message}", code="image_not_found"
            ) from error
        self._keep(key, made)
        return made

    def _known_secret(self) -> bytes:
        if self._secret is None:
            with transaction(self._sessions) as session:
                new = secrets.token_bytes(SECRET_BYTES)
                self._secret = ensure_secret(session, name="thumbnails", new=new)
        return self._secret

    def _keep(self, key: tuple[str, str, int], made: bytes) -> None:
        with self._lock:
            self._kept_bytes += len(made) - len(self._kept.pop(key, b""))
            self._kept[key] = made
            while self._kept_bytes > KEPT_BYTES:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= len(oldest)


def shrink(data: bytes, limits: Limits, side: int) -> bytes:
    """As WebP, no side longer than asked; ImageError for what is no picture."""
    picture = normalise(data, limits, small=side)
    picture.thumbnail((side, side))
    made = BytesIO()
    picture.save(made, "WEBP", quality=QUALITY)
    return made.getvalue()
