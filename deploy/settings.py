"""Whether processes are given settings that exist, values that they take, and time to end."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from app.cli.main import app as cli
from app.cli.settings import NO_SETTINGS
from app.config import Settings
from deploy.findings import Finding

PREFIX = "VQUEUE_"
NAMES = frozenset(f"{PREFIX}{field.upper()}" for field in Settings.model_fields) | NO_SETTINGS
COMMANDS = getattr(typer.main.get_command(cli), "commands")  # noqa: B009 - a group has them, its type hides it
# Of a process over its drain, to close what it has; docs/operations.md#stopping has the same numbers.
CLOSES_S = {"api": 10.0, "dispatcher": 10.0, "worker": 30.0}


class _Given(Settings):
    """Settings of what is handed over alone: the environment of whoever checks is none of it."""

    model_config = SettingsConfigDict(env_prefix="NOT_VQUEUE_")


def check_names(file: str, field: str, names: Mapping[str, object]) -> Iterator[Finding]:
    """Variables VQUEUE_... that are no settings."""
    for name in names:
        if name.startswith(PREFIX) and name not in NAMES:
            yield Finding(
                file, f"{field}.{name}", "vqueue has no such setting", "docs/operations.md lists them all"
            )


def read_settings(environment: Mapping[str, str]) -> Settings:
    """The settings of a process with this environment. Raises ValidationError."""
    return _read(tuple(sorted(environment.items())))


@cache
def _read(environment: tuple[tuple[str, str], ...]) -> Settings:
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment
        if name.startswith(PREFIX) and name in NAMES - NO_SETTINGS
    }
    return _Given(**given)  # pyright: ignore[reportArgumentType]


def check_values(file: str, field: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Values that the process would refuse when it starts."""
    try:
        read_settings(environment)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            name = f"{PREFIX}{str(found['loc'][0]).upper()}" if found["loc"] else "settings"
            yield Finding(file, f"{field}.{name}", found["msg"], "docs/operations.md says what it takes")


def check_command(file: str, field: str, words: list[str]) -> Iterator[Finding]:
    """A `vqueue` command line that there is no command for, or with options that it has not."""
    if words[:1] != ["vqueue"]:
        return
    remedy = "`vqueue --help` lists the commands"
    command = COMMANDS.get(words[1]) if words[1:] else None
    if command is None:
        yield Finding(file, field, f"`{' '.join(words)}` is no command", remedy)
        return
    options = {option for parameter in command.params for option in parameter.opts}
    for word in words[2:]:
        if word.startswith("-") and word.partition("=")[0] not in options:
            yield Finding(file, field, f"`vqueue {words[1]}` has no option {word}", remedy)


def least_grace_s(role: str, settings: Settings) -> float | None:
    """How long a process may take to end: its drain, and what it then has to close. None for other roles."""
    if role == "fetcher":
        return settings.drain_s + settings.fetch_total_s
    return settings.drain_s + CLOSES_S[role] if role in CLOSES_S else None


def check_image(file: str, field: str, image: str) -> Iterator[Finding]:
    """An image without an exact version: another one tomorrow, and nobody knows which ran."""
    if not re.search(r":v?\d+\.\d+[\w.-]*$|@sha256:[0-9a-f]{64}$", image):
        yield Finding(
            file, field, f"{image!r} names no exact version", "add a tag such as :1.2.3, or a digest"
        )
