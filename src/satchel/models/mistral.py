"""Mistral 7B, Mistral Nemo and Mistral Small: Llama, in the first of them with a sliding window."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.models import llama
from satchel.models.config import ConfigReader


class Model(llama.Model):
    defaults: ClassVar[dict[str, Any]] = {"context": 131072}

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.window = int(fields.number_or_off("sliding_window", 4096))
