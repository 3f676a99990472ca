"""The page to chat in: plain files that a browser loads from here and from nowhere else."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from satchel.serve.errors import ApiError

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline: what a model writes stays text.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def page_file(request: Request) -> Response:
    """One of the page's files; / is index.html."""
    name = request.path_params.get("name", "index.html")
    kind = _KINDS.get(name.rpartition(".")[2])
    file = files(__name__).joinpath(name)
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        raise ApiError(404, f"the page has no file {name!r}", code="unknown_url")
    headers = {
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(file.read_bytes(), media_type=kind, headers=headers)
