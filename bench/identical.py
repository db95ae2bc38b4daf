"""Random jobs of every shape, asked from many threads, some cancelled, compared with `generate()`."""

import random
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from app.errors import WorkError
from bench.latency import next_turn
from bench.oracle import Oracle
from bench.workloads import decode, draw
from workers.engine.base import (
    Answer,
    Engine,
    FinishReason,
    Image,
    ImagePart,
    Part,
    Request,
    Sampling,
    TextPart,
    Turn,
)

WORDS = ("what", "colour", "is", "the", "mug", "and", "how", "many", "of", "them", "?", "2", "é", "照片")
PICTURES = 12
ASKERS = 12  # threads
PATIENCE_S = 600.0
Outcome = tuple[str, FinishReason, int, int]  # text, why it ended, tokens of prompt and answer


@dataclass(frozen=True)
class Talk:
    """A request, and what is said next, each after the answer to all before it."""

    first: Request
    next: tuple[str, ...]
    disturbed: bool  # by a request that is cancelled

    @property
    def jobs(self) -> int:
        return 1 + len(self.next)


def compare(engine: Engine, oracle: Oracle, talks: Sequence[Talk]) -> list[tuple[str, bool]]:
    """Each job's name and whether engine and `generate()` agree on it, asked in any order."""
    order = random.Random(7).sample(talks, len(talks))
    with ThreadPoolExecutor(ASKERS) as pool:
        given = list(pool.map(lambda talk: _ask(engine, talk), order))
    return [
        (f"{talk.first.id}.{number}", ours == theirs)
        for talk, outcomes in zip(order, given, strict=True)
        for number, (ours, theirs) in enumerate(zip(outcomes, _expected(oracle, talk), strict=True))
    ]


def random_talks(jobs: int, *, seed: int) -> list[Talk]:
    """So many jobs in all, second and third turns counted."""
    rng = random.Random(f"talks {seed}")
    pool = [_picture(number, rng) for number in range(PICTURES)]
    talks: list[Talk] = []
    left = jobs
    while left:
        follow = min(left - 1, rng.choices((0, 1, 2), (70, 20, 10))[0])
        talks.append(_talk(rng, f"{len(talks)}", pool, follow))
        left -= 1 + follow
    return talks


def _ask(engine: Engine, talk: Talk) -> list[Outcome | None]:
    """The engine's own answers are what the next turns follow; None for a job that failed."""
    outcomes: list[Outcome | None] = []
    request = talk.first
    other: Future[Answer] | None = None
    if talk.disturbed:
        sampling = replace(request.sampling, max_tokens=60)
        other = engine.submit(replace(request, id="cancelled", sampling=sampling))
    for words in (*talk.next, None):
        try:
            answer = engine.submit(request).result(PATIENCE_S)
        except WorkError:
            return outcomes + [None] * (talk.jobs - len(outcomes))
        finally:
            if other is not None:
                other.cancel()
        outcomes.append(_outcome(answer))
        request = next_turn(request, answer, words or "")
    return outcomes


def _expected(oracle: Oracle, talk: Talk) -> list[Outcome]:
    outcomes: list[Outcome] = []
    request = talk.first
    for words in (*talk.next, None):
        answer = oracle.answer(request)
        outcomes.append(_outcome(answer))
        request = next_turn(request, answer, words or "")
    return outcomes


def _outcome(answer: Answer) -> Outcome:
    usage = answer.usage
    return answer.text, answer.finish_reason, usage.prompt_tokens, usage.completion_tokens


def _picture(seed: int, rng: random.Random) -> Image:
    pixels = np.asarray(decode(draw(seed, rng.randrange(40, 300), rng.randrange(40, 300))))
    return Image.of(f"picture{seed}", pixels)


def _talk(rng: random.Random, name: str, pool: Sequence[Image], follow: int) -> Talk:
    """A third asks one of three pictures that many others ask about, the picture first."""
    turns: list[Turn] = []
    images: list[Image] = []
    if rng.random() < 0.35:
        images.append(pool[rng.randrange(3)])
        turns.append(Turn("user", (ImagePart(0), TextPart(_words(rng)))))
    else:
        if rng.random() < 0.3:
            turns.append(Turn("system", (TextPart(_words(rng)),)))
        if rng.random() < 0.3:
            turns.append(_user(rng, pool, images, most=1))
            turns.append(Turn("assistant", (TextPart(_words(rng)),)))
        turns.append(_user(rng, pool, images, most=3))
    request = Request(name, "bench", tuple(turns), tuple(images), Sampling(rng.randrange(1, 16)))
    return Talk(request, tuple(_words(rng) for _ in range(follow)), disturbed=rng.random() < 0.2)


def _user(rng: random.Random, pool: Sequence[Image], images: list[Image], *, most: int) -> Turn:
    """Pictures before, after and between words, or none."""
    parts: list[Part] = [TextPart(_words(rng))]
    for image in rng.sample(pool, rng.randrange(most + 1)):
        parts.insert(rng.randrange(len(parts) + 1), ImagePart(len(images)))
        images.append(image)
    return Turn("user", tuple(parts))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 9)))
