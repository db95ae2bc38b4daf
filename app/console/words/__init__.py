"""The console's words, by language: a file per page and language, looked up as `page.word`.

Messages of the service are in English; other languages have a file `code` that says their commonest codes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

LANGUAGES = {"en": "English", "zh": "中文"}
DEFAULT = "en"

Lookup = Mapping[str, str]


@cache
def words_of(language: str) -> Lookup:
    """All words of a language by `page.word`."""
    found: dict[str, str] = {}
    for file in sorted(files(__name__).joinpath(language).iterdir(), key=lambda one: one.name):
        page = file.name.removesuffix(".toml")
        found |= {f"{page}.{name}": text for name, text in tomllib.loads(file.read_text("utf-8")).items()}
    return found


class Words:
    """Says things in one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = words_of(language)

    def __call__(self, name: str, **values: object) -> str:
        """The text of `page.word` with its values filled in; KeyError for a word that is none."""
        text = self._words[name]
        return text.format(**values) if values else text

    def of_code(self, code: str | None) -> str | None:
        """What an error code means, where this language says it: its own messages are all English."""
        name, _, status = (code or "").partition("http_")
        is_status = not name and status.isdecimal()
        meaning = self._words.get("code.http" if is_status else f"code.{code}")
        return meaning and meaning.format(status=status)

    def told(self, code: str | None, message: str | None) -> str:
        """A message of the service, with what its code means before it: for where there is only text."""
        return " ".join(part for part in (self.of_code(code), message) if part)

    def known(self, name: str, fallback: str) -> str:
        """The text if there is one: for what the service names, such as error codes."""
        return self._words.get(name, fallback)


def choose_language(chosen: str | None, accepted: str | None) -> str:
    """The language of a cookie, else the browser's first that is here (`Accept-Language`)."""
    if chosen in LANGUAGES:
        return chosen
    return next((one for one in _wanted(accepted or "") if one in LANGUAGES), DEFAULT)


def _wanted(accepted: str) -> Sequence[str]:
    """Languages without their regions, those with the largest weights first."""
    weighed: list[tuple[float, str]] = []
    for entry in accepted.split(",")[:20]:
        name, _, weight = entry.strip().partition(";q=")
        try:
            weighed.append((-float(weight or 1), name.partition("-")[0].lower()))
        except ValueError:
            continue
    return [name for _, name in sorted(weighed, key=lambda one: one[0])]
