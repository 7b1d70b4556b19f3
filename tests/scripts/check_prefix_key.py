#!/usr/bin/env python3
"""Checks which files of a prefix folder (--prefix-cache-dir) servers accept: files written with their key
(--prefix-cache-key).

    check_prefix_key.py

1. Two servers that start at the same time make one key file, with mode 0600, and use each other's prefixes. A server
   with another key finds nothing, answers correctly, and leaves their files alone.
2. Files are forged as an attacker would who knows the format and can write to the folder, but lacks the key: changed
   data with corrected sums, changed headers, files under other files' names, truncated files. The answers stay those
   of a server without the folder.
3. Without a key, a folder that other users can write to is refused. A key file is refused if others can read it, if it
   is too short, or if it is no regular file. The error names the remedy.
4. Two prompts whose 128-bit hashes were made equal (tests/unit/test_cache_crafted.c) do not get each other's prefix.
Exit 77: the build has no server, or no tests. Standard library only."""
import hashlib, hmac, os, random, re, stat, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_prefix_dir as shared
from check_prefix_dir import BIN, N_PROMPT, TINY, Server, prompts_of, settle

# bytes of a header; offsets of its two sums and of the number of tokens
HEAD, DATA_SUM, HEAD_SUM, TOKENS = 200, 136, 168, 128
faults = shared.faults


def paths(folder): return sorted(os.path.join(at, n) for at, _, names in os.walk(folder) for n in names)


