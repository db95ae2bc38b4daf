"""Acts out the row about a cache that is emptied, and then filled with garbage, in the middle of work."""

import os
from contextlib import closing
from dataclasses import replace

import redis

from tests.fieldcases.model import Lab
from tests.requests import ask, picture


def flush_and_spoil(lab: Lab) -> None:
    """Each engine is a new one, so that nothing but the cache can remember."""
    request = ask(replace(picture(1, 300, 300), expected_uses=9, later_uses=8), "colour?")
    url = lab.redis_url()

    def answer() -> str:
        with lab.engine(redis_url=url, feature_cache_bytes=2**22) as (engine, _):
            return engine.submit(request).result(60).text

    with lab.engine() as (engine, _), closing(redis.Redis.from_url(url)) as client:
        alone = engine.submit(request).result(60).text
        assert answer() == alone
        assert client.dbsize()
        client.flushdb()
        assert answer() == alone
        entries = [key for key in client.scan_iter() if client.type(key) == b"string"]
        assert entries
        for key in entries:
            client.set(key, os.urandom(1000))
        assert answer() == alone
