"""Prompts of published measurements by name: ``--prompt-file paper:executorch``."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import ConfigError

PREFIX = "paper:"


@dataclass(frozen=True)
class NamedPrompt:
    """What the system message says, and what is asked."""

    system: str
    user: str


# Appendix C.8.1 of the ExecuTorch paper's artifact: 1,024 letters of instructions and a question,
# some 250 tokens with a chat template around them.
_EXECUTORCH = NamedPrompt(
    system="You are a highly capable, helpful, and honest AI assistant designed to provide clear, "
    "accurate, and thoughtful responses to a wide range of questions. Your primary goal is to "
    "assist users by offering information, explanations, and guidance in a manner that is "
    "respectful, unbiased, and safe. Always strive to be as helpful as possible, but never provide "
    "content that is harmful, unethical, offensive, or illegal. If a question is unclear, "
    "nonsensical, or based on incorrect premises, politely explain the issue rather than "
    "attempting to answer inaccurately. If you do not know the answer to a question, it is better "
    "to admit uncertainty than to provide false or misleading information. When appropriate, "
    "include examples, analogies, or step-by-step reasoning to enhance understanding. Your "
    "responses should be positive, inclusive, and supportive, fostering a constructive and "
    "informative interaction.",
    user="Please answer the following question in detail and provide relevant context, examples, "
    "and explanations where possible: What are some of the most important considerations when "
    "designing a machine learning system for real-world applications? Discuss potential "
    "challenges, best practices, and how to ensure ethical and responsible use.",
)

PROMPTS = {"executorch": _EXECUTORCH}


def named_prompt(name: str) -> NamedPrompt:
    """The prompt of ``paper:NAME``.

    >>> named_prompt("paper:executorch").user[:24]
    'Please answer the follow'
    """
    found = PROMPTS.get(name.removeprefix(PREFIX))
    if found is None:
        listed = ", ".join(PREFIX + known for known in PROMPTS)
        raise ConfigError(f"there is no prompt {name!r}", f"Known prompts: {listed}.")
    return found
