"""Who made a program: keys, signatures, the trust list, and everything that may be forged."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from satchel.cli.main import main
from support import program_file as fm

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def signed(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_TRUST", str(tmp_path / "trusted_keys"))
    path = tmp_path / "model.satchel"
    shutil.copy(program, path)
    assert main(["sign", "--new-key", str(tmp_path / "my.key")]) == 0
    assert main(["sign", str(path), "--key", str(tmp_path / "my.key")]) == 0
    return path


def test_a_signed_program(signed: Path, capsys: Capture) -> None:
    public = signed.parent / "my.key.pub"
    assert stat.S_IMODE((signed.parent / "my.key").stat().st_mode) == 0o600
    assert main(["verify", str(signed), "--key", str(public)]) == 0
    assert main(["verify", str(signed), "--key", public.read_text().strip()]) == 0
    assert "a key you do not know" not in capsys.readouterr().out
    assert main(["verify", str(signed)]) == 0
    assert "a key you do not know" in capsys.readouterr().out
    # What is signed, by the library that we did not write.
    document = json.loads((signed.parent / "model.satchel.sig").read_text())
    raw = base64.b64decode(public.read_text().strip().removeprefix("ed25519:"))
    message = b"satchel program signature 1\0" + signed.read_bytes()[32:64]
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(document["signature"]), message)


def test_the_trust_list(signed: Path, capsys: Capture) -> None:
    assert main(["verify", str(signed), "--trusted"]) == 1
    assert "a key that you trust" in capsys.readouterr().err
    key = (signed.parent / "my.key.pub").read_text().strip()
    (signed.parent / "trusted_keys").write_text(f"# mine\n\n{key} Ada Lovelace\n")
    assert main(["verify", str(signed), "--trusted"]) == 0
    assert "by Ada Lovelace" in capsys.readouterr().out


def test_what_is_not_signed_is_told_apart(program: Path, signed: Path, capsys: Capture) -> None:
    public = str(signed.parent / "my.key.pub")
    assert main(["verify", str(program)]) == 0
    assert "nothing says who made it" in capsys.readouterr().out
    assert main(["verify", str(program), "--key", public]) == 1
    assert main(["sign", "--new-key", str(signed.parent / "other.key")]) == 0
    assert main(["verify", str(signed), "--key", str(signed.parent / "other.key.pub")]) == 1


def test_another_program_with_right_checksums(signed: Path, capsys: Capture) -> None:
    model = fm.read(signed.read_bytes())
    model.metadata = model.metadata.replace(b"tiny", b"evil")
    signed.write_bytes(fm.write(model))
    assert main(["verify", str(signed)]) == 1
    assert "is not a signature of this program" in capsys.readouterr().err


def test_weights_behind_a_right_header(signed: Path, capsys: Capture) -> None:
    data = bytearray(signed.read_bytes())
    record = next(r for r in fm.read_records(bytes(data)) if r.kind == "weights")
    data[record.offset] ^= 1
    signed.write_bytes(data)
    assert main(["verify", str(signed), "--key", str(signed.parent / "my.key.pub")]) == 1
    assert "not those that were written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", '{"key": 1, "signature": 2}', "x" * 100_000, "[" * 50_000,
     '{"key": "ed25519:AAAA", "signature": ""}'],
)  # fmt: skip
def test_a_damaged_signature_is_an_error(content: str, signed: Path, capsys: Capture) -> None:
    (signed.parent / "model.satchel.sig").write_text(content)
    assert main(["verify", str(signed)]) == 1
    assert "bug in Satchel" not in capsys.readouterr().err


def test_keys_that_are_none(signed: Path, capsys: Capture) -> None:
    assert main(["sign", str(signed), "--key", str(signed)]) == 1
    assert main(["verify", str(signed), "--key", "ed25519:short"]) == 1
    assert main(["verify", str(signed), "--key", str(signed.parent / "none")]) == 1
    assert main(["sign", str(signed)]) == 1
    assert main(["sign", "--new-key", str(signed.parent / "my.key")]) == 1  # not overwritten
    assert "bug in Satchel" not in capsys.readouterr().err
