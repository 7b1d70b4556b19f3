#!/usr/bin/env python3
"""Checks the Python package: declarations against the header, LLM, AsyncLLM, Llama, the lm-eval class, and lifetimes.

    check_python.py [--package]

The package is python/pagedinfer of the tree, copied to a temporary folder together with its generated declarations;
--package checks the installed one with its own library and tool. Each group runs in a process of its own, so a crash or a hang is a fault.
PAGEDINFER_LIB names the library, PAGEDINFER_BIN the tool. With PAGEDINFER_CHAT_MODEL the model's texts are compared
with the tool's. Needs numpy; exit 77 without it, or without the chat model."""
import asyncio, concurrent.futures, ctypes, gc, json, os, shutil, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build'))
BIN = os.path.abspath(os.environ.get('CHECK_TOOL') or os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer')))
LIB = os.path.abspath(os.environ.get('PAGEDINFER_LIB', os.path.join(BUILD, 'libpagedinfer.so')))
MODEL = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
HEADERS = [os.path.join(ROOT, 'include', name) for name in ('pagedinfer.h', 'pagedinfer_openai.h')]
SMALL = dict(max_model_len=1024, max_num_seqs=16)
HELLO = [{'role': 'user', 'content': 'What is the capital of France?'}]
TOOLS = [{'type': 'function', 'function': {'name': 'UserDetail', 'parameters': {
    'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 20}, 'age': {'type': 'integer', 'maximum': 150}},
    'required': ['name', 'age']}}}]
faults = []


def expect(what, got, want=True):
    if got != want: faults.append(f'{what}: {str(got)[:300]!r}, not {str(want)[:300]!r}')


def raises(what, kind, words, call):
    try: result = call()
    except kind as e:
        if words not in str(e): faults.append(f'{what}: the error says {str(e)!r}, without {words!r}')
        return e
    except Exception as e: faults.append(f'{what}: {type(e).__name__}: {e}')
    else: faults.append(f'{what}: no error, but {str(result)[:200]}')


def tool(*argv):
    return subprocess.run([BIN, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, stdin=subprocess.DEVNULL).stdout.decode()


# ------------------------------------------------------------------------------------------------------ declarations

def declarations():
    """Sizes, offsets and constants of the generated declarations equal the compiler's."""
    from pagedinfer._lib import abi, lib, openai_library
    for path, library, functions in ((HEADERS[0], lib, abi.FUNCTIONS), (HEADERS[1], openai_library(), abi.OPENAI_FUNCTIONS)):
        for name in functions:
            if not hasattr(library, name): faults.append(f'the library has no {name}')
        with open(path) as f: declared = f.read().count('\nPI_API ')
        expect(f'functions of {os.path.basename(path)}', len(functions), declared)
    if not shutil.which('cc'): return print('no C compiler: sizes are not compared')
    lines, want = [], []
    for name, value in abi.CONSTANTS.items():
        lines.append(f'(long) {name}')
        want.append((name, value))
    for name, struct in abi.STRUCTS.items():
        if not has_name(name): continue
        lines.append(f'(long) sizeof({name})')
        want.append((f'sizeof {name}', ctypes.sizeof(struct)))
        for field, kind, *_ in struct._fields_:
            lines += [f'(long) offsetof({name}, {field})', f'(long) sizeof(((({name} *) 0)->{field}))']
            want += [(f'offset of {name}.{field}', getattr(struct, field).offset), (f'size of {name}.{field}', ctypes.sizeof(kind))]
    with tempfile.TemporaryDirectory() as d:
        with open(f'{d}/a.c', 'w') as f:
            f.write('#include <pagedinfer_openai.h>\n#include <stdio.h>\nint main(void) {\n' +
                    ''.join(f'printf("%ld\\n", {x});\n' for x in lines) + 'return 0; }\n')
        subprocess.run(['cc', f'-I{ROOT}/include', f'{d}/a.c', '-o', f'{d}/a'], check=True)
        got = subprocess.run([f'{d}/a'], stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    expect('numbers', len(got), len(want))
    for (what, value), compiled in zip(want, got): expect(what, value, int(compiled))


def has_name(name):
    """Whether the struct has a name in C; structs within structs have none."""
    text = ''
    for path in HEADERS:
        with open(path) as f: text += f.read()
    return f'}} {name};' in text or f'struct {name} {{' in text


# --------------------------------------------------------------------------------------------------------- vLLM's API

def vllm_examples():
    """The quickstart of vLLM's documentation with another import, and its other documented calls."""
    from pagedinfer import LLM, SamplingParams
    prompts = ['Hello, my name is', 'The president of the United States is', 'The capital of France is', 'The future of AI is']
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
    llm = LLM(model=MODEL, **SMALL)
    outputs = llm.generate(prompts, sampling_params)
    for prompt, output in zip(prompts, outputs):
        expect('prompt', output.prompt, prompt)
        expect('answer', bool(output.outputs[0].text) and 0 < len(output.outputs[0].token_ids) <= 16)
        expect('finished', output.finished)
    greedy = SamplingParams(temperature=0, max_tokens=12)
    one = llm.generate('The capital of France is', greedy)[0]
    expect("the tool's text", one.outputs[0].text.strip(), tool('run', '-m', MODEL, '-p', 'The capital of France is', '--temp', '0', '-n', '12').strip())
    expect('ids as prompt', llm.generate([{'prompt_token_ids': one.prompt_token_ids}], greedy)[0].outputs[0].token_ids, one.outputs[0].token_ids)
    expect('a list of ids', llm.generate(one.prompt_token_ids, greedy)[0].outputs[0].text, one.outputs[0].text)
    two = llm.generate('Once', SamplingParams(n=3, temperature=1.5, seed=1, max_tokens=8))[0]
    expect('three answers', len({o.text for o in two.outputs}) > 1 and [o.index for o in two.outputs] == [0, 1, 2])
    p = llm.generate('The capital of France is', SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1))[0]
    o = p.outputs[0]
    expect('rows of logprobs', [len(o.logprobs), len(p.prompt_logprobs), p.prompt_logprobs[0]], [4, 5, None])
    expect('rank and text', (o.logprobs[0][o.token_ids[0]].rank, o.logprobs[0][o.token_ids[0]].decoded_token), (1, ' Paris'))
    expect('sum', abs(o.cumulative_logprob - sum(row[t].logprob for t, row in zip(o.token_ids, o.logprobs))) < 1e-5)
    s = llm.generate('1, 2, 3, 4,', SamplingParams(temperature=0, max_tokens=20, stop=[' 7']))[0].outputs[0]
    expect('stop', (s.text, s.finish_reason, s.stop_reason), (' 5, 6,', 'stop', ' 7'))
    s = llm.generate('1, 2, 3, 4,', SamplingParams(temperature=0, max_tokens=20, stop=' 7', include_stop_str_in_output=True))[0].outputs[0]
    expect('stop in the output', s.text, ' 5, 6, 7')
    constrained(llm)
    chat = llm.chat(HELLO, SamplingParams(temperature=0, max_tokens=16))
    expect('chat', len(chat) == 1 and 'Paris' in chat[0].outputs[0].text)
    expect('two chats', [o.outputs[0].text for o in llm.chat([HELLO, HELLO], SamplingParams(temperature=0, max_tokens=16))], [chat[0].outputs[0].text] * 2)
    expect('a call', 'UserDetail' in llm.chat([{'role': 'user', 'content': 'Jason is 25'}], SamplingParams(temperature=0, max_tokens=60), tools=TOOLS,
                                              chat_template_kwargs={'tool_choice': 'required'})[0].outputs[0].text)
    biased = llm.generate('The capital of France is', SamplingParams(temperature=0, max_tokens=1, logit_bias={one.outputs[0].token_ids[0]: -100}))[0]
    expect('bias', biased.outputs[0].token_ids != one.outputs[0].token_ids[:1])
    tokenizer = llm.get_tokenizer()
    expect('tokens', tokenizer.decode(tokenizer.encode('Hello, world')), 'Hello, world')
    expect('template', tokenizer.apply_chat_template(HELLO, tokenize=False, add_generation_prompt=True).endswith('<|im_start|>assistant\n'))
    vectors(llm)
    errors(llm)


def constrained(llm):
    from pagedinfer import SamplingParams, StructuredOutputsParams
    schema = {'type': 'object', 'properties': {'age': {'type': 'integer', 'maximum': 99}}, 'required': ['age']}
    cases = [(dict(choice=['Positive', 'Negative']), lambda t: t in ('Positive', 'Negative')), (dict(regex=r'[a-z]{3}-\d{2}'), lambda t: t[3] == '-' and len(t) == 6),
             (dict(json=schema), lambda t: 'age' in json.loads(t)), (dict(grammar='root ::= "yes" | "no"'), lambda t: t in ('yes', 'no'))]
    for fields, good in cases:
        text = llm.generate('Sentence: vLLM is wonderful!', SamplingParams(max_tokens=60, seed=3, structured_outputs=StructuredOutputsParams(**fields)))[0].outputs[0].text
        expect(f'structured {list(fields)[0]}', bool(good(text)))


def vectors(llm):
    import numpy as np
    texts = ['the quick brown fox', 'jumps over the lazy dog']
    want = [[float(x) for x in line.split()] for line in
            tool('embed', '-m', MODEL, '--pooling', 'mean', '--embd-output-format', 'raw', '-p', '\n'.join(texts)).splitlines()]
    got = np.array([o.outputs.embedding for o in llm.embed(texts)])
    expect("the tool's vectors", got.shape == np.array(want).shape and np.abs(got - np.array(want)).max() < 1e-5)
    scores = [o.outputs.score for o in llm.score('a cat', ['a cat', 'the price of oil'])]
    expect('scores', abs(scores[0] - 1) < 1e-4 and scores[1] < scores[0])
    rows = llm.logits('The capital of France is')
    expect('logits', rows.dtype == np.float32 and rows.shape == (5, llm.engine.info['n_vocab']))
    expect('most likely token', llm.get_tokenizer().decode([int(rows[-1].argmax())]), ' Paris')
    expect('one row', np.array_equal(llm.logits('The capital of France is', rows='last')[0], rows[-1]))
    expect('vectors of tokens', llm.encode('The capital of France is')[0].shape, (5, llm.engine.info['n_embd']))


def errors(llm):
    from pagedinfer import LLM, LoRARequest, PagedInferError, SamplingParams
    e = raises('unknown option', PagedInferError, 'max-model-len', lambda: LLM(MODEL, max_modle_len=5))
    expect('code and name', (e.code, e.name, e.retryable), (-1, 'PI_EINVAL', False))
    e = raises('no file', PagedInferError, '', lambda: LLM('/nonexistent.gguf'))
    expect('name', e.name, 'PI_ENOENT')
    raises('no such repository', PagedInferError, '', lambda: LLM('no-user/no-model'))
    raises('long prompt', PagedInferError, 'PI_ETOOBIG', lambda: llm.generate([[1] * 5000], SamplingParams()))
    raises('bad token', PagedInferError, 'PI_EINVAL', lambda: llm.generate([[10 ** 7]]))
    raises('negative token', PagedInferError, 'token ids', lambda: llm.generate([[-4]]))
    raises('empty prompt', PagedInferError, 'PI_EINVAL', lambda: llm.generate([{'prompt_token_ids': []}]))
    raises('bad range', PagedInferError, 'top-p', lambda: llm.generate('a', SamplingParams(top_p=7)))
    raises('bad regex', PagedInferError, 'PI_EINVAL', lambda: llm.generate('a', SamplingParams(structured_outputs={'regex': '('})))
    raises('two constraints', ValueError, 'exactly one', lambda: llm.generate('a', SamplingParams(structured_outputs={'regex': 'a', 'choice': ['b']})))
    raises('no tokens', ValueError, 'max_tokens', lambda: llm.generate('a', SamplingParams(max_tokens=0)))
    raises('unequal lists', ValueError, '2 values for 1', lambda: llm.generate(['a'], [SamplingParams()] * 2))
    raises('no adapter', PagedInferError, 'PI_ENOENT', lambda: llm.generate('a', lora_request=LoRARequest('x', 1, '/nonexistent')))
    raises('tokenizer', ValueError, 'GGUF', lambda: LLM(MODEL, tokenizer='x'))
    raises('deadline', PagedInferError, 'PI_ETIMEDOUT', lambda: llm.generate('a', SamplingParams(max_tokens=900, ignore_eos=True, extra_args={'timeout': 0.05})))
    expect('later requests', len(llm.generate('Hello', SamplingParams(max_tokens=2))), 1)


def batch():
    """More prompts than the engine runs at the same time; answers do not depend on the batch."""
    from pagedinfer import LLM, SamplingParams
    with LLM(MODEL, **SMALL) as llm:
        prompts = [f'{i} plus {i} is' for i in range(64)]
        greedy, seen = SamplingParams(temperature=0, max_tokens=6), []
        watching = threading.Event()

        def watch():
            while not watching.wait(0.02): seen.append(llm.engine.stats()['n_running'])
        watcher = threading.Thread(target=watch)
        watcher.start()
        bars = []

        class Bar:
            def __init__(self, total, desc): bars.append([total, 0])

            def update(self, n): bars[-1][1] += n

            def close(self): bars[-1].append('closed')
        outputs = llm.generate(prompts, greedy, use_tqdm=Bar)
        watching.set()
        watcher.join()
        expect('order', [o.prompt for o in outputs], prompts)
        expect('bar', bars, [[64, 64, 'closed']])
        expect('requests at the same time', max(seen), 16)
        for i in 0, 33, 63: expect(f'prompt {i} alone', llm.generate(prompts[i], greedy)[0].outputs[0].text, outputs[i].outputs[0].text)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda p: llm.generate(p, greedy)[0].outputs[0].text, prompts[:8]))
        expect('threads', texts, [o.outputs[0].text for o in outputs[:8]])
        full = LLM(MODEL, max_model_len=256, max_num_seqs=2, max_queue=3)
        expect('a short queue', len(full.generate(prompts[:12], SamplingParams(max_tokens=1))), 12)


