"""What went wrong, in the form that OpenAI's clients know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.errors import (
    CacheFullError,
    ConfigError,
    ContextFullError,
    InputError,
    SatchelError,
    TemplateError,
    TokenizerError,
)

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}


class ApiError(Exception):
    """An answer that is an error; ``param`` names the field that is wrong.

    >>> ApiError(400, "n must be at most 8", param="n").to_dict()["error"]["type"]
    'invalid_request_error'
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _KINDS.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }


def busy(message: str, wait_s: int, status: int = 429) -> ApiError:
    """Come back later."""
    code = "queue_full" if status == 429 else "unavailable"
    return ApiError(status, message, code=code, headers={"Retry-After": str(wait_s)})


def api_error(error: Exception) -> ApiError:
    """The error of a generation, of a prompt or of anything else, as the client is told."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextFullError):
        return ApiError(400, error.message, code="context_length_exceeded", param="messages")
    if isinstance(error, CacheFullError):
        return busy("the memory for conversations is in use; try again later", 5, 503)
    if isinstance(error, ConfigError | InputError | TemplateError | TokenizerError):
        return ApiError(400, error.on_command_line)
    if isinstance(error, SatchelError):
        return ApiError(500, error.message)
    return ApiError(500, f"an error inside the server ({type(error).__name__})")
