"""Engines and requests: the layer between the C interface and the classes LLM, AsyncLLM and Llama.

Threads: each engine has one daemon thread that waits in pi_poll and calls the on_event function of the request that
an event belongs to. Every other function may be called from any thread.
Lifetime: a Request refers to its Engine. Both end by close(), at the end of a `with` block, when they are collected,
or at the exit of the interpreter; the order does not matter. close() of an engine waits for running calls, cancels
its requests and frees them.
Fork: an engine belongs to the process that opened it. In a forked child every call raises PagedInferError, and
nothing is freed. Open engines after the fork."""
from __future__ import annotations

import ctypes
import itertools
import json
import logging
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._lib import PagedInferError, abi, check, lib, sized

logger = logging.getLogger('pagedinfer')
Pairs = Iterable[Tuple[str, str]]
FINISH = {abi.PI_FINISH_STOP: 'stop', abi.PI_FINISH_LENGTH: 'length', abi.PI_FINISH_CANCEL: 'abort',
          abi.PI_FINISH_ERROR: 'error', abi.PI_FINISH_TOOL_CALLS: 'tool_calls'}
_serial = itertools.count(1)


def option_text(value: Any) -> str:
    """The text of an option's value: true and false for bools, JSON for dicts and lists."""
    if isinstance(value, bool): return 'true' if value else 'false'
    if isinstance(value, (dict, list)): return json.dumps(value)
    return str(value)


@dataclass
class Event:
    """One event of a request, copied from the library's memory."""
    kind: int
    index: int = 0
    text: str = ''
    tokens: List[int] = field(default_factory=list)
    logprobs: Optional[List[List[Tuple[int, float]]]] = None
    finish_reason: Optional[str] = None
    code: int = 0
    message: str = ''
    n_left: int = 0
    embedding: Optional[np.ndarray] = None
    calls_bound: bool = False

    @property
    def done(self) -> bool:
        return self.kind == abi.PI_EVENT_DONE


def _copy(ev: Any) -> Event:
    """Copies a pi_event."""
    out = Event(ev.kind, ev.index)
    if ev.text_len: out.text = ctypes.string_at(ev.text, ev.text_len).decode('utf-8', 'replace')
    if ev.n_tokens: out.tokens = ev.tokens[:ev.n_tokens]
    if ev.n_logprobs and ev.n_tokens:
        width, flat = ev.n_logprobs, ev.logprobs[:ev.n_tokens * ev.n_logprobs]
        out.logprobs = [[(p.id, p.logprob) for p in flat[i:i + width]] for i in range(0, len(flat), width)]
    if ev.kind == abi.PI_EVENT_DONE:
        out.finish_reason, out.code, out.n_left = FINISH.get(ev.finish_reason), ev.code, ev.n_left
    if ev.kind == abi.PI_EVENT_EMBEDDING:
        out.embedding = np.ctypeslib.as_array(ev.embedding, (ev.n_embeddings, ev.n_embd)).copy()
    out.calls_bound = bool(ev.calls_bound)
    return out