# ----------------------------------------------------------------------------------------------------------- asyncio

def stream():
    from pagedinfer import AsyncEngineArgs, AsyncLLM, PagedInferError, RequestOutputKind, SamplingParams

    async def text(llm, prompt, kind=RequestOutputKind.CUMULATIVE, **fields):
        found = []
        async for output in llm.generate(prompt, SamplingParams(temperature=0, max_tokens=10, output_kind=kind, **fields)):
            found.append((output.outputs[0].text, list(output.outputs[0].token_ids), output.finished))
        return found

    async def main():
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=MODEL, **SMALL))
        whole = await text(llm, 'The capital of France is')
        expect('grows', len(whole) > 2 and all(b[0].startswith(a[0]) for a, b in zip(whole, whole[1:])) and whole[-1][2])
        parts = await text(llm, 'The capital of France is', RequestOutputKind.DELTA)
        expect('deltas', (''.join(p[0] for p in parts), sum((p[1] for p in parts), [])), (whole[-1][0], whole[-1][1]))
        final = await text(llm, 'The capital of France is', RequestOutputKind.FINAL_ONLY)
        expect('only the end', [f[0] for f in final], [whole[-1][0]])
        many = await asyncio.gather(*(text(llm, f'{i} plus {i} is') for i in range(20)))
        expect('twenty', len(many) == 20 and all(m[-1][2] for m in many))
        async for output in llm.chat(HELLO, SamplingParams(temperature=0, max_tokens=10)): pass
        expect('chat', 'Paris' in output.outputs[0].text)

        async def endless(request_id):
            async for output in llm.generate('Once upon a time', SamplingParams(max_tokens=None, ignore_eos=True), request_id): pass
            return output
        task = asyncio.create_task(endless('a'))
        other = asyncio.create_task(endless('b'))
        early = asyncio.create_task(endless('c'))
        await asyncio.sleep(0)
        early.cancel()
        await until(lambda: llm.engine.stats()['n_running'] == 2, 'two run')
        task.cancel()
        await until(lambda: llm.engine.stats()['n_running'] == 1, 'the cancelled task ended its request')
        expect('task', (await asyncio.gather(task, early, return_exceptions=True))[0].__class__, asyncio.CancelledError)
        await llm.abort('b')
        expect('abort', (await other).outputs[0].finish_reason, 'abort')
        generator = llm.generate('Once', SamplingParams(max_tokens=None, ignore_eos=True))
        async for _ in generator: break
        await generator.aclose()
        await until(lambda: llm.engine.stats()['n_running'] == 0, 'a closed generator ended its request')
        try: await text(llm, [1] * 5000)
        except PagedInferError as e: expect('error', e.name, 'PI_ETOOBIG')
        else: faults.append('a long prompt: no error')
        running = asyncio.create_task(endless('d'))
        await until(lambda: llm.engine.stats()['n_running'] == 1, 'one runs')
        await asyncio.get_running_loop().run_in_executor(None, llm.shutdown)
        await asyncio.wait([running], timeout=5)
        expect('shutdown ends requests', running.done())
        running.cancel()

    async def until(good, what):
        for _ in range(300):
            if good(): return
            await asyncio.sleep(0.01)
        faults.append(f'{what}: not within 3 s')
    asyncio.run(main())


