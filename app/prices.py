"""`VQUEUE_PRICES` read, and what tokens cost by it. Pure."""

from dataclasses import dataclass

MILLION = 1_000_000
FORM = "model input=0.20 cached=0.05 output=0.60 currency=USD, with a comma between two models"
NUMBERS = ("input", "cached", "output")


@dataclass(frozen=True)
class Price:
    """Of a million tokens: prompts as they come, prompts computed for an earlier request, answers."""

    input: float
    cached: float
    output: float
    currency: str = "USD"

    def of(self, *, prompt: int, cached: int, completion: int) -> float:
        """The price of so many tokens; `cached` are a part of `prompt`."""
        cached = min(cached, prompt)
        return ((prompt - cached) * self.input + cached * self.cached + completion * self.output) / MILLION


def read_prices(text: str) -> dict[str, Price]:
    """The price of each model that a text lists. ValueError for what is wrong."""
    found: dict[str, Price] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        model, *words = part.split()
        if "=" in model:
            raise ValueError(f"{model!r} stands where a model is expected: {FORM}")
        if model in found:
            raise ValueError(f"{model!r} stands twice")
        found[model] = _price(model, words)
    return found


def _price(model: str, words: list[str]) -> Price:
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in (*NUMBERS, "currency") or name in given or not value:
            raise ValueError(f"{word!r} of {model} is not one of {', '.join(NUMBERS)}, currency: {FORM}")
        given[name] = value
    if "input" not in given or "output" not in given:
        raise ValueError(f"{model} needs input= and output=: {FORM}")
    numbers = {name: _amount(model, name, given[name]) for name in NUMBERS if name in given}
    return Price(
        input=numbers["input"],
        cached=numbers.get("cached", numbers["input"]),
        output=numbers["output"],
        currency=given.get("currency", "USD"),
    )


def _amount(model: str, name: str, value: str) -> float:
    try:
        amount = float(value)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < MILLION:
        raise ValueError(f"{name}={value} of {model} must be a number from 0 on")
    return amount
