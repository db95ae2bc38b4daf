"""The parameters of a request's body: which are served, within which bounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.checks import Json, integer, is_unicode, number, shown, wrong
from app.constraints import FIELDS, read_constraint
from app.errors import RequestError

MOST_STOPS = 16
MOST_LOGPROBS = 20
SEEDS = (-(2**63), 2**63 - 1)

LOGPROBS = ("logprobs", "top_logprobs")


@dataclass(frozen=True)
class Unserved:
    """A parameter that would change the answer: the values that mean "not used", and what to do instead."""

    neutral: tuple[Json, ...]
    instead: str = ""


@dataclass(frozen=True)
class Vocabulary:
    """The parameters of one endpoint's bodies, beside those of sampling that all of them have.

    `elsewhere` are read by others, or cannot be seen in an answer: taken and left aside.
    """

    max_tokens: frozenset[str]
    elsewhere: frozenset[str]
    unserved: Mapping[str, Unserved]


# What a model cannot see in its answer.
IGNORED = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "stream_options",
        "parallel_tool_calls",
    }
)

NO_TOOLS = "Name the choices in the prompt, and hold the answer to them by a JSON schema"
UNSERVED: Mapping[str, Unserved] = {
    "stream": Unserved((False,)),
    "tools": Unserved(([],), NO_TOOLS),
    "tool_choice": Unserved(("none", "auto"), NO_TOOLS),
    "frequency_penalty": Unserved((0,), "Use repetition_penalty"),
    "presence_penalty": Unserved((0,), "Use repetition_penalty"),
    "min_p": Unserved((0,), "Use top_p"),
    "logit_bias": Unserved(({},), "Use guided_choice to hold the answer to some texts"),
}

CHAT = Vocabulary(
    max_tokens=frozenset({"max_tokens", "max_completion_tokens"}),
    elsewhere=IGNORED | FIELDS | {"model", "messages", *LOGPROBS},
    unserved={
        **UNSERVED,
        "n": Unserved((1,), "Ask once for each answer, each time with another seed"),
        "functions": Unserved(([],), NO_TOOLS),
        "function_call": Unserved(("none", "auto"), NO_TOOLS),
        "modalities": Unserved((["text"],)),
        "reasoning_effort": Unserved(("none",), "Choose a model that reasons as much as you want"),
        "verbosity": Unserved(("medium",), "Say in the prompt how long the answer is to be"),
    },
)


def read_params(body: Mapping[str, Json], *, max_new_tokens: int) -> dict[str, Json]:
    """The parameters of a chat completion that were given; nulls count as not given."""
    params = read_sampling(body, CHAT, max_new_tokens=max_new_tokens)
    found = {"logprobs": _logprobs(body), "constraint": read_constraint(body)}
    return params | {name: value for name, value in found.items() if value is not None}


def read_sampling(
    body: Mapping[str, Json], vocabulary: Vocabulary, *, max_new_tokens: int
) -> dict[str, Json]:
    """The sampling parameters of a body; RequestError for those that are not served, or not known."""
    params: dict[str, Json] = {}
    for name, value in body.items():
        if value is None or name in vocabulary.elsewhere:
            continue
        if name in vocabulary.unserved:
            check_unused(name, value, vocabulary.unserved[name])
        elif name in vocabulary.max_tokens:
            params["max_tokens"] = _max_tokens(name, value, max_new_tokens)
        elif name in _READERS:
            params[name] = _READERS[name](name, value)
        else:
            raise unknown(name)
    return params


def unknown(name: str, within: str = "") -> RequestError:
    param = f"{within}{name}" if name.isidentifier() and name.isascii() else within.rstrip(".")
    return wrong(param, f"The parameter {shown(within + name)} is not known: leave it out.")


def check_unused(name: str, value: Json, unserved: Unserved) -> None:
    neutral = unserved.neutral
    if any(value == unused and isinstance(value, bool) == isinstance(unused, bool) for unused in neutral):
        return
    allowed = " or ".join(map(shown, neutral))
    remedy = f"leave it out or set it to {allowed}" if allowed else "leave it out"
    instead = f" {unserved.instead}." if unserved.instead else ""
    raise wrong(name, f"{name} = {shown(value)} is not served: {remedy}.{instead}")


def _max_tokens(name: str, value: Json, most: int) -> int:
    if isinstance(value, int) and value > most:
        raise wrong(name, f"{name} is {shown(value)}, but this model answers with at most {most} tokens.")
    return integer(name, value, 1, most)


def _top_p(name: str, value: Json) -> float:
    share = number(name, value, 0, 1)
    if share == 0:
        raise wrong(name, "top_p must be above 0; use temperature 0 for the likeliest answer.")
    return share


def _top_k(name: str, value: Json) -> int:
    """0 means all tokens, and so does -1, as other servers write it."""
    return max(0, integer(name, value, -1, 2**31 - 1))


def _repetition_penalty(name: str, value: Json) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 2:
        raise wrong(name, f"{name} must be a number above 0, up to 2 (1 means none), not {shown(value)}.")
    return float(value)


def _logprobs(body: Mapping[str, Json]) -> int | None:
    """How many alternatives each token is told with; None where no log probabilities are wanted."""
    wanted, top = (body.get(name) for name in LOGPROBS)
    if wanted is not None and not isinstance(wanted, bool):
        raise wrong("logprobs", f"logprobs must be true or false, not {shown(wanted)}.")
    count = top_logprobs(top)
    if count and not wanted:
        raise wrong("top_logprobs", "top_logprobs needs logprobs: true beside it.")
    return count if wanted else None


def top_logprobs(value: Json) -> int:
    return 0 if value is None else integer("top_logprobs", value, 0, MOST_LOGPROBS)


def _stop(name: str, value: Json) -> Sequence[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS:
        raise wrong(name, f"stop must be a text or a list of at most {MOST_STOPS} texts, not {shown(value)}.")
    if not all(isinstance(stop, str) and stop and is_unicode(stop) for stop in stops):
        raise wrong(name, f"Every entry of stop must be a text that is not empty: {shown(value)}.")
    return stops


_READERS = {
    "temperature": lambda name, value: number(name, value, 0, 2),
    "top_p": _top_p,
    "top_k": _top_k,
    "seed": lambda name, value: integer(name, value, *SEEDS),
    "stop": _stop,
    "repetition_penalty": _repetition_penalty,
}
