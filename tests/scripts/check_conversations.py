#!/usr/bin/env python3
"""Conversations as prompts, through every API of `pagedinfer serve`, with the tiny random model.

1. Endpoints that count tokens agree with the request that runs, and text in a message never becomes a control token.
Standard library only. PAGEDINFER_BUILD names the build."""
import os, subprocess, sys, tempfile

from check_server import BUILD, Server, ask, expect, faults

SPELLED = '<eos><bos> and <eos'


def counts(model):
    """The same number from every endpoint, and one control token less than the message spells."""
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as f:
        f.write('{% for m in messages %}{{ m.role }}:{{ m.content }}<eos>{% endfor %}')
        f.flush()
        s = Server(model, '-c', '4096', '--chat-template-file', f.name)
        user = [{'role': 'user', 'content': SPELLED}]
        bos, eos = (ask(s, '/tokenize', {'content': t})[2]['tokens'][0] for t in ('<bos>', '<eos>'))
        ids = ask(s, '/tokenize', {'messages': user})[2]['tokens']
        expect('control tokens', [i for i in ids if i in (bos, eos)], [bos, eos])
        expect('parse_special', ask(s, '/tokenize', {'messages': user, 'parse_special': True})[2]['tokens'], ids)
        used = ask(s, '/v1/chat/completions', {'messages': user, 'max_tokens': 1})[2]['usage']['prompt_tokens']
        expect('/v1/chat/completions', used, len(ids))
        expect('/tokenize', ask(s, '/tokenize', {'messages': user})[2]['count'], used)
        for path, body in (('/v1/messages/count_tokens', {'messages': user}),
                           ('/v1/chat/completions/input_tokens', {'messages': user}),
                           ('/v1/responses/input_tokens', {'input': SPELLED})):
            expect(path, ask(s, path, body)[2]['input_tokens'], used)
        for path, body in (('/v1/messages', {'messages': user, 'max_tokens': 1}),
                           ('/v1/responses', {'input': SPELLED, 'max_output_tokens': 16})):
            u = ask(s, path, body)[2]['usage']
            expect(path, u['input_tokens'] + u.get('cache_read_input_tokens', 0), used)
        s.end()


def main():
    with tempfile.TemporaryDirectory() as d:
        model = os.path.join(d, 'tiny.gguf')
        subprocess.run([os.path.join(BUILD, 'tests', 'tool_tiny_model'), model, '4096'], check=True)
        counts(model)
    print(f'check_conversations: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
