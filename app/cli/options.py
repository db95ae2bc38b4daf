"""Options that several commands have in common, typed once as the fields of a dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints


def sharing(kind: type[Any], name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make commands with the options of a dataclass, which they are given as `name`, before their own."""
    shared = fields(kind)
    named = {one.name for one in shared}

    def make(command: Callable[..., None]) -> Callable[..., None]:
        own = {at: one for at, one in inspect.signature(command).parameters.items() if at != name}
        hints = get_type_hints(kind, include_extras=True) | get_type_hints(command, include_extras=True)

        def run(**given: Any) -> None:
            made = kind(**{at: given.pop(at) for at in list(given) if at in named})
            command(**{name: made}, **given)

        first = [_parameter(one, hints[one.name]) for one in shared]
        its_own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own.values()]
        run.__signature__ = inspect.Signature([*first, *its_own])  # pyright: ignore[reportFunctionMemberAccess]
        run.__annotations__ = {one.name: hints[one.name] for one in (*first, *its_own)}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return make


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
