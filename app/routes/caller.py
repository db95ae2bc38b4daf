"""Who calls: the tenant behind the Authorization header of a request."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.auth import Keys, Tenant

Caller = Callable[..., Tenant]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def caller_of(keys: Keys) -> Caller:
    """A dependency that answers 401 to strangers and leaves the tenant's id for the log."""

    def caller(request: Request, credentials: Credentials) -> Tenant:
        tenant = keys.recognise(credentials.credentials if credentials else None)
        request.state.tenant = tenant.id
        return tenant

    return caller