class _Core:
    """The engine's handle, its requests, and the thread that polls. Has no reference to an Engine or Request."""

    def __init__(self, handle: int, keep: Any) -> None:
        self.handle: Optional[int] = handle
        self.keep = keep                            # the C callbacks of the engine
        self.pid = os.getpid()
        self.changed = threading.Condition()        # guards the following fields
        self.handles: Dict[int, int] = {}           # request number -> pi_request
        self.receivers: Dict[int, Any] = {}         # request number -> weak reference to its Request
        self.running: set = set()                   # numbers of submitted requests that have not ended
        self.users = 0                              # calls in progress
        self.owned: Dict[int, Callable[[], None]] = {}  # number -> frees an object of the engine
        self.closing = self.deferred = False        # deferred: the polling thread frees the engine when its loop ends
        self.thread = threading.Thread(target=self.poll, name='pagedinfer-events', daemon=True)
        self.thread.start()

    def __enter__(self) -> int:
        """Begins a call; the engine stays open until the matching __exit__."""
        if os.getpid() != self.pid:
            raise PagedInferError(abi.PI_ECLOSED, f'the engine belongs to process {self.pid}: open one after the fork')
        with self.changed:
            if self.closing or not self.handle: raise PagedInferError(abi.PI_ECLOSED, 'the engine is closed')
            self.users += 1
            return self.handle

    def __exit__(self, *exc: Any) -> None:
        with self.changed:
            self.users -= 1
            self.changed.notify_all()

    def poll(self) -> None:
        events = (ctypes.POINTER(abi.pi_event) * 256)()
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.running or self.closing)
                if self.closing and not self.running: break
                if self.closing: self.cancel_all()
            # The time limit matters if a request is freed before its last event, or submitted while the engine closes.
            n = lib.pi_poll(self.handle, events, len(events), 500)
            if n <= 0: # a request may be in the middle of its submit
                with self.changed: self.changed.wait(0.001)
            for i in range(max(n, 0)):
                try:
                    self.dispatch(events[i].contents)
                finally:
                    lib.pi_event_release(events[i])
        if self.deferred: self.destroy()

    def dispatch(self, ev: Any) -> None:
        number = ev.user or 0
        last = ev.kind == abi.PI_EVENT_DONE and not ev.n_left
        with self.changed:
            if number not in self.handles: return
            reference, handle = self.receivers.get(number), self.handles[number]
            if ev.code < 0:
                result = sized(abi.pi_result)
                lib.pi_request_sample(handle, ev.index, ctypes.byref(result))
        request = reference() if reference else None
        if request is not None:
            try:
                event = _copy(ev)
                if ev.code < 0: event.message = result.msg.decode('utf-8', 'replace')
                request.on_event(event)
            except BaseException:  # the thread serves other requests too
                logger.exception('on_event of a request failed')
                request.cancel()
        if last:
            with self.changed:
                self.running.discard(number)
                self.changed.notify_all()

    def cancel_all(self) -> None:
        # A collection can free a request at any point of this loop.
        for number in list(self.running): lib.pi_request_cancel(self.handles.get(number))

    def free(self, number: int) -> None:
        """Cancels and frees a request; no effect on a freed one."""
        if os.getpid() != self.pid: return
        with self.changed:
            handle = self.handles.pop(number, None)
            self.receivers.pop(number, None)
            self.running.discard(number)
            if handle: lib.pi_request_free(handle)
            self.changed.notify_all()

    def own(self, free: Callable[[], None]) -> int:
        """Records the function that frees an object, and returns the number for release(). The engine's end calls it."""
        number = next(_serial)
        with self.changed: self.owned[number] = free
        return number

    def release(self, number: int) -> None:
        """Frees an object of own(); no effect on a freed one."""
        if os.getpid() != self.pid: return
        with self.changed:
            free = self.owned.pop(number, None)
            if free: free()

    def close(self) -> None:
        if os.getpid() != self.pid: return
        with self.changed:
            if self.closing:
                self.changed.wait_for(lambda: not self.handle or threading.current_thread() is self.thread)
                return
            self.closing = True
            self.cancel_all()
            self.changed.notify_all()
            if threading.current_thread() is self.thread:
                self.deferred = True
                return
        self.thread.join()
        self.destroy()

    def destroy(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.users == 0)
            for number in list(self.handles): self.free(number)
            for number in list(self.owned): self.release(number)
            lib.pi_engine_close(self.handle)
            self.handle = None
            self.changed.notify_all()


