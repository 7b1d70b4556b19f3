#!/usr/bin/env python3
"""Runs small reference models on the CUDA backend, with an emulator or a card. Tokens must equal the
CPU backend's, and logits must be close to them.

    check_emulated.py [--long] [DIR [NAME...]]     DIR: $PAGEDINFER_GOLDEN, or ../shared/golden next to the checkout

For each folder NAME of DIR (check_goldens.py describes its files): greedy tokens of some cases are the CPU's, and
logits are within TOLERANCE of the row's spread. A case has the same bytes in a batch as in a batch of one, and a
drafter changes none of them. Models with experts give the same bytes on two devices.

Some models are also quantised to FP4. With matmul exact and with 16-bit floats they meet TOLERANCE, in the other modes
of FP4_MODES the tolerance given there.

--long, or PAGEDINFER_LONG: more tokens, every mode on two devices, and all cases except the longest. DeepSeek V4 runs
the longest ones too. Standard library only.
PAGEDINFER_DEVICE=cuda (or cuda0) runs $PAGEDINFER_BIN on that card and skips the checks that need two devices.
Exit 77: no reference models, or no emulator in the build.
"""
import json, os, subprocess, sys, tempfile, time

import eval_runs
from eval_runs import differences, floats, run, unpack, worst_row

# Cases with their token counts: short ones, and one that passes the window or the end of a delta-rule chunk.
FOLDERS = {
    'gemma4-dense-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'gemma4-moe-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'gemma4-e-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'qwen35-dense-tiny': [('short', 3), ('memo_start', 2)],
    'qwen35-mtp-tiny': [('short', 5), ('memo_start', 2)],
    'qwen35-moe64-micro': [('short', 3), ('memo_start', 2)],
    # The indexer selects from token 35 on. The first entry of 128 tokens appears at token 128.
    'dsv4-micro': [('short', 4), ('rand140', 1)],
}
# Flags of each model's drafter: a model next to it (folder, file), or a draft head of its own.
DRAFTERS = {'gemma4-dense-tiny': ['-md', 'gemma4-assistant-tiny'], 'qwen35-mtp-tiny': ['--spec-type', 'mtp'],
            'dsv4-micro': ['-md', 'dsv4-micro', 'dsv4-micro-mtp-f32.gguf']}
UNTRAINED = {'dsv4-micro'} # no draft of these models is accepted
# Block drafters; their drafts are never accepted either.
BLOCKS = {'gemma4-dense-tiny': ('dflash-tiny', 'dflash-tiny-F32.gguf')}
# Models that also run on two devices, and models that run with some layers on the CPU. Two devices must give the bytes
# of one. The split is compared with the CPU.
TWO_DEVICES = ['gemma4-moe-tiny', 'qwen35-moe64-micro', 'dsv4-micro']
SPLIT = {'dsv4-micro': ['-ngl', '2']}
# Models that are also quantised to FP4, with cases in which rounding the activations changes no expert selection.
FP4 = {
    'gemma4-moe-tiny': ('NVFP4', [('p1_short', 3), ('p3_bytes', 2)]),
    'qwen35-moe64-micro': ('MXFP4_MOE', [('memo_start', 2), ('one_token', 2)]),
}
# With --long the longest cases of these models run too: there the indexer leaves out most entries. The cache is F32,
# because rounding could change the order of two entries with nearly equal scores.
LONGEST = {'dsv4-micro': ['-ctk', 'f32']}
TOLERANCE = 5e-3
# For each FP4 type: (mode, tolerance, True if two devices must give the same bytes). auto means 16-bit floats for
# NVFP4 and FP8 activations for MXFP4.
FP4_MODES = {
    'NVFP4': [('auto', TOLERANCE, False), ('w4a4', 0.4, True)],
    'MXFP4_MOE': [('w4a16', TOLERANCE, False), ('auto', 0.1, True), ('w4a4', 0.4, False)],
}
# Models that also run as pipeline stages of layers.
STAGES = {'qwen35-moe64-micro': ['--device', 'emu,emu', '--split-mode', 'layer', '--no-prefix-cache']}
TWO = ['--device', 'emu,emu', '--split-mode', 'tensor', '--no-prefix-cache']
HERE = os.path.dirname(os.path.abspath(__file__))
DEVICE = os.environ.get('PAGEDINFER_DEVICE', 'emu')
ON_CARD = DEVICE != 'emu'
BINARY = eval_runs.BIN if ON_CARD else os.path.join(os.environ.get('PAGEDINFER_BUILD', 'build'), 'tests', 'simt', 'pagedinfer_emu')


