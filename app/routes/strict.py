"""Query parameters that a route of ours does not have are refused: a misspelt filter would filter nothing."""

from collections.abc import Iterator

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant

from app.errors import RequestError


def refuse_unknown(request: Request) -> None:
    """RequestError that names the first parameter of the query which the route does not have."""
    known = dict.fromkeys(_parameters(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in known:
            there = f"There are {', '.join(sorted(known))}." if known else "There are none."
            message = f"Unknown parameter: '{name[:100]}'. {there}"
            raise RequestError(message, param=name[:100], code="unknown_parameter")


def _parameters(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _parameters(inner)


# Of a router: not of those that OpenAI's clients call, whose newer versions may send more than is known here.
STRICT = [Depends(refuse_unknown)]
