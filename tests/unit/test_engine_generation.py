"""When a row ends, and the text that its tokens make."""

from tests.checkpoints import build_tokenizer
from workers.engine.base import Sampling
from workers.engine.generation import Generation

BACKEND = build_tokenizer().backend_tokenizer
END = BACKEND.get_vocab()["<|im_end|>"]


def run(text: str, *, cut: int = 0, end: bool = True, **sampling: int | tuple[str, ...]) -> Generation:
    """A row that is given the bytes of `text`, less the last `cut`, and then the end, until it is done."""
    settings = Sampling(**({"max_tokens": 1000} | sampling))  # pyright: ignore[reportArgumentType]
    row = Generation(sampling=settings, prompt_tokens=3, tokenizer=BACKEND, end_ids=frozenset({END}))
    ids = BACKEND.encode(text, add_special_tokens=False).ids
    tokens = iter(ids[: len(ids) - cut] + [END] * end)
    while (token := next(tokens, None)) is not None and not row.accept(token):
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