class Engine:
    """A loaded model. `options` are pairs of the library's option keys and texts (docs/OPTIONS.md)."""

    def __init__(self, model: Union[str, os.PathLike], options: Pairs = ()) -> None:
        error, handle = abi.pi_error(), ctypes.c_void_p()
        self._closer: Any = None
        o = lib.pi_options_new()
        if not o: raise PagedInferError(abi.PI_ENOMEM)

        def log(_: Any, level: int, message: bytes) -> None:
            logger.log(logging.ERROR if level <= abi.PI_LOG_ERROR else logging.WARNING,
                       '%s', message.decode('utf-8', 'replace'))
        keep = abi.pi_log_fn(log)
        try:
            lib.pi_options_set_log(o, keep, None, abi.PI_LOG_WARN)
            for key, value in [('model', os.fspath(model)), *options]:
                check(lib.pi_options_set(o, key.encode(), _bytes(value), ctypes.byref(error)), error)
            check(lib.pi_engine_open(ctypes.byref(handle), o, ctypes.byref(error)), error)
        finally:
            lib.pi_options_free(o)
        self._core = _Core(handle.value or 0, keep)
        self._closer = weakref.finalize(self, self._core.close)
        info = sized(abi.pi_info)
        with self._core as e: check(lib.pi_engine_info(e, ctypes.byref(info)))
        self.info: Dict[str, Any] = {}
        for name in _names(abi.pi_info):
            value = getattr(info, name)
            if name == 'labels': value = [info.labels[i].decode('utf-8', 'replace') for i in range(info.n_labels)]
            elif isinstance(value, bytes): value = value.decode('utf-8', 'replace')
            self.info[name] = value

    def close(self) -> None:
        """Cancels running requests and frees the model. A second call has no effect."""
        if self._closer: self._closer()

    def __enter__(self) -> 'Engine': return self

    def __exit__(self, *exc: Any) -> None: self.close()

    # ------------------------------------------------------------------------------------------------ text

    def tokenize(self, text: Union[str, bytes], bos: bool = True, special: bool = True) -> List[int]:
        data = _bytes(text)
        flags = (abi.PI_TOK_BOS if bos else 0) | (abi.PI_TOK_SPECIAL if special else 0)
        with self._core as e:
            return _ids(len(data) + 8, lambda out, cap: lib.pi_tokenize(e, data, len(data), flags, out, cap))

    def detokenize(self, ids: Sequence[int], special: bool = False) -> bytes:
        n, flags = len(ids), abi.PI_TOK_SPECIAL if special else 0
        array, n_vocab = _int32(ids), self.info['n_vocab']
        outside = next((i for i in ids if i >= n_vocab), None)
        if outside is not None:
            raise PagedInferError(abi.PI_EINVAL, f'token {outside} is not in the vocabulary: ids go from 0 to {n_vocab - 1}')
        with self._core as e:
            return _text(8 * n + 16, lambda out, cap: lib.pi_detokenize(e, array, n, flags, out, cap))

    def chat_render(self, messages: Any, tools: Any = None, options: Optional[Mapping[str, Any]] = None) -> str:
        error, args = abi.pi_error(), _chat_arguments(messages, tools, options)
        with self._core as e:
            return _text(4096, lambda out, cap: lib.pi_chat_render(e, *args, out, cap, ctypes.byref(error)),
                         error).decode('utf-8', 'replace')

    def chat_tokenize(self, messages: Any, tools: Any = None, options: Optional[Mapping[str, Any]] = None) -> List[int]:
        error, args = abi.pi_error(), _chat_arguments(messages, tools, options)
        with self._core as e:
            return _ids(4096, lambda out, cap: lib.pi_chat_tokenize(e, *args, out, cap, ctypes.byref(error)), error)

    def metadata(self) -> Dict[str, str]:
        """Key-value pairs of the model file, as text."""
        found: Dict[str, str] = {}
        with self._core as e:
            for i in itertools.count():
                try:
                    key = _text(256, lambda out, cap: lib.pi_engine_meta_key(e, i, out, cap), string=True)
                except PagedInferError as error:
                    if error.code == abi.PI_ENOENT: return found
                    raise
                value = _text(4096, lambda out, cap: lib.pi_engine_meta(e, key, out, cap), string=True)
                found[key.decode('utf-8', 'replace')] = value.decode('utf-8', 'replace')
        return found

    # ----------------------------------------------------------------------------------------- state, adapters

    def stats(self) -> Dict[str, Any]:
        """The numbers of pi_engine_stats; arrays are left out."""
        value = sized(abi.pi_stats)
        with self._core as e: check(lib.pi_engine_stats(e, ctypes.byref(value)))
        return {name: getattr(value, name) for name in _names(abi.pi_stats) if isinstance(getattr(value, name), (int, float))}

    def memory(self) -> Dict[str, Any]:
        """The numbers of the memory plan (pi_engine_memory); arrays are left out."""
        value = sized(abi.pi_plan)
        with self._core as e: check(lib.pi_engine_memory(e, ctypes.byref(value)))
        return {name: getattr(value, name) for name in _names(abi.pi_plan) if isinstance(getattr(value, name), (int, float))}

    def clear_cache(self, salt: Optional[str] = None) -> None:
        with self._core as e: check(lib.pi_engine_cache_clear(e, None if salt is None else _bytes(salt)))

    def lora_load(self, name: str, path: Union[str, os.PathLike], scale: float = 0.0) -> None:
        error = abi.pi_error()
        with self._core as e:
            check(lib.pi_lora_load(e, _bytes(name), _bytes(os.fspath(path)), scale, ctypes.byref(error)), error)

    def lora_unload(self, name: str) -> None:
        error = abi.pi_error()
        with self._core as e: check(lib.pi_lora_unload(e, _bytes(name), ctypes.byref(error)), error)

    def loras(self) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = []
        with self._core as e:
            for i in itertools.count():
                value = sized(abi.pi_lora)
                if lib.pi_lora_describe(e, i, ctypes.byref(value)) != abi.PI_OK: return found
                found.append({name: getattr(value, name).decode() if name in ('name', 'path') else getattr(value, name)
                              for name in _names(abi.pi_lora)})
        return found


