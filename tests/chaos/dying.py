"""`python -m tests.chaos.dying`: one of our processes, DIE_IN, that dies at the point that DIE_AT names.

DIE_AT is `before MODULE:CLASS.METHOD` or `after ...`; with DIE_ON the call must have that text in its first
argument. DIE_BY=freeze stops the process instead, for somebody to wake it.
"""

import importlib
import os
import runpy
import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

EXIT_CODE = 9


def die() -> None:
    if os.environ.get("DIE_BY") == "freeze":
        # To this very thread: what goes to the process may find another first, while this one runs on
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    else:
        os._exit(EXIT_CODE)


def dying(method: Callable[..., Any], *, before: bool, on: str) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        is_there = any(on in str(argument) for argument in arguments[:2])
        if is_there and before:
            die()
        result = method(*arguments, **options)
        if is_there and not before:
            die()
        return result

    return call


def set_trap(at: str, *, on: str) -> None:
    """Put a trap into a method of a class, or into a function of a module."""
    when, place = at.split()
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, name, dying(getattr(owner, name), before=when == "before", on=on))


if __name__ == "__main__":
    set_trap(os.environ["DIE_AT"], on=os.environ.get("DIE_ON", ""))
    runpy.run_module(os.environ["DIE_IN"], run_name="__main__")