def forge(path, others, how):
    """Changes a file as an attacker without the key could."""
    with open(path, 'rb') as f: b = bytearray(f.read())
    n = int.from_bytes(b[TOKENS:TOKENS + 4], 'little')
    head = (HEAD + 4 * n + 63) // 64 * 64
    if how == 'data':  # changes the data and corrects all sums that need no key
        for i in range(head, len(b), 2): b[i] ^= 0x15
        b[DATA_SUM:DATA_SUM + 32] = hashlib.sha256(b[head:]).digest()
        b[HEAD_SUM:HEAD_SUM + 32] = hmac.new(b'', b[:HEAD_SUM] + b[HEAD:head], 'sha256').digest()
    elif how == 'name':
        with open(others[0], 'rb') as f: b = f.read()
    elif how == 'cut': b = b[:len(b) // 2]
    elif how == 'bit': b[random.Random(path).randrange(len(b))] ^= 4
    elif how == 'no key':  # makes a file as a server without a key writes it
        b[DATA_SUM:HEAD] = bytes(HEAD - DATA_SUM)
    with open(path, 'wb') as f: f.write(b)


def by_keys(model, folder, key):
    rng = random.Random(11)
    prompts = prompts_of(rng, 3)
    plain = Server(model)
    want = [plain.ask(p)[0] for p in prompts]
    plain.end()
    flags = ['--prefix-cache-dir', folder, '--prefix-cache-key']
    first = [subprocess.Popen([BIN, 'serve', '-m', model, '--port', '0', '-t', '1', '-c', '1024', *flags, key], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) for _ in range(2)]  # both make the key
    end = time.time() + 60
    while not os.path.exists(key) and time.time() < end: time.sleep(0.005)
    a = Server(model, *flags, key)
    for p in first:
        p.terminate()
        if p.wait(60): faults.append(f'a server that makes a key exits with {p.returncode}')
    mode = stat.S_IMODE(os.stat(key).st_mode)
    if mode != 0o600: faults.append(f'the key file has mode {mode:o}')
    b, other = Server(model, *flags, key), Server(model, *flags, key + '2')
    for p, w in zip(prompts, want):
        if a.ask(p)[0] != w: faults.append('another answer with a key')
    settle(folder)
    mine = paths(folder)
    for s, shares in (b, True), (other, False):
        s.ask(prompts_of(rng, 1)[0])  # this request makes s read the folder
        for p, w in zip(prompts, want):
            choices, cached = s.ask(p)
            if choices != w: faults.append(f'another answer, same key: {shares}')
            if (cached >= N_PROMPT // 2) != shares: faults.append(f'{cached} cached tokens, same key: {shares}')
    settle(folder)
    if not set(mine) <= set(paths(folder)): faults.append('a server with another key removes files')
    for s in a, b, other: s.end()
    return prompts, want, mine


def by_forgery(model, folder, key, prompts, want, mine):
    content = {}
    for path in mine:
        with open(path, 'rb') as f: content[path] = f.read()
    for how in 'data', 'name', 'cut', 'bit', 'no key', 'none':
        for path in mine:  # restore all of them, then forge
            with open(path, 'wb') as f: f.write(content[path])
        for i, path in enumerate(mine): forge(path, mine[i - 1:] + mine, how)
        s = Server(model, '--prefix-cache-dir', folder, '--prefix-cache-key', key, '--prefix-cache-dir-ro')
        cached = 0
        for p, w in zip(prompts, want):
            choices, n = s.ask(p)
            cached += n
            if choices != w: faults.append(f'forged files ({how}) change an answer')
        if bool(cached) != (how == 'none'): faults.append(f'{cached} tokens of forged files ({how}) are used')
        s.end()


def refused(model, words, *flags):
    r = subprocess.run([BIN, 'serve', '-m', model, '--port', '0', '-t', '1', '-c', '1024', *flags], capture_output=True, text=True,
                       timeout=60)
    missing = [w for w in words if w not in r.stderr]
    if not r.returncode or missing: faults.append(f'{flags}: exit {r.returncode}, no {missing} in {r.stderr[-400:]}')


def by_permissions(model, d):
    folder, key = os.path.join(d, 'open'), os.path.join(d, 'bad-key')
    os.mkdir(folder)
    for mode in 0o777, 0o1777, 0o775:
        os.chmod(folder, mode)
        refused(model, ['other users can write', 'chmod go-w', 'prefix-cache-key'], '--prefix-cache-dir', folder)
        if os.listdir(folder): faults.append('a refused folder is written to')
    s = Server(model, '--prefix-cache-dir', folder, '--prefix-cache-key', key)
    s.end()
    for mode in 0o644, 0o620:
        os.chmod(key, mode)
        refused(model, ['chmod 600'], '--prefix-cache-dir', folder, '--prefix-cache-key', key)
    os.chmod(key, 0o600)
    with open(key, 'w') as f: f.write('short')
    refused(model, ['5 bytes'], '--prefix-cache-dir', folder, '--prefix-cache-key', key)
    os.unlink(key)
    os.mkfifo(key, 0o600)
    refused(model, ['not a regular file'], '--prefix-cache-dir', folder, '--prefix-cache-key', key)
    refused(model, ['prefix-cache-dir'], '--prefix-cache-key', os.path.join(d, 'key'))
    cache = os.path.join(d, 'weights')
    os.mkdir(cache)
    os.chmod(cache, 0o777)
    refused(model, ['weights-cache', 'other users can write'], '--weights-cache', cache)


def by_crafted(model):
    """Requests known tokens after crafted ones with the same hash; both have the same text after them."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'unit', 'test_cache_crafted.c')
    with open(source) as f: text = f.read()
    lists = dict(re.findall(r'int32_t (\w+)\[\d+\] = \{([\d,\s]+)\}', text))
    rest = [40 + i % 200 for i in range(64)]
    known, crafted = ([int(x) for x in re.findall(r'\d+', lists[k])] + rest for k in ('known', 'crafted'))
    s = Server(model, '--kv-cache-tokens', '2048')
    want = s.ask(known)[0]
    s.end()
    s = Server(model, '--kv-cache-tokens', '2048')
    s.ask(crafted)
    got, cached = s.ask(known)
    again, later = s.ask(known)
    s.end()
    if got != want or again != want or cached: faults.append(f'crafted tokens answer others: {cached} cached')
    if later < 128: faults.append(f'{later} tokens of the second time are cached')


def main():
    if not os.path.exists(TINY):
        print('no tool_tiny_model: configure with -DPAGEDINFER_TESTS=ON')
        sys.exit(77)
    if 'serve' not in subprocess.run([BIN, '--help'], capture_output=True, text=True).stdout:
        print('the build has no server')
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        model, folder, key = (os.path.join(d, n) for n in ('gemma3.gguf', 'prefixes', 'key'))
        subprocess.run([TINY, model, '4096', 'gemma3'], check=True)
        prompts, want, mine = by_keys(model, folder, key)
        by_forgery(model, folder, key, prompts, want, mine)
        by_permissions(model, d)
        print(f'{len(mine)} files of servers that share a key')
        if os.environ.get('PAGEDINFER_MODEL'): by_crafted(os.environ['PAGEDINFER_MODEL'])
    for f in faults: print(f)
    sys.exit(bool(faults))


if __name__ == '__main__': main()
