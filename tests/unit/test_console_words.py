"""The console says everything in every language, and pages stay what the policy for content allows."""

import re
from importlib.resources import files
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.words import DEFAULT, LANGUAGES, Words, choose_language, words_of
from tests.unit.test_error_codes import ROOT, documented_of_images

TEMPLATES = sorted(Path(str(files("app.console"))).joinpath("templates").rglob("*.html"))
SCRIPTS = sorted(Path(str(files("app.console"))).joinpath("static").glob("*.js"))
OTHERS = [language for language in LANGUAGES if language != DEFAULT]

each_template = pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)


def without_codes(language: str) -> set[str]:
    return {name for name in words_of(language) if not name.startswith("code.")}


def blanks(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_has_the_same_words(language: str) -> None:
    assert without_codes(language) == without_codes(DEFAULT)


@pytest.mark.parametrize("language", OTHERS)
def test_every_code_of_an_image_is_said_in_every_language(language: str) -> None:
    """The service's messages are in English: what their codes mean stands before them."""
    words = Words(language)
    assert {code for code in documented_of_images() if not words.of_code(code)} == set()
    assert Words(DEFAULT).of_code("not_found") is None


@pytest.mark.parametrize("language", OTHERS)
def test_codes_that_have_words_are_raised_somewhere(language: str) -> None:
    sources = "".join(path.read_text() for room in ("app", "workers") for path in (ROOT / room).rglob("*.py"))
    codes = {name.removeprefix("code.") for name in words_of(language) if name.startswith("code.")}
    assert {code for code in codes - {"http"} if f'"{code}"' not in sources} == set()


def test_a_status_of_an_image_s_host_is_said_with_its_number() -> None:
    words = Words("zh")
    assert words.told("http_404", "The host answered 404.") == "图片所在主机返回 404 The host answered 404."
    assert [words.told(code, "so") for code in (None, "http_x", "http_", "404")] == ["so"] * 4


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_fills_in_the_same_values(language: str) -> None:
    there = words_of(language)
    assert {name for name, text in words_of(DEFAULT).items() if blanks(text) != blanks(there[name])} == set()


@each_template
def test_pages_use_words_that_are_there(template: Path) -> None:
    known = words_of(DEFAULT)
    source = template.read_text()
    used = set(re.findall(r"\bt\('([^']+)'[),]", source))
    begun = set(re.findall(r"\bt\('([^']+)' ~", source))
    assert used - known.keys() == set()
    assert {start for start in begun if not any(name.startswith(start) for name in known)} == set()


@each_template
def test_nothing_in_a_page_asks_for_what_the_policy_forbids(template: Path) -> None:
    """No inline style, script or handler, nothing unescaped, nothing from elsewhere."""
    source = template.read_text()
    for forbidden in (
        r"\sstyle=",
        r"<style",
        r"<script(?![^>]*\ssrc=)",
        r"\son\w+=",
        r"\|\s*safe",
        "https?://",
    ):
        assert re.search(forbidden, source) is None, forbidden


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_write_text_and_never_markup(script: Path) -> None:
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in script.read_text()


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("zh", "en", "zh"),
        ("xx", "en", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, en;q=0.4, zh;q=0.5", "zh"),
        (None, "fr", "en"),
        (None, None, "en"),
    ],
)
def test_the_language_is_the_chosen_or_the_browsers(
    chosen: str | None, accepted: str | None, language: str
) -> None:
    assert choose_language(chosen, accepted) == language


@given(st.text(), st.text())
def test_whatever_a_browser_sends_there_is_a_language(chosen: str, accepted: str) -> None:
    assert choose_language(chosen, accepted) in LANGUAGES


def test_a_word_that_is_not_there_is_a_fault() -> None:
    with pytest.raises(KeyError):
        Words("en")("base.nonsense")
    assert Words("en").known("status.nonsense", "nonsense") == "nonsense"
