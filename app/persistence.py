"""How long a webhook that does not arrive is sent again, and how long its endpoint is left alone. Pure."""

# A receiver may be away for a day: 5 s, 15 s, 45 s ... until four hours lie between two tries.
FIRST_S, FACTOR, LONGEST_S = 5.0, 3.0, 4 * 3600.0
GIVE_UP_S = 24 * 3600.0
# An endpoint at which so many tries have failed in a row rests, and is then asked by one message at a time.
TRIPS_AFTER = 5
REST_S, LONGEST_REST_S = 30.0, 1800.0
JITTER = 0.2


def next_try(
    attempt: int, *, age_s: float, spread: float, retry_after_s: float | None = None
) -> float | None:
    """Seconds until the try after number `attempt` (from 1) of a message so old; None to give it up.

    `spread` in [0, 1) keeps messages that failed together from coming together again.
    """
    delay = min(FIRST_S * FACTOR ** (attempt - 1), LONGEST_S) * (1 - JITTER + 2 * JITTER * spread)
    delay = max(delay, min(retry_after_s or 0.0, LONGEST_S))
    return None if age_s + delay > GIVE_UP_S else delay


def rest(failures: int) -> float:
    """Seconds for which nothing is sent to an endpoint at which so many tries have failed in a row."""
    if failures < TRIPS_AFTER:
        return 0.0
    return min(REST_S * 2.0 ** min(failures - TRIPS_AFTER, 16), LONGEST_REST_S)
