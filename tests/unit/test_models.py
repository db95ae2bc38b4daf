"""Several models in the settings: their names, their own options, other names for them, and what is wrong."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from app.chat import chat_rules, parse_chat_body
from app.cli.main import app
from app.config import PER_MODEL, Settings, read_settings
from app.errors import NotFound, RequestError
from app.served import ServedModels

MODELS = "small=/models/4b max_pixels=262144 dtype=bfloat16, large=org/8b max_new_tokens=4096"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    return read(monkeypatch, VQUEUE_MODELS=MODELS, VQUEUE_MODEL_ALIASES="gpt-4o-mini=small,default=large")


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return read_settings()


def body(model: str, text: str = "What is it?", **params: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **params}


def test_one_model_is_named_by_its_path_or_as_it_is_told() -> None:
    assert Settings(model="/models/qwen3-vl-4b/").served_models == ("qwen3-vl-4b",)
    assert Settings(model="/models/x", model_name="org/mine").model_names == {"org/mine": "org/mine"}


def test_several_models_have_names_of_their_own_and_aliases(settings: Settings) -> None:
    assert settings.served_models == settings.resident_models == ("small", "large")
    assert list(settings.model_names) == ["small", "large", "gpt-4o-mini", "default"]


def test_a_job_without_a_model_gets_the_alias_default_else_the_first(settings: Settings) -> None:
    assert settings.default_model == "large"
    assert settings.model_copy(update={"model_aliases": {}}).default_model == "small"


def test_each_model_has_its_own_settings_and_shares_the_others(settings: Settings) -> None:
    small, large = settings.for_model("small"), settings.for_model("large")
    assert (small.model, small.served_models, small.max_pixels) == ("/models/4b", ("small",), 262_144)
    assert (small.dtype, small.max_new_tokens) == ("bfloat16", settings.max_new_tokens)
    assert (large.model, large.dtype, large.max_new_tokens) == ("org/8b", "auto", 4096)


def test_a_single_model_may_have_aliases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, VQUEUE_MODEL="/models/4b", VQUEUE_MODEL_ALIASES="gpt-4o-mini=4b")
    assert found.model_names == {"4b": "4b", "gpt-4o-mini": "4b"}


def test_a_worker_may_load_some_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, VQUEUE_MODELS=MODELS, VQUEUE_WORKER_MODELS="large")
    assert found.resident_models == ("large",)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MODELS", "/models/4b", "is no model"),
        ("MODELS", "org/small=/models/4b", "names are letters"),
        ("MODELS", "a=x, a=y", "two models are named 'a'"),
        ("MODELS", "a=x fast", "'fast' is no option=value"),
        ("MODELS", "a=x lease_s=3", "'lease_s' is no option of a model; there are device"),
        ("MODELS", "a=x dtype=float64", "dtype=float64: Input should be 'auto'"),
        ("MODELS", "a=x max_new_tokens=0", "greater than or equal to 1"),
        ("MODEL_ALIASES", "gpt-4o-mini", "pairs alias=model"),
        ("MODEL_ALIASES", "a=demo,a=demo", "stands twice"),
        ("MODEL_ALIASES", "a=large", "'a' leads to 'large', but the models are demo"),
        ("MODEL_ALIASES", "demo=demo", "a model's own name"),
        ("WORKER_MODELS", "large", "'large' is none of the models demo"),
    ],
)
def test_what_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        read(monkeypatch, **{f"VQUEUE_{name}": value})


def test_a_command_tells_a_wrong_list_in_one_line() -> None:
    done = CliRunner().invoke(app, ["api"], env={"VQUEUE_MODELS": "a=x, a=y"})
    assert done.exit_code == 2
    assert done.stderr == "VQUEUE_MODELS is 'a=x, a=y': two models are named 'a'\n"


@pytest.mark.parametrize("option", PER_MODEL)
def test_every_option_of_a_model_is_a_setting_and_in_the_page_about_models(option: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
    assert option in Settings.model_fields
    assert f"`{option}`" in page


def test_a_request_is_held_to_the_limits_of_its_model(settings: Settings) -> None:
    rules = chat_rules(settings)
    assert parse_chat_body(body("large", max_tokens=4096), rules).params == {"max_tokens": 4096}
    with pytest.raises(RequestError, match="at most 1024 tokens"):
        parse_chat_body(body("gpt-4o-mini", max_tokens=4096), rules)


@pytest.mark.parametrize(
    ("param", "value", "words"),
    [
        ("max_tokens", 0, "a whole number from 1 to 4096, not 0"),
        ("repetition_penalty", -1, "a number above 0, up to 2 (1 means none), not -1"),
    ],
)
def test_a_limit_is_told_as_it_is(settings: Settings, param: str, value: int, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        parse_chat_body(body("large") | {param: value}, chat_rules(settings))


def test_a_text_is_held_to_the_length_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = chat_rules(read(monkeypatch, VQUEUE_MODELS="short=x prompt_max_chars=5, long=y"))
    assert parse_chat_body(body("long", "six or"), rules).model == "long"
    with pytest.raises(RequestError, match="the limit is 5"):
        parse_chat_body(body("short", "six or"), rules)


def test_a_request_by_an_alias_becomes_one_for_the_model_behind_it(settings: Settings) -> None:
    assert parse_chat_body(body("gpt-4o-mini"), chat_rules(settings)).model == "small"


def test_an_unknown_model_is_answered_with_those_that_are_served(settings: Settings) -> None:
    with pytest.raises(RequestError, match=r"use small, large, gpt-4o-mini, default\.") as refused:
        parse_chat_body(body("gpt-5"), chat_rules(settings))
    assert refused.value.code == "model_not_found"
    with pytest.raises(NotFound, match="there are small, large"):
        ServedModels(names=settings.model_names).behind("gpt-5")
