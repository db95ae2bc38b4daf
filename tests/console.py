"""Somebody who has signed in to the console, by plain HTTP."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx


@dataclass
class Visitor:
    """A session; forms go with its token."""

    http: httpx.Client

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.http.get(path, params=options or None)  # pyright: ignore[reportArgumentType]

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.http.post(path, data={"csrf": self.csrf(), **fields})

    def csrf(self) -> str:
        found = re.search(r'<meta name="csrf-token" content="([^"]+)">', self.get("/batches").text)
        return found[1] if found else ""


@contextmanager
def visiting(url: str, key: str) -> Iterator[Visitor]:
    """Sign in with a key; redirects are left to the test."""
    with httpx.Client(base_url=url, headers={"Accept": "text/html"}, timeout=60) as http:
        answer = http.post("/sign-in", data={"key": key})
        assert answer.status_code == 303, answer.text
        yield Visitor(http)
