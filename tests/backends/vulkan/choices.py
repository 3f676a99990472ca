"""Each way in which a device chooses a token, beside what the host would choose of the same logits.

    python -m backends.vulkan.choices PROGRAM

prints how many agree, and on which device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from satchel.llm.sampling import Sampler, SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Program

TEXT = [3, 4, 5, 7, 4]
NUMBERS = (0.0, 0.3517, 0.8093, 0.999)  # between tokens that are equally likely
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0, "repetition_penalty": 1.2},
    {"temperature": 0.0, "logit_bias": {1025: 50.0}},
    {"repetition_penalty": 0.5, "presence_penalty": -2.0},
    {"frequency_penalty": -2.0},
    {"logit_bias": {1099: 20.0, 4: -3.0}, "top_k": 5},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 700, "temperature": 3.0},
    {"top_k": 10_000},
    {"top_p": 0.01},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.47, "temperature": 0.01},
    {"top_p": 0.77, "temperature": 9.0},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.1, "frequency_penalty": 1.0},
]


def disagreements(path: Path) -> list[str]:
    session = Session(Program(path, target="vulkan"))
    session.feed(TEXT[:-1])
    logits = session.feed(TEXT[-1:])
    found = []
    for way in WAYS:
        options = SamplingOptions(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, **way})
        sampler = Sampler(options)
        sampler.answer_from = 3
        chances = np.cumsum(sampler.distribution(logits, TEXT))
        for number in NUMBERS:
            session.rewind(len(TEXT) - 1)
            (token,) = session.chain(TEXT[-1], options, [number], sampler.answer_from)
            if token != (wanted := int(np.flatnonzero(chances > number)[0])):
                found.append(f"{options.describe()}, {number}: {token}, and not {wanted}")
    return found


if __name__ == "__main__":
    from satchel.backends.vulkan import list_devices

    program = Path(sys.argv[1])
    wrong = disagreements(program)
    print(*wrong, f"{list_devices()[0][0]['name']}: {len(WAYS)} ways", sep="\n", end="\n")
    sys.exit(1 if wrong else 0)