def _names(struct: Any) -> List[str]:
    """The fields of a struct, except its size."""
    return [f[0] for f in struct._fields_ if f[0] != 'size']


def _bytes(text: Union[str, bytes]) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode('utf-8', 'surrogateescape')


def _int32(ids: Sequence[int]) -> Any:
    array = np.asarray(ids, dtype=np.int64)
    if array.ndim != 1 or (array.size and (array.min() < 0 or array.max() > 0x7fffffff)):
        raise PagedInferError(abi.PI_EINVAL, 'token ids must be a flat list of numbers from 0 to 2147483647')
    return (ctypes.c_int32 * len(array))(*array.tolist())


def _chat_arguments(messages: Any, tools: Any, options: Optional[Mapping[str, Any]]) -> Tuple[Optional[bytes], ...]:
    return (json.dumps(messages).encode(), json.dumps(tools).encode() if tools else None,
            json.dumps(options).encode() if options else None)


def _ids(cap: int, call: Callable[[Any, int], int], error: Any = None) -> List[int]:
    """The ids that a library function writes; `cap` is a first guess of their number."""
    while True:
        out = (ctypes.c_int32 * cap)()
        n = check(call(out, cap), error)
        if n <= cap: return out[:n]
        cap = n


def _text(cap: int, call: Callable[[Any, int], int], error: Any = None, string: bool = False) -> bytes:
    """The text that a library function writes. string: the function also writes a final NUL."""
    while True:
        out = ctypes.create_string_buffer(cap)
        n = check(call(out, cap), error)
        if n + string <= cap: return out.raw[:n]
        cap = n + string


class Request:
    """A prompt and its answers. on_event gets each Event on the engine's polling thread; the caller keeps the Request
    until the last event. Options are pairs of the library's keys and texts."""

    def __init__(self, engine: Engine, options: Pairs, on_event: Callable[[Event], None]) -> None:
        self.engine, self.on_event, self.number = engine, on_event, next(_serial)
        self._keep: Any = None
        self._lock = threading.RLock()      # close() in one thread waits for a call in another
        core = engine._core
        with core as e:
            handle = lib.pi_request_new(e)
            if not handle: raise PagedInferError(abi.PI_ENOMEM)
            with core.changed:
                core.handles[self.number] = handle
                core.receivers[self.number] = weakref.ref(self)
            self._closer = weakref.finalize(self, core.free, self.number)
            lib.pi_request_set_user(handle, self.number)
        try:
            for key, value in options: self._call(lib.pi_request_set, _bytes(key), _bytes(value))
        except BaseException:
            self.close()
            raise

    def _handle(self) -> int:
        handle = self.engine._core.handles.get(self.number)
        if not handle: raise PagedInferError(abi.PI_ECLOSED, 'the request is closed')
        return handle

    def _call(self, function: Any, *args: Any) -> None:
        error = abi.pi_error()
        with self._lock, self.engine._core: check(function(self._handle(), *args, ctypes.byref(error)), error)

    def prompt_text(self, text: Union[str, bytes]) -> None:
        data = _bytes(text)
        self._call(lib.pi_request_prompt_text, data, len(data))

    def prompt_tokens(self, ids: Sequence[int]) -> None:
        self._call(lib.pi_request_prompt_tokens, _int32(ids), len(ids))

    def prompt_chat(self, messages: Any, tools: Any = None, options: Optional[Mapping[str, Any]] = None) -> None:
        self._call(lib.pi_request_prompt_chat, *_chat_arguments(messages, tools, options))

    def prompt_rank(self, query: str, document: str) -> None:
        q, d = _bytes(query), _bytes(document)
        self._call(lib.pi_request_prompt_rank, q, len(q), d, len(d))

    def on_logits(self, function: Callable[[int, np.ndarray], None]) -> None:
        """function gets each row of logits on the step thread; it must be quick and must not call the library."""
        def row(_: Any, position: int, logits: int, n: int) -> None:
            function(position, np.ctypeslib.as_array((ctypes.c_float * n).from_address(logits)).copy())
        self._keep = abi.pi_logits_fn(row)
        with self._lock, self.engine._core: lib.pi_request_on_logits(self._handle(), self._keep, None)

    def submit(self) -> None:
        core, error = self.engine._core, abi.pi_error()
        with self._lock, core:
            handle = self._handle()
            # The request counts as running before its first event can arrive.
            with core.changed: core.running.add(self.number)
            code = lib.pi_request_submit(handle, ctypes.byref(error))
            with core.changed:
                if code < 0: core.running.discard(self.number)
                core.changed.notify_all()
        check(code, error)

    def cancel(self) -> None:
        core = self.engine._core
        if os.getpid() != core.pid: return
        with core.changed:
            handle = core.handles.get(self.number)
            if handle: lib.pi_request_cancel(handle)

    def result(self, index: Optional[int] = None) -> Any:
        """The pi_result of all samples together, or of one sample."""
        value = sized(abi.pi_result)
        with self._lock, self.engine._core:
            if index is None: code = lib.pi_request_result(self._handle(), ctypes.byref(value))
            else: code = lib.pi_request_sample(self._handle(), index, ctypes.byref(value))
        if code != abi.PI_EBUSY: check(code)
        return value

    def close(self) -> None:
        """Cancels and frees the request. A second call has no effect."""
        with self._lock: self._closer()

    def __enter__(self) -> 'Request': return self

    def __exit__(self, *exc: Any) -> None: self.close()


