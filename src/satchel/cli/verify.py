"""satchel verify: is every byte what was written, and by whom?"""

from __future__ import annotations

import argparse
from pathlib import Path

from satchel.cli.output import emit, print_json
from satchel.progress import ProgressBar
from satchel.units import megabytes

HELP = "check all structure and every checksum of a program, and its signature"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program")
    parser.add_argument(
        "--key",
        metavar="KEY",
        action="append",
        default=[],
        help="it must be signed with this public key (ed25519:… or a file); repeatable",
    )
    parser.add_argument(
        "--trusted",
        action="store_true",
        help="it must be signed with a key of your trust list (~/.config/satchel/trusted_keys)",
    )


def execute(arguments: argparse.Namespace) -> None:
    from satchel import signing
    from satchel.errors import SignatureError
    from satchel.runtime.program import Program

    program = Program(arguments.file)
    wanted = [signing.read_public_key(key) for key in arguments.key]  # before the long part
    bar = ProgressBar()
    program.verify(lambda done, total: bar("Verifying", done, total))
    bar.close()
    signer = signing.signer(Path(arguments.file))
    known = {key.text: key for key in [*signing.trusted_keys(), *wanted]}
    demanded = {key.text for key in wanted} or (set(known) if arguments.trusted else None)
    if demanded is not None and (signer is None or signer.text not in demanded):
        found = f"by {signer.text}, which is not" if signer else "by nobody, and not by"
        raise SignatureError(
            f"{arguments.file} is whole, but signed {found} a key that you trust",
            "Get it from somebody whose key you have, or have a look at who made it.",
        )
    trusted = signer is not None and signer.text in known
    if arguments.json:
        print_json(
            {
                "ok": True,
                "file_size_bytes": program.size,
                "checksum": program.checksum,
                "signed_by": signer.text if signer else None,
                "trusted": trusted,
            }
        )
        return
    weights = len(program.weights)
    emit(f"{arguments.file}: {megabytes(program.size)} and {weights} weights are intact")
    emit(f"checksum {program.checksum}")
    if signer is None:
        emit("signature none: nothing says who made it")
    else:
        owner = known[signer.text].owner if trusted else ""
        who = f"{owner} ({signer.text})" if owner else signer.text
        emit(f"signature by {who}, {'which you trust' if trusted else 'a key you do not know'}")
