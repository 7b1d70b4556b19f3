"""A model class for lm-evaluation-harness (lm-eval):

    import pagedinfer.lm_eval
    lm_eval.simple_evaluate(model='pagedinfer', model_args='model=FILE.gguf,max_model_len=2048', tasks=['arc_easy'])

The import registers the name "pagedinfer" if lm-eval is installed. Without lm-eval the class has the same methods."""
from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

from ._llm import LLM, Tokenizer
from ._params import SamplingParams

_Base: Any = object
_register: Callable[[str], Any] = lambda name: lambda cls: cls  # noqa: E731
try:
    from lm_eval.api.model import LM as _Base  # type: ignore[import-not-found,no-redef]
    from lm_eval.api.registry import register_model as _register  # type: ignore[import-not-found,no-redef]
except ImportError:
    pass


@_register('pagedinfer')
class PagedInferLM(_Base):  # type: ignore[misc]
    """The harness's LM interface. A request has `args`: (context, continuation), (text,) or (context, settings).
    Contexts that are too long lose their beginning."""

    def __init__(self, model: str = '', pretrained: str = '', max_gen_toks: int = 256, batch_size: Any = None,
                 max_batch_size: Any = None, device: Any = None, add_bos_token: bool = True, **arguments: Any) -> None:
        super().__init__()
        self.llm = LLM(model or pretrained, **arguments)
        self.engine, self.max_gen_toks, self.add_bos_token = self.llm.engine, max_gen_toks, add_bos_token
        self.tokenizer: Tokenizer = self.llm.get_tokenizer()
        self.max_length: int = self.engine.info['ctx_size']

    @property
    def rank(self) -> int: return 0

    @property
    def world_size(self) -> int: return 1

    @property
    def eot_token_id(self) -> int: return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The context of a text without one: the model's BOS, or else its EOS."""
        return self.tokenizer.bos_token_id if self.tokenizer.bos_token_id >= 0 else self.tokenizer.eos_token_id

    @property
    def tokenizer_name(self) -> str: return f'{self.engine.info["arch"]}-{self.engine.info["name"]}'.replace('/', '__')

    def chat_template(self, chat_template: Any = False) -> str: return self.engine.info['chat_template']

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        return str(self.tokenizer.apply_chat_template(chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
                                                      continue_final_message=not add_generation_prompt))

    def _pair(self, context: str, continuation: str) -> Tuple[List[int], List[int]]:
        """Tokens of both parts. White space at the end of the context belongs to the continuation, as in the harness."""
        if not context: return [self.prefix_token_id], self.engine.tokenize(continuation, bos=False)
        n = len(context) - len(context.rstrip())
        if n: context, continuation = context[:-n], context[-n:] + continuation
        head = self.engine.tokenize(context, bos=self.add_bos_token)
        whole = self.engine.tokenize(context + continuation, bos=self.add_bos_token)
        return head or [self.prefix_token_id], whole[len(head):]

    def _rate(self, pairs: Sequence[Tuple[List[int], List[int]]], quiet: bool) -> List[Tuple[float, bool]]:
        room, kept = self.max_length - 1, []
        for context, continuation in pairs:
            continuation = continuation[-(room - 1):]
            kept.append((context[-(room - len(continuation)):], continuation))
        return [(sum(row), greedy) for row, greedy in self.llm.loglikelihood(kept, use_tqdm=not quiet)]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        pairs = [self._pair(*r.args) for r in requests]
        rated = iter(self._rate([p for p in pairs if p[1]], disable_tqdm))
        return [next(rated) if p[1] else (0.0, True) for p in pairs]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[float]:
        length, totals = self.max_length - 2, []
        for r in requests:
            whole = [self.prefix_token_id, *self.engine.tokenize(r.args[0], bos=False)]
            n, windows = len(whole) - 1, []
            for first in range(0, n, length):
                end = min(first + length, n)
                windows.append((whole[max(0, end - length):first + 1], whole[first + 1:end + 1]))
            totals.append(sum(value for value, _ in self._rate(windows, disable_tqdm)))
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[str]:
        prompts, params = [], []
        for r in requests:
            context, settings = r.args[0], dict(r.args[1] or {})
            until = settings.get('until') or []
            n = int(settings.get('max_gen_toks') or settings.get('max_tokens') or self.max_gen_toks)
            n = max(1, min(n, self.max_length - 2))
            sampled = settings.get('do_sample', settings.get('temperature', 0) > 0)
            params.append(SamplingParams(
                temperature=float(settings.get('temperature', 1.0)) if sampled else 0.0, top_p=float(settings.get('top_p', 1.0)),
                top_k=int(settings.get('top_k', 0)) if sampled else 0, max_tokens=n,
                stop=[until] if isinstance(until, str) else list(until), seed=settings.get('seed')))
            prompts.append(self.engine.tokenize(context, bos=self.add_bos_token)[-(self.max_length - n - 1):])
        return [o.outputs[0].text for o in self.llm.generate(prompts, params, use_tqdm=not disable_tqdm)]

    def close(self) -> None: self.llm.close()
