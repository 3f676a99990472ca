"""Talks to a server with OpenAI's API: this one's, or any other."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from satchel.errors import RemoteError, blaming


class Remote:
    """A server by its address; each request has a connection of its own, so threads may share it.

    Example::

        remote = Remote("http://127.0.0.1:8080")
        for event in remote.chat({"messages": [{"role": "user", "content": "Hello!"}]}):
            print(event["choices"][0]["delta"].get("content", ""), end="")
    """

    def __init__(self, url: str, key: str | None = None, timeout: float = 600.0) -> None:
        address = url if "://" in url else f"http://{url}"
        try:
            place = urlsplit(address)
            self._port = place.port
        except ValueError:
            place = urlsplit("")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise RemoteError(
                f"{url!r} is not the address of a server", "Give one such as http://127.0.0.1:8080."
            )
        self.url = address.rstrip("/").removesuffix("/v1")
        self._host, self._secure, self._timeout = place.hostname, place.scheme == "https", timeout
        self._path = urlsplit(self.url).path
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def models(self) -> list[dict[str, Any]]:
        """What the server has."""
        connection, response = self._send("GET", "/v1/models")
        with closing(connection):
            text = response.read()
        advice = "Is it a server with OpenAI's API?"
        with blaming(RemoteError, f"{self.url} does not list its models", advice):
            return [{**model, "id": str(model["id"])} for model in json.loads(text)["data"]]

    def chat(self, fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of an answer as they come; closing the iterator hangs up."""
        body = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        connection, response = self._send("POST", "/v1/chat/completions", body)
        with closing(connection):
            try:
                for line in response:
                    if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                        continue
                    event = json.loads(line[len(b"data: ") :])
                    if not isinstance(event, dict):
                        raise ValueError("an event is no JSON object")
                    if "error" in event:
                        raise RemoteError(f"{self.url} says: {_reason(event['error'])}")
                    yield event
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                raise RemoteError(f"the answer of {self.url} broke off: {error}") from None

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._path + path, data, self._headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RemoteError(
                f"{self.url} does not answer: {error}", "Is the server running? satchel serve MODEL"
            ) from None
        if response.status != http.client.OK:
            with closing(connection):
                raise self._refused(response)
        return connection, response

    def _refused(self, response: http.client.HTTPResponse) -> RemoteError:
        text = response.read(1 << 16).decode("utf-8", "replace")
        try:
            message = _reason(json.loads(text)["error"])
        except (ValueError, LookupError, TypeError, RecursionError):
            message = f"status {response.status}"
        wait = response.getheader("Retry-After")
        advice = f"Try again in {wait} s." if wait else ""
        if response.status == http.client.UNAUTHORIZED:
            advice = "Give its key with --api-key or SATCHEL_API_KEY."
        return RemoteError(f"{self.url} says: {message}", advice)


def _reason(error: Any) -> str:
    """What an error of OpenAI's form, or any other, says."""
    return str(error.get("message") if isinstance(error, dict) else error)
