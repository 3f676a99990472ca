"""Who made a program: signatures with Ed25519, in a file of their own beside it.

A program's checksums say that it is whole, not who made it: anybody can write a file with right
checksums. A signature is of the header's checksum, which stands for all of the file, so that it
counts only together with :meth:`Program.verify`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from satchel.errors import SignatureError
from satchel.files import atomic_write, check_output, open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUFFIX = ".sig"
_DOMAIN = b"satchel program signature 1\0"
_FORM = "ed25519:"
_HEADER_DIGEST = slice(32, 64)  # docs/format.md
_LARGEST = 1 << 16
_INSTALL = "Install what signs and checks: pip install 'satchel[sign]'."


@dataclass(frozen=True)
class PublicKey:
    """A key that signatures are checked with, and whose it is."""

    text: str  # ed25519:BASE64
    owner: str = ""

    @staticmethod
    def parse(line: str) -> PublicKey:
        """
        >>> PublicKey.parse("ed25519:" + "A" * 43 + "= Ada").owner
        'Ada'
        """
        text, _, owner = line.strip().partition(" ")
        try:
            raw = base64.b64decode(text.removeprefix(_FORM), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if not text.startswith(_FORM) or len(raw) != 32:
            raise SignatureError(
                f"{line[:80]!r} is not a public key", f"Give {_FORM}BASE64, or a file with it."
            )
        return PublicKey(text, owner.strip())

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.text.removeprefix(_FORM))


def trust_file() -> Path:
    """The keys that you trust, one on each line: ``$SATCHEL_TRUST``, or in your settings."""
    if chosen := os.environ.get("SATCHEL_TRUST"):
        return Path(chosen).expanduser()
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(settings) / "satchel" / "trusted_keys"


def trusted_keys() -> list[PublicKey]:
    """Those in the trust list; empty lines and lines that begin with # say nothing."""
    path = trust_file()
    lines = _read(path).decode("utf-8", "replace").splitlines() if path.is_file() else []
    return [PublicKey.parse(line) for line in lines if line.strip() and line.lstrip()[0] != "#"]


def read_public_key(given: str) -> PublicKey:
    """A key as it is, or the first of a file."""
    if given.startswith(_FORM):
        return PublicKey.parse(given)
    lines = _read(Path(given)).decode("utf-8", "replace").strip().splitlines()
    return PublicKey.parse(lines[0] if lines else "")


def new_key(path: Path) -> PublicKey:
    """A new private key, which only you can read, and its public one beside it."""
    for each in (path, path.with_name(path.name + ".pub")):
        check_output(each, overwrite=False)
    private = _keys().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as form

    pem = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = _public(private)
    with atomic_write(path, overwrite=False) as file:
        os.chmod(file.fileno() if os.chmod in os.supports_fd else path, 0o600)
        file.write(pem)
    with atomic_write(path.with_name(path.name + ".pub"), overwrite=False) as file:
        file.write(f"{public.text}\n".encode())
    return public


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """What :func:`new_key` wrote."""
    keys = _keys()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError) as error:
        raise SignatureError(f"{path} is not a private key: {error}", _NEW) from None
    if not isinstance(private, keys.Ed25519PrivateKey):
        raise SignatureError(f"{path} is not a key of the kind Ed25519", _NEW)
    return private  # type: ignore[no-any-return]


def sign(program: Path, private: Ed25519PrivateKey) -> Path:
    """Sign a program that was verified; returns the signature's path."""
    document = {
        "format": "satchel-signature-1",
        "key": _public(private).text,
        "signature": base64.b64encode(private.sign(_message(program))).decode(),
    }
    target = program.with_name(program.name + SUFFIX)
    with atomic_write(target) as file:
        file.write(json.dumps(document, indent=1).encode() + b"\n")
    return target


def signer(program: Path) -> PublicKey | None:
    """The key that signed a program, None if there is no signature; a wrong one is an error.

    It says nothing about the bytes behind the header: verify the program, too.
    """
    path = program.with_name(program.name + SUFFIX)
    if not path.exists():
        return None
    keys = _keys()
    from cryptography.exceptions import InvalidSignature

    try:
        document = json.loads(_read(path))
        key = PublicKey.parse(document["key"])
        signature = base64.b64decode(document["signature"], validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SignatureError(f"{path} is not a signature: {error}", _AGAIN) from None
    try:
        keys.Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, _message(program))
    except (InvalidSignature, ValueError):
        raise SignatureError(f"{path} is not a signature of this program", _AGAIN) from None
    return key


_NEW = "Make one with: satchel sign --new-key FILE."
_AGAIN = "Get program and signature again, from where they were made."


def _keys() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SignatureError("signatures need the package 'cryptography'", _INSTALL) from None
    return ed25519


def _public(private: Ed25519PrivateKey) -> PublicKey:
    raw = private.public_key().public_bytes_raw()
    return PublicKey(_FORM + base64.b64encode(raw).decode())


def _message(program: Path) -> bytes:
    with open(program, "rb", opener=open_regular) as file:
        return _DOMAIN + file.read(64)[_HEADER_DIGEST]


def _read(path: Path) -> bytes:
    """A small file that somebody else may have made."""
    with open(path, "rb", opener=open_regular) as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise SignatureError(f"{path} is too long", "It is not a key or a signature.")
    return data
