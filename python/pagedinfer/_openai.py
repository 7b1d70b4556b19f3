"""ChatCompletions: OpenAI's chat completions without a server, by libpagedinfer-openai.

Each completion has a handle of its own, and the thread that reads a response polls it: no Python code runs on the
library's threads."""
from __future__ import annotations

import ctypes
import json
import threading
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._engine import Engine, _bytes, option_text
from ._lib import PagedInferError, abi, check, openai_library

POLL_MS = 200   # between two polls a reader notices Ctrl-C and the end of its engine


class ChatStream(Iterator[Dict[str, Any]]):
    """The chunks of a streamed response, as dicts. close(), the end of a `with` block or a collection cancels the rest.
    An error of the request is raised by the next read."""

    def __init__(self, engine: Engine, request: Mapping[str, Any], settings: Sequence[Tuple[str, str]] = ()) -> None:
        library, error = openai_library(), abi.pi_error()
        data = json.dumps(request).encode()
        handle, completion = ctypes.c_void_p(), ctypes.c_void_p()
        self._core, self._library, self._handle = engine._core, library, handle
        self._engine = engine
        self._lock = threading.RLock()      # close() in one thread waits for a read in another
        self._chunk = (ctypes.POINTER(abi.pi_chunk) * 1)()

        def free() -> None:
            library.pi_completion_free(completion)
            library.pi_openai_free(handle)
        with self._core as e:
            check(library.pi_openai_new(ctypes.byref(handle), e, ctypes.byref(error)), error)
            self._closer = weakref.finalize(self, self._core.release, self._core.own(free))
            try:
                for key, value in settings:
                    check(library.pi_openai_set(handle, key.encode(), _bytes(value), ctypes.byref(error)), error)
                check(library.pi_chat_completions(ctypes.byref(completion), handle, data, len(data), None,
                                                  ctypes.byref(error)), error)
            except BaseException:
                self.close()
                raise

    def _poll(self) -> Optional[Tuple[str, int, bool]]:
        """JSON text and code of the next chunk, and whether it is the last; None if there is none yet."""
        with self._core:
            if not check(self._library.pi_openai_poll(self._handle, self._chunk, 1, POLL_MS)): return None
            c = self._chunk[0].contents
            got = (c.json or b'').decode('utf-8', 'replace'), c.code, bool(c.last)
            self._library.pi_chunk_release(self._chunk[0])
        return got

    def __next__(self) -> Dict[str, Any]:
        with self._lock:
            got = None
            while got is None:
                if not self._closer.alive: raise StopIteration
                got = self._poll()
            text, code, last = got
            if last: self.close()
        if not text: raise StopIteration
        chunk: Dict[str, Any] = json.loads(text)
        if code < 0: raise PagedInferError(code, chunk.get('error', {}).get('message', ''))
        return chunk

    def close(self) -> None:
        """Cancels the rest of the response. A second call has no effect."""
        with self._lock: self._closer()

    def __enter__(self) -> 'ChatStream': return self

    def __exit__(self, *exc: Any) -> None: self.close()


class ChatCompletions:
    """Chat completions of a model: the requests and responses of `pagedinfer serve` at /v1/chat/completions.

    `model` is an Engine, LLM, AsyncLLM or Llama. Settings are the ones of pi_openai_set with "_" for "-", for example
    alias="name" or reasoning="off". Threads may call create() at the same time."""

    def __init__(self, model: Any, **settings: Any) -> None:
        self.engine: Engine = next((e for e in (getattr(model, name, None) for name in ('engine', '_engine'))
                                    if isinstance(e, Engine)), model)
        if not isinstance(self.engine, Engine):
            raise TypeError(f'model must be an Engine, LLM, AsyncLLM or Llama, not {type(model).__name__}')
        self._settings: List[Tuple[str, str]] = [(k.replace('_', '-'), option_text(v)) for k, v in settings.items()]

    def create(self, messages: Sequence[Mapping[str, Any]], *, stream: bool = False,
               **fields: Any) -> Union[Dict[str, Any], ChatStream]:
        """The response to a conversation as a dict, or a ChatStream of chunks. Fields are the ones of docs/FIELDS.md:
        tools, response_format, max_tokens and others; None = not given. Raises PagedInferError for a request that is
        not valid."""
        given = {k: v for k, v in fields.items() if v is not None}
        response = ChatStream(self.engine, {'messages': list(messages), **given, 'stream': stream}, self._settings)
        if stream: return response
        with response: return next(response)
