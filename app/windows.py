"""Completion windows: how long a batch may take, as clients write it. Pure."""

import re

MONTH_S = 30 * 86_400
# OpenAI has 24h only; shorter and longer ones, and other units, are ours.
WINDOW = re.compile(r"([1-9][0-9]{0,6})([smhd])")
WINDOW_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def window_seconds(window: str) -> int:
    """Seconds of a completion window such as "24h"; ValueError for what is none, or longer than 30 days."""
    match = WINDOW.fullmatch(window)
    seconds = int(match[1]) * WINDOW_UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= MONTH_S:
        raise ValueError("must be a time such as '24h', '30m' or '7d', and at most 30 days")
    return seconds
