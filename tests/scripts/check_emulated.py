#!/usr/bin/env python3
"""Small reference models on the CUDA backend, whose kernels an emulator, or a card, runs: the tokens of the CPU, and nearly its logits.

    check_emulated.py [--long] [DIR [NAME...]]     DIR: $PAGEDINFER_GOLDEN, or ../shared/golden beside the checkout

For each folder NAME of DIR (check_goldens.py says what is in it): greedy tokens of some cases are the CPU's, and logits are
within TOLERANCE of the row's spread. A case in company gives the bytes it gives alone, and a drafter changes none. Models
with experts give the same bytes on two devices; some are quantised to FP4 as well: with matmul exact and in 16-bit floats as
above, in the other modes of FP4_MODES within what these allow. With --long, or PAGEDINFER_LONG set: all cases but the longest,
which only DeepSeek V4 runs, more tokens, and every mode on two devices. Standard library only.
With PAGEDINFER_DEVICE=cuda (or cuda0): on that card, by $PAGEDINFER_BIN; what takes two devices is left out.
Exit 77: no such models, or no emulator in the build.
"""
import json, os, subprocess, sys, tempfile, time

import eval_runs
from eval_runs import differences, floats, run, unpack, worst_row

# Cases, and tokens of each: short ones; those that pass the window, or the end of a chunk of the delta rule, once.
FOLDERS = {
    'gemma4-dense-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'gemma4-moe-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'gemma4-e-tiny': [('p1_short', 4), ('p4_window_plus3', 2)],
    'qwen35-dense-tiny': [('short', 3), ('memo_start', 2)],
    'qwen35-mtp-tiny': [('short', 5), ('memo_start', 2)],
    'qwen35-moe64-micro': [('short', 3), ('memo_start', 2)],
    'dsv4-micro': [('short', 4), ('rand140', 1)], # the indexer chooses from token 35 on, entries of 128 tokens come at 128
}
# Their drafters: a model beside it (by its folder, and file), or a head of their own.
DRAFTERS = {'gemma4-dense-tiny': ['-md', 'gemma4-assistant-tiny'], 'qwen35-mtp-tiny': ['--spec-type', 'mtp'],
            'dsv4-micro': ['-md', 'dsv4-micro', 'dsv4-micro-mtp-f32.gguf']}
UNTRAINED = {'dsv4-micro'} # whose drafts are never right
# Drafters of blocks, whose drafts are not right either.
BLOCKS = {'gemma4-dense-tiny': ('dflash-tiny', 'dflash-tiny-F32.gguf')}
# What runs on two devices, and with some layers on the CPU, to which it is compared as the device alone is.
TWO_DEVICES = ['gemma4-moe-tiny', 'qwen35-moe64-micro', 'dsv4-micro']
SPLIT = {'dsv4-micro': ['-ngl', '2']}
# What is quantised to FP4, and cases that no expert is left for another in when activations are rounded too.
FP4 = {
    'gemma4-moe-tiny': ('NVFP4', [('p1_short', 3), ('p3_bytes', 2)]),
    'qwen35-moe64-micro': ('MXFP4_MOE', [('memo_start', 2), ('one_token', 2)]),
}
# Whose longest cases run too, with --long: there the indexer leaves out most entries. Its rows are F32: of two entries with
# nearly the same score, rounding may choose.
LONGEST = {'dsv4-micro': ['-ctk', 'f32']}
TOLERANCE = 5e-3
# By what it is quantised to: modes, auto being in 16-bit floats or of FP8 activations; what they may be off by; whether two
# devices give the same, too.
FP4_MODES = {
    'NVFP4': [('auto', TOLERANCE, False), ('w4a4', 0.4, True)],
    'MXFP4_MOE': [('w4a16', TOLERANCE, False), ('auto', 0.1, True), ('w4a4', 0.4, False)],
}
STAGES = {'qwen35-moe64-micro': ['--device', 'emu,emu', '--split-mode', 'layer', '--no-prefix-cache']} # and as stages of layers
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
    """The same bytes on two devices, which only the emulator is sure to have."""
    return [] if ON_CARD else differences(label, run(model, cases, *flags), alone)


def check_drafter(model, flags, cases, plain, untrained):
    """Drafts change the number of steps alone, and as many are right as with the CPU."""
    flags = ['--no-prefix-cache', *flags, '--no-spec-adaptive', '--spec-draft-n-max', '3']
    got = run(model, cases, '--device', DEVICE, *flags)
    faults = differences('with a drafter', got, plain)
    accepted = [sum(l['accepted'] for l in lines) for lines in (got[0], run(model, cases, '--device', 'cpu', *flags)[0])]
    if bool(accepted[0]) == untrained or accepted[0] != accepted[1]: faults.append('with a drafter: %d drafts accepted, %d by the CPU' % tuple(accepted))
    return faults


def multiplies_fp4():
    """A card has tensor cores for FP4."""
    if not ON_CARD: return True
    told = subprocess.run([BINARY, 'selftest', '--device', DEVICE, '--checks', 'fp4'], stdout=subprocess.PIPE, text=True).stdout
    return 'no tensor cores for FP4' not in told


def check_fp4(folder, model, width, long):
    """Experts, and what else is in FP4, by products that round activations to it."""
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
        faults += [f'{own} gives what {name} does' for name, other_one in seen if not differences('', got, other_one)]
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
