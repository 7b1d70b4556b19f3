"""AsyncLLM: streams of answers for asyncio."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, AsyncIterator, Dict, List, Optional

from ._engine import Event, Request
from ._llm import Answer, Base, Prompt, chat_options
from ._params import CompletionOutput, LoRARequest, RequestOutput, RequestOutputKind, SamplingParams


@dataclass(init=False)
class AsyncEngineArgs:
    """The arguments of AsyncLLM, for from_engine_args."""
    model: str
    arguments: Dict[str, Any] = field(default_factory=dict)

    def __init__(self, model: str, **arguments: Any) -> None:
        self.model, self.arguments = model, arguments


EngineArgs = AsyncEngineArgs


class AsyncLLM(Base):
    """A model for concurrent requests of asyncio tasks. Arguments are the ones of LLM. A task that is cancelled, or a
    generator that is closed, cancels its request in the engine."""

    def __init__(self, model: Any, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        self._requests: Dict[str, Request] = {}

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs, **_: Any) -> 'AsyncLLM':
        return cls(engine_args.model, **engine_args.arguments)

    def shutdown(self) -> None: self.close()

    async def __aenter__(self) -> 'AsyncLLM': return self

    async def __aexit__(self, *exc: Any) -> None: await asyncio.get_running_loop().run_in_executor(None, self.close)

    async def abort(self, request_id: str) -> None:
        """Cancels a request; its generator ends with finish_reason "abort". No effect on an unknown id."""
        request = self._requests.get(request_id)
        if request: request.cancel()

    async def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None,
                       request_id: Optional[str] = None, *, lora_request: Optional[LoRARequest] = None,
                       priority: int = 0) -> AsyncIterator[RequestOutput]:
        """Yields the answer while it grows, see SamplingParams.output_kind."""
        text, ids = self._prompt(prompt)
        output = RequestOutput(request_id or self._id(), text, ids, lora_request=lora_request)
        params = sampling_params or SamplingParams()
        if priority: params = replace(params, extra_args={**(params.extra_args or {}), 'priority': priority})
        async for item in self._stream(output, params, lambda r: r.prompt_tokens(ids)): yield item

    async def chat(self, messages: List[Dict[str, Any]], sampling_params: Optional[SamplingParams] = None,
                   request_id: Optional[str] = None, *, tools: Optional[List[Dict[str, Any]]] = None,
                   lora_request: Optional[LoRARequest] = None, add_generation_prompt: bool = True,
                   continue_final_message: bool = False,
                   chat_template_kwargs: Optional[Dict[str, Any]] = None) -> AsyncIterator[RequestOutput]:
        """Yields the answer to a conversation while it grows."""
        options = chat_options(add_generation_prompt, continue_final_message, chat_template_kwargs)
        ids = self.engine.chat_tokenize(messages, tools, options)
        output = RequestOutput(request_id or self._id(), None, ids, lora_request=lora_request)
        prompt = lambda r: r.prompt_chat(messages, tools, options)  # noqa: E731
        async for item in self._stream(output, sampling_params or SamplingParams(), prompt): yield item

    async def _stream(self, output: RequestOutput, params: SamplingParams, prompt: Any) -> AsyncIterator[RequestOutput]:
        loop, events = asyncio.get_running_loop(), asyncio.Queue()  # type: ignore[var-annotated]

        def on_event(ev: Event) -> None:
            try: loop.call_soon_threadsafe(events.put_nowait, ev)
            except RuntimeError: pass  # the loop is closed; the generator's end frees the request
        if output.request_id in self._requests: raise ValueError(f'request_id {output.request_id} is in use')
        # Loading an adapter reads a file, and submit may compile a grammar: both leave the loop's thread.
        request = await loop.run_in_executor(None, lambda: Request(
            self.engine, params.options() + self._lora(output.lora_request), on_event))
        self._requests[output.request_id] = request
        try:
            def submit() -> None:
                prompt(request)
                request.submit()
            await loop.run_in_executor(None, submit)
            answer, done = Answer(self.engine, output, params), False
            sent = [0] * params.n
            while not done:
                batch = [await events.get()]
                while not events.empty(): batch.append(events.get_nowait())
                for ev in batch:
                    answer.add(ev, request)
                    done = done or (ev.done and ev.n_left == 0)
                if params.output_kind == RequestOutputKind.FINAL_ONLY and not done: continue
                if params.output_kind == RequestOutputKind.DELTA: yield self._delta(output, sent, answer)
                elif done or any(o.token_ids or o.text for o in output.outputs): yield output
        finally:
            del self._requests[output.request_id]
            request.close()

    @staticmethod
    def _delta(output: RequestOutput, sent: List[int], answer: Answer) -> RequestOutput:
        """The new part; the parts of a delta leave the collected answer."""
        parts = [replace(o, finish_reason=o.finish_reason) for o in output.outputs]
        for o in output.outputs:
            o.text, o.token_ids = '', []
            if o.logprobs is not None: o.logprobs = []
        return replace(output, outputs=parts)


__all__ = ['AsyncEngineArgs', 'AsyncLLM', 'CompletionOutput', 'EngineArgs']
