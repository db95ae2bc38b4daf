"""What the benchmarks ask: drawn pictures and made-up questions, as files that any side can read."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image

WIDTH, HEIGHT = 640, 480  # 20 x 15 visual tokens
WORDS_A_QUESTION = 30
ANSWER_TOKENS = 16
MIXED_TOKENS = (3, 40)  # shortest and longest of the mixed answers


@dataclass(frozen=True)
class Question:
    """One question about one picture, which is named by its file."""

    id: str
    picture: str
    text: str
    max_tokens: int
    system: str | None = None


@dataclass(frozen=True)
class Workload:
    """Questions in the order in which they are asked, and their pictures as JPEG bytes by name."""

    questions: Sequence[Question]
    pictures: dict[str, bytes]

    def first(self, count: int) -> "Workload":
        return replace(self, questions=self.questions[:count])


def catalog(words: Sequence[str], *, pictures: int, each: int, seed: int = 0) -> Workload:
    """So many questions about each picture, one picture after the other; every answer is as long."""
    rng = random.Random(f"catalog {seed}")
    names = [f"picture{number}" for number in range(pictures)]
    questions = [
        Question(f"{name}/{number}", name, _question(rng, words), ANSWER_TOKENS)
        for name in names
        for number in range(each)
    ]
    return Workload(questions, {name: draw(number) for number, name in enumerate(names)})


def unshared(words: Sequence[str], *, pictures: int, seed: int = 0) -> Workload:
    """One question about each picture, with short and long answers mixed."""
    rng = random.Random(f"unshared {seed}")
    whole = catalog(words, pictures=pictures, each=1, seed=seed)
    return replace(
        whole, questions=[replace(each, max_tokens=rng.randint(*MIXED_TOKENS)) for each in whole.questions]
    )


def warming(workload: Workload, words: Sequence[str], *, system: str | None = None) -> Workload:
    """Another question about each picture, so that caches know it before the workload is measured.

    Behind a system prompt the picture's features become known, and its prefix in the workload does not.
    """
    rng = random.Random("warming")
    questions = [
        Question(f"warm/{name}", name, _question(rng, words), 1, system) for name in workload.pictures
    ]
    return Workload(questions, workload.pictures)


def stranger() -> Workload:
    """A question about a picture that no workload has, so that a process's first call is not measured."""
    return Workload([Question("stranger", "stranger", " baba", 2)], {"stranger": draw(1_000_000)})


def draw(seed: int, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """A picture of soft colours with sharp rectangles on it, as a JPEG."""
    rng = np.random.default_rng(seed)
    soft = PIL.Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    pixels = np.array(soft.resize((width, height), PIL.Image.Resampling.BICUBIC))
    for _ in range(12):
        left, top = rng.integers(0, width - width // 4), rng.integers(0, height - height // 4)
        wide, high = rng.integers(width // 20, width // 4), rng.integers(height // 20, height // 4)
        pixels[top : top + high, left : left + wide] = rng.integers(0, 256, 3)
    out = BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def decode(data: bytes) -> PIL.Image.Image:
    return PIL.Image.open(BytesIO(data)).convert("RGB")


def write_workload(workload: Workload, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, data in workload.pictures.items():
        (folder / f"{name}.jpg").write_bytes(data)
    (folder / "questions.json").write_text(json.dumps([asdict(each) for each in workload.questions]))
    return folder


def read_workload(folder: Path) -> Workload:
    rows = json.loads((folder / "questions.json").read_text())
    pictures = {path.stem: path.read_bytes() for path in folder.glob("*.jpg")}
    return Workload([Question(**row) for row in rows], pictures)


def _question(rng: random.Random, words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in rng.choices(words, k=WORDS_A_QUESTION))
