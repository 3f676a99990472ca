"""Readers for every form a tokenizer is stored in, one file per form.

Each has one function that takes a :class:`~satchel.checkpoints.base.TokenizerSource` and gives a
:class:`~satchel.llm.tokenizer_sources.spec.TokenizerSpec`, whose text is always the JSON of
Hugging Face's ``tokenizers``.
"""
