"""Who calls: the tenant behind the Authorization header, let in by scope and as often as it may ask."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.actor import actor
from app.auth import Keys, Scope, Tenant
from app.errors import Overloaded
from app.throttle import Throttle

Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
Door = Callable[..., Tenant]


@dataclass(frozen=True)
class Caller:
    """A door for each scope. Every route has one: `tests/unit/test_scopes.py` looks."""

    any: Door  # with whatever scope
    read: Door
    write: Door
    review: Door
    chat: Door
    admin: Door


def caller_of(keys: Keys, throttle: Throttle) -> Caller:
    """Dependencies that answer 401 to strangers, 403 to keys without the scope, 429 to who asks too often."""

    def door(scope: Scope | None) -> Door:
        def caller(request: Request, credentials: Credentials) -> Tenant:
            tenant = keys.recognise(credentials.credentials if credentials else None, scope)
            request.state.tenant = tenant.id
            acting = actor()
            acting.tenant_id, acting.key_id = tenant.id, tenant.key_id
            count_request(request, throttle, tenant)
            return tenant

        caller.scope = scope.value if scope else "any"  # pyright: ignore[reportFunctionMemberAccess]
        return caller

    return Caller(
        any=door(None),
        read=door(Scope.READ),
        write=door(Scope.WRITE),
        review=door(Scope.REVIEW),
        chat=door(Scope.CHAT),
        admin=door(Scope.ADMIN),
    )


def count_request(request: Request, throttle: Throttle, tenant: Tenant) -> None:
    """Count a request of a tenant with a limit, and leave what is left for the answer's headers."""
    if not tenant.requests_per_minute:
        return
    allowance = throttle.hit(tenant.id, tenant.requests_per_minute)
    if allowance is None:
        return
    request.state.rate_headers = allowance.headers()
    if not allowance.allowed:
        raise Overloaded(
            f"More than {allowance.limit} requests came within a minute. Please slow down.",
            code="rate_limit_exceeded",
            retry_after_s=max(1, math.ceil(allowance.reset_s)),
        )
