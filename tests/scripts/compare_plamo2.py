#!/usr/bin/env python3
"""Compares the ids of PLaMo's tokenizer with those of llama.cpp's llama-tokenize.

    compare_plamo2.py PEER [SEED]...     PEER: llama-tokenize; needs gguf; PAGEDINFER_LIB: libpagedinfer.so

For each SEED, the script writes a random vocabulary of pieces in several scripts, and tokenizes random texts: pieces,
scripts, long runs, special tokens, and bytes that are not UTF-8. Two kinds of texts are left out: those with padding
tokens ("[PAD1]"), which the models' own tokenizer does not have, and those with characters that UTF-8 does not allow
but llama.cpp decodes.
Not part of the test run."""
import ctypes, json, os, random, subprocess, sys, tempfile

import gguf

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
LETTERS = list('abcdefgh <|>:xyz\n0123あいうえ日本語漢字é') + ['ß', '😀', '👩', '\u200d', '\u0301', '▁']
N_SINGLE = len(LETTERS) - 6 # the others are only parts of longer pieces
WORDS = ['the', 'größe', '日本語', '한국어', 'привет', 'मार्च', '😀', '👩‍👩‍👧', 'e\u0301', '<|plamo:op|>', '<|plamo:eos|>', '<|plamo:', '<user>', '<0x0A>',
         'a' * 40, ' ' * 37, '=' * 33, 'あいう' * 9, '\ufeff', '\ufffd', '\U0010ffff', '\r\n', '|>', '▁▁', 'aaabab' * 7]


def vocabulary(r):
    """Returns (text, score, type) of each token."""
    tokens = [(f'<|plamo:{n}|>', 0.0, UNKNOWN if n == 'unk' else CONTROL) for n in ('unk', 'bos', 'eos', 'pad', 'op')]
    tokens += [(f'<0x{b:02X}>', 0.0, BYTE) for b in range(256)] + [('<user>', 0.0, USER), ('[PAD1]', -1000.0, UNUSED)]
    texts = dict.fromkeys(LETTERS[:N_SINGLE] + [' ' * n for n in (2, 3, 4, 8, 16)] + ['a' * n for n in (2, 3, 7, 30)] + ['=' * 20])
    for _ in range(600):
        letters = LETTERS[:r.choice([3, 8, 30, len(LETTERS)])]
        texts[''.join(r.choices(letters, k=r.choice([2, 2, 2, 3, 3, 4, 5, 8, 13])))] = None
    return tokens + [(t, -round(r.uniform(3, 15) * r.choice([1, 1, 1, 2]), r.choice([0, 1, 4])), NORMAL) for t in texts]


def write(path, tokens):
    w = gguf.GGUFWriter(path, 'plamo3')
    for add, n in ((w.add_block_count, 1), (w.add_context_length, 512), (w.add_embedding_length, 64), (w.add_feed_forward_length, 64),
                   (w.add_head_count, 2), (w.add_layer_norm_rms_eps, 1e-6), (w.add_vocab_size, len(tokens)), (w.add_bos_token_id, 1),
                   (w.add_eos_token_id, 2), (w.add_unk_token_id, 0), (w.add_pad_token_id, 3), (w.add_eot_token_id, 4),
                   (w.add_tokenizer_model, 'plamo2'), (w.add_tokenizer_pre, 'default'), (w.add_add_space_prefix, False)): add(n)
    w.add_token_list([t.encode() for t, _, _ in tokens])
    w.add_token_scores([float(s) for _, s, _ in tokens])
    w.add_token_types([k for _, _, k in tokens])
    for step in (w.write_header_to_file, w.write_kv_data_to_file, w.write_tensors_to_file, w.close): step()


def character(r): return chr(r.choice([r.randrange(1, 0x80), r.randrange(0x80, 0x800), r.randrange(0x800, 0xD7FF), r.randrange(0x10000, 0x10FFFF)]))


def texts_of(r, tokens):
    pieces = [t for t, _, kind in tokens if kind not in (BYTE, UNUSED)]
    # no overlong characters, no surrogates, no characters above U+10FFFF
    bytes_used = [b for b in range(1, 256) if b not in (0xC0, 0xC1, 0xE0, 0xED, 0xF0) and not 0xF4 <= b < 0xF8]
    for _ in range(120):
        yield ''.join(r.choices(LETTERS, k=r.randrange(1, 60))).encode()
        yield ''.join(r.choice(WORDS) + r.choice(['', ' ', '  ', '\n']) for _ in range(r.randrange(1, 12))).encode()
        yield ''.join(r.choices('ab', k=r.randrange(1, 120))).encode()
        yield ''.join(character(r) for _ in range(r.randrange(1, 40))).encode()
        yield ''.join(r.choices(pieces, k=r.randrange(1, 15))).encode()
        yield bytes(r.choices(bytes_used, k=r.randrange(1, 40)))
    yield from (b'a' * 100000, b' ' * 99999, 'あ😀'.encode() * 20000, '\ufeffabc'.encode())


def compare(peer, lib, seed):
    r, faults = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as d:
        path, text_path = os.path.join(d, 'vocab.gguf'), os.path.join(d, 'text')
        tokens = vocabulary(r)
        write(path, tokens)
        vocab, err = ctypes.c_void_p(), ctypes.create_string_buffer(4 + 240)
        if lib.pi_vocab_open(ctypes.byref(vocab), path.encode(), err): sys.exit(err.raw[4:].split(b'\0')[0].decode())
        texts = [t for t in texts_of(r, tokens) if b'[PAD1]' not in t]
        for text in texts:
            with open(text_path, 'wb') as f: f.write(text)
            ids = (ctypes.c_int32 * (3 * len(text)))()
            n = lib.pi_vocab_tokenize(vocab, text, ctypes.c_size_t(len(text)), 2, ids, ctypes.c_size_t(len(ids)))
            run = subprocess.run([peer, '-m', path, '-f', text_path, '--ids', '--no-bos', '--log-disable'], capture_output=True, check=True)
            if list(ids[:n]) != json.loads(run.stdout):
                faults += 1
                print(f'seed {seed}: {text[:80]}: {list(ids[:n])[:40]} instead of {json.loads(run.stdout)[:40]}')
        lib.pi_vocab_free(vocab)
    print(f'seed {seed}: {len(texts)} texts, {faults} faults', flush=True)
    return faults


if __name__ == '__main__':
    if len(sys.argv) < 2: sys.exit(__doc__)
    library = ctypes.CDLL(os.environ['PAGEDINFER_LIB'])
    library.pi_vocab_tokenize.restype = ctypes.c_int64
    sys.exit(1 if sum(compare(sys.argv[1], library, int(s)) for s in sys.argv[2:] or ['1']) else 0)
