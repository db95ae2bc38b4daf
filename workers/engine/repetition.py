"""Whether an answer goes in circles. Pure."""

from collections.abc import Sequence

# An answer repeats itself when its end is one run of at most LONGEST_PERIOD tokens, several times over.
LONGEST_PERIOD = 32
REPEATED_TOKENS = 32
REPEATED_TIMES = 4


def repeats(tokens: Sequence[int]) -> bool:
    """Whether the answer's end is one run of tokens over and over."""
    for period in range(1, LONGEST_PERIOD + 1):
        size = max(REPEATED_TIMES * period, REPEATED_TOKENS)
        tail = list(tokens[-size:])
        if len(tail) == size and tail[period:] == tail[:-period]:
            return True
    return False