# ---------------------------------------------------------------------------------------------- llama-cpp-python's API

def llama_examples():
    """The examples of llama-cpp-python's README with another import."""
    from pagedinfer import Llama, LlamaGrammar, PagedInferError
    llm = Llama(model_path=MODEL, n_ctx=1024, embedding=True, verbose=False)
    output = llm('Q: Name the planets in the solar system? A: ', max_tokens=32, stop=['Q:', '\n'], echo=True)
    expect('completion', (sorted(output), output['object'], sorted(output['choices'][0]), sorted(output['usage'])),
           (['choices', 'created', 'id', 'model', 'object', 'usage'], 'text_completion', ['finish_reason', 'index', 'logprobs', 'text'],
            ['completion_tokens', 'prompt_tokens', 'total_tokens']))
    expect('echo', output['choices'][0]['text'].startswith('Q: Name the planets in the solar system? A: '))
    whole = llm.create_completion('The capital of France is', max_tokens=8, temperature=0, logprobs=1)
    expect('logprobs', [len(v) for v in whole['choices'][0]['logprobs'].values()], [8] * 4)
    parts = list(llm.create_completion('The capital of France is', max_tokens=8, temperature=0, stream=True))
    expect('stream', ''.join(c['choices'][0]['text'] for c in parts), whole['choices'][0]['text'])
    expect('last chunk', [c['choices'][0]['finish_reason'] for c in parts][-2:], [None, 'length'])
    chat = llm.create_chat_completion(messages=HELLO, temperature=0, max_tokens=16)
    expect('chat', (chat['object'], chat['choices'][0]['message']['role'], 'Paris' in chat['choices'][0]['message']['content']), ('chat.completion', 'assistant', True))
    chunks = list(llm.create_chat_completion(messages=HELLO, temperature=0, max_tokens=16, stream=True))
    expect('first delta', chunks[0]['choices'][0]['delta'], {'role': 'assistant'})
    expect('chat stream', ''.join(c['choices'][0]['delta'].get('content', '') for c in chunks), chat['choices'][0]['message']['content'])
    shape = {'type': 'object', 'properties': {'team_name': {'type': 'string', 'maxLength': 20}}, 'required': ['team_name']}
    answer = llm.create_chat_completion(messages=[{'role': 'user', 'content': 'Who won the world series in 2020'}], temperature=0.7,
                                        response_format={'type': 'json_object', 'schema': shape})
    expect('JSON', list(json.loads(answer['choices'][0]['message']['content'])), ['team_name'])
    question = [{'role': 'user', 'content': 'Extract Jason is 25 years old'}]
    choice = {'type': 'function', 'function': {'name': 'UserDetail'}}
    call = llm.create_chat_completion(messages=question, tools=TOOLS, tool_choice=choice, temperature=0, max_tokens=100)['choices'][0]
    expect('call', (call['finish_reason'], call['message']['tool_calls'][0]['function']['name'], sorted(json.loads(call['message']['tool_calls'][0]['function']['arguments']))),
           ('tool_calls', 'UserDetail', ['age', 'name']))
    chunks = list(llm.create_chat_completion(messages=question, tools=TOOLS, tool_choice=choice, temperature=0, max_tokens=100, stream=True))
    pieces = [t['function']['arguments'] for c in chunks for t in c['choices'][0]['delta'].get('tool_calls', [])]
    expect('call in a stream', (len(pieces) > 2, ''.join(pieces)), (True, call['message']['tool_calls'][0]['function']['arguments']))
    expect('grammar', llm('Is the sky blue?', grammar=LlamaGrammar.from_string('root ::= "yes" | "no"'))['choices'][0]['text'] in ('yes', 'no'))
    ids = llm.tokenize(b'Hello, world')
    expect('tokens', (llm.detokenize(ids), ids), (b'Hello, world', json.loads(tool('tokenize', '-m', MODEL, '--ids', '-p', 'Hello, world'))))
    for outside in (-1, llm.n_vocab()):
        try: faults.append(f'detokenize: {llm.detokenize([outside])} for the id {outside}')
        except RuntimeError as e: expect('an id outside', outside < 0 or f'token {outside} ' in str(e), True)
    expect('facts', (llm.n_ctx(), llm.n_vocab(), llm.token_bos(), llm.token_eos(), llm.metadata['general.architecture']), (1024, 49152, 1, 2, 'llama'))
    vector = llm.create_embedding(['Hello, world!', 'Goodbye'])
    expect('vectors', (vector['object'], [d['index'] for d in vector['data']], len(vector['data'][0]['embedding'])), ('list', [0, 1], llm.n_embd()))
    expect('many vectors', len(llm.embed(['a b c'] * 300)), 300)
    for name, call in (('save_state', llm.save_state), ('eval', lambda: llm.eval([1])), ('logits_processor', lambda: llm('a', logits_processor=[1]))):
        expect(name, raises(name, PagedInferError, name, call).name, 'PI_EUNSUPPORTED')
    raises('no embedding', PagedInferError, 'embedding=True', lambda: Llama(MODEL, n_ctx=256).create_embedding('a'))
    raises('file without a quantization', PagedInferError, 'Q4_K_M', lambda: Llama.from_pretrained('a/b', 'x.bin'))
    stream = llm.create_completion('Once', max_tokens=-1, stream=True, ignore_eos=True)
    next(stream)
    llm.close()
    raises('a stream of a closed model', PagedInferError, '', lambda: list(stream))
    raises('a closed model', PagedInferError, 'closed', lambda: llm('a'))


