#!/usr/bin/env python3
"""Writes tests/golden/llama_flags.json: the flags of llama.cpp's tools, from their --help output.

    gen_llama_flags.py FOLDER... >tests/golden/llama_flags.json

FOLDER: a build folder with llama-cli, llama-completion and the other tools. Only facts are stored: spellings, the name
of the environment variable, and whether a value follows (no, yes, or may). Flags that the newest tools no longer have,
but scripts still use, are listed here by hand. Standard library only."""
import json
import os
import re
import subprocess
import sys

TOOLS = ('llama-cli llama-completion llama-perplexity llama-bench llama-batched-bench llama-quantize llama-tokenize '
         'llama-server').split()

# Spellings of older versions, by the tools that had them; a trailing = means that a value follows.
OF_EACH = '''--mmap --no-mmap --mlock -dio --direct-io -ndio --no-direct-io --color --keep= -dt= --defrag-thold= -gan=
    --grp-attn-n= -gaw= --grp-attn-w= -dkvc --dump-kv-cache -nkvo -nr --no-repack --memory-f32 -nommq --no-mul-mat-q
    -mmq --mul-mat-q --logdir= -ld= --log-enable --log-new --log-append --log-test -ctxcp= --swa-checkpoints=
    --ctx-checkpoints= -ns= --sequences= -eps= --rms-norm-eps= -gqa= --gqa= --low-vram -ngld= --n-gpu-layers-draft=
    -rpc= --rpc= -tbd= --threads-batch-draft= --no-op-offload'''.split()
OF_TEXT = '''--draft= --draft-n= --draft-max= --draft-min= --draft-n-min= -md= --model-draft= -cd= --ctx-size-draft=
    --draft-p-split= --draft-p-min= -devd= --device-draft= -td= --threads-draft= --tfs= --penalize-nl --no-penalize-nl
    -cml --chatml --instruct -ins --in-prefix-bos --cfg-scale= --cfg-negative-prompt= --prompt-cache= --prompt-cache-all
    --prompt-cache-ro --mirostat_lr= --mirostat_ent= --repeat_penalty= --repeat_last_n= --top_k= --top_p= --n_predict=
    --ignore-eos --random-prompt -ptc= --print-token-count= --no-warmup --multiline-input -mli --simple-io
    --spec-replace= -i --interactive -if --interactive-first -r= --reverse-prompt= --display-prompt --no-display-prompt
    --infill --spm-infill'''.split()
REMOVED = {
    'llama-cli': OF_EACH + OF_TEXT, 'llama-completion': OF_EACH + OF_TEXT, 'llama-perplexity': OF_EACH,
    'llama-bench': '-mmp= --mmap= -dio= --direct-io= -npp= -ntg= --no-kv-offload= -mmq= --mul-mat-q= -nr= -rpc= --rpc='.split(),
    'llama-server': OF_EACH + '--draft= --draft-n= --draft-max= --draft-min= -md= --embedding --log-format= -spf= '
                    '--system-prompt-file= --slots-endpoint-disable -tb='.split(),
}


def spellings(line):
    """Returns (the flag names at the start of a line of help, the rest of the line)."""
    names = []
    while m := re.match(r'(-{1,2}[A-Za-z][\w-]*)(, *| (?=-)|(?=\s|$))', line):
        names.append(m.group(1))
        line = line[m.end():]
    return names, line


def value_of(rest):
    """Returns "no", "yes" or "may": whether a value follows the flag. The rest of the line starts with the description
    after two spaces, or with the value's name after one space."""
    if not rest.strip() or rest.startswith('  '): return 'no'
    hint = rest.strip().split('  ')[0]
    return 'may' if hint.startswith('[') and not hint.startswith('[<') else 'yes'


def flags_of(program):
    text = subprocess.run([program, '--help'], stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()
    indent = '  ' if os.path.basename(program) in ('llama-bench', 'llama-quantize') else ''
    flags = []
    for line in text.split('\n'):
        env = re.search(r'\(env: (\w+)\)', line)
        if env and flags: flags[-1]['env'] = env.group(1)
        if not re.match(indent + '-[A-Za-z-]', line): continue
        names, rest = spellings(line[len(indent):])
        if names: flags.append({'names': names, 'value': value_of(rest)})
    return flags


def find(name, folders):
    for f in folders:
        path = os.path.join(f, name)
        if os.access(path, os.X_OK): return path
    sys.exit(f'{name}: in none of {" ".join(folders)}')


def main():
    tools = {}
    for name in TOOLS:
        flags = flags_of(find(name, sys.argv[1:]))
        known = {n for f in flags for n in f['names']}
        old = [n for n in REMOVED.get(name, []) if n.rstrip('=') not in known]
        flags += [{'names': [n.rstrip('=')], 'value': 'yes' if n.endswith('=') else 'no', 'removed': True} for n in old]
        tools[name] = flags
    rows = ',\n'.join('  ' + json.dumps(t) + ': [\n' + ',\n'.join('    ' + json.dumps(f) for f in flags) + '\n  ]'
                      for t, flags in tools.items())
    print('{\n' + rows + '\n}')


if __name__ == '__main__':
    main()
