"""Signatures are what Standard Webhooks says, and what the official SDK takes."""

import json
import time

import openai
import pytest
from openai import OpenAI

from app.signing import hint, new_secret, sign, signed_headers

BODY = json.dumps({"id": "evt_1", "type": "batch.completed", "data": {"id": "batch_1"}}).encode()
CLIENT = OpenAI(api_key="none", base_url="http://127.0.0.1:1/v1")


def test_a_signature_is_the_one_of_the_specifications_example() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_sdk_unwraps_what_is_signed_by_either_secret() -> None:
    old, new = new_secret(), new_secret()
    headers = signed_headers([new, old], "evt_1", int(time.time()), BODY)
    for secret in (old, new):
        event = CLIENT.webhooks.unwrap(BODY, headers, secret=secret)
        assert event.type == "batch.completed"


def test_the_sdk_refuses_another_body_an_old_message_and_a_third_secret() -> None:
    secret = new_secret()
    headers = signed_headers([secret], "evt_1", int(time.time()), BODY)
    late = signed_headers([secret], "evt_1", int(time.time()) - 400, BODY)
    for body, sent, known in (
        (BODY + b" ", headers, secret),
        (BODY, late, secret),
        (BODY, headers, new_secret()),
    ):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            CLIENT.webhooks.unwrap(body, sent, secret=known)


def test_a_hint_gives_no_secret_away() -> None:
    secret = new_secret()
    assert hint(secret) == f"whsec_...{secret[-4:]}"