def completions():
    """Chat completions of libpagedinfer-openai: responses, streams, calls, errors, and objects dropped in every order."""
    from pagedinfer import LLM, ChatCompletions, PagedInferError, SamplingParams
    llm = LLM(MODEL, **SMALL)
    chat = ChatCompletions(llm, alias='a model')
    greedy = dict(messages=HELLO, temperature=0, max_tokens=16)
    r = chat.create(**greedy)
    text = llm.chat(HELLO, SamplingParams(temperature=0, max_tokens=16))[0].outputs[0].text
    expect('response', (r['object'], r['model'], r['choices'][0]['message']['content'], r['choices'][0]['finish_reason']),
           ('chat.completion', 'a model', text, 'stop'))
    chunks = list(chat.create(**greedy, stream=True, stream_options={'include_usage': True}))
    expect('stream', ''.join(c['choices'][0]['delta'].get('content') or '' for c in chunks if c['choices']), text)
    expect('usage', chunks[-1]['usage']['completion_tokens'], r['usage']['completion_tokens'])
    call = chat.create([{'role': 'user', 'content': 'Jason is 25'}], tools=TOOLS, tool_choice='required', temperature=0, max_tokens=100)
    expect('call', call['choices'][0]['message']['tool_calls'][0]['function']['name'], 'UserDetail')
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda i: chat.create(**greedy)['choices'][0]['message']['content'], range(16)))
    expect('16 completions of 8 threads', same, [text] * 16)
    expect('an error', raises('a wrong field', PagedInferError, 'max_tokens', lambda: chat.create(HELLO, max_tokens='x')).name, 'PI_EINVAL')
    raises('an error in a stream', PagedInferError, 'messages', lambda: list(chat.create([], stream=True)))
    raises('a wrong setting', PagedInferError, 'alias', lambda: ChatCompletions(llm, colour='red').create(**greedy))
    raises('a wrong model', TypeError, 'Engine', lambda: ChatCompletions(MODEL))
    long = dict(messages=HELLO, stream=True, max_tokens=900, ignore_eos=True)
    with chat.create(**long) as stream: next(stream)
    expect('a closed stream', list(stream), [])
    dropped = chat.create(**long)
    next(dropped)
    del dropped
    gc.collect()
    expect('objects left', len(llm.engine._core.owned), 0)
    streams = [chat.create(**long) for _ in range(3)]
    for s in streams: next(s)
    threading.Timer(0.1, llm.close).start()
    begin = time.monotonic()
    raises('a stream of a closed engine', PagedInferError, 'closed', lambda: list(streams[0]))
    raises('a closed engine', PagedInferError, 'closed', lambda: chat.create(**greedy))
    expect('seconds until the end', time.monotonic() - begin < 5)


