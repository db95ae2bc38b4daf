"""Shadows are read strictly."""

import pytest
from pydantic import ValidationError

from app.config import Settings
from app.shadow_list import Shadow, read_shadows


def test_each_shadow_names_two_models_and_a_share() -> None:
    found = read_shadows("demo demo-int8 0.02, demo small 1")
    assert found == (Shadow("demo", "demo-int8", 0.02), Shadow("demo", "small", 1.0))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("demo small", "does not read"),
        ("demo small 0", "'0'"),
        ("demo small 1.1", "1.1"),
        ("demo small nan", "nan"),
        ("demo small many", "many"),
        ("demo demo 0.1", "its own shadow"),
        ("demo small 0.1, demo small 0.2", "twice"),
    ],
)
def test_what_is_no_shadow_is_refused_by_its_words(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_shadows(text)


def test_a_model_that_is_not_served_casts_no_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VQUEUE_MODELS", "demo=x, small=y")
    monkeypatch.setenv("VQUEUE_SHADOWS", "demo smal 0.1")
    with pytest.raises(ValidationError, match="'smal' is none of the models demo, small"):
        Settings()
