"""Why a name in an image column is no picture that can be sent, and what may have been meant."""

import os
from functools import lru_cache
from pathlib import Path

FOLDERS_KEPT = 256


def why_missing(root: Path, text: str) -> str:
    """In words for its row's cell; `root` is where names begin."""
    if text.lower().startswith("file:"):
        return f"{text} is not sent: write the file's path below {root} in place of file:"
    if "\\" in text and (near := _like(root, text.replace("\\", "/"))):
        return f"no such file {text}: write {near}, with / between the folders"
    if (root / text).exists():
        return f"{text} is not sent: it is no file below {root}"
    near = _like(root, text)
    return f"no such file {text}" + (f": did you mean {near}?" if near else "")


def _like(root: Path, text: str) -> str | None:
    """The name of a file below root that differs from this by case at most."""
    found: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        name = _names(str(root.joinpath(*found))).get(part.casefold())
        if name is None:
            return None
        found.append(name)
    return "/".join(found) if root.joinpath(*found).is_file() else None


@lru_cache(FOLDERS_KEPT)
def _names(folder: str) -> dict[str, str]:
    try:
        return {name.casefold(): name for name in os.listdir(folder)}
    except OSError:
        return {}
