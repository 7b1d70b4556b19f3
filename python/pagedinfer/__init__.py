"""pagedinfer: LLM inference with a paged cache (libpagedinfer) from Python.

LLM and AsyncLLM have the names of vLLM, Llama the ones of llama-cpp-python. docs/PYTHON.md describes all of them.
Log lines of level warning and error go to the logger "pagedinfer"."""
from ._async import AsyncEngineArgs, AsyncLLM, EngineArgs
from ._engine import ChatParser, Engine, Event, Request
from ._lib import PagedInferError, __version__, library_path, tool_path
from ._llama import Llama, LlamaGrammar
from ._llm import LLM, Tokenizer
from ._openai import ChatCompletions, ChatStream
from ._params import (CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, GuidedDecodingParams, Logprob, LoRARequest,
                      RequestOutput, RequestOutputKind, SamplingParams, ScoringOutput, ScoringRequestOutput,
                      StructuredOutputsParams)

__all__ = ['LLM', 'AsyncEngineArgs', 'AsyncLLM', 'ChatCompletions', 'ChatParser', 'ChatStream', 'CompletionOutput',
           'EmbeddingOutput', 'EmbeddingRequestOutput', 'Engine', 'EngineArgs', 'Event', 'GuidedDecodingParams', 'Llama', 'LlamaGrammar',
           'LoRARequest', 'Logprob', 'PagedInferError', 'Request', 'RequestOutput', 'RequestOutputKind', 'SamplingParams',
           'ScoringOutput', 'ScoringRequestOutput', 'StructuredOutputsParams', 'Tokenizer', '__version__', 'library_path',
           'tool_path']
