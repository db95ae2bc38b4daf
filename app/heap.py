"""The garbage collector of a process that runs for long over many short-lived objects."""

import gc

# New objects before a collection. By default 700: reading a block of lines then walked through all that the
# process had imported again and again, which was a third of the time of parsing.
NEW_OBJECTS = 20_000


def settle() -> None:
    """Call it once all is imported and built: what is there now stays, and is looked at no more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