def harness():
    """The interface of lm-eval: log-probabilities equal the sum over rows of logits."""
    import collections, importlib
    import numpy as np
    lm = importlib.import_module('pagedinfer.lm_eval').PagedInferLM(model=MODEL, max_model_len=64, max_num_seqs=8)
    Instance = collections.namedtuple('Instance', 'args')
    got = lm.loglikelihood([Instance(('The capital of France is', ' Paris')), Instance(('The capital of France is', ' seven')), Instance(('', 'Paris'))])
    rows = lm.llm.logits('The capital of France is')[-1].astype(np.float64)
    want = [float(rows[lm.engine.tokenize(w)[0]] - np.log(np.exp(rows).sum())) for w in (' Paris', ' seven')]
    expect('log-probabilities', all(abs(a[0] - b) < 1e-3 for a, b in zip(got, want)))
    expect('greedy', [g[1] for g in got[:2]], [True, False])
    ids = lm.engine.tokenize('one two three')
    logs = [[r - np.log(np.exp(r).sum()) for r in lm.llm.logits([lm.prefix_token_id, *ids]).astype(np.float64)][i][t] for i, t in enumerate(ids)]
    expect('rolling', abs(lm.loglikelihood_rolling([Instance(('one two three',))])[0] - sum(logs)) < 1e-2)
    long = lm.loglikelihood_rolling([Instance(('one two three four ' * 60,))])[0]
    expect('a long text', -2000 < long < -20)
    text = lm.generate_until([Instance(('1, 2, 3, 4,', {'until': [' 7'], 'max_gen_toks': 20})), Instance(('word ' * 300, {'until': [], 'max_gen_toks': 4}))])
    expect('until', text[0], ' 5, 6,')
    lm.close()


