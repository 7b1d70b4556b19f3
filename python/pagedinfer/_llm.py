"""LLM: batches of prompts, in the style of vLLM."""
from __future__ import annotations

import math
import os
import queue
import subprocess
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._engine import Engine, Event, Request
from ._lib import PagedInferError, abi, tool_path
from ._params import (REPOSITORY, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, LoRARequest,
                      RequestOutput, SamplingParams, ScoringOutput, ScoringRequestOutput, engine_options)
from ._progress import progress

Prompt = Union[str, Sequence[int], Mapping[str, Any]]


def resolve_model(model: Union[str, os.PathLike]) -> str:
    """The path of a model: a file, or USER/NAME[:QUANT] from the cache of the tool, which downloads it if necessary."""
    path = os.fspath(model)
    if os.path.exists(path) or not REPOSITORY.match(path): return path
    try:
        done = subprocess.run([tool_path(), 'pull', path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as e:
        raise PagedInferError(abi.PI_ENOENT, f'{path}: no such file, and the tool that downloads models cannot run: {e}') from e
    if done.returncode:
        raise PagedInferError(abi.PI_ENOENT, done.stderr.strip().split('\n')[-1] or f'{path}: cannot be downloaded')
    return done.stdout.strip().split('\n')[-1]


class Answer:
    """Collects the events of one request into a RequestOutput."""

    def __init__(self, engine: Engine, output: RequestOutput, params: SamplingParams) -> None:
        self.engine, self.output, self.params = engine, output, params
        self.pieces: Dict[int, str] = {}
        output.outputs = [CompletionOutput(i, lora_request=output.lora_request) for i in range(params.n)]
        if params.logprobs is not None:
            for o in output.outputs: o.logprobs, o.cumulative_logprob = [], 0.0

    def piece(self, token: int) -> str:
        if token not in self.pieces:
            self.pieces[token] = self.engine.detokenize([token], special=True).decode('utf-8', 'replace')
        return self.pieces[token]

    def probabilities(self, row: List[Tuple[int, float]]) -> Dict[int, Logprob]:
        """A row has the token itself, then the most likely ones."""
        found = {token: Logprob(value, rank, self.piece(token)) for rank, (token, value) in enumerate(row[1:], 1)}
        token, value = row[0]
        own = found.pop(token, None)
        return {token: Logprob(value, own.rank if own else None, self.piece(token)), **found}

    def add(self, ev: Event, request: Request) -> None:
        """Adds one event; raises PagedInferError if the request failed."""
        out = self.output.outputs[ev.index]
        if ev.kind == abi.PI_EVENT_PROMPT:
            self.output.prompt_logprobs = [None, *map(self.probabilities, ev.logprobs or [])]
            return
        if ev.kind not in (abi.PI_EVENT_TEXT, abi.PI_EVENT_DONE): return
        out.text += ev.text
        out.token_ids += ev.tokens
        if out.logprobs is not None and ev.logprobs:
            out.logprobs += map(self.probabilities, ev.logprobs)
            out.cumulative_logprob = (out.cumulative_logprob or 0.0) + sum(row[0][1] for row in ev.logprobs)
        if not ev.done: return
        if ev.code < 0 and ev.code != abi.PI_ECANCELED: raise PagedInferError(ev.code, ev.message)
        result = request.result(ev.index)
        out.finish_reason = ev.finish_reason or 'abort'
        stop = (result.stop or b'').decode('utf-8', 'replace')
        if stop:
            out.stop_reason = stop
            if self.params.include_stop_str_in_output: out.text += stop
        elif out.finish_reason == 'stop' and out.token_ids and out.token_ids[-1] in (self.params.stop_token_ids or []):
            out.stop_reason = out.token_ids[-1]
        if ev.n_left == 0: self.finish(request)

    def finish(self, request: Request) -> None:
        result = request.result()
        self.output.finished, self.output.num_cached_tokens = True, result.cached_tokens
        self.output.metrics = {name: getattr(result, name) for name in ('queue_ms', 'prefill_ms', 'decode_ms')}


class Base:
    """The parts that LLM and AsyncLLM share: the engine, adapters and the translation of prompts."""

    def __init__(self, model: Union[str, os.PathLike], *, max_num_seqs: int = 64, seed: Optional[int] = None,
                 chat_template: Optional[str] = None, **arguments: Any) -> None:
        pairs = engine_options({'max_queue': 100000, 'max_num_seqs': max_num_seqs, 'seed': seed, 'chat-template': chat_template, **arguments})
        self.engine = Engine(resolve_model(model), pairs)
        self._max_num_seqs = max_num_seqs
        self._lora_lock = threading.Lock()
        self._count = 0

    def close(self) -> None:
        """Cancels running requests and frees the model."""
        self.engine.close()

    def _lora(self, lora: Optional[LoRARequest]) -> List[Tuple[str, str]]:
        if lora is None: return []
        with self._lora_lock:
            loaded = {x['name']: x['path'] for x in self.engine.loras()}
            if lora.lora_name not in loaded: self.engine.lora_load(lora.lora_name, lora.lora_path)
            elif lora.lora_path and loaded[lora.lora_name] != lora.lora_path[:511]:
                raise ValueError(f'adapter {lora.lora_name} is loaded from {loaded[lora.lora_name]}: give {lora.lora_path} '
                                 'another name')
        return [('lora', lora.lora_name)]

    def _id(self) -> str:
        self._count += 1
        return str(self._count - 1)

    def _prompt(self, prompt: Prompt) -> Tuple[Optional[str], List[int]]:
        """Text and token ids of a prompt."""
        if isinstance(prompt, str): return prompt, self.engine.tokenize(prompt)
        if isinstance(prompt, Mapping):
            if prompt.get('multi_modal_data'): raise PagedInferError(abi.PI_EUNSUPPORTED, 'multi_modal_data: use LLM.chat')
            if prompt.get('prompt_token_ids') is not None: return prompt.get('prompt'), list(prompt['prompt_token_ids'])
            return prompt['prompt'], self.engine.tokenize(prompt['prompt'])
        return None, list(prompt)


def as_prompts(prompts: Union[Prompt, Sequence[Prompt]]) -> List[Prompt]:
    """A single prompt (a text, a dict, or a list of token ids) as a list of one."""
    if isinstance(prompts, (str, Mapping)): return [prompts]
    items: List[Any] = list(prompts)
    return [items] if items and isinstance(items[0], (int, np.integer)) else items


def per_item(value: Any, n: int, name: str) -> List[Any]:
    if not isinstance(value, (list, tuple)): return [value] * n
    if len(value) != n: raise ValueError(f'{name}: {len(value)} values for {n} prompts')
    return list(value)


class LLM(Base):
    """A model for batches of prompts. Keyword arguments are the ones of vLLM's LLM, and every engine option of
    docs/OPTIONS.md with "_" for "-". `max_num_seqs` requests run at the same time.

    Methods may be called from several threads; their requests share the engine."""

    def __enter__(self) -> 'LLM': return self

    def __exit__(self, *exc: Any) -> None: self.close()

    def get_tokenizer(self) -> 'Tokenizer': return Tokenizer(self.engine)

    # -------------------------------------------------------------------------------------------------- running

    def _run(self, n: int, start: Callable[[int, Callable[[Event], None]], Request],
             add: Callable[[int, Event, Request], Optional[int]], bar: Any) -> None:
        """Runs n requests. start(i, on_event) makes request i without submitting it. add(i, event, request) returns
        None, or the number of generated tokens once the request has ended. Enough requests are in the engine's queue to
        keep the engine full."""
        events: 'queue.SimpleQueue[Tuple[int, Event]]' = queue.SimpleQueue()
        open_requests: Dict[int, Request] = {}
        window, following = max(256, 4 * self._max_num_seqs), 0
        held: Optional[Request] = None      # made, and refused because the queue was full
        try:
            while following < n or open_requests:
                while following < n and len(open_requests) < window:
                    i = following
                    request = held or start(i, lambda ev, i=i: events.put((i, ev)))  # type: ignore[misc]
                    try:
                        request.submit()
                    except PagedInferError as e:
                        held = request
                        if e.code != abi.PI_EBUSY: raise
                        if open_requests: break
                        # Requests of other threads fill the queue, or the request is larger than the queue.
                        stats = self.engine.stats()
                        if not stats['n_running'] + stats['n_waiting']: raise
                        time.sleep(0.005)
                        continue
                    held, following = None, following + 1
                    open_requests[i] = request
                i, ev = events.get()
                tokens = add(i, ev, open_requests[i])
                if tokens is not None:
                    open_requests.pop(i).close()
                    bar.update(1, tokens)
        finally:
            bar.close()
            for request in [*open_requests.values(), *([held] if held else [])]: request.close()

    def _answers(self, outputs: List[RequestOutput], params: List[SamplingParams], loras: List[Any],
                 prompt: Callable[[int, Request], None], use_tqdm: Any) -> List[RequestOutput]:
        collected = [Answer(self.engine, o, p) for o, p in zip(outputs, params)]

        def start(i: int, on_event: Callable[[Event], None]) -> Request:
            request = Request(self.engine, params[i].options() + self._lora(loras[i]), on_event)
            try: prompt(i, request)
            except BaseException:
                request.close()
                raise
            return request

        def add(i: int, ev: Event, request: Request) -> Optional[int]:
            collected[i].add(ev, request)
            return sum(len(o.token_ids) for o in outputs[i].outputs) if ev.done and not ev.n_left else None
        self._run(len(outputs), start, add, progress(use_tqdm, len(outputs), 'Processed prompts'))
        return outputs

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
                 use_tqdm: Any = True, lora_request: Union[LoRARequest, Sequence[Optional[LoRARequest]], None] = None,
                 priority: Optional[Sequence[int]] = None) -> List[RequestOutput]:
        """Answers to prompts, in their order. A prompt is a text, a list of token ids, or a dict with "prompt" or
        "prompt_token_ids". The first error of a request cancels the other ones and is raised."""
        items = as_prompts(prompts)
        params = per_item(sampling_params or SamplingParams(), len(items), 'sampling_params')
        loras = per_item(lora_request, len(items), 'lora_request')
        outputs = []
        for item, lora in zip(items, loras):
            text, ids = self._prompt(item)
            outputs.append(RequestOutput(self._id(), text, ids, lora_request=lora))
        if priority is not None:
            params = [_with(p, {'priority': v}) for p, v in zip(params, per_item(list(priority), len(items), 'priority'))]

        def prompt(i: int, request: Request) -> None: request.prompt_tokens(outputs[i].prompt_token_ids or [])
        return self._answers(outputs, params, loras, prompt, use_tqdm)

    def chat(self, messages: Any, sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
             use_tqdm: Any = True, lora_request: Union[LoRARequest, Sequence[Optional[LoRARequest]], None] = None, *,
             add_generation_prompt: bool = True, continue_final_message: bool = False,
             tools: Optional[List[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Answers to one conversation, or to a list of them. With tools a grammar constrains the calls; the text has
        the model's own format for calls."""
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        options = chat_options(add_generation_prompt, continue_final_message, chat_template_kwargs)
        params = per_item(sampling_params or SamplingParams(), len(conversations), 'sampling_params')
        loras = per_item(lora_request, len(conversations), 'lora_request')
        outputs = []
        for conversation, lora in zip(conversations, loras):
            ids = self.engine.chat_tokenize(conversation, tools, options)
            text = self.engine.detokenize(ids, special=True).decode('utf-8', 'replace')
            outputs.append(RequestOutput(self._id(), text, ids, lora_request=lora))

        def prompt(i: int, request: Request) -> None: request.prompt_chat(conversations[i], tools, options)
        return self._answers(outputs, params, loras, prompt, use_tqdm)

    # -------------------------------------------------------------------------------------------------- vectors

    def _vectors(self, n: int, prompt: Callable[[int, Request], None], options: List[Tuple[str, str]],
                 lora: Optional[LoRARequest], use_tqdm: Any, desc: str) -> List[np.ndarray]:
        found: List[Any] = [None] * n
        options = options + self._lora(lora)

        def start(i: int, on_event: Callable[[Event], None]) -> Request:
            request = Request(self.engine, options, on_event)
            try: prompt(i, request)
            except BaseException:
                request.close()
                raise
            return request

        def add(i: int, ev: Event, request: Request) -> Optional[int]:
            if ev.embedding is not None: found[i] = ev.embedding
            return ended(ev)
        self._run(n, start, add, progress(use_tqdm, n, desc))
        return found

    def embed(self, prompts: Union[Prompt, Sequence[Prompt]], *, use_tqdm: Any = True, pooling: Optional[str] = None,
              normalize: bool = True, dimensions: Optional[int] = None,
              lora_request: Optional[LoRARequest] = None) -> List[EmbeddingRequestOutput]:
        """Vectors of prompts. pooling: the model's, or "mean" if its file names none."""
        items = [self._prompt(p)[1] for p in as_prompts(prompts)]
        options = [('pooling', pooling or self._pooling()), ('embd-normalize', '2' if normalize else '-1')]
        if dimensions: options.append(('dimensions', str(dimensions)))
        rows = self._vectors(len(items), lambda i, r: r.prompt_tokens(items[i]), options, lora_request, use_tqdm, 'Embedded')
        return [EmbeddingRequestOutput(self._id(), EmbeddingOutput(row[0].tolist()), ids) for row, ids in zip(rows, items)]

    def _pooling(self) -> str:
        kind = self.engine.info['pooling']
        return kind if kind in ('mean', 'cls', 'last') else 'mean'

    def encode(self, prompts: Union[Prompt, Sequence[Prompt]], *, pooling: str = 'none', use_tqdm: Any = True) -> List[np.ndarray]:
        """One array per prompt, [vectors][n_embd] in float32; pooling "none" gives one vector per token."""
        items = [self._prompt(p)[1] for p in as_prompts(prompts)]
        return self._vectors(len(items), lambda i, r: r.prompt_tokens(items[i]), [('pooling', pooling)], None, use_tqdm, 'Encoded')

    def score(self, text_1: Union[str, Sequence[str]], text_2: Union[str, Sequence[str]], *,
              use_tqdm: Any = True) -> List[ScoringRequestOutput]:
        """Scores of pairs; one text_1 is paired with every text_2. A reranker gives the sigmoid of its classifier's
        first value, another model the cosine of two vectors."""
        first = [text_1] if isinstance(text_1, str) else list(text_1)
        second = [text_2] if isinstance(text_2, str) else list(text_2)
        if len(first) == 1: first = first * len(second)
        if len(first) != len(second): raise ValueError(f'score: {len(first)} and {len(second)} texts cannot be paired')
        ids = [self.engine.tokenize(a) + self.engine.tokenize(b) for a, b in zip(first, second)]
        if self.engine.info['n_labels']:
            rows = self._vectors(len(first), lambda i, r: r.prompt_rank(first[i], second[i]), [('pooling', 'rank')], None,
                                 use_tqdm, 'Scored')
            scores = [1 / (1 + math.exp(-min(max(float(row[0][0]), -700), 700))) for row in rows]
        else:
            texts = list(dict.fromkeys([*first, *second]))
            vectors = dict(zip(texts, (np.array(o.outputs.embedding) for o in self.embed(texts, use_tqdm=use_tqdm))))
            scores = [float(vectors[a] @ vectors[b]) for a, b in zip(first, second)]
        return [ScoringRequestOutput(self._id(), ScoringOutput(s), i) for s, i in zip(scores, ids)]

    def loglikelihood(self, pairs: Sequence[Tuple[Sequence[int], Sequence[int]]], *,
                      use_tqdm: Any = True) -> List[Tuple[List[float], bool]]:
        """For pairs of context and continuation, both token ids and not empty: the log-probability of each token of the
        continuation, and whether each one is the most likely token."""
        found: List[Any] = [None] * len(pairs)

        def start(i: int, on_event: Callable[[Event], None]) -> Request:
            context, continuation = pairs[i]
            if not context or not continuation: raise ValueError(f'pair {i}: context and continuation need tokens')
            request = Request(self.engine, [('max-tokens', '1'), ('temp', '0'), ('prompt-logprobs', '1'),
                                            ('logits-from', str(len(context) - 1))], on_event)
            try: request.prompt_tokens([*context, *continuation])
            except BaseException:
                request.close()
                raise
            return request

        def add(i: int, ev: Event, request: Request) -> Optional[int]:
            if ev.kind == abi.PI_EVENT_PROMPT:
                rows = (ev.logprobs or [])[-len(pairs[i][1]):]
                found[i] = ([row[0][1] for row in rows], all(row[0][1] >= row[1][1] for row in rows))
            return ended(ev)
        self._run(len(pairs), start, add, progress(use_tqdm, len(pairs), 'Rated'))
        return found

    def logits(self, prompt: Prompt, rows: str = 'all') -> np.ndarray:
        """Logits of a prompt in float32: "all" = [n_tokens][n_vocab], "last" = [1][n_vocab]. Row i belongs to the
        token after position i."""
        if rows not in ('all', 'last'): raise ValueError(f'rows must be "all" or "last", not {rows!r}')
        ids = self._prompt(prompt)[1]
        found: Dict[int, np.ndarray] = {}

        def start(i: int, on_event: Callable[[Event], None]) -> Request:
            request = Request(self.engine, [('logits', rows), ('max-tokens', '1'), ('temp', '0')], on_event)
            request.prompt_tokens(ids)
            request.on_logits(found.__setitem__)
            return request

        def add(i: int, ev: Event, request: Request) -> Optional[int]:
            return ended(ev)
        self._run(1, start, add, progress(False, 1, ''))
        return np.stack([found[position] for position in sorted(found)])


def ended(ev: Event) -> Optional[int]:
    """0 at the end of a request without generated text, None before; raises the request's error."""
    if ev.done and ev.code < 0: raise PagedInferError(ev.code, ev.message)
    return 0 if ev.done else None


def _with(params: SamplingParams, extra: Dict[str, Any]) -> SamplingParams:
    return replace(params, extra_args={**(params.extra_args or {}), **extra})


def chat_options(add_generation_prompt: bool, continue_final_message: bool,
                 kwargs: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    options: Dict[str, Any] = dict(kwargs or {})
    if continue_final_message: options['continue_final_message'] = True
    elif not add_generation_prompt: options['add_generation_prompt'] = False
    return options


class Tokenizer:
    """The model's tokenizer, with the common methods of Hugging Face's tokenizers."""

    def __init__(self, engine: Engine) -> None: self.engine = engine

    @property
    def bos_token_id(self) -> int: return self.engine.info['bos']

    @property
    def eos_token_id(self) -> int: return self.engine.info['eos']

    @property
    def vocab_size(self) -> int: return self.engine.info['n_vocab']

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        return self.engine.tokenize(text, bos=add_special_tokens)

    def decode(self, ids: Union[int, Sequence[int]], skip_special_tokens: bool = False) -> str:
        ids = [ids] if isinstance(ids, int) else ids
        return self.engine.detokenize(ids, special=not skip_special_tokens).decode('utf-8', 'replace')

    def apply_chat_template(self, conversation: Any, tools: Any = None, add_generation_prompt: bool = False,
                            tokenize: bool = True, continue_final_message: bool = False, **kwargs: Any) -> Union[str, List[int]]:
        options = chat_options(add_generation_prompt, continue_final_message, kwargs)
        if tokenize: return self.engine.chat_tokenize(conversation, tools, options)
        return self.engine.chat_render(conversation, tools, options)
