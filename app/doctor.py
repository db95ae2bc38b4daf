"""What `vqueue doctor` looks at: each thing that a vqueue stands on, and what to do where one is missing."""

import shutil
from collections.abc import Callable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from uuid import uuid4

import httpx
from redis import Redis
from redis.exceptions import RedisError

from app.config import Settings
from app.db import make_engine
from app.download import resolve
from app.errors import WorkError
from app.guard import FetchPolicy, check_url, parse_url
from app.objects import make_objects
from app.readiness import OK, Check, readiness_checks
from vqueue import ApiError, Client, Unauthorized, VqueueError

LOW_BYTES = 5 * 10**9
WAIT_S = 3.0
LOOK_S = 8.0  # for one thing; what takes longer is frozen, or as good as that
SOME_NAME = "example.com"
METADATA = "http://169.254.169.254/"  # of clouds; no client may read it


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `remedy` says what to do; `needed` whether nothing works without it."""

    name: str
    told: str
    remedy: str = ""
    needed: bool = True

    @property
    def fine(self) -> bool:
        return not self.remedy


Look = Callable[[], Finding]


def look_at_api(api: Client) -> Iterator[Finding]:
    """What a client needs: an API that answers, a key that opens, models, and what the API stands on."""
    try:
        models = api.models()
    except Unauthorized as error:
        yield Finding("api", f"{api.url} answers")
        yield Finding("key", error.message, "make one: `vqueue keys create --tenant NAME`, on the server")
    except ApiError as error:
        yield Finding(
            "api", str(error), "look into the API's log by this request id: " + str(error.request_id)
        )
    except VqueueError as error:
        yield Finding("api", str(error), "start it (`vqueue up`, `vqueue api`), or correct VQUEUE_URL")
        return
    else:
        yield Finding("api", f"{api.url} answers")
        yield key_scopes(api)
        yield Finding("models", ", ".join(models))
    yield from told_by(api)


OPENED = {
    "read": "to look at batches, results and exports",
    "write": "to upload, to hand in, to cancel",
    "chat": "chat completions and responses",
    "admin": "keys, webhooks, usage, the audit log",
}
NEEDED_SCOPES = ("read", "write")  # by `vqueue run`


def key_scopes(api: Client) -> Finding:
    """What the key is for, and what not."""
    try:
        key = api.key()
    except VqueueError:  # an older API has no such call
        return Finding("key", "opens it")
    told = f"opens it, with the scopes {', '.join(key.scopes)}"
    if closed := [scope for scope in OPENED if not key.allows(scope)]:
        told += "; not allowed: " + ", ".join(f"{scope} ({OPENED[scope]})" for scope in closed)
    lacks = any(scope in closed for scope in NEEDED_SCOPES)
    remedy = (
        "make one with --scope read --scope write for `vqueue run`: `vqueue keys create`" if lacks else ""
    )
    return Finding("key", told, remedy, needed=False)


def told_by(api: Client) -> Iterator[Finding]:
    """What the API itself says of the servers behind it; nothing where only its /v1 can be reached."""
    try:
        answer = httpx.get(f"{api.url.removesuffix('/v1')}/readyz", timeout=LOOK_S)
        checks = dict[str, str](answer.json()["checks"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return
    for name, told in checks.items():
        remedy = "" if told == OK else f"on the API's machine: {REMEDIES.get(name, 'look after it')}"
        yield Finding(f"api's {name}", told, remedy, needed=name != "workers")


def look_at_servers(settings: Settings) -> Iterator[Finding]:
    """What the API, the dispatcher and the workers stand on. None is waited for longer than `LOOK_S`."""
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="doctor")
    objects = make_objects(settings, connections=1)
    checks = readiness_checks(
        engine=engine,
        objects=objects,
        broker_url=settings.broker_url.get_secret_value(),
        models=settings.served_models,
        live_s=settings.lease_s,
    )
    away = set[str]()
    for check in checks:
        finding = _unless_away("database", away, check.name) if check.name == "workers" else None
        finding = finding or within(LOOK_S, check.name, partial(_checked, check), REMEDIES[check.name])
        yield finding
        if not finding.fine:
            away.add(check.name)
    if not away & {"database", "object_store"}:  # a thread that hangs still holds them
        objects.close()
        engine.dispose()
    finding = _unless_away("object_store", away, "bucket")
    yield finding or within(LOOK_S, "bucket", partial(bucket_rights, settings), REMEDIES["object_store"])
    yield within(LOOK_S, "redis", partial(redis, settings), REMEDIES["redis"])
    yield within(LOOK_S, "dns", partial(names, settings), NO_NAMES, needed=False)
    for look in (disk, model, guard):
        yield look(settings)


def _checked(check: Check) -> Finding:
    told = check.run()
    remedy = "" if told == OK else REMEDIES[check.name]
    return Finding(check.name, told, remedy, needed=check.name != "workers")


def _unless_away(stands_on: str, away: Set[str], name: str) -> Finding | None:
    """The finding of something that cannot be looked at without another."""
    if stands_on not in away:
        return None
    told = f"not looked at, since {stands_on} is not there"
    return Finding(name, told, f"put {stands_on} right first", needed=False)


def within(seconds: float, name: str, look: Look, remedy: str, *, needed: bool = True) -> Finding:
    """What a look finds, or that it took too long. A frozen server may keep its thread for ever."""
    found = Queue[Finding](1)
    Thread(target=lambda: found.put(look()), daemon=True).start()
    try:
        return found.get(timeout=seconds)
    except Empty:
        return Finding(name, f"no answer within {seconds:g} seconds", remedy, needed=needed)


NO_NAMES = "give this machine a name server, or use uploads, data URLs and s3:// images only"
REMEDIES = {
    "database": "start it and check VQUEUE_DATABASE_URL; `vqueue migrate` brings its schema to the newest",
    "object_store": "start it and check VQUEUE_S3_ENDPOINT_URL, VQUEUE_S3_BUCKET and the two keys",
    "broker": "start it and check VQUEUE_BROKER_URL; work waits in the database meanwhile",
    "workers": "start `vqueue worker` with the same VQUEUE_MODEL or VQUEUE_MODELS",
    "redis": "start it and check VQUEUE_REDIS_URL; features and text on its way need it",
}


def bucket_rights(settings: Settings) -> Finding:
    """Write, read and delete an object of our own."""
    key = f"doctor/{uuid4().hex}"
    remedy = "grant reading, writing, listing and deleting in the bucket to VQUEUE_S3_ACCESS_KEY_ID"
    with closing(make_objects(settings, connections=1)) as objects:
        try:
            objects.put(key, b"?", content_type="text/plain")
            objects.get(key, max_bytes=1)
            objects.delete(key)
        except WorkError as error:
            return Finding("bucket", error.message, remedy)
    return Finding("bucket", f"{settings.s3_bucket} can be written, read and deleted from")


def redis(settings: Settings) -> Finding:
    url = settings.redis_url.get_secret_value()
    try:
        with closing(Redis.from_url(url, socket_connect_timeout=WAIT_S, socket_timeout=WAIT_S)) as client:
            client.ping()
    except (RedisError, ValueError) as error:
        return Finding("redis", f"does not answer: {error}", REMEDIES["redis"])
    return Finding("redis", OK)


def disk(settings: Settings) -> Finding:
    folder = settings.data_dir or Path()
    free = shutil.disk_usage(folder).free
    low = max(settings.disk_min_free_bytes, LOW_BYTES)
    told = f"{free / 1e9:.1f} GB free in {folder.resolve()}"
    return Finding("disk", told, "" if free >= low else f"make room: below {low / 1e9:.1f} GB", needed=False)


def model(settings: Settings) -> Finding:
    """Sources that are folders have to be there; those of a hub cannot be told from here."""
    sources = {one.name: one.source for one in settings.models} or {settings.served_model: settings.model}
    missing = {name: source for name, source in sources.items() if _lacks_folder(source)}
    if missing and settings.engine != "remote":
        name, source = next(iter(missing.items()))
        remedy = (
            "set VQUEUE_MODEL to the folder of a checkpoint, or to a hub id such as Qwen/Qwen3-VL-8B-Instruct"
        )
        return Finding("model", f"{name}: there is no folder {source}", remedy, needed=False)
    return Finding("model", ", ".join(f"{name} ({source})" for name, source in sources.items()))


def _lacks_folder(source: str) -> bool:
    looks_like_hub = source.count("/") == 1 and not source.startswith((".", "/", "models/"))
    return not looks_like_hub and not Path(source).is_dir()


def names(_settings: Settings) -> Finding:
    """Whether this machine looks names up; an installation without internet does not, and may not need to."""
    try:
        found = resolve(SOME_NAME, 443)
    except WorkError as error:
        return Finding("dns", error.message, NO_NAMES, needed=False)
    return Finding("dns", f"{SOME_NAME} is {found[0]}")


def guard(settings: Settings) -> Finding:
    """Whether the address guard keeps clients away from what is inside."""
    policy = FetchPolicy(ports=settings.fetch_ports, allow_hosts=settings.fetch_allow_hosts)
    url = parse_url(METADATA)
    if policy.trusts(url):
        return Finding("guard", f"{url.host} may be fetched from", "take it out of VQUEUE_FETCH_ALLOW_HOSTS")
    try:
        check_url(url, policy)
    except WorkError:
        allowed = ", ".join(settings.fetch_allow_hosts) or "none"
        return Finding("guard", f"private hosts that may be fetched from: {allowed}")
    return Finding("guard", f"{METADATA} is not refused", "report this: the guard does not work")
