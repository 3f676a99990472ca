"""LangChain's standard tests of chat models, against a server.

    pip install langchain-openai langchain-tests pytest-asyncio
    satchel serve smollm2-135m &
    SATCHEL_URL=http://127.0.0.1:8080/v1 pytest tools/suites/langchain_suite.py \
        -o asyncio_mode=auto -o asyncio_default_test_loop_scope=session

Which of them need a better model than SmolLM2-135M is in docs/serving.md.
"""

from __future__ import annotations

import os
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# Without the penalty a small model's text runs in circles, and never closes a JSON string.
SAMPLING = {"temperature": 0.0, "frequency_penalty": 0.6, "max_tokens": 1000}


class TestServer(ChatModelIntegrationTests):
    """All of them."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": os.environ.get("SATCHEL_MODEL", "smollm2-135m"),
            "base_url": os.environ.get("SATCHEL_URL", "http://127.0.0.1:8080/v1"),
            "api_key": "none",
            "stream_usage": True,  # asked of OpenAI itself only, unless one says so
            **SAMPLING,
        }
