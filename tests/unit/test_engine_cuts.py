"""Where prompts are cut: keys tell beginnings apart, pieces cover the prompt, tails are short."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.checkpoints import build_tokenizer
from tests.requests import ask
from workers.engine.base import Sampling
from workers.engine.cuts import PIECE_MOST, Marks, Plan, PromptKey, plan_cuts
from workers.engine.generation import Generation
from workers.engine.prefixes import Node
from workers.engine.prepare import Prepared
from workers.engine.prompt import Prompt
from workers.engine.rows import Row
from workers.engine.slots import SLOT_TOKENS

START, PAD, END, TURN = 900, 901, 902, 903
MARKS = Marks(image_start=START, image_end=END, turn_ends=frozenset({TURN}))
TOKENIZER = build_tokenizer().backend_tokenizer


@dataclass(frozen=True)
class Script:
    """A prompt's tokens with its images' places and keys."""

    ids: NDArray[np.int64]
    images: Sequence[tuple[int, str]]

    def plan(self, scope: str = "tenant") -> Plan:
        return plan_cuts(self.ids, scope=scope, marks=MARKS, images=self.images)


def script(*runs: int | tuple[str, int]) -> Script:
    """So many words, or an image of so many tokens; 0 ends a turn."""
    ids: list[int] = []
    images: list[tuple[int, str]] = []
    for number, run in enumerate(runs):
        if isinstance(run, tuple):
            name, size = run
            images.append((len(ids) + 1, f"image {name}"))
            ids += [START, *[PAD] * size, END]
        else:
            ids += [TURN] if run == 0 else [(number + place) % 50 for place in range(run)]
    return Script(np.array(ids, np.int64), images)


PICTURES = st.tuples(st.sampled_from("ab"), st.sampled_from([1, 3, 70, 1300]))
RUNS = st.lists(st.one_of(st.sampled_from([0, 0, 1, 5, 20, 90, 250, 1100]), PICTURES), max_size=8)
SCRIPTS = RUNS.map(lambda runs: script(7, *runs, 3))


def beginning(given: Script, end: int, scope: str) -> tuple[object, ...]:
    """What a cut's key stands for."""
    shown = tuple((place, name) for place, name in given.images if place < end)
    return scope, tuple(given.ids[:end].tolist()), shown


@settings(deadline=None)
@given(st.lists(st.tuples(SCRIPTS, st.sampled_from(["tenant", "other"])), min_size=2, max_size=4))
def test_keys_are_equal_where_beginnings_images_and_scopes_are(prompts: list[tuple[Script, str]]) -> None:
    found: dict[bytes, tuple[object, ...]] = {}
    for each, scope in prompts:
        for cut in each.plan(scope).cuts:
            assert found.setdefault(cut.key, beginning(each, cut.end, scope)) == beginning(
                each, cut.end, scope
            )
    assert len(set(found.values())) == len(found)


@settings(deadline=None)
@given(SCRIPTS, st.lists(st.integers(0, 3000), max_size=5))
def test_a_key_does_not_depend_on_how_the_text_is_portioned(given_script: Script, places: list[int]) -> None:
    plan = given_script.plan()
    starts = dict(given_script.images)
    inner = {place for place in places if place < len(given_script.ids)}
    key = PromptKey("tenant")
    for before, place in pairwise(sorted({0, len(given_script.ids), *starts, *inner})):
        if before in starts:
            key.show(starts[before])
        key.feed(given_script.ids[before:place])
    assert key.digest() == plan.key.digest()


@settings(deadline=None)
@given(SCRIPTS)
def test_pieces_are_of_a_fair_size_and_the_tail_fits_its_slot(given_script: Script) -> None:
    plan = given_script.plan()
    ends = [cut.end for cut in plan.cuts]
    built = [0, *(cut.end for cut in plan.cuts if cut.built)]
    assert ends == sorted(set(ends))
    assert built[-1] == plan.tail_start
    assert all(before < end <= before + PIECE_MOST + SLOT_TOKENS for before, end in pairwise(built))
    assert 0 < len(given_script.ids) - plan.tail_start <= SLOT_TOKENS


@settings(deadline=None)
@given(SCRIPTS)
def test_no_image_stands_in_a_tail(given_script: Script) -> None:
    tail = given_script.ids[given_script.plan().tail_start :]
    assert not np.isin(tail, [START, PAD, END]).any()


def test_questions_about_an_image_share_all_pieces() -> None:
    one, other = script(7, ("a", 300), 20), script(7, ("a", 300), 33)
    assert one.plan().cuts == other.plan().cuts
    assert one.plan().tail_start == 7 + 302


def test_long_instructions_are_a_piece_of_their_own_before_any_image_and_short_ones_are_not() -> None:
    def built(size: int, image: int) -> list[int]:
        asked = script(size, 0, 5, ("a", image), 20, 0, 3)
        return [cut.end for cut in asked.plan().cuts if cut.built]

    assert built(200, 300) == [200, 508]
    assert built(200, 10) == [200, 218]
    assert built(20, 10) == [38]


def test_another_image_or_scope_shares_what_is_before_it_only() -> None:
    one, other = script(200, ("a", 300), 20), script(200, ("b", 300), 20)
    first, second = one.plan().cuts, other.plan().cuts
    assert (first[0].end, first[0]) == (200, second[0])
    assert not {cut.key for cut in first[1:]} & {cut.key for cut in second[1:]}
    assert not {cut.key for cut in first} & {cut.key for cut in one.plan("other").cuts}


@settings(deadline=None)
@given(
    SCRIPTS,
    st.lists(st.integers(1, 40), min_size=1, max_size=300),
    st.sampled_from([0, 1, 30, 400]),
    st.booleans(),
)
def test_a_next_turn_is_cut_where_the_answer_ended(
    first: Script, answer: list[int], more: int, ended: bool
) -> None:
    """Whether the model ended its answer or max_tokens did, whose last token was never fed."""
    given_tokens = [*answer, TURN] if ended else answer
    words = np.array([*answer, TURN, *range(more), TURN, 5], np.int64)
    second = Script(np.concatenate([first.ids, words]), first.images)
    reached = row_after(first, given_tokens).cut_here()
    assert reached.end == len(first.ids) + len(given_tokens) - 1
    assert (reached.end, reached.key) in {(cut.end, cut.key) for cut in second.plan().cuts}


def row_after(first: Script, tokens: list[int]) -> Row:
    """A row that has got these tokens, the last of them not yet fed."""
    positions = np.zeros((3, len(first.ids)), np.int64)
    prompt = Prompt(first.ids, positions, len(first.ids))
    prepared = Prepared(ask("a"), Future(), prompt, first.plan(), (), 0.0)
    generation = Generation(
        sampling=Sampling(1000), prompt=first.ids, tokenizer=TOKENIZER, end_ids=frozenset({TURN})
    )
    generation.tokens = tokens
    own = len(first.ids) - prepared.plan.tail_start + len(tokens) - 1
    return Row(prepared, generation, Node(b"", None, prepared.plan.tail_start), own=own)
