"""Llama: one model with the common calls and dictionary shapes of llama-cpp-python."""
from __future__ import annotations

import json
import os
import queue
import re
import time
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._engine import ChatParser, Engine, Event, Request, option_text
from ._lib import PagedInferError, abi
from ._llm import resolve_model

CALLS = (abi.PI_CHAT_CALL, abi.PI_CHAT_ARGUMENTS, abi.PI_CHAT_CALL_END, abi.PI_CHAT_CALL_DROPPED)
# Arguments of Llama's constructor that have another key here.
KEYS = {'n_ctx': 'ctx-size', 'n_batch': 'batch-size', 'n_ubatch': 'ubatch-size', 'n_threads': 'threads',
        'n_threads_batch': 'threads-batch', 'main_gpu': 'main-gpu', 'use_mlock': 'mlock', 'offload_kqv': 'kv-offload'}
IGNORED = {'verbose', 'logits_all', 'flash_attn', 'last_n_tokens_size', 'mul_mat_q', 'f16_kv', 'chat_handler', 'numa',
           'use_mmap', 'vocab_only', 'lora_base', 'embedding'}
ROPE_TYPES = {0: 'none', 1: 'linear', 2: 'yarn'}
# Names of template families in llama-cpp-python that have another name here.
FORMATS = {'llama-2': 'llama2', 'llama-3': 'llama3', 'chatml-function-calling': 'chatml', 'mistral-instruct': 'mistral-v1',
           'phi-3': 'phi3'}

QUANT = re.compile(r'(?<![A-Za-z0-9])(I?Q\d_\w+|TQ\d_\d|B?F16|FP16|F32|MXFP4\w*|NVFP4)(?![A-Za-z0-9])', re.I)


class LlamaGrammar:
    """A grammar in GBNF, or a JSON schema."""

    def __init__(self, key: str, text: str) -> None: self.key, self.text = key, text

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> 'LlamaGrammar': return cls('grammar', grammar)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> 'LlamaGrammar': return cls('json-schema', json_schema)


