"""The C API from C, C++ and ctypes; what Python says is what it must say."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import satchel
from native.conftest import run_exactly

ROOT = Path(__file__).parents[2]
MISUSE, END, INVALID, CHECKSUM, IMPOSSIBLE, CONTEXT_FULL = 10, 1, 2, 3, 4, 5


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("max_new_tokens", ctypes.c_uint32),
        ("given", ctypes.c_uint32),
        ("temperature", ctypes.c_double),
    ]


@pytest.fixture(scope="module")
def library(device: Path) -> Any:
    found = next((device / "lib").glob("libsatchel.*"))
    library = ctypes.CDLL(str(found))
    for name in ("satchel_error_message", "satchel_error_advice", "satchel_version"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def opened(library: Any, program: Path) -> ctypes.c_void_p:
    model = ctypes.c_void_p()
    status = library.satchel_model_open(os.fsencode(program), None, ctypes.byref(model))
    assert status == 0, library.satchel_error_message()
    return model


def session_of(library: Any, model: ctypes.c_void_p) -> ctypes.c_void_p:
    session = ctypes.c_void_p()
    assert library.satchel_session_open(model, None, ctypes.byref(session)) == 0
    return session


def begun(library: Any, session: ctypes.c_void_p, text: str, tokens: int = 12) -> ctypes.c_void_p:
    options = Options(size=ctypes.sizeof(Options), max_new_tokens=tokens)
    made = ctypes.c_void_p()
    data = text.encode()
    size = ctypes.c_size_t(len(data))
    status = library.satchel_complete(
        session, data, size, ctypes.byref(options), ctypes.byref(made)
    )
    assert status == 0, library.satchel_error_message()
    return made


def pieces(library: Any, generation: ctypes.c_void_p) -> str:
    text, piece, length = b"", ctypes.c_char_p(), ctypes.c_size_t()
    while (
        status := library.satchel_next(generation, ctypes.byref(piece), ctypes.byref(length))
    ) == 0:
        text += piece.value or b""
    assert status == END, library.satchel_error_message()
    return text.decode()


def test_completions_and_tokens(library: Any, program: Path) -> None:
    llm = satchel.LLM(program)
    model = opened(library, program)
    session = session_of(library, model)
    for text in ("Hello there", "Hello you"):  # the second shares the first one's beginning
        wanted = llm.generate(text, raw=True, max_new_tokens=12).finish().text
        generation = begun(library, session, text)
        assert pieces(library, generation) == wanted
        library.satchel_generation_close(generation)
    data, count = "Hé <|user|>".encode(), ctypes.c_size_t()
    ids = (ctypes.c_uint32 * 64)()
    size = ctypes.c_size_t(len(data))
    assert (
        library.satchel_tokenize(
            model, data, size, 0, ids, ctypes.c_size_t(64), ctypes.byref(count)
        )
        == 0
    )
    assert list(ids[: count.value]) == llm.tokenizer.encode(data.decode(), add_bos=False)
    library.satchel_session_close(session)
    library.satchel_model_close(model)


def test_calls_in_the_wrong_order(library: Any, program: Path, tmp_path: Path) -> None:
    model = opened(library, program)
    session = session_of(library, model)
    first, second = begun(library, session, "Hello"), begun(library, session, "Hi")
    piece, length = ctypes.c_char_p(), ctypes.c_size_t()
    where = (ctypes.byref(piece), ctypes.byref(length))
    assert library.satchel_next(first, *where) == MISUSE
    assert b"another text since" in library.satchel_error_message()
    assert library.satchel_next(second, *where) == 0
    library.satchel_model_close(model)  # the session keeps what it needs
    assert library.satchel_next(second, *where) == 0
    library.satchel_session_close(session)
    assert library.satchel_next(second, *where) == 0
    library.satchel_generation_close(second)
    library.satchel_generation_close(second)
    assert library.satchel_next(second, *where) == MISUSE
    made = ctypes.c_void_p()
    for closed in (session, model, ctypes.c_void_p(12345), ctypes.c_void_p(), first):
        assert library.satchel_session_open(closed, None, ctypes.byref(made)) == MISUSE
    assert library.satchel_next(second, None, None) == MISUSE
    assert library.satchel_model_open(None, None, ctypes.byref(made)) == MISUSE
    assert library.satchel_model_open(b"x", None, None) == MISUSE
    missing = os.fsencode(tmp_path / "no")
    assert library.satchel_model_open(missing, None, ctypes.byref(made)) == INVALID
    assert made.value is None and library.satchel_error_advice()


def test_hostile_files(library: Any, program: Path, tmp_path: Path) -> None:
    data = program.read_bytes()
    path = tmp_path / "x.satchel"
    made = ctypes.c_void_p()
    for at in range(0, len(data), max(1, len(data) // 150)):
        damaged = bytearray(data)
        damaged[at] ^= 0x5A
        path.write_bytes(damaged)
        status = library.satchel_model_open(os.fsencode(path), None, ctypes.byref(made))
        assert status in (0, INVALID, CHECKSUM)
        if status == 0:  # a weight's byte, which opening does not read
            library.satchel_model_close(made)


def test_what_cannot_be(library: Any, program: Path) -> None:
    model = opened(library, program)
    session, made = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.satchel_session_open(model, b"fr", ctypes.byref(session)) == IMPOSSIBLE
    session = session_of(library, model)
    long = b"x" * 4000
    status = library.satchel_complete(
        session, long, ctypes.c_size_t(len(long)), None, ctypes.byref(made)
    )
    assert status == CONTEXT_FULL and b"Shorten it" in library.satchel_error_advice()
    bad = Options(size=0)
    status = library.satchel_complete(
        session, b"x", ctypes.c_size_t(1), ctypes.byref(bad), ctypes.byref(made)
    )
    assert status == MISUSE


def test_threads_of_their_own_sessions(library: Any, program: Path) -> None:
    wanted = satchel.LLM(program).generate("Hello", raw=True, max_new_tokens=20).finish().text
    model = opened(library, program)
    texts: list[str] = []

    def talk() -> None:
        session = session_of(library, model)
        texts.append(pieces(library, begun(library, session, "Hello", 20)))
        library.satchel_session_close(session)

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [wanted] * 4


def test_the_example_in_c(device: Path, compiler: str, program: Path, tmp_path: Path) -> None:
    source = ROOT / "examples" / "chat.c"
    assert len(source.read_text().splitlines()) <= 40
    flags = [f"-I{device / 'include'}", f"-L{device / 'lib'}", "-lsatchel"]
    if shutil.which("pkg-config"):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(device / "lib" / "pkgconfig")}
        command = ["pkg-config", "--cflags", "--libs", "satchel"]
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        flags = asked.stdout.split()
    built = tmp_path / "chat"
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]
    subprocess.run([*command, str(source), "-o", str(built), *flags], check=True)
    said = ["Hello", "And now?"]
    chat = satchel.LLM(program).chat(max_new_tokens=200)
    wanted = [chat.send(text).finish().text for text in said]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(device / "lib")}
    given = "".join(f"{text}\n" for text in said)
    done = run_exactly([str(built), str(program)], given, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{text}\n" for text in wanted)


CPP = """
#include <satchel.hpp>
#include <cstdio>
int main(int, char** argv) {
  try {
    satchel_api::Model model(argv[1], 1);
    auto session = model.session();
    std::string text = session.complete("Hello", satchel_api::Options().limit(12)).text();
    std::printf("%s\\n%zu\\n", text.c_str(), model.tokenize("Hello").size());
    satchel_api::Model missing("nowhere");
  } catch (const satchel_api::Error& error) {
    std::printf("%d %s\\n", error.code, error.advice.empty() ? "" : "advised");
  }
}
"""


def test_the_cmake_package_and_the_header_for_cpp(
    device: Path, program: Path, tmp_path: Path
) -> None:
    if not shutil.which("cmake") or not shutil.which("c++"):
        pytest.skip("needs cmake and a C++ compiler")
    (tmp_path / "main.cpp").write_text(CPP)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\\nproject(p CXX)\\nset(CMAKE_CXX_STANDARD 17)\\n"
        "find_package(satchel REQUIRED)\\nadd_executable(p main.cpp)\\n"
        "target_link_libraries(p satchel::satchel)\\n".replace("\\n", chr(10))
    )
    build = tmp_path / "build"
    configure = [
        "cmake",
        "-S",
        str(tmp_path),
        "-B",
        str(build),
        f"-Dsatchel_DIR={device}/lib/cmake/satchel",
    ]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    done = run_exactly([str(build / "p"), str(program)])
    llm = satchel.LLM(program)
    text = llm.generate("Hello", raw=True, max_new_tokens=12).finish().text
    tokens = len(llm.tokenizer.encode("Hello", add_bos=False))
    assert done.stdout == f"{text}\n{tokens}\n{INVALID} advised\n"