# ---------------------------------------------------------------------------------------------------------- lifetimes

def lifetimes():
    """Objects dropped in every order, two engines, a fork, and the memory of repeated work."""
    from pagedinfer import LLM, Engine, Llama, PagedInferError, Request, SamplingParams
    long = [('max-tokens', '-1'), ('ignore-eos', 'true')]

    def start(engine):
        began = threading.Event()
        r = Request(engine, long, lambda ev: began.set())
        r.prompt_text('Once upon a time')
        r.submit()
        began.wait(10)
        return r
    for order in 'engine first', 'request first', 'close first', 'cycle':
        before = threading.active_count()
        engine = Engine(MODEL, [('ctx-size', '8192'), ('parallel', '2')])
        request = start(engine)
        begin = time.monotonic()
        if order == 'engine first': del engine; del request
        elif order == 'request first': del request; del engine
        elif order == 'cycle':
            engine.request, request.own = request, request
            del engine, request
            gc.collect()
        else:
            engine.close()
            raises('a request of a closed engine', PagedInferError, 'closed', request.result)
            del request, engine
        gc.collect()
        for _ in range(200):
            if threading.active_count() == before: break
            time.sleep(0.01)
        expect(f'{order}: threads', threading.active_count(), before)
        # The answer itself would take a minute.
        expect(f'{order}: seconds until the end', time.monotonic() - begin < 10)
    # A function that fails does not stop the events of other requests.
    with Engine(MODEL, [('ctx-size', '512'), ('log-level', 'none')]) as engine:
        import logging
        logging.getLogger('pagedinfer').addHandler(logging.NullHandler())
        logging.getLogger('pagedinfer').propagate = False
        bad = Request(engine, [('max-tokens', '50')], lambda ev: 1 / 0)
        bad.prompt_text('a')
        done = threading.Event()
        good = Request(engine, [('max-tokens', '3')], lambda ev: done.set() if ev.done else None)
        good.prompt_text('b')
        bad.submit()
        good.submit()
        expect('other events', done.wait(10))
        if hasattr(os, 'fork'):
            pid = os.fork()
            if not pid:
                try: engine.tokenize('a')
                except PagedInferError as e: os._exit(0 if 'fork' in str(e) else 2)
                os._exit(3)
            expect('a forked child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
    one, two = LLM(MODEL, max_model_len=256, max_num_seqs=2), Llama(MODEL, n_ctx=256)
    a = one.generate('The capital of France is', SamplingParams(temperature=0, max_tokens=4))[0].outputs[0].text
    expect('two engines', two('The capital of France is', temperature=0, max_tokens=4)['choices'][0]['text'], a)
    two.close()

    def resident():
        with open('/proc/self/statm') as f: return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
    for i in range(260):
        if i == 60: first = resident()
        one.generate('Hello', SamplingParams(max_tokens=1, stop=[f'{k}' * 2000 for k in range(10, 26)]), use_tqdm=False)
    expect('memory of 200 requests in MB', (resident() - first) // 2 ** 20 < 8)
    expect('requests left', len(one.engine._core.handles), 0)
    # The interpreter ends while a request runs: the process ends without a crash.
    start(one.engine)


def interrupt():
    """Ctrl-C ends the requests of generate(), and the model stays usable. Waiting lets other Python threads run."""
    import signal
    from pagedinfer import LLM, SamplingParams
    llm = LLM(MODEL, **SMALL)
    ticks = []

    def kill():
        while llm.engine.stats()['n_running'] < 3: time.sleep(0.005)
        for _ in range(20):
            ticks.append(time.monotonic())
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=kill, daemon=True).start()
    try: llm.generate(['Once', 'upon', 'a time'], SamplingParams(max_tokens=None, ignore_eos=True))
    except KeyboardInterrupt: pass
    else: faults.append('Ctrl-C does not end generate()')
    expect('ticks while waiting', len(ticks), 20)
    for _ in range(300):
        if not llm.engine.stats()['n_running']: break
        time.sleep(0.01)
    expect('requests after Ctrl-C', (llm.engine.stats()['n_running'], len(llm.engine._core.handles)), (0, 0))
    expect('after Ctrl-C', len(llm.generate('Hello', SamplingParams(max_tokens=2))), 1)


def adapters():
    """LoRARequest with a random adapter of a tiny model, and scores of a tiny reranker."""
    import math
    from pagedinfer import LLM, Llama, LoRARequest, SamplingParams
    maker, tiny = (os.path.join(BUILD, 'tests', x) for x in ('tool_adapter', 'tool_tiny_model'))
    if not os.path.exists(maker): return print('no tool_adapter: adapters and rerankers are not checked')
    with tempfile.TemporaryDirectory() as d:
        model, a, rank = f'{d}/m.gguf', f'{d}/a.gguf', f'{d}/rank.gguf'
        subprocess.run([tiny, model, '2048'], check=True)
        subprocess.run([maker, a, model, '8', '1', '12'], check=True)
        greedy, prompt = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), [1 + i * 7 % 250 for i in range(90)]
        with LLM(model, max_num_seqs=4) as llm:
            base, with_a, again = llm.generate([prompt] * 3, greedy, lora_request=[None, LoRARequest('a', 1, a), LoRARequest('a', 1, a)])
            expect('an adapter changes the answer', base.outputs[0].token_ids != with_a.outputs[0].token_ids)
            expect('the same adapter', again.outputs[0].token_ids, with_a.outputs[0].token_ids)
            expect('loaded once', [x['name'] for x in llm.engine.loras()], ['a'])
            raises('another file', ValueError, 'another name', lambda: llm.generate([prompt], greedy, lora_request=LoRARequest('a', 1, model)))
        with Llama(model, n_ctx=1024, lora_path=a) as llama:
            got = llama(prompt, temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)['choices'][0]['logprobs']['tokens']
            expect('lora_path', got, [llama.detokenize([t], special=True).decode('utf-8', 'replace') for t in with_a.outputs[0].token_ids])
        name = 'bert'
        with open(os.path.join(ROOT, f'tests/golden/vectors_{name}.json')) as f: pair = json.load(f)['pair']
        subprocess.run([tiny, rank, '512', name, '0', 'F32', 'j=2 q=96 y=1'], check=True)
        with LLM(rank, cache_type_k='f32', cache_type_v='f32') as llm:
            score = llm.score(pair['query'], pair['document'])[0].outputs.score
            expect('score', abs(score - 1 / (1 + math.exp(-pair['scores'][0]))) < 1e-4)