class Llama:
    """A model. Arguments have llama-cpp-python's names; others are engine options of docs/OPTIONS.md with "_" for "-".
    n_ctx 0 = the model's trained context. Calls from several threads run at the same time, `parallel` of them."""

    def __init__(self, model_path: Union[str, os.PathLike], *, n_ctx: int = 512, n_gpu_layers: int = 0,
                 seed: int = 0xFFFFFFFF, embedding: bool = False, pooling_type: Union[int, str, None] = None,
                 chat_format: Optional[str] = None, chat_template: Optional[str] = None,
                 lora_path: Optional[str] = None, lora_scale: float = 1.0, draft_model: Any = None,
                 rope_freq_base: float = 0.0, rope_freq_scale: float = 0.0, rope_scaling_type: Optional[int] = None,
                 tensor_split: Optional[Sequence[float]] = None, **arguments: Any) -> None:
        if draft_model is not None: raise PagedInferError(abi.PI_EUNSUPPORTED, 'draft_model: give model_draft="FILE.gguf"')
        if arguments.get('vocab_only'): raise PagedInferError(abi.PI_EUNSUPPORTED, 'vocab_only is not supported')
        if arguments.get('chat_handler') is not None:
            raise PagedInferError(abi.PI_EUNSUPPORTED, 'chat_handler is not supported: use chat_template, Jinja text')
        pairs: List[Tuple[str, Any]] = [
            ('ctx-size', n_ctx), ('gpu-layers', 'all' if n_gpu_layers < 0 else n_gpu_layers),
            ('rope-freq-base', rope_freq_base), ('rope-freq-scale', rope_freq_scale)]
        if seed != 0xFFFFFFFF: pairs.append(('seed', seed))
        if chat_format or chat_template: pairs.append(('chat-template', chat_template or FORMATS.get(chat_format or '', chat_format)))
        if lora_path: pairs.append(('lora-scaled', f'{lora_path}:{lora_scale}'))
        if rope_scaling_type in ROPE_TYPES: pairs.append(('rope-scaling', ROPE_TYPES[rope_scaling_type or 0]))
        if tensor_split: pairs.append(('tensor-split', ','.join(str(x) for x in tensor_split)))
        if arguments.get('use_mmap') is False: pairs.append(('load-mode', 'read'))
        pairs += [(KEYS.get(k, k), v) for k, v in arguments.items() if k not in IGNORED and v is not None]
        self.model_path, self.chat_format = os.fspath(model_path), chat_format
        self._pooling = {0: 'none', 1: 'mean', 2: 'cls', 3: 'last', 4: 'rank'}.get(pooling_type, pooling_type) \
            if isinstance(pooling_type, int) else pooling_type
        self._embedding, self._seed = embedding, None
        self._engine = Engine(resolve_model(model_path), [(k, option_text(v)) for k, v in pairs])
        self._metadata: Optional[Dict[str, str]] = None

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: Optional[str] = None, **arguments: Any) -> 'Llama':
        """A model of a Hugging Face repository, from the cache of the tool (`pagedinfer pull`), which downloads it if
        necessary. A filename pattern such as "*Q4_K_M.gguf" selects the quantization."""
        for name in ('additional_files', 'local_dir', 'local_dir_use_symlinks', 'cache_dir'):
            if arguments.pop(name, None): raise PagedInferError(abi.PI_EUNSUPPORTED, f'{name}: set PAGEDINFER_CACHE instead')
        name = repo_id
        if filename:
            quants = QUANT.findall(os.path.basename(filename))
            if not quants:
                raise PagedInferError(abi.PI_EINVAL, f'filename {filename!r} names no quantization; use "*Q4_K_M.gguf", or '
                                      f'leave it out and give repo_id "{repo_id}:QUANT"')
            name = f'{repo_id}:{quants[-1].upper().replace("FP16", "F16")}'
        path = resolve_model(name)
        if not os.path.exists(path): raise PagedInferError(abi.PI_ENOENT, f'repo_id must be USER/NAME, not {repo_id!r}')
        return cls(path, **arguments)

    def close(self) -> None: self._engine.close()

    def __enter__(self) -> 'Llama': return self

    def __exit__(self, *exc: Any) -> None: self.close()

    # ------------------------------------------------------------------------------------------ facts and tokens

    def n_ctx(self) -> int: return self._engine.info['ctx_size']

    def n_vocab(self) -> int: return self._engine.info['n_vocab']

    def n_embd(self) -> int: return self._engine.info['n_embd']

    def token_bos(self) -> int: return self._engine.info['bos']

    def token_eos(self) -> int: return self._engine.info['eos']

    @property
    def metadata(self) -> Dict[str, str]:
        if self._metadata is None: self._metadata = self._engine.metadata()
        return self._metadata

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        return self._engine.tokenize(text, bos=add_bos, special=special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False) -> bytes:
        return self._engine.detokenize(tokens, special=special)

    def set_seed(self, seed: int) -> None:
        """Seed of the following calls that give none."""
        self._seed = seed  # type: ignore[assignment]

    def reset(self) -> None:
        """No effect: every call gives the whole prompt, and the cache finds the known part."""

    def set_cache(self, cache: Any) -> None:
        """No effect: prefixes are always cached; the engine option prefix_cache_dir keeps them on disk."""

    def _refuse(self, name: str, remedy: str) -> Any: raise PagedInferError(abi.PI_EUNSUPPORTED, f'{name}: {remedy}')

    def save_state(self) -> Any: self._refuse('save_state', 'prefixes are cached; open the model with prefix_cache_dir to keep them')

    def load_state(self, state: Any) -> Any: self._refuse('load_state', 'give the whole prompt; cached prefixes are reused')

    def eval(self, tokens: Sequence[int]) -> Any: self._refuse('eval', 'use create_completion with a list of tokens')

    def sample(self, *_: Any, **__: Any) -> Any: self._refuse('sample', 'use create_completion')

    def generate(self, *_: Any, **__: Any) -> Any: self._refuse('generate', 'use create_completion with stream=True')

    # ---------------------------------------------------------------------------------------------- completions

    def _options(self, *, temperature: float, top_p: float, min_p: float, typical_p: float, top_k: int, repeat_penalty: float,
                 presence_penalty: float, frequency_penalty: float, seed: Optional[int], stop: Any, max_tokens: Optional[int],
                 logprobs: Optional[int], grammar: Optional[LlamaGrammar], logit_bias: Optional[Mapping[Any, float]],
                 mirostat_mode: int, mirostat_tau: float, mirostat_eta: float, extra: Mapping[str, Any]) -> List[Tuple[str, str]]:
        pairs: List[Tuple[str, Any]] = [
            ('temp', temperature), ('top-p', top_p), ('min-p', min_p), ('typical', typical_p), ('top-k', max(top_k, 0)),
            ('repeat-penalty', repeat_penalty), ('presence-penalty', presence_penalty), ('frequency-penalty', frequency_penalty),
            ('max-tokens', -1 if max_tokens is None or max_tokens <= 0 else max_tokens), ('mirostat', mirostat_mode),
            ('mirostat-ent', mirostat_tau), ('mirostat-lr', mirostat_eta)]
        if seed is None: seed = self._seed
        if seed is not None: pairs.append(('seed', seed))
        pairs += [('stop', s) for s in ([stop] if isinstance(stop, str) else stop or [])]
        if logprobs is not None: pairs.append(('logprobs', logprobs))
        if grammar is not None: pairs.append((grammar.key, grammar.text))
        pairs += [('logit-bias', f'{token}{bias:+}') for token, bias in (logit_bias or {}).items()]
        for name in ('stopping_criteria', 'logits_processor'):
            if extra.get(name) is not None: self._refuse(name, 'Python functions are not called per token; use stop or grammar')
        pairs += [(k, v) for k, v in extra.items() if k not in ('stopping_criteria', 'logits_processor', 'tfs_z', 'penalize_nl') and v is not None]
        return [(k, option_text(v)) for k, v in pairs]

    def _run(self, options: List[Tuple[str, str]], prompt: Any) -> Iterator[Tuple[Event, Request]]:
        """Events of one request. The end of the generator frees the request."""
        events: 'queue.SimpleQueue[Event]' = queue.SimpleQueue()
        with Request(self._engine, options, events.put) as request:
            prompt(request)
            request.submit()
            while True:
                ev = events.get()
                if ev.done and ev.code < 0: raise PagedInferError(ev.code, ev.message)
                yield ev, request
                if ev.done: return

    def create_completion(self, prompt: Union[str, List[int]], suffix: Optional[str] = None, max_tokens: Optional[int] = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
                          logprobs: Optional[int] = None, echo: bool = False, stop: Union[str, List[str], None] = None,
                          frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_penalty: float = 1.0,
                          top_k: int = 40, stream: bool = False, seed: Optional[int] = None, mirostat_mode: int = 0,
                          mirostat_tau: float = 5.0, mirostat_eta: float = 0.1, model: Optional[str] = None,
                          grammar: Optional[LlamaGrammar] = None, logit_bias: Optional[Mapping[Any, float]] = None,
                          **extra: Any) -> Any:
        """A completion as in OpenAI's API: a dict, or an iterator of dicts with stream. Further keywords are request
        options of docs/OPTIONS.md with "_" for "-"."""
        if suffix is not None: self._refuse('suffix', 'use pi_infill of the C interface, or /infill of the server')
        options = self._options(
            temperature=temperature, top_p=top_p, min_p=min_p, typical_p=typical_p, top_k=top_k, repeat_penalty=repeat_penalty,
            presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, seed=seed, stop=stop, max_tokens=max_tokens,
            logprobs=logprobs, grammar=grammar, logit_bias=logit_bias, mirostat_mode=mirostat_mode, mirostat_tau=mirostat_tau,
            mirostat_eta=mirostat_eta, extra=extra)
        ids = self._engine.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)
        text = prompt if isinstance(prompt, str) else self._engine.detokenize(ids).decode('utf-8', 'replace')
        head = {'id': f'cmpl-{uuid.uuid4()}', 'object': 'text_completion', 'created': int(time.time()),
                'model': model or self.model_path}
        chunks = self._completion_chunks(head, ids, options, text if echo else '', logprobs is not None)
        if stream: return chunks
        whole, finish, n = '', None, 0
        probs: Optional[Dict[str, List[Any]]] = None
        for chunk in chunks:
            choice = chunk['choices'][0]
            whole, finish = whole + choice['text'], choice['finish_reason']
            if isinstance(chunk, _Counted): n = chunk.n
            if choice['logprobs']:
                if probs is None: probs = {k: [] for k in choice['logprobs']}
                for k, v in choice['logprobs'].items(): probs[k] += v
        return {**head, 'choices': [{'text': whole, 'index': 0, 'logprobs': probs, 'finish_reason': finish}],
                'usage': {'prompt_tokens': len(ids), 'completion_tokens': n, 'total_tokens': len(ids) + n}}

    def _completion_chunks(self, head: Dict[str, Any], ids: List[int], options: List[Tuple[str, str]], echo: str,
                           logprobs: bool) -> Iterator[Dict[str, Any]]:
        def chunk(text: str, probs: Any, finish: Optional[str]) -> Dict[str, Any]:
            return {**head, 'choices': [{'text': text, 'index': 0, 'logprobs': probs, 'finish_reason': finish}]}
        if echo: yield chunk(echo, None, None)
        offset = len(echo)
        for ev, request in self._run(options, lambda r: r.prompt_tokens(ids)):
            probs = self._logprobs(ev, offset) if logprobs and ev.logprobs else None
            offset += len(ev.text)
            if ev.done:
                last = chunk(ev.text, probs, ev.finish_reason)
                yield _Counted(last, request.result().generated_tokens)
            elif ev.text or probs: yield chunk(ev.text, probs, None)

    def _piece(self, token: int) -> str: return self._engine.detokenize([token], special=True).decode('utf-8', 'replace')

    def _logprobs(self, ev: Event, offset: int) -> Dict[str, List[Any]]:
        out: Dict[str, List[Any]] = {'text_offset': [], 'token_logprobs': [], 'tokens': [], 'top_logprobs': []}
        for token, row in zip(ev.tokens, ev.logprobs or []):
            out['tokens'].append(self._piece(token))
            out['text_offset'].append(offset)
            offset += len(out['tokens'][-1])
            out['token_logprobs'].append(row[0][1])
            out['top_logprobs'].append({self._piece(t): p for t, p in row[1:]})
        return out

    __call__ = create_completion

    # ----------------------------------------------------------------------------------------------------- chat

    def create_chat_completion(self, messages: List[Dict[str, Any]], functions: Any = None, function_call: Any = None,
                               tools: Optional[List[Dict[str, Any]]] = None, tool_choice: Any = None, temperature: float = 0.2,
                               top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05, typical_p: float = 1.0,
                               stream: bool = False, stop: Union[str, List[str], None] = None, seed: Optional[int] = None,
                               response_format: Optional[Dict[str, Any]] = None, max_tokens: Optional[int] = None,
                               presence_penalty: float = 0.0, frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               mirostat_mode: int = 0, mirostat_tau: float = 5.0, mirostat_eta: float = 0.1,
                               model: Optional[str] = None, grammar: Optional[LlamaGrammar] = None,
                               logit_bias: Optional[Mapping[Any, float]] = None, logprobs: Optional[bool] = None,
                               top_logprobs: Optional[int] = None, chat_template_kwargs: Optional[Dict[str, Any]] = None,
                               **extra: Any) -> Any:
        """A chat completion as in OpenAI's API: a dict, or an iterator of dicts with stream. Thoughts of the model are in
        reasoning_content. A grammar constrains calls of tools."""
        if functions or function_call: self._refuse('functions', 'use tools and tool_choice')
        kind = (response_format or {}).get('type', 'text')
        if kind in ('json_object', 'json_schema'):
            schema = (response_format or {}).get('schema') or (response_format or {}).get('json_schema', {}).get('schema')
            grammar = grammar or LlamaGrammar('json-schema', json.dumps(schema or {'type': 'object'}))
        elif kind != 'text': raise ValueError(f'response_format: unknown type {kind!r}; use text, json_object or json_schema')
        options = self._options(
            temperature=temperature, top_p=top_p, min_p=min_p, typical_p=typical_p, top_k=top_k, repeat_penalty=repeat_penalty,
            presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, seed=seed, stop=stop, max_tokens=max_tokens,
            logprobs=(top_logprobs or 0) if logprobs else None, grammar=grammar, logit_bias=logit_bias,
            mirostat_mode=mirostat_mode, mirostat_tau=mirostat_tau, mirostat_eta=mirostat_eta, extra=extra)
        options.append(('special', 'true'))  # the parser reads control tokens
        template = dict(chat_template_kwargs or {})
        if tool_choice is not None: template['tool_choice'] = tool_choice
        if grammar is not None: template['answer_format'] = True
        head = {'id': f'chatcmpl-{uuid.uuid4()}', 'created': int(time.time()), 'model': model or self.model_path}
        chunks = self._chat_chunks(head, messages, tools, template, options, bool(logprobs))
        if stream: return chunks
        return self._whole_chat(head, chunks, bool(logprobs))

    def _chat_chunks(self, head: Dict[str, Any], messages: Any, tools: Any, template: Dict[str, Any],
                     options: List[Tuple[str, str]], logprobs: bool) -> Iterator[Dict[str, Any]]:
        def chunk(delta: Dict[str, Any], finish: Optional[str] = None, probs: Any = None) -> Dict[str, Any]:
            return {**head, 'object': 'chat.completion.chunk',
                    'choices': [{'index': 0, 'delta': delta, 'logprobs': probs, 'finish_reason': finish}]}

        prompt_options = {k: v for k, v in template.items() if k != 'answer_format'}
        parser = ChatParser(self._engine, tools, template)
        calls = _Calls()
        try:
            yield chunk({'role': 'assistant'})
            for ev, request in self._run(options, lambda r: r.prompt_chat(messages, tools, prompt_options)):
                probs = self._chat_logprobs(ev) if logprobs and ev.logprobs else None
                found = [d for delta in parser.feed(ev.text, ev.calls_bound) for d in calls.add(*delta)]
                finish = None
                if ev.done:
                    result = request.result()
                    # A stop string cuts the answer off, for the parser.
                    finish = parser.end('length' if result.stop else ev.finish_reason)
                    if finish == 'length' and ev.finish_reason == 'stop': finish = 'stop'
                    found += [d for delta in parser.deltas() for d in calls.add(*delta)]
                for delta in found:
                    yield chunk(delta, None, probs)
                    probs = None
                if probs: yield chunk({}, None, probs)
                if ev.done: yield _Counted(chunk({}, finish), result.generated_tokens, result.prompt_tokens)
        finally:
            parser.close()

    def _chat_logprobs(self, ev: Event) -> Dict[str, Any]:
        def entry(token: int, value: float) -> Dict[str, Any]:
            raw = self._engine.detokenize([token], special=True)
            return {'token': raw.decode('utf-8', 'replace'), 'logprob': value, 'bytes': list(raw)}
        return {'content': [{**entry(*row[0]), 'top_logprobs': [entry(t, p) for t, p in row[1:]]} for row in ev.logprobs or []],
                'refusal': None}

    @staticmethod
    def _whole_chat(head: Dict[str, Any], chunks: Iterator[Dict[str, Any]], logprobs: bool) -> Dict[str, Any]:
        content, thoughts, finish, n, n_prompt = '', '', None, 0, 0
        calls: List[Dict[str, Any]] = []
        probs: List[Any] = []
        for c in chunks:
            choice, delta = c['choices'][0], c['choices'][0]['delta']
            content, thoughts = content + (delta.get('content') or ''), thoughts + (delta.get('reasoning_content') or '')
            finish = choice['finish_reason'] or finish
            if choice['logprobs']: probs += choice['logprobs']['content']
            for call in delta.get('tool_calls', []):
                while len(calls) <= call['index']: calls.append({'id': '', 'type': 'function', 'function': {'name': '', 'arguments': ''}})
                mine = calls[call['index']]
                mine['id'] = call.get('id') or mine['id']
                mine['function']['name'] = call['function'].get('name') or mine['function']['name']
                mine['function']['arguments'] += call['function'].get('arguments') or ''
            if isinstance(c, _Counted): n, n_prompt = c.n, c.n_prompt
        message: Dict[str, Any] = {'role': 'assistant', 'content': content if content or not calls else None}
        if thoughts: message['reasoning_content'] = thoughts
        if calls: message['tool_calls'] = calls
        return {**head, 'object': 'chat.completion',
                'choices': [{'index': 0, 'message': message, 'finish_reason': finish,
                             'logprobs': {'content': probs, 'refusal': None} if logprobs else None}],
                'usage': {'prompt_tokens': n_prompt, 'completion_tokens': n, 'total_tokens': n_prompt + n}}

    # ------------------------------------------------------------------------------------------------ embeddings

    def _vectors(self, texts: List[str], normalize: bool) -> Tuple[List[np.ndarray], int]:
        if not self._embedding:
            raise PagedInferError(abi.PI_EINVAL, 'open the model with Llama(..., embedding=True) to create embeddings')
        kind = self._pooling or self._engine.info['pooling'] or 'mean'
        if kind == 'rank': self._refuse('embed', 'the model is a reranker: use LLM.score')
        options = [('pooling', str(kind)), ('embd-normalize', '2' if normalize else '-1')]
        prompts = [self._engine.tokenize(t) for t in texts]
        events: 'queue.SimpleQueue[Tuple[int, Event]]' = queue.SimpleQueue()
        found: List[Any] = [None] * len(texts)
        requests: List[Request] = []
        try:
            n_open = 0
            for i, ids in enumerate(prompts):
                request = Request(self._engine, options, lambda ev, i=i: events.put((i, ev)))  # type: ignore[misc]
                requests.append(request)
                request.prompt_tokens(ids)
                request.submit()
                n_open += 1
                while n_open >= 256 or (i == len(prompts) - 1 and n_open):
                    k, ev = events.get()
                    if ev.embedding is not None: found[k] = ev.embedding
                    if ev.done:
                        if ev.code < 0: raise PagedInferError(ev.code, ev.message)
                        n_open -= 1
                        requests[k].close()
        finally:
            for request in requests: request.close()
        return found, sum(map(len, prompts))

    def create_embedding(self, input: Union[str, List[str]], model: Optional[str] = None) -> Dict[str, Any]:
        """Vectors as in OpenAI's API: with length 1; one per token with pooling_type 0."""
        rows, n = self._vectors([input] if isinstance(input, str) else list(input), True)
        return {'object': 'list', 'model': model or self.model_path,
                'data': [{'object': 'embedding', 'embedding': row.tolist() if len(row) > 1 else row[0].tolist(), 'index': i}
                         for i, row in enumerate(rows)],
                'usage': {'prompt_tokens': n, 'total_tokens': n}}

    def embed(self, input: Union[str, List[str]], normalize: bool = False, truncate: bool = True) -> Any:
        """The vector of a text, or a list of them."""
        rows = [row.tolist() if len(row) > 1 else row[0].tolist()
                for row in self._vectors([input] if isinstance(input, str) else list(input), normalize)[0]]
        return rows[0] if isinstance(input, str) else rows


