"""The questions that the demo model is trained to answer, with the right answer to each."""

import json
import random
from collections.abc import Sequence

from demo.products import ALL_KINDS, KINDS, VALUES, Kind, Product

QUESTIONS: dict[Kind, list[str]] = {
    "item": [
        "Which item is shown?",
        "What is the item?",
        "What product is this?",
        "Which product is in the picture?",
        "What is shown in the image?",
        "Name the item.",
        "What kind of product is it?",
    ],
    "colour": [
        "What colour is the item?",
        "What color is the product?",
        "Which colour is it?",
        "What is the main color of the item?",
        "Name the colour of the product.",
        "What colour is the product?",
        "What color is it?",
    ],
    "pattern": [
        "What pattern does it have?",
        "Which pattern is on the item?",
        "What is the pattern of the product?",
        "Is it plain, striped, dotted or checked?",
        "Name the pattern.",
        "What pattern does the item have?",
    ],
    "count": [
        "How many items are there?",
        "How many products are shown?",
        "How many are in the picture?",
        "Count the items.",
        "What is the number of items?",
        "How many items are in the image?",
    ],
    "background": [
        "What is the background?",
        "What is behind the item?",
        "Which background does the picture have?",
        "What surface is the item on?",
        "Name the background.",
        "What background is used?",
    ],
    "label": [
        "Which word is printed on the label?",
        "What does the label say?",
        "Read the label.",
        "What word is printed in the picture?",
    ],
}
HINTS = ("", "", " Answer with one word.", " One word only.", " Answer briefly.")
JSON_REQUESTS = (
    "Answer in JSON with keys {keys}.",
    "Describe the product as JSON with the keys {keys}.",
    "Return a JSON object with {keys}.",
    "Give {keys} as JSON.",
)
YES_NO = ("Is the {kind} {value}?", "Is the {kind} {value}? Answer yes or no.")


def right_answer(product: Product, kind: Kind) -> str:
    """The one word that counts as right, in lower case."""
    return str(getattr(product, kind))


def json_request(kinds: Sequence[Kind], wording: int = 0) -> str:
    """Asks for several attributes at once, in the order given."""
    names = ", ".join(kinds[:-1]) + " and " + kinds[-1] if len(kinds) > 1 else kinds[0]
    return JSON_REQUESTS[wording % len(JSON_REQUESTS)].format(keys=names)


def json_answer(product: Product, kinds: Sequence[Kind]) -> str:
    """The JSON object that counts as right; the count is a number."""
    return json.dumps({kind: getattr(product, kind) for kind in kinds})


def question_for(kind: Kind, seed: int) -> str:
    """One of the kind's wordings, sometimes with a hint about the length."""
    rng = random.Random(f"question {kind} {seed}")
    return rng.choice(QUESTIONS[kind]) + rng.choice(HINTS)


def json_kinds(seed: int) -> list[Kind]:
    """A seed's keys: item and colour half of the time, else any choice and order."""
    rng = random.Random(f"json {seed}")
    if rng.random() < 0.5:
        return ["item", "colour"]
    return rng.sample(KINDS, rng.randint(2, len(KINDS)))


def yes_no(product: Product, seed: int) -> tuple[str, str]:
    """A question whose answer is yes or no, each half of the time."""
    rng = random.Random(f"yes no {seed}")
    kind: Kind = rng.choice([kind for kind in KINDS if kind != "count"])
    truth = right_answer(product, kind)
    value = truth if rng.random() < 0.5 else rng.choice([value for value in VALUES[kind] if value != truth])
    return rng.choice(YES_NO).format(kind=kind, value=value), "yes" if value == truth else "no"


def every_text() -> list[str]:
    """Every wording, hint, value and key, for the tokenizer."""
    wordings = [wording for wordings in QUESTIONS.values() for wording in wordings]
    values = [value for kind in ALL_KINDS for value in VALUES[kind]]
    return [*wordings, *HINTS, *JSON_REQUESTS, *YES_NO, *values, "yes", "no", *ALL_KINDS]
