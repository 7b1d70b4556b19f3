"""Parameters and results with the names of vLLM's Python interface."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._engine import option_text


@dataclass
class StructuredOutputsParams:
    """A constraint of the answer: exactly one field. `grammar` is in GBNF."""
    json: Union[str, Dict[str, Any], None] = None
    regex: Optional[str] = None
    choice: Optional[Sequence[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None

    def options(self) -> List[Tuple[str, str]]:
        given = [name for name in ('json', 'regex', 'choice', 'grammar', 'json_object') if getattr(self, name)]
        if len(given) != 1:
            raise ValueError('structured_outputs needs exactly one of json, regex, choice, grammar and json_object; '
                             f'given: {", ".join(given) or "none"}')
        if self.json is not None: return [('json-schema', self.json if isinstance(self.json, str) else json.dumps(self.json))]
        if self.regex is not None: return [('regex', self.regex)]
        if self.choice is not None: return [('choice', json.dumps(list(self.choice)))]
        if self.grammar is not None: return [('grammar', self.grammar)]
        return [('json-schema', '{"type": "object"}')]


GuidedDecodingParams = StructuredOutputsParams


class RequestOutputKind(Enum):
    """Outputs of AsyncLLM.generate: the whole text so far, only the new part, or only the finished answer."""
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class SamplingParams:
    """Sampling parameters of a request, with vLLM's names and defaults. `extra_args` holds further request options of
    the library by their keys (docs/OPTIONS.md), such as {"timeout": 5, "cache-salt": "a"}."""
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Optional[Sequence[int]] = None
    bad_words: Optional[Sequence[str]] = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    skip_special_tokens: bool = True
    logit_bias: Optional[Mapping[int, float]] = None
    structured_outputs: Union[StructuredOutputsParams, Dict[str, Any], None] = None
    guided_decoding: Union[StructuredOutputsParams, Dict[str, Any], None] = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    extra_args: Optional[Mapping[str, Any]] = None

    def options(self) -> List[Tuple[str, str]]:
        """Pairs of the library's option keys and texts."""
        if self.n < 1: raise ValueError(f'n must be at least 1, not {self.n}')
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f'max_tokens must be at least 1, not {self.max_tokens}; None = until the end')
        if self.temperature < 0: raise ValueError(f'temperature must not be negative, not {self.temperature}')
        pairs: List[Tuple[str, Any]] = [
            ('n', self.n), ('temp', self.temperature), ('top-p', self.top_p), ('top-k', max(self.top_k, 0)),
            ('min-p', self.min_p), ('max-tokens', -1 if self.max_tokens is None else self.max_tokens)]
        # vLLM divides by the temperature before the filters; the library's default order is the other way round.
        if self.temperature not in (0, 1) and (self.top_p < 1 or self.min_p > 0):
            pairs.append(('samplers', 'penalties;temperature;min_p;top_k;top_p'))
        if self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1:
            pairs += [('presence-penalty', self.presence_penalty), ('frequency-penalty', self.frequency_penalty),
                      ('repeat-penalty', self.repetition_penalty), ('repeat-last-n', -1)]
        if self.seed is not None: pairs.append(('seed', self.seed))
        pairs += [('stop', s) for s in ([self.stop] if isinstance(self.stop, str) else self.stop or [])]
        pairs += [('stop-token', t) for t in self.stop_token_ids or []]
        pairs += [('bad-words', w) for w in self.bad_words or []]
        if self.ignore_eos: pairs.append(('ignore-eos', True))
        if self.min_tokens: pairs.append(('min-tokens', self.min_tokens))
        if self.logprobs is not None: pairs.append(('logprobs', self.logprobs))
        if self.prompt_logprobs is not None: pairs.append(('prompt-logprobs', self.prompt_logprobs))
        if not self.skip_special_tokens: pairs.append(('special', True))
        pairs += [('logit-bias', f'{token}{bias:+}') for token, bias in (self.logit_bias or {}).items()]
        for constraint in (self.structured_outputs, self.guided_decoding):
            if isinstance(constraint, dict): constraint = StructuredOutputsParams(**constraint)
            if constraint is not None: pairs += constraint.options()
        pairs += list((self.extra_args or {}).items())
        return [(key, option_text(value)) for key, value in pairs]


@dataclass
class LoRARequest:
    """An adapter of a request. The file is loaded at the first use of the name; the number is not used."""
    lora_name: str
    lora_int_id: int = 1
    lora_path: str = ''

    @property
    def name(self) -> str: return self.lora_name

    @property
    def path(self) -> str: return self.lora_path


@dataclass
class Logprob:
    """Log-probability of a token. rank counts from 1; None = not among the reported alternatives."""
    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


@dataclass
class CompletionOutput:
    """One answer."""
    index: int
    text: str = ''
    token_ids: List[int] = field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: Optional[LoRARequest] = None

    def finished(self) -> bool: return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answers to one prompt."""
    request_id: str
    prompt: Optional[str]
    prompt_token_ids: Optional[List[int]]
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None
    outputs: List[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    lora_request: Optional[LoRARequest] = None
    num_cached_tokens: Optional[int] = None
    metrics: Optional[Dict[str, float]] = None


@dataclass
class EmbeddingOutput:
    embedding: List[float]

    @property
    def hidden_size(self) -> int: return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """The vector of one prompt."""
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: List[int]
    finished: bool = True


@dataclass
class ScoringOutput:
    score: float


@dataclass
class ScoringRequestOutput:
    """The score of one pair of texts."""
    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: List[int]
    finished: bool = True


# Arguments of vLLM's constructor that have another key here, and arguments that have no effect on GGUF models.
ENGINE_KEYS = {'max_model_len': 'ctx-size', 'max_num_seqs': 'parallel', 'max_num_batched_tokens': 'ubatch-size',
               'gpu_memory_utilization': 'memory-utilization', 'enable_prefix_caching': 'prefix-cache'}
KV_TYPES = {'auto': 'f16', 'float16': 'f16', 'bfloat16': 'bf16', 'fp8': 'q8_0', 'fp8_e4m3': 'q8_0', 'fp8_e5m2': 'q8_0'}
IGNORED = {'tokenizer_mode', 'trust_remote_code', 'disable_log_stats', 'enforce_eager', 'enable_chunked_prefill', 'dtype',
           'enable_lora', 'max_loras', 'max_lora_rank', 'swap_space', 'task', 'runner', 'convert', 'load_format', 'quantization'}


def engine_options(arguments: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Translates keyword arguments of LLM to pairs for the library. Other names are keys of docs/OPTIONS.md with "_"
    for "-"; the library refuses an unknown one and names the nearest."""
    pairs: List[Tuple[str, Any]] = []
    for name, value in arguments.items():
        if name in IGNORED or value is None: continue
        if name == 'tokenizer': raise ValueError('tokenizer: the GGUF file has its own; leave the argument out')
        if name in ('tensor_parallel_size', 'pipeline_parallel_size'):
            if value != 1:
                devices = ','.join(f'cuda{i}' for i in range(value))
                pairs += [('device', devices), ('split-mode', 'tensor' if name[0] == 't' else 'layer')]
        elif name == 'kv_cache_dtype': pairs += [(k, KV_TYPES.get(value, value)) for k in ('cache-type-k', 'cache-type-v')]
        elif isinstance(value, (list, tuple)): pairs += [(name, item) for item in value]
        else: pairs.append((ENGINE_KEYS.get(name, name), value))
    return [(key, option_text(value)) for key, value in pairs]


REPOSITORY = re.compile(r'[\w.-]+/[\w.-]+(:[\w.-]+)?$')
