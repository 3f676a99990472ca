"""satchel sign: say that a program is yours."""

from __future__ import annotations

import argparse
from pathlib import Path

from satchel.cli.output import emit, print_json
from satchel.errors import ConfigError
from satchel.progress import ProgressBar

HELP = "sign a program, so that others can tell who made it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="a program")
    parser.add_argument("--key", metavar="FILE", help="the private key to sign with")
    parser.add_argument(
        "--new-key",
        metavar="FILE",
        help="make a private key in this file, and its public key in FILE.pub",
    )


def execute(arguments: argparse.Namespace) -> None:
    from satchel import signing
    from satchel.runtime.program import Program

    if not arguments.new_key and not (arguments.file and arguments.key):
        raise ConfigError(
            "there is nothing to sign, or no key to sign with",
            "Give FILE and --key KEY, and make a key with --new-key FILE.",
        )
    public = signing.new_key(Path(arguments.new_key)) if arguments.new_key else None
    document: dict[str, object] = {"signature": None, "key": public.text if public else None}
    if public and not arguments.json:
        emit(f"{arguments.new_key}: a new private key; give it to nobody")
        emit(f"{arguments.new_key}.pub: its public key, {public.text}")
    key = arguments.key or arguments.new_key
    if arguments.file:
        private = signing.read_private_key(Path(key))  # before the long part
        bar = ProgressBar()
        Program(arguments.file).verify(lambda done, total: bar("Verifying", done, total))
        bar.close()
        path = signing.sign(Path(arguments.file), private)
        signer = signing.signer(Path(arguments.file))
        document = {"signature": str(path), "key": signer.text if signer else None}
        if not arguments.json:
            emit(f"{path}: the signature; give it away beside the program")
    if arguments.json:
        print_json(document)