class _Counted(dict):
    """The last chunk, with counts of tokens that are not part of the dict."""

    def __init__(self, chunk: Dict[str, Any], n: int, n_prompt: int = 0) -> None:
        super().__init__(chunk)
        self.n, self.n_prompt = n, n_prompt


class _Calls:
    """Turns the parser's deltas into OpenAI's. A call is shown while it grows if a grammar ensures that it completes,
    otherwise when it is complete. Shown calls are numbered from 0."""

    def __init__(self) -> None:
        self.waiting: Dict[int, Dict[str, Any]] = {}
        self.shown: Dict[int, int] = {}

    def add(self, kind: int, text: str, index: int, id: str, name: str, sure: bool) -> Iterator[Dict[str, Any]]:
        if kind == abi.PI_CHAT_CONTENT: yield {'content': text}
        elif kind == abi.PI_CHAT_REASONING: yield {'reasoning_content': text}
        elif kind == abi.PI_CHAT_CALL:
            if sure: yield self.show(index, id, name, '')
            else: self.waiting[index] = {'id': id, 'name': name, 'arguments': ''}
        elif kind == abi.PI_CHAT_ARGUMENTS:
            if index in self.waiting: self.waiting[index]['arguments'] += text
            elif index in self.shown: yield {'tool_calls': [{'index': self.shown[index], 'function': {'arguments': text}}]}
        elif kind == abi.PI_CHAT_CALL_END and index in self.waiting:
            call = self.waiting.pop(index)
            yield self.show(index, call['id'], call['name'], call['arguments'])
        elif kind == abi.PI_CHAT_CALL_DROPPED: self.waiting.pop(index, None)

    def show(self, index: int, id: str, name: str, arguments: str) -> Dict[str, Any]:
        self.shown[index] = len(self.shown)
        return {'tool_calls': [{'index': self.shown[index], 'id': id, 'type': 'function',
                                'function': {'name': name, 'arguments': arguments}}]}
