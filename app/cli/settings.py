"""Settings for commands: every mistake in one line, and the way to the database that is meant."""

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr, ValidationError
from sqlalchemy import Engine

from app.config import Settings, read_settings
from app.db import is_database_url, is_outage, lacks_tables, make_engine
from app.local.folder import DEFAULT_DATA, DataFolder
from app.local.postgres import url_in
from vqueue import Client

DATABASE_HINT = "Start it (`vqueue up` has one of its own), or set VQUEUE_DATABASE_URL or --data."
# What Kubernetes tells every pod of a service whose name begins with ours.
SERVICE_LINK = re.compile(r"^\w+_(SERVICE_(HOST|PORT)|PORT_\d+_|PORT=\w+://)")
# Read by scripts and clients, or before there are settings.
NO_SETTINGS = frozenset(
    {
        "VQUEUE_SECRETS_DIR",
        "VQUEUE_TORCH_INDEX",
        "VQUEUE_EXPLORE",
        "VQUEUE_PYTHON",
        "VQUEUE_SKIP_RABBITMQ",
        "VQUEUE_SKIP_CHROMIUM",
        "VQUEUE_SETUP_S",
        "VQUEUE_REPORTS",
        "VQUEUE_URL",
        "VQUEUE_API_KEY",
    }
)

# What `vqueue up` leaves in its data folder, for clients on this machine.
KEY_FILE, URL_FILE = "api-key", "api-url"
DEFAULT_URL = "http://127.0.0.1:8000/v1"

ClientDataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder of a `vqueue up` whose API is meant, by the key there. "
        f"Without it: {DEFAULT_DATA}, unless VQUEUE_URL and VQUEUE_API_KEY are set.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder of a `vqueue up` whose database is meant. "
        f"Without it: {DEFAULT_DATA}, if a database is there and VQUEUE_DATABASE_URL is not set.",
    ),
]


def checked_settings() -> Settings:
    """The settings; exits with code 2 and a line for each that is wrong. Warns of unknown variables."""
    _warn_of_unknown()
    try:
        settings = read_settings()
    except ValidationError as error:
        wrong = [
            _sentence(str(found["loc"][0]), found["msg"], found["input"])
            if found["loc"]
            else found["msg"].removeprefix("Value error, ")  # of several settings, which it names
            for found in error.errors(include_url=False)
        ]
    else:
        wrong = _mistakes(settings)
        if not wrong:
            return settings
    for line in wrong:
        typer.echo(line, err=True)
    raise typer.Exit(2)


def find_client(data: Path | None, **options: Any) -> Client:
    """The API of a data folder, or that which VQUEUE_URL and VQUEUE_API_KEY name; exits if there is none.

    `options` are the client's own, such as `retries`.
    """
    url, key = os.environ.get("VQUEUE_URL"), os.environ.get("VQUEUE_API_KEY")
    if data is None and (url or key):
        if url and key:
            return _connect(url, key, options)
        # A folder's key must not be sent to another server, nor another's to this one.
        raise typer.BadParameter(f"{'VQUEUE_API_KEY' if url else 'VQUEUE_URL'} is missing: set both, or none")
    folder = data or DEFAULT_DATA
    try:
        key = (folder / KEY_FILE).read_text()
        url = (folder / URL_FILE).read_text() if (folder / URL_FILE).exists() else DEFAULT_URL
    except OSError as error:
        raise typer.BadParameter(
            f"no key of a `vqueue up` can be read in {folder}: "
            f"give --data, or set VQUEUE_URL (such as {DEFAULT_URL}) and VQUEUE_API_KEY"
        ) from error
    return _connect(url, key, options)


def _connect(url: str, key: str, options: Mapping[str, Any]) -> Client:
    try:
        return Client(url, key, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def open_database(data: Path | None, *, application: str) -> Iterator[Engine]:
    """The database that the settings or a data folder name; exits with code 1 where it is of no use."""
    url = _database_url(checked_settings(), data)
    engine = make_engine(url.get_secret_value(), pool_size=1, application=application)
    try:
        yield engine
    except Exception as error:
        if is_outage(error):
            lines = f"The database does not answer: {str(error.__cause__ or error).strip()}\n{DATABASE_HINT}"
        elif lacks_tables(error):
            lines = "The database has no tables yet: run `vqueue migrate`."
        else:
            raise
        typer.echo(lines, err=True)
        raise typer.Exit(1) from error
    finally:
        engine.dispose()


def _database_url(settings: Settings, data: Path | None) -> SecretStr:
    folder = DataFolder(data or DEFAULT_DATA)
    if data is None and "database_url" in settings.model_fields_set:
        return settings.database_url
    try:
        if folder.has("postgres"):
            return SecretStr(url_in(folder))
    except (OSError, ValueError, TypeError) as error:
        typer.echo(f"{folder.path}/state.json cannot be used ({type(error).__name__})", err=True)
        raise typer.Exit(1) from error
    if data is None:
        return settings.database_url
    typer.echo(f"There is no database in {data}: `vqueue up --data {data}` makes one", err=True)
    raise typer.Exit(1)


def _mistakes(settings: Settings) -> list[str]:
    """What the types of the settings let through."""
    wrong: list[str] = []
    if not is_database_url(settings.database_url.get_secret_value()):
        wrong.append(
            "VQUEUE_DATABASE_URL is no PostgreSQL URL: postgresql://user:password@host:5432/name is expected"
        )
    levels = logging.getLevelNamesMapping()
    if settings.log_level not in levels:
        wrong.append(
            _sentence("log_level", f"Input should be one of {', '.join(levels)}", settings.log_level)
        )
    return wrong


def _sentence(field: str, message: str, value: object) -> str:
    """One line; a password is not repeated."""
    found = Settings.model_fields.get(field)
    is_secret = found is None or "SecretStr" in str(found.annotation)
    shown = "" if is_secret else f" is {value!r}"
    message = message.removeprefix("Value error, ")
    return f"VQUEUE_{field.upper()}{shown}: {message[:1].lower()}{message[1:]}"


def _warn_of_unknown() -> None:
    known = {f"VQUEUE_{field.upper()}" for field in Settings.model_fields}
    given = {name.upper() for name, value in os.environ.items() if not SERVICE_LINK.search(f"{name}={value}")}
    unknown = sorted(name for name in given - known - NO_SETTINGS if name.startswith("VQUEUE_"))
    if unknown:
        shown = ", ".join(name + _guess(name, known) for name in unknown)
        typer.echo(f"ignored, for vqueue has no such setting: {shown}", err=True)


def _guess(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.85)
    return f" (did you mean {near[0]}?)" if near else ""
