"""The images of a request: data in it; files and addresses only where the server was told so."""

from __future__ import annotations

import base64
import binascii
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit

from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.settings import Settings

_FETCH_S = 10.0  # seconds until an image from elsewhere is there
_CHUNK = 1 << 16
IMAGE_PARTS = ("image_url", "input_image")  # of chat completions and of responses


@dataclass(frozen=True)
class SentImage:
    """A file's bytes, and the field that they came in."""

    field: str
    data: bytes

    def wrong(self, what: str) -> ApiError:
        return ApiError(400, f"{self.field}: {what}", param=self.field)


class ImageReader:
    """Collects the images of a request in their order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.found: list[SentImage] = []

    def take(self, part: Fields) -> None:
        """A part of a message that is an image: its address, or an object that has it."""
        inner = part.part("image_url") if isinstance(part.get("image_url"), dict) else None
        url = inner.text("url") if inner else part.text("image_url")
        if url is None:
            raise part.wrong("image_url", "is missing, and no other form is taken")
        field = part.wrong("image_url", "").param or ""
        self.found.append(SentImage(field, self._read(url, field)))

    def _read(self, url: str, field: str) -> bytes:
        def wrong(what: str) -> ApiError:
            return ApiError(400, f"{field} {what}", param=field)

        scheme = url.partition(":")[0].lower()
        if scheme == "data":
            return data_of(url, wrong("is not a data URL in base64"))
        if scheme == "file" and self._settings.image_files:
            return self._file(url, wrong("is no file of the folder for images"))
        if scheme in ("http", "https") and self._settings.fetch_images:
            return self._fetched(url, field)
        raise wrong("must be a data URL: this server reads no files and fetches nothing")

    def _file(self, url: str, wrong: ApiError) -> bytes:
        """Only what lies in the folder, wherever links lead."""
        place = urlsplit(url)
        folder = Path(self._settings.image_files or "").resolve()
        try:
            path = (folder / unquote(place.netloc + place.path)).resolve()
            if not path.is_relative_to(folder) or path.stat().st_size > self._settings.max_body:
                raise wrong
            return path.read_bytes()
        except (OSError, ValueError):
            raise wrong from None

    def _fetched(self, url: str, field: str) -> bytes:
        most, end = self._settings.max_body, time.monotonic() + _FETCH_S
        data = bytearray()
        try:
            with _opener().open(url, timeout=_FETCH_S) as response:
                while piece := response.read1(_CHUNK):
                    data += piece
                    if len(data) > most or time.monotonic() > end:
                        raise OSError(f"it has more than {most} bytes, or takes too long")
        except (OSError, URLError, ValueError) as error:
            raise ApiError(400, f"{field} cannot be fetched: {error}", param=field) from None
        return bytes(data)


def data_of(url: str, wrong: ApiError) -> bytes:
    """
    >>> data_of("data:image/png;base64,AAEC", ApiError(400, "wrong"))
    b'\\x00\\x01\\x02'
    """
    head, comma, text = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise wrong
    return from_base64(text, wrong)


def from_base64(text: str, wrong: ApiError) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and nothing else, also where a redirect leads."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener
