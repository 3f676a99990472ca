"""Models that reason first: thinking on and off, and reasoning that history drops."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from satchel import LLM
from support.tiny_llm import write_tiny_llm

# As such templates do: earlier answers lose their reasoning, and thinking can be switched off by
# an empty one.
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    folder = tmp_path_factory.mktemp("reasoning")
    checkpoint = write_tiny_llm(folder / "reasoner", template=TEMPLATE)
    return LLM(satchel.export(checkpoint, folder / "r.satchel", context=256))


def test_thinking_is_a_variable_of_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "2+2?"}]
    thinking = llm.tokenizer.decode(llm.chat_tokens(messages, enable_thinking=True))
    answering = llm.tokenizer.decode(llm.chat_tokens(messages, enable_thinking=False))
    assert answering == thinking + "<think></think>"
    assert llm.tokenizer.decode(llm.chat_tokens(messages)) == thinking


def test_reasoning_that_the_template_drops_leaves_the_cache(llm: LLM) -> None:
    """What the model thought is in the cache while it answers, and gone in the next turn."""
    first = llm.chat_tokens([{"role": "user", "content": "2+2?"}])
    reasoning = llm.tokenizer.encode("<think>two and two</think>")
    llm.session.rewind(0)
    llm.session.feed([*first, *reasoning, *llm.tokenizer.encode("4")])
    messages = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "<think>two and two</think>4"},
        {"role": "user", "content": "sure?"},
    ]
    generation = llm.generate(messages, max_new_tokens=4).finish()
    cached = llm.session.tokens
    prompt = llm.chat_tokens(messages)
    assert cached[: len(prompt)] == prompt
    assert "two and two" not in llm.tokenizer.decode(cached)
    assert generation.stats.reused_tokens == len(first)
    fresh = LLM(llm.program).generate(messages, max_new_tokens=4).finish()
    assert generation.tokens == fresh.tokens


def test_a_chat_keeps_what_was_said_and_lets_the_template_decide(llm: LLM) -> None:
    chat = llm.chat(max_new_tokens=3, template_variables={"enable_thinking": False})
    answer = chat.send("hi").finish()
    chat.send("again").finish()
    assert chat.messages[1] == {"role": "assistant", "content": answer.text}


def test_qwen3_template_drops_reasoning() -> None:
    """The real template, where the data is there."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    archive = folder / "tokenizers.tar.xz"
    if not archive.exists():
        pytest.skip("the real templates are not here")
    import tarfile

    from satchel.llm.chat_template import ChatTemplate

    with tarfile.open(archive) as tar:
        member = tar.extractfile("tokenizers/chat_templates/Qwen-Qwen3-0.6B.jinja")
        assert member is not None
        template = ChatTemplate(member.read().decode(), {})
    messages = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "<think>\ntwo and two\n</think>\n\n4"},
        {"role": "user", "content": "sure?"},
    ]
    prompt = template.render(messages)
    assert "two and two" not in prompt
    assert "4<|im_end|>" in prompt
    assert template.render(messages, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
