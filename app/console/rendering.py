"""Turns templates into pages: escaped always, in the viewer's language, with the files that they need."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.console.batches import own_name
from app.console.formats import FILTERS
from app.console.sessions import Viewer
from app.console.words import LANGUAGES, Words

THEMES = ("auto", "light", "dark")


@dataclass(frozen=True)
class NavigationEntry:
    """A page that every page links to for who has the scope; `word` is its name in the words of `base`."""

    path: str
    word: str
    scope: str = "read"


NAVIGATION = (
    NavigationEntry("/batches", "batches"),
    NavigationEntry("/new", "new", "write"),
    NavigationEntry("/compare", "compare"),
    NavigationEntry("/review", "review", "review"),
    NavigationEntry("/sweeps", "sweeps"),
    NavigationEntry("/keys", "keys", "admin"),
    NavigationEntry("/webhooks", "webhooks", "admin"),
    NavigationEntry("/operations", "operations"),
)
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True)
class Asset:
    """A file of the package that pages link to."""

    body: bytes
    content_type: str


@dataclass(frozen=True)
class Reader:
    """How a page is to look, for whom, and where it is.

    `path` is where to go back to, with its query: not where a form was sent to, as `here` is.
    """

    language: str
    theme: str
    path: str
    here: str
    viewer: Viewer | None = None


class Renderer:
    def __init__(self) -> None:
        self.assets = _read_assets()
        # Part of every asset's address: browsers keep them for good, and see a new version at once.
        self.digest = hashlib.sha256(b"".join(one.body for one in self.assets.values())).hexdigest()[:12]
        self._templates = Environment(
            loader=PackageLoader("app.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.filters["own_name"] = own_name
        self._templates.globals["asset"] = self.asset_path
        self._templates.globals["LANGUAGES"] = LANGUAGES
        self._templates.globals["NAVIGATION"] = NAVIGATION

    def asset_path(self, name: str) -> str:
        """Where a file is served; KeyError for one that is not there."""
        return f"/static/{self.digest}/{name}" if self.assets[name] else ""

    def render(self, template: str, reader: Reader, values: Mapping[str, object]) -> str:
        words = Words(reader.language)
        page = self._templates.get_template(template)
        return page.render({**values, "t": words, "reader": reader, "viewer": reader.viewer})


def _read_assets() -> dict[str, Asset]:
    return {
        file.name: Asset(file.read_bytes(), TYPES[file.name.rpartition(".")[2]])
        for file in sorted(files("app.console").joinpath("static").iterdir(), key=lambda one: one.name)
        if file.name.rpartition(".")[2] in TYPES
    }
