"""The text of an answer on its way from a worker to the API: channel, messages, how they add up. Pure."""

import json
from dataclasses import dataclass


def text_channel(tenant_id: str, job_id: int) -> str:
    """Tenants' ids are random: installations that share a Redis do not hear each other's jobs."""
    return f"vqueue:text:{tenant_id}:{job_id}"


@dataclass(frozen=True)
class Piece:
    """What an attempt at a job has said from character `offset` on; `ended`: how it ended is recorded."""

    attempt: int
    offset: int
    text: str
    ended: bool = False

    def pack(self) -> bytes:
        return json.dumps([self.attempt, self.offset, self.text, self.ended]).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Piece":
        """ValueError for what is none."""
        attempt, offset, text, ended = json.loads(data)
        return cls(int(attempt), int(offset), str(text), bool(ended))


class HeardText:
    """The text of a job's newest attempt as far as it is known, whichever messages came twice or never."""

    def __init__(self) -> None:
        self.text = ""
        self._attempt = 0

    def hear(self, piece: Piece) -> None:
        """A piece behind a gap is left aside, as are those of an attempt that another has followed."""
        if piece.attempt > self._attempt:
            self._attempt, self.text = piece.attempt, ""
        if piece.attempt == self._attempt and piece.offset <= len(self.text):
            known = len(self.text) - piece.offset
            self.text += piece.text[known:]

    def after(self, sent: str) -> str:
        """What can be sent next to somebody who has `sent`: nothing, where an attempt says something else."""
        return self.text[len(sent) :] if self.text.startswith(sent) else ""