def package():
    """pyproject.toml: the version is the header's, and names of files give the quantization to fetch."""
    import re
    from pagedinfer import _llama
    if sys.version_info >= (3, 11):
        import tomllib
        with open(os.path.join(ROOT, 'pyproject.toml'), 'rb') as f: rule = tomllib.load(f)['tool']['scikit-build']['metadata']['version']
        with open(os.path.join(ROOT, rule['input'])) as f: found = re.search(rule['regex'], f.read())
        expect('version', rule['result'].format(**found.groupdict()), tool('version').split()[1].rstrip(':'))
    for name, quant in (('*q8_0.gguf', 'q8_0'), ('qwen2-0_5b-instruct-q4_k_m.gguf', 'q4_k_m'), ('M.IQ4_XS.gguf', 'IQ4_XS'), ('m-fp16.gguf', 'fp16'), ('q.gguf', None)):
        expect(name, (_llama.QUANT.findall(name) or [None])[-1], quant)


def link_model():
    """The name of the model in documents and notebooks."""
    if not os.path.exists('model.gguf'): os.symlink(os.path.abspath(MODEL), 'model.gguf')


def documented():
    """The Python blocks of README.md and docs/PYTHON.md run."""
    import contextlib, io, re, textwrap
    n = 0
    link_model()
    for page in 'README.md', 'docs/PYTHON.md':
        with open(os.path.join(ROOT, page), encoding='utf-8') as f: blocks = re.findall(r'^```python\n(.*?)^```', f.read(), re.M | re.S)
        for code in blocks:
            if 'lm_eval' in code: continue  # group harness has its interface
            if 'async for' in code:
                code = ('import asyncio\nfrom pagedinfer import AsyncLLM, SamplingParams\nasync def main():\n' +
                        textwrap.indent(code, '    ') + 'asyncio.run(main())\n')
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out): exec(code, {'__name__': 'documented'})
            except Exception as e: faults.append(f'{page}: {type(e).__name__}: {e} in: {code[:120]}')
            if 'print' in code: expect(f'{page}: prints', bool(out.getvalue().strip()))
            n += 1
    expect('blocks', n, 5)


