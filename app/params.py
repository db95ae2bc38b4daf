"""The sampling parameters of a chat body: which are served, within which bounds. Pure."""

from collections.abc import Mapping, Sequence

from app.checks import Json, integer, is_unicode, number, shown, wrong
from app.constraints import FIELDS, read_constraint

MOST_STOPS = 16
MOST_LOGPROBS = 20
SEEDS = (-(2**63), 2**63 - 1)

# What a model cannot see in its answer: taken and left aside.
IGNORED = frozenset(
    {
        "model",
        "messages",
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "stream_options",
        "parallel_tool_calls",
    }
)

LOGPROBS = ("logprobs", "top_logprobs")

# Parameters that would change the answer and are not served, with the values that mean "not used".
UNSERVED: Mapping[str, tuple[Json, ...]] = {
    "stream": (False,),
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "min_p": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
}


def read_params(body: Mapping[str, Json], *, max_new_tokens: int) -> dict[str, Json]:
    """The sampling parameters that were given; nulls count as not given."""
    params: dict[str, Json] = {}
    for name, value in body.items():
        if value is None or name in IGNORED or name in FIELDS or name in LOGPROBS:
            continue
        if name in UNSERVED:
            _check_unused(name, value)
        elif name in ("max_tokens", "max_completion_tokens"):
            params["max_tokens"] = _max_tokens(name, value, max_new_tokens)
        elif name in _READERS:
            params[name] = _READERS[name](name, value)
        else:
            raise wrong(
                name if name.isidentifier() and name.isascii() else "",
                f"The parameter {shown(name)} is not known: leave it out.",
            )
    found = {"logprobs": _logprobs(body), "constraint": read_constraint(body)}
    return params | {name: value for name, value in found.items() if value is not None}


def _check_unused(name: str, value: Json) -> None:
    neutral = UNSERVED[name]
    if any(value == unused and isinstance(value, bool) == isinstance(unused, bool) for unused in neutral):
        return
    allowed = " or ".join(
        str(unused).lower() if isinstance(unused, bool) else repr(unused) for unused in neutral
    )
    raise wrong(name, f"{name} = {shown(value)} is not served: leave it out or set it to {allowed}.")


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
    count = 0 if top is None else integer("top_logprobs", top, 0, MOST_LOGPROBS)
    if count and not wanted:
        raise wrong("top_logprobs", "top_logprobs needs logprobs: true beside it.")
    return count if wanted else None


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
