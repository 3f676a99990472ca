"""Who may ask: keys, names of the server, and other people's web pages."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request

from satchel.serve.errors import ApiError
from satchel.serve.settings import Settings

OPEN = ("/health", "/ping", "/", "/page/")  # need no key: the page asks for one


def check(request: Request, settings: Settings) -> None:
    """ApiError unless the request may be answered."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    _check_host(request, settings)
    _check_origin(request, settings)
    if settings.api_keys and path not in OPEN and not path.startswith(OPEN[-1]):
        _check_key(request, settings)


def _check_key(request: Request, settings: Settings) -> None:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip() if kind.lower() == "bearer" else request.headers.get("x-api-key", "")
    # All are compared, in constant time each, so that the time tells nothing.
    matches = [hmac.compare_digest(given.encode(), key.encode()) for key in settings.api_keys]
    if not any(matches):
        raise ApiError(
            401,
            "the API key is wrong" if given else "an API key is needed: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _check_host(request: Request, settings: Settings) -> None:
    """A page elsewhere can let its own name point here; then the name gives it away."""
    given = request.headers.get("host")
    if given is None:  # HTTP/1.0, which no browser speaks
        return
    name = urlsplit(f"//{given}").hostname
    if settings.hosts and name not in settings.hosts:
        raise ApiError(403, f"this server is not called {name!r}", code="wrong_host")


def _check_origin(request: Request, settings: Settings) -> None:
    """Browsers say whose page it is that asks; tools and programs say nothing."""
    origin = request.headers.get("origin")
    if origin is None or origin in settings.origins or "*" in settings.origins:
        return
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise ApiError(
            403, f"pages of {origin} may not ask here (--cors allows them)", code="wrong_origin"
        )


def client_of(request: Request) -> str:
    """Whose turn it is counted as: the key and the address."""
    address = request.client.host if request.client else ""
    return f"{request.headers.get('authorization', '')} {address}"
