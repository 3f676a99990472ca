"""The classes of Java over the C API, on a desktop's Java: the same texts as Python's."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import satchel
from satchel.backends.vulkan import list_devices

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "android" / "satchel" / "src" / "main" / "java"
Java = Callable[..., list[str]]


def _headers(javac: str) -> Path:
    home = Path(javac).resolve().parents[1]
    if not (home / "include" / "jni.h").is_file():
        pytest.skip("this Java has no jni.h: apt-get install openjdk-17-jdk-headless")
    return home / "include"


@pytest.fixture(scope="module")
def java(device: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    """Runs tests/native/java/Try.java and gives its lines."""
    javac, runtime, compiler = (shutil.which(name) for name in ("javac", "java", "g++"))
    if javac is None or runtime is None or compiler is None:
        pytest.skip("there is no JDK: apt-get install openjdk-17-jdk-headless")
    headers = _headers(javac)
    folder = tmp_path_factory.mktemp("jni")
    library = folder / "libsatchel_jni.so"
    compile_native = [compiler, "-std=c++20", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    compile_native += [f"-I{headers}", f"-I{headers / 'linux'}"]
    compile_native += [str(ROOT / "native" / "jni" / "satchel_jni.cpp"), "-o", str(library)]
    compile_native += [f"-L{device / 'lib'}", "-lsatchel", f"-Wl,-rpath,{device / 'lib'}"]
    subprocess.run(compile_native, check=True)
    classes = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    classes.append(str(Path(__file__).parent / "java" / "Try.java"))
    compile_java = [javac, "--release", "11", "-Xlint:all", "-Werror", "-d", str(folder)]
    subprocess.run([*compile_java, *classes], check=True)

    def run(*words: object) -> list[str]:
        # -Xcheck:jni watches what the native side does with Java's objects.
        command = [runtime, "-Xcheck:jni", "-XX:+DisplayVMOutputToStderr"]
        command += [f"-Ddev.satchel.library={library}", "-cp", str(folder)]
        command += ["-Dsun.jnu.encoding=UTF-8", "-Dfile.encoding=UTF-8", "Try", *map(str, words)]
        environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        told = done.stderr.decode()
        assert "FATAL ERROR" not in told and "WARNING in native" not in told, told
        return done.stdout.decode().split("\n")[:-1]

    return run


def test_conversations_are_pythons(java: Java, program: Path) -> None:
    said = ["Hello", "And 🦙?", "Go on."]
    chat = satchel.LLM(program).chat(system="Be brief.", max_new_tokens=12)
    wanted = "\n".join(chat.send(text).finish().text for text in said)
    assert "\n".join(java(program, "chat", *said)) == wanted


def test_sampled_texts_are_pythons(java: Java, program: Path) -> None:
    options = {"temperature": 0.9, "top_k": 7, "top_p": 0.9, "seed": 3}
    wanted = satchel.LLM(program).generate("Hé", raw=True, max_new_tokens=20, **options).finish()
    lines = java(program, "sample", "Hé")
    assert "\n".join(lines[:-1]) == wanted.text
    assert lines[-1] == f"{wanted.stop_reason} {len(wanted.tokens)}"


def test_tokens(java: Java, program: Path) -> None:
    text = "Hello <|user|> 日本 🦙"
    tokens, back = java(program, "tokens", text)
    assert json.loads(tokens) == satchel.LLM(program).tokenizer.encode(text, add_bos=False)
    assert back == text


def test_what_a_program_is(java: Java, program: Path) -> None:
    numbers, metadata = java(program, "info")
    loaded = satchel.load(program)
    assert numbers == f"512 {satchel.LLM(program).tokenizer.vocab_size} {loaded.size}"
    assert json.loads(metadata) == loaded.metadata


def test_mistakes_are_exceptions(java: Java, program: Path, tmp_path: Path) -> None:
    assert java(program, "misuse") == ["right"] * 6
    (tmp_path / "x.satchel").write_bytes(program.read_bytes()[:999])
    (line,) = java(tmp_path / "x.satchel", "info")
    assert line.startswith("2: ") and "not as long as it says" in line


@pytest.mark.skipif(not list_devices()[0], reason="no Vulkan device")
def test_a_gpu_gives_the_same_texts(java: Java, program: Path) -> None:
    said = ["Hello", "Go on."]
    chat = satchel.LLM(program, target="vulkan").chat(system="Be brief.", max_new_tokens=12)
    wanted = "\n".join(chat.send(text).finish().text for text in said)
    assert "\n".join(java(program, "chat@vulkan", *said)) == wanted
    (line,) = java(program, "chat@vulkan:99", "Hello")
    assert "there is no Vulkan device 99" in line
