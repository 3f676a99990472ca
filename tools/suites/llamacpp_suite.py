"""llama.cpp's own tests of its server, against this one.

    git clone https://github.com/ggml-org/llama.cpp
    pip install requests wget prometheus-client openai
    python tools/suites/llamacpp_suite.py llama.cpp/tools/server/tests --model stories260K.satchel

The tests start a binary; this script is that binary, and starts ``satchel serve`` with what its
options mean here. They want ggml-org/test-model-stories260K, a model of 260,000 parameters:
``satchel export stories260k``, or that checkpoint with its tokenizer, gives the program. What does
not apply is in NOT_OURS, file by file or test by test, with the reason; all else is run, and the
tests that fail are listed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

# What llama.cpp takes for models without a template.
CHATML = (
    "{{ bos_token }}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MODEL, TEMPLATE = "SATCHEL_SUITE_MODEL", "SATCHEL_SUITE_TEMPLATE"
# By file, and by test where a file is not left out as a whole.
NOT_OURS = {
    "test_compat_anthropic": "another company's API",
    "test_compat_gcp": "another company's API",
    "test_ctx_shift": "an option of that server: what happens when the context is full",
    "test_embedding": "needs the model bert-bge-small",
    "test_infill": "an endpoint of that server, and a model for it",
    "test_kv_keep_only_active": "an option of that server's cache",
    "test_lora": "adapters are in a program here, and chosen by the model's name",
    "test_mcp_servers": "that server runs tools of its own",
    "test_proxy": "that server's proxy",
    "test_rerank": "an endpoint of that server, and a model for it",
    "test_router": "that server starts others",
    "test_sleep": "an option of that server: it unloads models",
    "test_slot_save": "an endpoint of that server: places are files",
    "test_speculative": "needs a draft model; lookahead needs none",
    "test_tools_builtin": "that server runs tools of its own",
    "test_vision_api": "needs the model tinygemma3",
    "test_stream": "an endpoint of that server: streams that are taken up again",
    "test_template": "needs templates by name (--chat-template); here a program has its own",
}
NOT_OURS_TESTS = {
    "model|split": "needs another model, or options that choose one",
    "aliases_and_tags": "a model has one name here",
    "test_chat_template|apply_chat_template|assistant_prefill|continue_final": "--chat-template",
    "codellama70b|chatml|not a chat template": "--chat-template",
    "return_progress|prompt_progress|telemetry|timings_per_token": "an extension of that server",
    "verbose_debug": "an extension of that server",
    "cors": "web pages of others are refused here unless --cors names them",
    "static_assets": "the files of that server's page",
    "local_media_file": "needs the model tinygemma3",
    "test_metrics_(?!timings_are)": "metrics have other names here",
    "response_fields|backend_sampling|post_sampling": "an extension of that server",
    "completion_unified": "how that server shares its cache",
    "correct_api_key": "/completions is OpenAI's here, with /v1 and without",
    "slow": "slow tests, which need large models",
    "test_chat_completion\\[|test_completion\\[|test_completion_stream\\[|with_openai_library": (
        "look for words that llama.cpp's random numbers draw with a seed"
    ),
    "test_chat_completion_stream|logprobs_stream|without_tool_call_fast.*STREAMED": (
        "a first delta with content null; OpenAI's has an empty text"
    ),
    "test_server_props": "look for a .gguf file",
    "test_server_slots": "/slots is always there, and tells nothing of the answers",
    "invalid_chat_completion_req\\[messages7": "two answers in a row, which OpenAI takes",
    "context_size_exceeded": "an error of its own type; OpenAI's has the code for it",
    "cached_tokens": "counts that follow from how that server's cache is cut",
    "ignore_eos_populates": "a bias of minus infinity; it is -100 here",
}


def stand_in(options: list[str]) -> None:
    """What the tests start: the same server, with what the options mean here."""
    parser = argparse.ArgumentParser()
    for name in ("host", "port", "alias", "api-key"):
        parser.add_argument(f"--{name}")
    for name in ("ctx-size", "parallel", "n-predict"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--temp", type=float)
    parser.add_argument("--seed")
    parser.add_argument("--no-ui", action="store_true")
    given, _ = parser.parse_known_args(options)
    name = given.alias or "model"
    command = [sys.executable, "-m", "satchel", "serve", f"{name}={os.environ[MODEL]}"]
    command += ["--host", given.host, "--port", given.port, "--any-model"]
    if given.parallel:
        command += [f"--max-sequences={given.parallel}"]
    if given.ctx_size:
        command += [f"--max-prompt={given.ctx_size // max(1, given.parallel) - 1}"]
    if given.n_predict > 0:
        command += [f"--max-output={given.n_predict}"]
    if given.api_key:
        command += ["--api-key", given.api_key]
    command += ["--chat-template", os.environ[TEMPLATE]]
    if given.no_ui:
        command += ["--no-page"]
    os.execv(sys.executable, command)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tests", type=Path, help="llama.cpp's tools/server/tests")
    parser.add_argument("--model", required=True, help="the program of stories260K")
    given, options = parser.parse_known_args()  # the rest are options of pytest
    folder = given.tests.resolve()
    files = sorted((folder / "unit").glob("test_*.py"))
    run = [path for path in files if path.stem not in NOT_OURS]
    for path in files:
        if path.stem in NOT_OURS:
            print(f"{path.stem}: not run, {NOT_OURS[path.stem]}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
    command += [*options, "--confcutdir", str(folder), "-p", "llamacpp_suite", *map(str, run)]
    places = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "LLAMA_SERVER_BIN_PATH": str(_binary(folder)),
        "PYTHONPATH": os.pathsep.join(places),
        TEMPLATE: str(_written(folder / "satchel-chatml.jinja", CHATML)),
        MODEL: str(Path(given.model).resolve()),
    }
    sys.exit(subprocess.run(command, cwd=folder, env=environment, check=False).returncode)


def _binary(folder: Path) -> Path:
    text = f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --stand-in "$@"\n'
    path = _written(folder / "satchel-stand-in", text)
    path.chmod(0o755)
    return path


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def pytest_collection_modifyitems(config: object, items: list[object]) -> None:
    """As a plugin of pytest: leave out what does not apply."""
    import pytest

    for item in items:
        assert isinstance(item, pytest.Item)
        # The presets would fetch models; here there is one.
        for pattern, reason in NOT_OURS_TESTS.items():
            slow = pattern == "slow" and item.get_closest_marker("slow")
            if slow or (pattern != "slow" and re.search(pattern, item.nodeid)):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: object) -> None:
    """The presets would be started one by one to fetch their models; here there is one."""
    if "utils" in sys.modules:
        sys.modules["utils"].ServerPreset.load_all = staticmethod(lambda: None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stand-in"]:
        stand_in(sys.argv[2:])
    else:
        main()