def notebooks():
    """The notebooks of python/examples are valid, have no stored output, and their cells run in order. They print this."""
    import contextlib, io
    folder, want = os.path.join(ROOT, 'python/examples'), {
        'batch.ipynb': ('The capital of France is Paris', '1. ', '"country": "', '[[1.'),
        'chat.ipynb': ('capital of France is Paris', ' tokens\n', "weather {'city': ", 'PI_EINVAL')}
    expect('notebooks', sorted(os.listdir(folder)), sorted(want))
    link_model()
    for name, texts in want.items():
        with open(os.path.join(folder, name), encoding='utf-8') as f: book = json.load(f)
        cells, out = [c for c in book['cells'] if c['cell_type'] == 'code'], io.StringIO()
        expect(f'{name}: format', (book['nbformat'], len({c['id'] for c in book['cells']})), (4, len(book['cells'])))
        expect(f'{name}: stored output', [c['id'] for c in cells if c['outputs'] or c['execution_count'] is not None], [])
        scope = {'__name__': '__main__'}
        for c in cells:
            try:
                with contextlib.redirect_stdout(out): exec(compile(''.join(c['source']), f'{name}, {c["id"]}', 'exec'), scope)
            except Exception as e:
                faults.append(f'{name}, {c["id"]}: {type(e).__name__}: {e}')
                break
        for text in texts:
            if text not in out.getvalue(): faults.append(f'{name} prints no {text!r}: {out.getvalue()[-500:]!r}')


def command():
    """python -m pagedinfer runs the tool."""
    r = subprocess.run([sys.executable, '-m', 'pagedinfer', 'tokenize', '-m', MODEL, '--ids', '-p', 'Hello, world'], stdout=subprocess.PIPE, text=True)
    expect('python -m pagedinfer', (r.returncode, r.stdout), (0, tool('tokenize', '-m', MODEL, '--ids', '-p', 'Hello, world')))
    r = subprocess.run([sys.executable, '-m', 'pagedinfer', 'serve', '--help'], stdout=subprocess.PIPE, text=True)
    expect('serve', (r.returncode, '--port' in r.stdout), (0, True))
    import pagedinfer
    expect('version', pagedinfer.__version__, tool('version').split()[1].rstrip(':'))


GROUPS = [declarations, vllm_examples, batch, stream, llama_examples, completions, harness, lifetimes, interrupt, adapters, package, documented, notebooks, command]


def main():
    if sys.argv[1:2] == ['--group']:
        next(g for g in GROUPS if g.__name__ == sys.argv[2])()
        for f in faults: print(f'{sys.argv[2]}: {f}')
        sys.stdout.flush()
        sys.exit(1 if faults else 0)
    if subprocess.run([sys.executable, '-c', 'import numpy'], stderr=subprocess.DEVNULL).returncode:
        print('python: no numpy for this interpreter: not checked')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, PYTHONFAULTHANDLER='1', PYTHONDONTWRITEBYTECODE='1', CHECK_TOOL=BIN)
        if '--package' in sys.argv:
            for name in ('PAGEDINFER_LIB', 'PAGEDINFER_BIN', 'PYTHONPATH'): env.pop(name, None)
        else:
            shutil.copytree(os.path.join(ROOT, 'python/pagedinfer'), f'{folder}/pagedinfer', ignore=shutil.ignore_patterns('_abi.py', '__pycache__'))
            subprocess.run([sys.executable, os.path.join(ROOT, 'python/gen_abi.py'), *HEADERS, f'{folder}/pagedinfer/_abi.py'], check=True)
            env.update(PYTHONPATH=folder, PAGEDINFER_LIB=LIB, PAGEDINFER_BIN=BIN)
        n = 0
        for group in GROUPS if MODEL else GROUPS[:1]:
            start = time.time()
            try:
                rc = subprocess.run([sys.executable, os.path.abspath(__file__), '--group', group.__name__], env=env, cwd=folder, timeout=120).returncode
            except subprocess.TimeoutExpired: rc = 'no end in 120 s'
            if rc:
                print(f'{group.__name__}: exit {rc}')
                n += 1
            if '--times' in sys.argv: print(f'{group.__name__}: {time.time() - start:.1f} s')
    print(f'python: {len(GROUPS) if MODEL else 1} groups, {n} with faults{"" if MODEL else " (no chat model: only the declarations)"}')
    return 1 if n else 0 if MODEL else 77


if __name__ == '__main__':
    sys.exit(main())
