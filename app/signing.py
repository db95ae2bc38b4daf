"""Signatures of webhooks, as Standard Webhooks has them. Pure."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

MARK = "whsec_"
SECRET_BYTES = 32
SHOWN = 4  # characters of a secret that its owner may recognise it by


def new_secret() -> str:
    return MARK + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def hint(secret: str) -> str:
    """What may be shown of a secret."""
    return f"{MARK}...{secret[-SHOWN:]}"


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`."""
    key = base64.b64decode(secret.removeprefix(MARK))
    signed = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def signed_headers(secrets_: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers; a receiver takes the message if any of the signatures is by the secret it knows."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message_id, timestamp, body) for secret in secrets_),
    }
