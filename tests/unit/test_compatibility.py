"""docs/compatibility.md speaks of every parameter that a body may have, and none of ours is misspelt."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from app.params import CHAT, Vocabulary
from app.responses import RESPONSES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()
PARAMETERS = PAGE.partition("## Parameters")[2].partition("## Answers")[0]
# Of ours or vLLM's making: the SDK sends them by `extra_body`.
EXTRA = {"min_p", "structured_outputs", "guided_choice", "stream"}
# What the Responses API never had, and we refuse by a better word than "not known".
CHAT_ONLY = {"frequency_penalty", "presence_penalty", "logit_bias"}


def names(vocabulary: Vocabulary) -> set[str]:
    return {*vocabulary.max_tokens, *vocabulary.elsewhere, *vocabulary.unserved}


@pytest.mark.parametrize("name", sorted(names(CHAT) | names(RESPONSES)))
def test_every_parameter_is_spoken_of(name: str) -> None:
    assert f"`{name}`" in PARAMETERS or f"`{name}:" in PARAMETERS


@pytest.mark.parametrize(
    ("vocabulary", "sdk"), [(CHAT, CompletionCreateParamsBase), (RESPONSES, ResponseCreateParamsBase)]
)
def test_no_parameter_is_misspelt(vocabulary: Vocabulary, sdk: Any) -> None:
    ours = EXTRA if vocabulary is CHAT else EXTRA | CHAT_ONLY
    assert names(vocabulary) - ours <= set(sdk.__annotations__)
