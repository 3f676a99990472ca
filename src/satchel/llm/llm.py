"""A language model program, ready to answer: ``LLM(path).generate(...)`` and ``.chat()``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, ProgramFormatError, TokenizerError
from satchel.llm.batch import Batch
from satchel.llm.chat_template import ChatTemplate
from satchel.llm.generation import Generation
from satchel.llm.grammar import Grammar, Grammars
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.sampling import SamplingOptions, usual_sampling
from satchel.llm.session import Session
from satchel.llm.sessions import Sessions
from satchel.llm.tokenizer import Tokenizer
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from satchel.program.names import SEE_METHOD
from satchel.remarks import remark
from satchel.runtime.program import Instance, Program
from satchel.vision_language.pictures import Picture, Pictures, pictures_in, with_pictures
from satchel.vision_language.shown import Shown

Message = Mapping[str, Any]  # {"role": "user", "content": "…"}


class LLM:
    """A language model with its tokenizer and chat template, all from one file.

    The KV caches of all its conversations may take ``cache_memory`` bytes, by default half of the
    machine's memory. ``instance`` runs the program, by default a new one on its target; another
    ``target`` of a file is named as on the command line: ``LLM("smollm2-135m", target="vulkan")``.

    >>> llm = LLM("model.satchel")
    >>> answer = llm.generate("What is the capital of France?", max_new_tokens=8)
    >>> pieces = list(answer)  # one by one, as they come
    >>> "".join(pieces) == answer.text
    True
    >>> answer.stop_reason
    'max_new_tokens'
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str],
        threads: int = 0,
        mode: str | None = None,
        verify: bool = False,
        adapter: str | None = None,
        cache_memory: int = 0,
        instance: Instance | None = None,
        target: str | None = None,
    ) -> None:
        if not isinstance(program, Program):
            program = Program(_path_of(program), verify, target)
        elif target is not None and target != program.target:
            raise ConfigError(
                f"the program is open for {program.target} already, and not for {target}",
                "Give its path, or open it with satchel.load(PATH, target=…).",
            )
        self.program = program
        if cache_memory:
            instance = _with_cache(program, threads, cache_memory)
        self.sessions = Sessions(Session(program, threads, mode, instance, adapter))

    @property
    def session(self) -> Session:
        """The session of the generation that ended last."""
        return self.sessions.latest

    def __repr__(self) -> str:
        about = self.program.about
        return (
            f"<LLM {about.name} ({about.recipe_description}), {self.session.context} tokens of "
            f"context, {self.program.path}>"
        )

    @property
    def adapters(self) -> list[str]:
        """The adapters that the program has; ``use_adapter`` chooses one."""
        return list(self.program.language_model.adapters)

    def use_adapter(self, name: str | None) -> None:
        """Answer with an adapter of the program from now on, or with None."""
        self.sessions.use_adapter(name)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        document = self.program.section("tokenizer")
        parts = self.program.language_model.tokenizer
        if not document or not parts:
            raise TokenizerError(f"{self.program.path} holds no tokenizer")
        try:
            text = document.decode()
        except UnicodeDecodeError:
            raise ProgramFormatError("the tokenizer is not UTF-8", "", "tokenizer") from None
        spec = TokenizerSpec.from_dict(parts, text)
        return Tokenizer(spec, self.program.compiled_tokenizer())

    @cached_property
    def template(self) -> ChatTemplate:
        spec = self.tokenizer.spec
        return ChatTemplate(spec.chat_template, spec.special_tokens)

    @cached_property
    def sampling(self) -> SamplingOptions:
        """How the model is sampled unless :meth:`generate` is told otherwise."""
        return usual_sampling(self.program.language_model.generation)

    @cached_property
    def chat_sampling(self) -> SamplingOptions:
        """The same in a conversation (:meth:`chat`)."""
        return usual_sampling(self.program.language_model.generation, chats=True)

    @property
    def has_chat_template(self) -> bool:
        return self.tokenizer.spec.chat_template is not None

    def use_chat_template(self, template: str) -> None:
        """Write conversations with another template (Jinja) from now on."""
        self.tokenizer = self.tokenizer.with_template(template)
        self.template = ChatTemplate(template, self.tokenizer.spec.special_tokens)

    def chat_tokens(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """The tokens of a conversation, up to where the model's answer begins."""
        prompt = self.template.render(messages, add_generation_prompt=True, **variables)
        # The template writes the beginning-of-text token itself.
        return self.tokenizer.encode(prompt, add_bos=False)

    def generate(
        self,
        prompt: str | Sequence[Message],
        *,
        raw: bool = False,
        system: str | None = None,
        max_new_tokens: int | None = None,
        seq_len: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        sampling: SamplingOptions | None = None,
        logprobs: int | None = None,
        schema: Mapping[str, Any] | str | type | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        stop: str | Sequence[str] = (),
        on_context_full: str = "stop",
        lookahead: str | None = None,
        lookahead_sizes: LookaheadSizes | None = None,
        template_variables: Mapping[str, Any] | None = None,
        images: Sequence[Picture] | Picture = (),
    ) -> Generation:
        """Answer a prompt, or a list of messages. ``raw`` continues the text without a template.

        ``images`` (paths, files' bytes, Pillow's) are shown with the prompt to vision-language
        models; they stand where the prompt has the model's mark for them, or before it.

        The answer comes piece by piece as the result is iterated over; ``.finish().text`` is
        all of it. ``temperature`` and its like change the program's own way to sample
        (:attr:`sampling`), ``sampling`` replaces it; a temperature of 0 is greedy.
        ``max_new_tokens`` is the most of the answer, ``seq_len`` of prompt and answer together.
        ``lookahead`` guesses ahead: ``on``, ``off``, or ``auto`` for as long as it pays; the text
        is the same. ``logprobs`` keeps how likely every token was, and that many of the likeliest
        in its place (:attr:`Generation.logprobs`). The text has a given form with ``schema`` (a
        JSON Schema or a pydantic class), ``regex`` or ``grammar`` (Lark's form or GBNF).
        """
        keep = 1
        images = pictures_in(images)
        if not prompt:
            raise ConfigError("the prompt is empty", "Give a text or a message.")
        if not isinstance(prompt, str) and not (
            isinstance(prompt, Iterable) and all(isinstance(m, Mapping) for m in prompt)
        ):
            told = f"a prompt is a text or a list of messages, not {prompt!r:.80}"
            raise ConfigError(told, 'A message is {"role": "user", "content": "Hello"}.')
        if raw:
            if not isinstance(prompt, str):
                raise TypeError("a raw prompt is a text")
            text = self.pictures.plain(prompt, len(images)) if images else prompt
            tokens, shown = self._with_images(text, images, None)
        else:
            messages: list[Message] = [{"role": "system", "content": system}] if system else []
            messages += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            if images:
                messages = list(with_pictures(self.pictures, messages, len(images)))
            text = self.template.render(
                messages, add_generation_prompt=True, **(template_variables or {})
            )
            # The template writes the beginning-of-text token itself.
            tokens, shown = self._with_images(text, images, False)
            keep = self._system_length(messages, template_variables or {}, tokens)
        sampling = (sampling or self.sampling).changed(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            logit_bias=logit_bias,
        )
        if max_new_tokens is not None and not isinstance(max_new_tokens, int):
            raise ConfigError(f"max_new_tokens must be a whole number, not {max_new_tokens!r}")
        if seq_len is not None:
            if seq_len <= len(tokens):
                raise ConfigError(
                    f"the prompt has {len(tokens)} tokens, and seq_len {seq_len} leaves no room",
                    "Choose a larger one; it counts prompt and answer together.",
                )
            room = seq_len - len(tokens)
            max_new_tokens = room if max_new_tokens is None else min(room, max_new_tokens)
        stop = (stop,) if isinstance(stop, str) else stop
        return Generation(
            self.sessions,
            self.tokenizer,
            tokens,
            sampling,
            max_new_tokens,
            stop,
            on_context_full,
            keep,
            lookahead,
            lookahead_sizes,
            logprobs,
            grammar=self.form(schema=schema, regex=regex, grammar=grammar),
            shown=shown,
        )

    def _with_images(
        self, text: str, images: Sequence[Picture], add_bos: bool | None
    ) -> tuple[list[int], Shown | None]:
        if images:
            return self.pictures.tokens(text, images, add_bos)
        return self.tokenizer.encode(text, add_bos), None

    @property
    def takes_images(self) -> bool:
        """Whether prompts may show images."""
        return self.program.has_method(SEE_METHOD)

    @cached_property
    def pictures(self) -> Pictures:
        """What the program sees; ConfigError if it does not look at images."""
        return Pictures(self)

    @cached_property
    def grammars(self) -> Grammars:
        """Makes grammars for the tokenizer; takes a second the first time."""
        return Grammars(self.tokenizer)

    def form(
        self,
        schema: Mapping[str, Any] | str | type | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> Grammar | None:
        """The form that a text is to have; None if nothing is given."""
        if sum(each is not None for each in (schema, regex, grammar)) > 1:
            raise ConfigError("schema, regex and grammar do not go together", "Give one of them.")
        if schema is not None:
            return self.grammars.schema(schema)
        if regex is not None:
            return self.grammars.regex(regex)
        return None if grammar is None else self.grammars.grammar(grammar)

    def generate_many(
        self, prompts: Sequence[str | Sequence[Message]], **options: Any
    ) -> list[Generation]:
        """Answer several prompts together; ``options`` are those of :meth:`generate`.

        The weights are read once for the next token of all of them, and what the prompts' first
        tokens have in common is computed once. Each answer is the one that it would be alone.

        >>> answers = LLM("model.satchel").generate_many(["Hello!", "Hi!"], max_new_tokens=4)
        >>> [len(answer.tokens) for answer in answers]
        [4, 4]
        """
        if isinstance(prompts, str):
            raise ConfigError("prompts are a list of texts", "One alone is for generate().")
        options.setdefault("lookahead", "off")  # steps are as large as they should be without
        batch = Batch(self.generate(prompt, **options) for prompt in prompts)
        return batch.finish()

    def _system_length(
        self, messages: Sequence[Message], variables: Mapping[str, Any], tokens: Sequence[int]
    ) -> int:
        """How many of the first tokens are the system message, which sliding keeps."""
        if messages[0].get("role") != "system" or len(messages) < 2:
            return 1
        other = [messages[0], {**messages[1], "content": "\u2060"}, *messages[2:]]
        try:
            changed = self.chat_tokens(other, **variables)
        except Exception:  # a template may refuse; then only the first token is kept
            return 1
        same = 0
        while same < min(len(tokens), len(changed)) and tokens[same] == changed[same]:
            same += 1
        return max(1, min(same, self.session.context // 2))

    def embed(self, text: str) -> NDArray[np.float32]:
        """The vector of a text, of length 1; for programs that were exported with ``pooling``.

        Example::

            llm = LLM("qwen3-embedding.satchel")
            llm.embed("a river in Italy") @ llm.embed("the Po")
        """
        from satchel.llm.text_vectors import text_vector

        steps = text_vector(self.sessions, self.tokenizer.encode(text), self.sessions.adapter)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                vector: NDArray[np.float32] = end.value
                return vector

    def logprobs(self, prompt: str, continuation: str) -> list[tuple[str, float]]:
        """Each token of a continuation with ln of its probability, after a plain text.

        >>> llm = LLM("model.satchel")
        >>> tokens = llm.logprobs("The capital of France is", " Paris")
        >>> all(probability <= 0 for _, probability in tokens)
        True
        """
        from satchel.eval.likelihood import token_likelihoods

        before = self.tokenizer.encode(prompt)
        after = self.tokenizer.encode(continuation, add_bos=False)
        if not before or not after:
            raise ConfigError("there is nothing to judge", "Give a prompt and a continuation.")
        found = token_likelihoods(self.session, [*before, *after], len(before))
        texts = [self.tokenizer.decode([token], skip_special=False) for token in after]
        return list(zip(texts, found, strict=True))

    def chat(self, system: str | None = None, **options: Any) -> Chat:
        """A conversation of several turns; ``options`` are those of :meth:`generate`."""
        return Chat(self, system, {"sampling": self.chat_sampling, **options})


def _path_of(source: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """A program's path; that of a name or a checkpoint is made on first use."""
    if os.path.isfile(source):
        return source
    from satchel.exporter.cached import program_for
    from satchel.progress import usual_progress

    return program_for(source, progress=usual_progress(), say=remark)


def _with_cache(program: Program, threads: int, cache_memory: int) -> Instance:
    from satchel.backends import find_target

    return find_target(program.target).open_with_cache(program, threads, cache_memory)


class Chat:
    """Keeps the messages; each turn reuses the KV cache of what the turns have in common.

    >>> chat = LLM("model.satchel").chat(system="Be brief.", max_new_tokens=4)
    >>> text = chat.send("Hello!").finish().text
    >>> chat.send("And now?").finish().stats.reused_tokens > 0
    True
    """

    def __init__(self, llm: LLM, system: str | None, options: Mapping[str, Any]) -> None:
        self._llm = llm
        self._options = dict(options)
        self._answer: Generation | None = None
        self.messages: list[Message] = []
        if system:
            self.messages.append({"role": "system", "content": system})

    def __repr__(self) -> str:
        return f"<Chat of {len(self.messages)} messages with {self._llm!r}>"

    def send(self, text: str) -> Generation:
        """Say something; the answer joins the conversation when the next thing is said."""
        if not isinstance(text, str):
            raise ConfigError(f"a message is a text, not {text!r:.80}")
        if self._answer is not None:
            self.messages.append({"role": "assistant", "content": self._answer.text})
        self.messages.append({"role": "user", "content": text})
        try:
            self._answer = self._llm.generate(self.messages, **self._options)
        except Exception:
            # A turn that could not start must not be in the way of the next.
            self.messages.pop()
            if self._answer is not None:
                self.messages.pop()
            raise
        return self._answer
