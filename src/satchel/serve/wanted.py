"""What a request wants of its answers, whatever its endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from satchel.errors import ContextFullError
from satchel.llm.generation import Generation
from satchel.llm.grammar import Grammar
from satchel.llm.sampling import SamplingOptions
from satchel.llm.steps import RowSource
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings

MOST_LOGPROBS = 20
_MOST_ANSWERS = 16
_MOST_STOPS = 16
_LEAST_TOP_P = 1e-6  # keeps the likeliest token only
_LONGEST_TOKEN = 64  # characters: a text that has more for each token of the context is too long


@dataclass(frozen=True)
class Wanted:
    """How to answer."""

    sampling: SamplingOptions
    max_new_tokens: int | None
    stop: Sequence[str]
    count: int
    stream: bool
    include_usage: bool
    logprobs: int | None
    grammar: Grammar | None = None  # the form of the text
    marks: Sequence[str] = ()  # special tokens that the text shows, for whoever reads it

    def generations(
        self, model: ServedModel, prompt: Sequence[int], shown: RowSource | None = None
    ) -> list[Generation]:
        """One for each answer to the prompt; each has a seed of its own."""
        made = []
        for number in range(self.count):
            sampling = self.sampling
            if sampling.seed is not None and number:
                sampling = replace(sampling, seed=sampling.seed + number)
            made.append(
                Generation(
                    model.llm.sessions,
                    model.llm.tokenizer.showing(self.marks),
                    prompt,
                    sampling,
                    self.max_new_tokens,
                    self.stop,
                    logprobs=self.logprobs,
                    adapter=model.adapter,
                    grammar=self.grammar,
                    shown=shown,
                )
            )
        return made


def read_wanted(fields: Fields, usual: SamplingOptions, settings: Settings) -> Wanted:
    """The fields that all endpoints share; ``usual`` is how the model is sampled by itself."""
    most = settings.max_output
    asked = fields.integer("max_completion_tokens", 0, 1 << 31)
    if asked is None:
        asked = fields.integer("max_tokens", -1, 1 << 31)
        asked = None if asked == -1 else asked  # as llama.cpp's clients say "no limit"
    if asked == 0:
        raise fields.wrong("max_tokens", "must be at least 1")
    options = fields.part("stream_options")
    return Wanted(
        sampling=_sampling(fields, usual),
        max_new_tokens=min(asked or most, most) if most else asked,
        stop=fields.texts("stop", _MOST_STOPS),
        count=fields.integer("n", 1, _MOST_ANSWERS, 1) or 1,
        stream=fields.switch("stream"),
        include_usage=options.switch("include_usage") if options else False,
        logprobs=None,
    )


def _sampling(fields: Fields, usual: SamplingOptions) -> SamplingOptions:
    seed = fields.integer("seed", -(1 << 63), (1 << 63) - 1)
    return usual.changed(
        temperature=fields.number("temperature", 0, 100),
        top_p=_top_p(fields),
        top_k=_top_k(fields),
        min_p=fields.number("min_p", 0, 1),
        repetition_penalty=_above_zero(fields, "repetition_penalty", 100),
        frequency_penalty=fields.number("frequency_penalty", -2, 2),
        presence_penalty=fields.number("presence_penalty", -2, 2),
        logit_bias=_bias(fields),
        seed=None if seed is None else seed % (1 << 63),
    )


def _top_p(fields: Fields) -> float | None:
    """OpenAI takes 0 too: the likeliest token only."""
    value = fields.number("top_p", 0, 1)
    return _LEAST_TOP_P if value == 0 else value


def _top_k(fields: Fields) -> int | None:
    """As vLLM's clients say it, -1 is all tokens; 0 is that here, as for llama.cpp."""
    value = fields.integer("top_k", -1, 1 << 20)
    return 0 if value == -1 else value


def _above_zero(fields: Fields, name: str, most: float = 1) -> float | None:
    value = fields.number(name, 0, most)
    if value == 0:
        raise fields.wrong(name, "must be above 0")
    return value


def _bias(fields: Fields) -> dict[int, float] | None:
    given = fields.part("logit_bias")
    if given is None:
        return None
    found = {}
    for name in given.document:
        if not name.isascii() or not name.isdigit() or len(name) > 9:
            raise given.wrong(name, "is not the id of a token")
        found[int(name)] = given.number(name, -100, 100) or 0.0
    return found


def without_end(wanted: Wanted, model: ServedModel, fields: Fields) -> Wanted:
    """``ignore_eos``, as llama.cpp and vLLM have it: the text goes on until its limit."""
    if not fields.switch("ignore_eos"):
        return wanted
    never = dict.fromkeys(model.llm.tokenizer.spec.eos_ids, -100.0)
    bias = {**wanted.sampling.logit_bias, **never}
    return replace(wanted, sampling=replace(wanted.sampling, logit_bias=bias))


def check_bias(wanted: Wanted, model: ServedModel) -> None:
    """A token that the model does not have is the request's fault, and told before it begins."""
    size = model.llm.tokenizer.vocab_size
    for token in wanted.sampling.logit_bias:
        if token >= size:
            raise ApiError(
                400, f"logit_bias has token {token} of {size} tokens", param="logit_bias"
            )


def check_length(characters: int, model: ServedModel, param: str) -> None:
    """Refuse what cannot fit before any work is done on it."""
    if characters > model.context * _LONGEST_TOKEN:
        raise too_long(
            f"the prompt has {characters} characters, and the context {model.context} tokens", param
        )


def check_prompt(tokens: Sequence[int], model: ServedModel, settings: Settings, param: str) -> None:
    if not tokens:
        raise ApiError(400, f"{param} is empty", param=param)
    most = min(settings.max_prompt or model.context, model.context - 1)
    if len(tokens) > most:
        raise too_long(f"the prompt has {len(tokens)} tokens; at most {most} may be", param)
    vocabulary = model.llm.tokenizer.vocab_size
    if max(tokens) >= vocabulary or min(tokens) < 0:
        raise ApiError(400, f"{param} has a token that is not from 0 to {vocabulary - 1}")


def too_long(message: str, param: str) -> ApiError:
    error = ContextFullError(message)
    return ApiError(400, error.message, code="context_length_exceeded", param=param)
