"""`VQUEUE_MODELS` and `VQUEUE_MODEL_ALIASES` read: models, their sources, options and other names. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# A model's name is its queue's too, where other characters would be replaced and names could meet.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ENTRY = "name=source option=value ..., with a comma between two models"


@dataclass(frozen=True)
class ModelEntry:
    """A served model: its name, the folder or id to load, and the settings that it has for itself."""

    name: str
    source: str
    options: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join(
            [f"{self.name}={self.source}", *(f"{key}={self.options[key]}" for key in self.options)]
        )


def read_models(text: str, read_option: Callable[[str, str], object]) -> tuple[ModelEntry, ...]:
    """The models that a text lists; `read_option` gives an option's value. ValueError for what is wrong."""
    entries = tuple(_entry(part.strip(), read_option) for part in text.split(",") if part.strip())
    names = [entry.name for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two models are named {twice!r}")
    return entries


def read_source(text: str, read_option: Callable[[str, str], object]) -> tuple[str, dict[str, object]]:
    """`source option=value ...`: where a model is loaded from, and its options."""
    source, *words = text.split() or [""]
    return source, dict(_option(word, read_option) for word in words)


def read_aliases(text: str) -> dict[str, str]:
    """`alias=model,alias=model`. ValueError for what is no pair, and for an alias that stands twice."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    aliases: dict[str, str] = {}
    for alias, _, model in pairs:
        if not alias.strip() or not model.strip():
            raise ValueError("expected are pairs alias=model, with a comma between two")
        if alias.strip() in aliases:
            raise ValueError(f"the alias {alias.strip()!r} stands twice")
        aliases[alias.strip()] = model.strip()
    return aliases


def check_aliases(aliases: Mapping[str, str], served: tuple[str, ...]) -> None:
    """ValueError for an alias that is a model's own name, or that leads to no model."""
    for alias, model in aliases.items():
        if alias in served:
            raise ValueError(f"{alias!r} is a model's own name")
        if model not in served:
            raise ValueError(f"{alias!r} leads to {model!r}, but the models are {', '.join(served)}")


def _entry(text: str, read_option: Callable[[str, str], object]) -> ModelEntry:
    name, _, rest = text.partition("=")
    source, options = read_source(rest, read_option)
    if not NAME.fullmatch(name) or not source:
        raise ValueError(
            f"{text!r} is no model: expected is {ENTRY}; names are letters, digits, '.', '_', '-'"
        )
    return ModelEntry(name, source, options)


def _option(word: str, read_option: Callable[[str, str], object]) -> tuple[str, object]:
    name, sign, value = word.partition("=")
    if not sign:
        raise ValueError(f"{word!r} is no option=value: expected is {ENTRY}")
    return name, read_option(name, value)