def choose(folder, names, long=False):
    cases = {c['name']: c for c in json.load(open(os.path.join(folder, 'cases.json')))}
    if long: return [dict(c, n=16) for c in cases.values() if len(c['ids']) <= 300]
    return [dict(cases[name], n=n) for name, n in names]


def compare(label, cases, cpu, emulated, width, tolerance=TOLERANCE):
    faults, worst = [], 0.0
    for case, want, got, a, b in zip(cases, cpu[0], emulated[0], cpu[1], emulated[1]):
        d = worst_row(floats(a), floats(b), width)
        worst = max(worst, d)
        if got['greedy'] != want['greedy']: faults.append(f"{label}: tokens of {case['name']} are not the CPU's")
        if not d <= tolerance: faults.append(f"{label}: logits of {case['name']} off by {d:.5f}")
    return faults, worst


def check_devices(label, model, cases, flags, alone):
    """Two devices give the same bytes as one. Only the emulator always has two devices."""
    return [] if ON_CARD else differences(label, run(model, cases, *flags), alone)


def check_drafter(model, flags, cases, plain, untrained):
    """Drafts change only the number of steps, and as many drafts are accepted as on the CPU."""
    flags = ['--no-prefix-cache', *flags, '--no-spec-adaptive', '--spec-draft-n-max', '3']
    got = run(model, cases, '--device', DEVICE, *flags)
    faults = differences('with a drafter', got, plain)
    accepted = [sum(l['accepted'] for l in lines) for lines in (got[0], run(model, cases, '--device', 'cpu', *flags)[0])]
    if bool(accepted[0]) == untrained or accepted[0] != accepted[1]: faults.append('with a drafter: %d drafts accepted, %d by the CPU' % tuple(accepted))
    return faults


def multiplies_fp4():
    """True if the device has FP4 tensor cores. The emulator always does."""
    if not ON_CARD: return True
    told = subprocess.run([BINARY, 'selftest', '--device', DEVICE, '--checks', 'fp4'], stdout=subprocess.PIPE, text=True).stdout
    return 'no tensor cores for FP4' not in told


