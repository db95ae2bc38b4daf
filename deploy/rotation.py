"""Changes the logins of Postgres, broker, Redis and S3 while every process goes on: two hold at a time."""

import secrets
import subprocess
from collections.abc import Mapping
from urllib.parse import quote

import redis
import urllib3
from pydantic import SecretStr
from sqlalchemy import make_url

from app.config import Settings
from app.local.seaweed import binary
from deploy.drill import Drill, Ground, Report, Step
from deploy.fleet import Version, names
from deploy.trees import NEW
from tests.chaos.books import Books
from tests.chaos.verdict import Files

NEXT = "vqueue_next"  # the second login, beside `vqueue`


def drill(place: Ground, quiet: Mapping[str, Files]) -> Report:
    """Second logins are made, every process is started anew with them, the first ones are closed."""
    first = place.version(NEW, "secrets")
    held = Drill(place, "secrets", first)
    password = secrets.token_hex(16)
    second = Version(NEW, _with_next(place, first.settings, password))
    steps: list[Step] = [
        ("the second logins are there", lambda: _add(place, first.settings, password)),
        *held.fleet.rolling(second, names(), "has its second logins"),
        ("the first logins are closed", lambda: _close(place, held, second.settings)),
    ]
    return held.go(steps, quiet)


def _with_next(place: Ground, settings: Settings, password: str) -> Settings:
    def url(given: SecretStr, user: str | None = None) -> SecretStr:
        changed = make_url(given.get_secret_value()).set(password=password)
        changed = changed.set(username=user) if user else changed
        return SecretStr(changed.render_as_string(hide_password=False))

    on_rabbitmq = place.plan.broker == "rabbitmq"
    return settings.model_copy(
        update={
            "database_url": url(settings.database_url, NEXT),
            "broker_url": url(settings.broker_url, NEXT if on_rabbitmq else None),
            "redis_url": url(settings.redis_url),
            "s3_access_key_id": SecretStr(NEXT),
            "s3_secret_access_key": SecretStr(password),
        }
    )


def _add(place: Ground, settings: Settings, password: str) -> None:
    books = Books(settings.database_url.get_secret_value())
    books.rows(f"CREATE ROLE {NEXT} LOGIN PASSWORD '{password}' IN ROLE vqueue")
    # What a migration makes under the second login belongs to the first one, as all else.
    books.rows(f"ALTER ROLE {NEXT} SET role = 'vqueue'")
    books.close()
    _ask_valkey(settings, "ACL", "SETUSER", "default", f">{password}")
    if place.plan.broker == "rabbitmq":
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        _ask_rabbitmq(place, "PUT", f"users/{NEXT}", {"password": password, "tags": ""})
        _ask_rabbitmq(place, "PUT", f"permissions/%2F/{NEXT}", rights)
    _configure_s3(place, f"-user {NEXT} -access_key {NEXT} -secret_key {password} -actions Admin -apply")


def _close(place: Ground, held: Drill, settings: Settings) -> None:
    """The first login of Postgres keeps its tables and logs in no more; the old passwords are forgotten."""
    held.books.close()
    held.books = Books(settings.database_url.get_secret_value())
    url = make_url(held.settings.database_url.get_secret_value())
    held.books.rows(f"ALTER ROLE {url.username} NOLOGIN")
    held.books.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND usename = %s",
        url.username,
    )
    old = make_url(held.settings.redis_url.get_secret_value()).password
    _ask_valkey(settings, "ACL", "SETUSER", "default", f"<{old}")
    if place.plan.broker == "rabbitmq":
        _ask_rabbitmq(place, "DELETE", "users/vqueue")


def _ask_valkey(settings: Settings, *words: str) -> None:
    with redis.Redis.from_url(settings.redis_url.get_secret_value()) as client:
        client.execute_command(*words)


def _ask_rabbitmq(place: Ground, method: str, path: str, body: object = None) -> None:
    """By its management API, as `rabbitmqctl` would do it."""
    server = place.rabbitmq
    url = f"{server.management_url}/api/{path}"
    headers = urllib3.make_headers(basic_auth=":".join(quote(part) for part in server.login))
    answer = urllib3.request(method, url, headers=headers, json=body, timeout=30)
    assert answer.status in (201, 204), answer.data


def _configure_s3(place: Ground, words: str) -> None:
    """By SeaweedFS' own shell; other stores have a console for it."""
    ports = [place.data.port(f"seaweed.{name}") for name in ("master", "master.grpc", "filer", "filer.grpc")]
    where = [f"-master=127.0.0.1:{ports[0]}.{ports[1]}", f"-filer=127.0.0.1:{ports[2]}.{ports[3]}"]
    subprocess.run(
        [binary(), "shell", *where],
        input=f"s3.configure {words}\n",
        text=True,
        check=True,
        capture_output=True,
    )
