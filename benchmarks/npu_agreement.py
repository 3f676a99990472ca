"""A program for an NPU, here (on the NPU or its emulator) and in the reference's rounded run.

    python benchmarks/npu_agreement.py model.satchel --prompt "What is the capital of France?"

Prints the cosine between the logits after the prompt, and the greedy tokens of both.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from satchel.backends import open_instance
from satchel.llm.llm import LLM
from satchel.llm.session import Session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--prompt", default="What is the capital of France?")
    parser.add_argument("--new-tokens", type=int, default=5)
    arguments = parser.parse_args()
    llm = LLM(arguments.program)
    prompt = llm.chat_tokens([{"role": "user", "content": arguments.prompt}])
    logits = {}
    for name in ("reference", "device"):
        started = time.perf_counter()
        session = llm.session
        if name == "reference":
            instance = open_instance(llm.program, reference=True)
            session = Session(llm.program, instance=instance)
        row = logits[name] = session.feed(prompt)
        tokens = []
        for _ in range(arguments.new_tokens):
            tokens.append(int(row.argmax()))
            row = session.feed(tokens[-1:])
        text = llm.tokenizer.decode(tokens)
        took = time.perf_counter() - started
        print(f"{name:9} {tokens} {text!r}, {took:.0f} s", flush=True)
    a, b = logits["device"], logits["reference"]
    cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    print(f"cosine of the logits after {len(prompt)} prompt tokens: {cosine:.5f}")


if __name__ == "__main__":
    main()
