"""Every call under /v1 asks for a scope, and no key gives away more than it has."""

from collections.abc import Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from app.auth import ALL, Scope, may_give
from app.config import Settings
from app.main import build_app, wire
from app.routes.strict import refuse_unknown

SCOPES = st.sets(st.sampled_from([ALL, *Scope]))


def scopes_of(dependant: Dependant) -> Iterator[str]:
    if (scope := getattr(dependant.call, "scope", None)) is not None:
        yield scope
    for inner in dependant.dependencies:
        yield from scopes_of(inner)


def calls() -> dict[str, Dependant]:
    services = wire(Settings())
    try:
        routers = [getattr(one, "original_router", None) for one in build_app(services).routes]
        routes = [one for router in routers if router for one in router.routes if isinstance(one, APIRoute)]
    finally:
        services.close()
    return {
        f"{method} {route.path}": route.dependant
        for route in routes
        for method in route.methods or ()
        if route.path.startswith("/v1/")
    }


def scopes_by_call() -> dict[str, list[str]]:
    return {call: list(scopes_of(dependant)) for call, dependant in calls().items()}


def is_strict(dependant: Dependant) -> bool:
    return any(inner.call is refuse_unknown for inner in dependant.dependencies)


def has_parameters(dependant: Dependant) -> bool:
    return bool(dependant.query_params) or any(map(has_parameters, dependant.dependencies))


def test_calls_of_ours_refuse_parameters_that_they_do_not_have() -> None:
    """Not those of OpenAI's contract, whose clients may send more."""
    lenient = {call for call, one in calls().items() if has_parameters(one) and not is_strict(one)}
    assert lenient == {"GET /v1/files", "GET /v1/batches"}


def test_every_call_asks_for_one_scope() -> None:
    found = scopes_by_call()
    assert len(found) > 30
    assert {call: scopes for call, scopes in found.items() if len(scopes) != 1} == {}


def test_what_only_looks_asks_for_no_more_than_that() -> None:
    for call, scopes in scopes_by_call().items():
        if "write" in scopes or "review" in scopes:
            assert not call.startswith("GET "), call
        if "read" in scopes:
            assert call.startswith("GET "), call


@given(SCOPES, SCOPES)
def test_a_key_gives_others_no_more_than_it_has(own: set[str], wanted: set[str]) -> None:
    held = own | ({Scope.REVIEW} if Scope.WRITE in own else set())
    assert may_give(own, wanted) == (ALL in own or wanted <= held)
