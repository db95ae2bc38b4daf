"""When a row ends, and the text that its tokens make."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.checkpoints import build_tokenizer
from workers.engine.base import Note, Sampling
from workers.engine.generation import Generation
from workers.engine.repetition import LONGEST_PERIOD, repeats

BACKEND = build_tokenizer().backend_tokenizer
END = BACKEND.get_vocab()["<|im_end|>"]
LOGITS = torch.zeros(1)
BYTES = sorted(BACKEND.get_vocab().values())[:256]


def run(
    text: str,
    *,
    cut: int = 0,
    end: bool = True,
    on_text: Callable[[str], None] | None = None,
    **sampling: int | tuple[str, ...],
) -> Generation:
    """A row that is given the bytes of `text`, less the last `cut`, and then the end, until it is done."""
    ids = BACKEND.encode(text, add_special_tokens=False).ids
    settings = Sampling(**({"max_tokens": 1000} | sampling))  # pyright: ignore[reportArgumentType]
    return feed(settings, ids[: len(ids) - cut] + [END] * end, on_text)


def feed(sampling: Sampling, ids: Sequence[int], on_text: Callable[[str], None] | None = None) -> Generation:
    row = Generation(
        sampling=sampling,
        prompt=np.array([1, 2, 3]),
        tokenizer=BACKEND,
        end_ids=frozenset({END}),
        on_text=on_text,
    )
    tokens = iter(ids)
    while (token := next(tokens, None)) is not None and not row.accept(token, LOGITS):
        pass
    return row


def test_the_end_token_is_counted_and_not_shown() -> None:
    answer = run("red").answer()
    assert (answer.text, answer.finish_reason) == ("red", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)


def test_max_tokens_ends_with_length() -> None:
    answer = run("red", max_tokens=2).answer()
    assert (answer.text, answer.finish_reason, answer.usage.completion_tokens) == ("re", "length", 2)


def test_the_end_as_last_allowed_token_is_a_stop() -> None:
    assert run("red", max_tokens=4).answer().finish_reason == "stop"


def test_a_character_cut_in_two_by_max_tokens_is_left_out() -> None:
    answer = run("a 照片", max_tokens=7).answer()
    assert (answer.text, answer.finish_reason) == ("a 照", "length")


def test_bytes_that_the_model_itself_left_broken_are_shown_as_such() -> None:
    assert run("a 照片", cut=1).answer().text == "a 照\ufffd"


def test_a_stop_string_is_found_across_tokens_and_cut_off() -> None:
    answer = run("red\n\nblue", stop=("\n\n",)).answer()
    assert (answer.text, answer.finish_reason, answer.usage.completion_tokens) == ("red", "stop", 5)


def test_the_first_of_several_stop_strings_counts() -> None:
    assert run("one two three", stop=("three", "two", "")).answer().text == "one "


def test_a_stop_string_of_many_bytes_is_found() -> None:
    assert run("红色，照片", stop=("，照",)).answer().text == "红色"


def test_a_stop_string_that_begins_inside_another_try_is_found() -> None:
    assert run("aaab tail", stop=("aab",)).answer().text == "a"


@settings(deadline=None)
@given(st.text("ab照é\n", max_size=30), st.lists(st.text("ab照\n", max_size=4), max_size=3))
@example("ab", ["xxxxx"])
def test_the_pieces_told_make_the_answer_s_text(text: str, stops: list[str]) -> None:
    told: list[str] = []
    answer = run(text, stop=tuple(stops), on_text=told.append).answer()
    assert "".join(told) == answer.text
    assert all(told)
    places = [text.find(stop) for stop in stops if stop and stop in text]
    assert not any(stop and stop in answer.text for stop in stops)
    assert text.startswith(answer.text) if places else answer.text == text


@settings(deadline=None)
@given(st.lists(st.sampled_from(BYTES), min_size=1, max_size=20))
def test_any_bytes_can_be_told(tokens: list[int]) -> None:
    told: list[str] = []
    answer = feed(Sampling(len(tokens)), tokens, told.append).answer()
    assert "".join(told) == answer.text == feed(Sampling(len(tokens)), tokens).answer().text


def test_what_may_begin_a_stop_string_is_told_when_it_does_not() -> None:
    told: list[str] = []
    run("a<|x", stop=("<|im",), end=False, on_text=told.append)
    assert told == ["a"]
    told.clear()
    run("a<|x and", stop=("<|im",), on_text=told.append).answer()
    assert "".join(told) == "a<|x and"


def test_nothing_is_told_of_a_stop_string_that_begins_the_answer() -> None:
    told: list[str] = []
    run("stop!", stop=("stop",), on_text=told.append)
    assert told == []


def test_an_answer_of_nothing_is_noted() -> None:
    assert run("").answer().notes == (Note.EMPTY,)
    assert run(" \n").answer().notes == (Note.EMPTY,)
    assert run("red").answer().notes == ()


def test_an_answer_that_goes_in_circles_is_noted_where_it_was_cut() -> None:
    circles = "so " * 40
    assert run(circles, max_tokens=120).answer().notes == (Note.REPETITION,)
    assert run(circles).answer().notes == ()


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=LONGEST_PERIOD), st.integers(4, 40))
def test_a_run_repeated_to_the_end_is_found(period: list[int], times: int) -> None:
    tokens = [50, 51, *period * times]
    assert repeats(tokens) == (len(period) * times >= 32)
    assert not repeats([*tokens, 60])


def test_lists_and_single_words_are_no_repetition() -> None:
    assert not repeats([])
    assert not repeats([7] * 31)
    assert not repeats([*range(40)])
    assert not repeats([1, 2, 3, 4] * 3 + [5, 6] * 8)


def test_what_the_prompt_opened_is_a_part_of_the_answer() -> None:
    told: list[str] = []
    row = Generation(
        sampling=Sampling(1000),
        prompt=np.array([1]),
        tokenizer=BACKEND,
        end_ids=frozenset({END}),
        on_text=told.append,
        opening="<think>",
    )
    for token in [*BACKEND.encode("a</think>b", add_special_tokens=False).ids, END]:
        row.accept(token, LOGITS)
    assert row.answer().text == "".join(told) == "<think>a</think>b"
