"""Tasks of lm-eval, with a program as its model type ``satchel``. Needs the extra ``eval``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from satchel.errors import EvaluationError
from satchel.eval.likelihood import score_continuation
from satchel.eval.lm_eval_package import import_harness
from satchel.llm.generation import Generation
from satchel.llm.llm import LLM
from satchel.llm.sampling import SamplingOptions
from satchel.llm.session import Session
from satchel.llm.sessions import Sessions

MODEL_TYPE = "satchel"
_MAX_NEW_TOKENS = 256  # lm-eval's own, for tasks that do not say

Told = Callable[[int, int], None]


@cache
def model_class() -> Any:
    """The class that lm-eval knows as ``satchel`` once this has been called.

    Then ``lm_eval.simple_evaluate("satchel", {"program": "model.satchel"}, tasks=[…])`` works.
    """
    model, utils = import_harness("api.model"), import_harness("utils")
    import_harness("models")  # fills the registry, which is not done once it has an entry
    register = import_harness("api.registry").register_model

    @register(MODEL_TYPE)
    class SatchelModel(model.TemplateLM):  # type: ignore[misc,name-defined]
        """Scores and continues texts; what prompts have in common is computed once."""

        def __init__(
            self,
            program: Any,
            threads: int = 0,
            session: Session | None = None,
            told: Told = lambda _done, _total: None,
            **_: Any,  # batch size and device, which lm-eval gives to every model
        ) -> None:
            super().__init__()
            self._llm = program if isinstance(program, LLM) else LLM(program, int(threads))
            self._session = session or self._llm.session
            self._sessions = Sessions(self._session)
            self._tokens = self._llm.tokenizer
            self._told = told

        @property
        def eot_token_id(self) -> int:
            ends = self._tokens.spec.eos_ids
            if not ends:
                raise EvaluationError("the tokenizer has no end token, which tasks need")
            return ends[0]

        @property
        def prefix_token_id(self) -> int:
            bos = self._tokens.spec.bos_id
            return self.eot_token_id if bos is None else bos

        @property
        def max_length(self) -> int:
            return self._session.context

        def tok_encode(
            self, string: str, add_special_tokens: bool | None = None, **_: Any
        ) -> list[int]:
            from satchel.eval.texts import leading_tokens

            tokens = self._tokens.encode(string, add_bos=False)
            lead = [] if add_special_tokens is False else leading_tokens(self._tokens)
            return tokens if tokens[: len(lead)] == lead else lead + tokens

        def apply_chat_template(
            self, chat_history: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
        ) -> str:
            return self._llm.template.render(
                chat_history, add_generation_prompt=add_generation_prompt
            )

        def _loglikelihood_tokens(
            self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
        ) -> list[tuple[float, bool]]:
            answers = []
            for texts, context, continuation in self._each(requests):
                answer = (0.0, True)
                if continuation:
                    answer = score_continuation(self._session, context, continuation)
                answers.append(answer)
                self.cache_hook.add_partial("loglikelihood", texts, answer)
            return answers

        def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
            answers = []
            for request in self._each(requests):
                (text,) = request.args
                pairs = utils.get_rolling_token_windows(
                    token_list=self.tok_encode(text, add_special_tokens=False),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length,
                    context_len=1,
                )
                total = 0.0
                for context, continuation in map(utils.make_disjoint_window, pairs):
                    total += score_continuation(self._session, context, continuation)[0]
                answers.append(total)
                self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
            return answers

        def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
            answers = []
            for request in self._each(requests):
                context, choices = request.args
                text = self._continue(context, choices)
                answers.append(text)
                if not choices.get("do_sample"):
                    self.cache_hook.add_partial("generate_until", request.args, text)
            return answers

        def _continue(self, context: str, choices: Mapping[str, Any]) -> str:
            until = choices.get("until") or []
            most = int(choices.get("max_gen_toks") or _MAX_NEW_TOKENS)
            warm = float(choices.get("temperature") or 0.0) if choices.get("do_sample") else 0.0
            most = min(most, self.max_length - 1)
            prompt = self.tok_encode(context)[-(self.max_length - most) :]
            return (
                Generation(
                    self._sessions,
                    self._tokens,
                    prompt or [self.prefix_token_id],
                    SamplingOptions(temperature=warm, seed=0),
                    max_new_tokens=most,
                    stop=[until] if isinstance(until, str) else list(until),
                )
                .finish()
                .text
            )

        def _each(self, requests: Sequence[Any]) -> Iterable[Any]:
            for done, request in enumerate(requests):
                self._told(done, len(requests))
                yield request
            self._told(len(requests), len(requests))

    return SatchelModel