class ChatParser:
    """Splits the text of one answer into thoughts, content and tool calls (pi_chat_parser)."""

    def __init__(self, engine: Engine, tools: Any = None, options: Optional[Mapping[str, Any]] = None) -> None:
        error, handle = abi.pi_error(), ctypes.c_void_p()
        self.engine = engine
        _, tools_json, options_json = _chat_arguments(None, tools, options)
        with engine._core as e:
            check(lib.pi_chat_parser_new(ctypes.byref(handle), e, tools_json, options_json, ctypes.byref(error)), error)
            number = engine._core.own(lambda: lib.pi_chat_parser_free(handle))
        self._parser = handle
        self._closer = weakref.finalize(self, engine._core.release, number)

    def feed(self, text: str, bound: bool = False) -> Iterator[Any]:
        data = _bytes(text)
        with self.engine._core:
            check(lib.pi_chat_parser_feed(self._parser, data, len(data)))
            if bound: lib.pi_chat_parser_bind(self._parser)
        return self.deltas()

    def deltas(self) -> Iterator[Any]:
        found = []
        with self.engine._core:
            while True:
                delta = sized(abi.pi_chat_delta)
                if not lib.pi_chat_parser_next(self._parser, ctypes.byref(delta)): break
                text = ctypes.string_at(delta.text, delta.text_len).decode('utf-8', 'replace') if delta.text_len else ''
                found.append((delta.kind, text, delta.index, (delta.id or b'').decode(), (delta.name or b'').decode(),
                              bool(delta.sure)))
        return iter(found)

    def end(self, finish_reason: Optional[str]) -> Optional[str]:
        code = next((c for c, name in FINISH.items() if name == finish_reason), abi.PI_FINISH_CANCEL)
        with self.engine._core: return FINISH.get(check(lib.pi_chat_parser_end(self._parser, code)))

    def _read(self, function: Any) -> str:
        text = ctypes.c_void_p()
        with self.engine._core:
            n = function(self._parser, ctypes.byref(text))
            return ctypes.string_at(text.value, n).decode('utf-8', 'replace') if n and text.value else ''

    def content(self) -> str: return self._read(lib.pi_chat_parser_content)

    def reasoning(self) -> str: return self._read(lib.pi_chat_parser_reasoning)

    def calls(self) -> List[Dict[str, Any]]:
        """Complete calls as in OpenAI's API."""
        found: List[Dict[str, Any]] = []
        with self.engine._core:
            for i in itertools.count():
                c = sized(abi.pi_chat_call)
                if lib.pi_chat_parser_call(self._parser, i, ctypes.byref(c)) != abi.PI_OK: return found
                arguments = ctypes.string_at(c.arguments, c.arguments_len).decode('utf-8', 'replace')
                found.append({'id': c.id.decode(), 'type': 'function',
                              'function': {'name': c.name.decode(), 'arguments': arguments}})
        return found

    def close(self) -> None: self._closer()
