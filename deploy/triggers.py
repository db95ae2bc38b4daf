"""What KEDA's triggers read: the same requests, by the same fields of a ScaledObject, to the same servers."""

from collections.abc import Callable, Mapping
from contextlib import closing
from urllib.parse import quote_plus, unquote, urlsplit

import psycopg2
import redis
import urllib3

from deploy.scaled import Question

TIMEOUT_S = 3.0  # KEDA's own default for HTTP
ROOT_VHOST = "%2F"
# A list, or what else holds things: KEDA asks for the type first, in one script.
LENGTH = """
local kind = redis.call('type', KEYS[1]).ok
local sizes = {zset = 'zcard', set = 'scard', hash = 'hlen', list = 'llen', none = 'llen'}
return redis.call(sizes[kind], KEYS[1])
"""
Fields = Mapping[str, str]


class Unreadable(Exception):
    """A trigger gets no number; its words say why, without any password."""


def read(question: Question, login: Fields) -> float:
    """The number that a trigger reads. Raises Unreadable."""
    reader = READERS.get(question.type)
    if reader is None:
        raise Unreadable(f"{question.name}: no reader for triggers of type {question.type}")
    try:
        return reader({**question.metadata, **login})
    except (KeyError, ValueError, urllib3.exceptions.HTTPError, redis.RedisError, psycopg2.Error) as error:
        raise Unreadable(f"{question.name}: {type(error).__name__}") from error


def _read_rabbitmq(fields: Fields) -> float:
    """Messages ready and unacknowledged, by the management API; of all queues of a pattern their sum."""
    url, headers = _management(fields["host"], fields.get("vhostName", ""))
    name, by_pattern = quote_plus(fields["queueName"]), fields.get("useRegex") == "true"
    if by_pattern:
        size = fields.get("pageSize", "100")
        url = f"{url}?page=1&use_regex=true&pagination=false&name={name}&page_size={size}"
    else:
        url = f"{url}/{name}"
    answer = urllib3.request("GET", url, headers=headers, timeout=TIMEOUT_S, retries=False)
    if answer.status != 200:
        raise ValueError(answer.status)
    found = answer.json()
    if by_pattern and found["page_count"] > 1:
        raise ValueError("more queues than fit one page")
    counted = "messages_ready" if fields.get("excludeUnacknowledged") == "true" else "messages"
    # A queue that was declared a moment ago has no statistics yet.
    return float(sum(queue.get(counted, 0) for queue in (found["items"] if by_pattern else [found])))


def _management(host: str, vhost: str) -> tuple[str, dict[str, str]]:
    """Where a virtual host's queues are listed, and how to log in there: the host's last part names it."""
    parts = urlsplit(host)
    path, _, last = parts.path.rpartition("/")
    named = quote_plus(vhost) if vhost else last or ROOT_VHOST
    place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"{parts.scheme}://{place}{path}/api/queues/{named}", urllib3.make_headers(basic_auth=login)


def _read_redis(fields: Fields) -> float:
    host, _, port = fields["address"].rpartition(":")
    with closing(
        redis.Redis(
            host=host,
            port=int(port),
            db=int(fields.get("databaseIndex", "0")),
            username=fields.get("username") or None,
            password=fields.get("password") or None,
            ssl=fields.get("tls") == "enable" or fields.get("enableTLS") == "true",
            socket_timeout=TIMEOUT_S,
        )
    ) as client:
        # Typed as what might be awaited: this client is not of that kind.
        return float(client.eval(LENGTH, 1, fields["listName"]))  # pyright: ignore[reportArgumentType]


def _read_postgresql(fields: Fields) -> float:
    with closing(psycopg2.connect(fields["connection"], connect_timeout=int(TIMEOUT_S))) as connection:
        cursor = connection.cursor()
        cursor.execute(fields["query"])
        found = cursor.fetchone()
        if found is None or found[0] is None:
            raise ValueError("no number")
        return float(found[0])


READERS: Mapping[str, Callable[[Fields], float]] = {
    "rabbitmq": _read_rabbitmq,
    "redis": _read_redis,
    "postgresql": _read_postgresql,
}
