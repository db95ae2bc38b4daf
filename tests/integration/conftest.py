"""Fixtures of the API's tests: the app on a server of its own, and clients of two tenants."""

from collections.abc import Iterator

import httpx
import pytest
from openai import OpenAI

from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.serving import new_key, sdk, serving


@pytest.fixture(scope="session")
def api_url(settings: Settings) -> Iterator[str]:
    with serving(build_app(wire(settings))) as url:
        yield url


@pytest.fixture
def api_key(db: Sessions) -> str:
    return new_key(db)


@pytest.fixture
def client(api_url: str, api_key: str) -> Iterator[OpenAI]:
    """The SDK of a tenant."""
    with sdk(api_url, api_key) as client:
        yield client


@pytest.fixture
def stranger(api_url: str, db: Sessions) -> Iterator[OpenAI]:
    """The SDK of another tenant."""
    with sdk(api_url, new_key(db, "Bob")) as client:
        yield client


@pytest.fixture
def http(api_url: str, api_key: str) -> Iterator[httpx.Client]:
    """Plain HTTP with the tenant's key, for what the SDK never sends."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=api_url, headers=headers, timeout=60) as http:
        yield http
