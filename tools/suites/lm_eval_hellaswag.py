"""lm-eval asks a server about HellaSwag: a public task, from a file and without a hub.

    pip install 'lm-eval[api]'
    satchel serve smollm2-135m &
    python tools/suites/lm_eval_hellaswag.py hellaswag_val_full.txt --url http://127.0.0.1:8080
    satchel eval smollm2-135m --hellaswag hellaswag_val_full.txt --limit 50     # for comparison
    python tools/suites/lm_eval_hellaswag.py hellaswag_val_full.txt --chat

The file is llama.cpp's: six lines for each item, as ``satchel eval --hellaswag`` takes it. The task
is lm-eval's own but for where its items come from; their likelihoods are asked for with
``local-completions``, by texts that the server turns into tokens. With ``--chat`` it is asked by
``local-chat-completions`` which of four endings it is, and answers with a letter.
"""

from __future__ import annotations

import argparse
import bz2
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LINES = 6
TASK = """task: hellaswag_file
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {items}}}}}
output_type: multiple_choice
validation_split: validation
doc_to_text: "{{{{query}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: "choices"
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
CHAT_TASK = """task: hellaswag_file
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {items}}}}}
output_type: generate_until
validation_split: validation
doc_to_text: |-
  Which ending is right? Answer with A, B, C or D.

  {{{{query}}}} ...
  A: {{{{choices[0]}}}}
  B: {{{{choices[1]}}}}
  C: {{{{choices[2]}}}}
  D: {{{{choices[3]}}}}
doc_to_target: "{{{{'ABCD'[label]}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 16, temperature: 0.0}}
filter_list:
  - name: letter
    filter: [{{function: regex, regex_pattern: "([ABCD])"}}, {{function: take_first}}]
metric_list: [{{metric: exact_match}}]
"""


def write_items(source: Path, items: Path, limit: int) -> None:
    data = source.read_bytes()
    text = (bz2.decompress(data) if data[:3] == b"BZh" else data).decode("utf-8")
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    with items.open("w", encoding="utf-8") as out:
        for at in range(0, LINES * limit, LINES):
            query, label, *choices = lines[at : at + LINES]
            item = {"query": query, "label": int(label), "choices": choices}
            out.write(json.dumps(item, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--limit", type=int, default=50, help="the first items")
    parser.add_argument("--chat", action="store_true", help="ask for a letter in a chat")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        items = Path(work) / "items.jsonl"
        write_items(given.file, items, given.limit)
        task = CHAT_TASK if given.chat else TASK
        (Path(work) / "hellaswag_file.yaml").write_text(task.format(items=items))
        asked = ["run", "--tasks", "hellaswag_file", "--include_path", work]
        if given.chat:
            server = f"model={given.model},base_url={given.url}/v1/chat/completions"
            asked += ["--model", "local-chat-completions", "--apply_chat_template"]
            asked += ["--model_args", server]
        else:
            server = f"model={given.model},base_url={given.url}/v1/completions"
            asked += ["--model", "local-completions"]
            asked += ["--model_args", f"{server},tokenizer_backend=remote"]
        return subprocess.run([sys.executable, "-m", "lm_eval", *asked], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