def check_fp4(folder, model, width, long):
    """Quantises a model to FP4 and runs it in every mode of FP4_MODES."""
    kind, names = FP4[os.path.basename(folder)]
    cases, label, other = choose(folder, names), os.path.basename(folder) + ', ' + kind, model + '.fp4'
    r = subprocess.run([BINARY, 'quantize', model, other, kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       timeout=eval_runs.SECONDS)
    if r.returncode: return [f'{label}: {r.stdout[-500:]}']
    cpu, flags = run(other, cases, '--device', 'cpu', '--no-prefix-cache'), ['--device', DEVICE, '--no-prefix-cache']
    exact = run(other, cases, *flags, '--matmul', 'exact')
    faults, seen = compare(label, cases, cpu, exact, width)[0], [('matmul exact', exact)]
    for mode, tolerance, on_two in FP4_MODES[kind]:
        own = f'{label}, fp4-mode {mode}'
        got = run(other, cases, *flags, '--fp4-mode', mode, '--parallel', '4')
        more, worst = compare(own, cases, cpu, got, width, tolerance)
        faults += more + differences(own + ', alone', run(other, cases[:1], *flags, '--fp4-mode', mode, '--parallel', '1'), got)
        if on_two or long: faults += check_devices(own + ', two devices', other, cases[:1], [*TWO, '--fp4-mode', mode], got)
        if mode == 'w4a4' and worst <= TOLERANCE: faults.append(f'{own} changes nothing')
        faults += [f'{own} and {name} give the same bytes' for name, other_one in seen if not differences('', got, other_one)]
        seen.append((mode, got))
        print(f'{own}: logits within {worst:.6f} of the CPU')
    os.unlink(other)
    return faults


def check_longest(folder, model, width, flags):
    cases = [dict(c, n=2) for c in json.load(open(os.path.join(folder, 'cases.json'))) if len(c['ids']) > 300]
    cpu, emulated = [run(model, cases, '--device', device, '--no-prefix-cache', *flags) for device in ('cpu', DEVICE)]
    faults, worst = compare(os.path.basename(folder), cases, cpu, emulated, width)
    print(f'{os.path.basename(folder)}: {len(cases)} long cases, logits within {worst:.6f} of the CPU')
    return faults


def check_folder(golden, name, to, long):
    folder, start = os.path.join(golden, name), time.time()
    model, cases = unpack(golden, name, to), choose(folder, FOLDERS[name], long)
    width = json.load(open(os.path.join(folder, 'golden.json')))['vocab']
    cpu = run(model, cases, '--device', 'cpu', '--no-prefix-cache')
    emulated = run(model, cases, '--device', DEVICE, '--no-prefix-cache', '--parallel', '4')
    faults, worst = compare(name, cases, cpu, emulated, width)
    alone = run(model, cases[:1], '--device', DEVICE, '--no-prefix-cache', '--parallel', '1')
    faults += differences(f'{name}, alone', alone, emulated)
    if name in DRAFTERS:
        how, *what = DRAFTERS[name]
        if how == '-md': what = [unpack(golden, what[0], to, *what[1:])]
        faults += check_drafter(model, [how, *what], cases if long else cases[:1], emulated, name in UNTRAINED)
    if name in BLOCKS:
        flags = ['-md', unpack(golden, BLOCKS[name][0], to, BLOCKS[name][1])]
        faults += check_drafter(model, flags, cases if long else cases[:1], emulated, True)
    if name in TWO_DEVICES: faults += check_devices(f'{name}, two devices', model, cases[:1], TWO, emulated)
    if name in STAGES: faults += check_devices(f'{name}, two stages', model, cases[:1], STAGES[name], emulated)
    if name in SPLIT:
        split = run(model, cases[:1], '--device', DEVICE, '--no-prefix-cache', *SPLIT[name])
        faults += compare(f'{name}, split', cases[:1], cpu, split, width)[0]
    if name in FP4 and multiplies_fp4(): faults += check_fp4(folder, model, width, long)
    if long and name in LONGEST: faults += check_longest(folder, model, width, LONGEST[name])
    print(f'{name}: {len(cases)} cases, logits within {worst:.6f} of the CPU, {len(faults)} faults, {time.time() - start:.0f} s')
    os.unlink(model)
    return faults


def main():
    args = sys.argv[1:]
    long = '--long' in args or bool(os.environ.get('PAGEDINFER_LONG'))
    args = [a for a in args if a != '--long']
    golden = args[0] if args else os.environ.get('PAGEDINFER_GOLDEN', os.path.join(HERE, '../../../shared/golden'))
    for path in (golden, BINARY):
        if os.path.exists(path): continue
        print(f'no {path}')
        return 77
    eval_runs.BIN = BINARY
    with tempfile.TemporaryDirectory() as d:
        faults = [f for name in args[1:] or FOLDERS for f in check_folder(golden, name, d, long)]
    for f in faults[:20]: print(f)
    return 1 if faults else 0


sys.exit(main())
