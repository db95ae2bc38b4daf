"""The prefix cache against a plain model: nothing held is freed, bytes add up, the budget is kept."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workers.engine.cuts import Cut
from workers.engine.prefixes import ANSWERS_SHARE, Node, PrefixCache

BUDGET = 24
WORDS = "ab"  # a prompt is a string of these: so few that most prompts begin alike
PROMPTS = st.text(WORDS, min_size=1, max_size=6)


@dataclass
class Fake:
    """A piece of KV that only has a size."""

    nbytes: int


def cuts(prompt: str) -> list[Cut]:
    """After every letter; only at even places a piece is built."""
    return [
        Cut(end, prompt[:end].encode(), built=end % 2 == 0 or end == len(prompt))
        for end in range(1, len(prompt) + 1)
    ]


def size(node: Node) -> int:
    return node.kv.nbytes if node.kv is not None else 0


class Requests(RuleBasedStateMachine):
    """Requests as an engine runs them: acquired, claimed, computed or given up, extended, let go."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(budget=BUDGET)
        self.held: list[Node] = []
        self.seen: list[Node] = []

    def hold(self, node: Node | None) -> None:
        if node is not None:
            self.held.append(node)
            self.see(node)

    def see(self, node: Node | None) -> None:
        for each in node.chain() if node is not None else ():
            if each not in self.seen:
                self.seen.append(each)

    @rule(prompt=PROMPTS)
    def acquire(self, prompt: str) -> None:
        node = self.cache.acquire(cuts(prompt))
        longest = max((cut.end for cut in cuts(prompt) if cut.key in self.cache), default=0)
        assert (node.end if node else 0) == longest
        assert node is None or (node.built and prompt.encode().startswith(node.key))
        self.hold(node)

    @rule(prompt=PROMPTS, succeeds=st.booleans(), pinned=st.booleans(), rival=st.booleans())
    def compute(self, prompt: str, succeeds: bool, pinned: bool, rival: bool) -> None:
        """A step: the missing pieces of a prompt are claimed and built, or the step fails.

        A `rival` is a row whose answer reaches the same place meanwhile.
        """
        pin = self.cache.acquire(cuts(prompt)) if pinned else None
        node = self.cache.claim(cuts(prompt), pin)
        self.see(node)
        assert node is not None
        assert node.end == len(prompt)
        new = [each for each in node.chain() if not each.built]
        for each in new:
            self.cache.fill(each, Fake(each.end - each.start))
        if rival and new:
            self.hold(self.cache.extend(new[0].parent, new[0].key, new[0].end, Fake(1)))
        if succeeds:
            for each in new:
                self.cache.complete(each)
            self.hold(node)
        else:
            self.cache.release(node)
            for each in new:
                self.cache.drop(each)
        self.cache.release(pin)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), answer=st.text(WORDS, min_size=1, max_size=3))
    def answer(self, data: st.DataObject, answer: str) -> None:
        """A row keeps its own tokens as a piece of their own."""
        parent = data.draw(st.sampled_from(self.held))
        end = parent.end + len(answer)
        node = self.cache.extend(parent, parent.key + answer.encode(), end, Fake(len(answer)))
        assert (node.built, node.end) == (True, end)
        self.hold(node)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.held))
        self.held.remove(node)
        self.cache.release(node)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def spoil(self, data: st.DataObject) -> None:
        """A row failed: nobody finds its pieces again, but others may hold them."""
        node = data.draw(st.sampled_from(self.held))
        for each in node.chain():
            self.cache.drop(each)
            assert not each.indexed
        self.held.remove(node)
        self.cache.release(node)

    @invariant()
    def nothing_held_is_freed(self) -> None:
        for node in self.held:
            assert all(each.kv is not None for each in node.chain())

    @invariant()
    def parents_outlive_their_children(self) -> None:
        for node in self.seen:
            if node.kv is not None:
                assert all(each.kv is not None for each in node.chain())

    @invariant()
    def bytes_add_up(self) -> None:
        used = {each for node in self.held for each in node.chain()}
        assert self.cache.held == sum(map(size, self.seen))
        assert self.cache.held - self.cache.kept == sum(map(size, used))

    @invariant()
    def budget_is_kept(self) -> None:
        assert self.cache.kept <= BUDGET

    def teardown(self) -> None:
        for node in self.held:
            self.cache.release(node)
        assert self.cache.kept == self.cache.held == sum(map(size, self.seen)) <= BUDGET
        answers = [node for node in self.seen if node.from_answer and node.refs == 0]
        assert sum(map(size, answers)) <= ANSWERS_SHARE * BUDGET


TestRequests = Requests.TestCase
TestRequests.settings = settings(deadline=None, max_examples=150, stateful_step_count=25)


def test_a_dropped_piece_takes_nothing_of_its_successor_along() -> None:
    """One row drops a piece that another holds, a third makes it anew, and then the old one goes."""
    cache = PrefixCache(budget=BUDGET)

    def compute(prompt: str) -> Node:
        node = cache.claim(cuts(prompt))
        assert node is not None
        cache.fill(node, Fake(4))
        cache.complete(node)
        return node

    old = compute("aa")
    cache.drop(old)
    cache.release(compute("aa"))
    cache.release(old)
    for prompt in ("bb", "ab", "ba", "abb", "bab", "bba"):  # more than the budget holds
        cache.release(compute(prompt))
    assert cache.held == cache.kept <= BUDGET
    assert cuts("aa")[-1].key not in cache
