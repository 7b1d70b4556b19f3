#!/usr/bin/env python3
"""Compares prompts with an image with llama.cpp's llama-server: rows of the vision model, greedy answers, probabilities.

    python3 tools/compare_mtmd.py --peer FOLDER [KIND...]
    python3 tools/compare_mtmd.py --peer FOLDER -m MODEL --mmproj FILE --size WxH

--peer names a folder with llama-server (tools/compare_peers.py builds llama.cpp; its target llama-server is needed, too).
libmtmd is the code that llama-server and llama-mtmd-cli share. llama-mtmd-cli itself is not used, because it often exits
before the end of its answer is printed.

A KIND is a pair of small random models of tests/scripts/check_images.py (default: all in SIZES). Prompt, image and
sampling are equal, caches are F32, and flash attention is off. Neither engine resizes the image, because it has a size
that the vision model keeps. docs/design/images.md lists what differs otherwise.

For each kind the report has the largest difference of the image's rows and their largest value, the number of equal
tokens of the answers, and the largest difference of the log-probabilities of the first token's three best candidates.
Exit status 1 if the rows differ by more than --limit times their largest value, or if tokens differ.

Needs gguf and numpy, and a build with tests (PAGEDINFER_BUILD or --build): pagedinfer, tests/tool_tower and, without -m,
tests/tool_tiny_model."""
import argparse, base64, json, os, socket, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'tests/scripts'))

# Width and height of an image that neither engine resizes: multiples of a token's pixels, within both limits of tokens.
SIZES = {'gemma3': (24, 24), 'qwen3vl': (72, 64), 'qwen35': (72, 64), 'qwen25vl': (252, 224), 'pixtral': (40, 32)}
# llama.cpp computes windows of 112 pixels, whatever the file says. Patches of 14 pixels are those of real models.
TOWER_SIZES = {'qwen25vl': 'O=128 W=112 P=14'}
# Text around an image that the processor of transformers adds and llama.cpp does not, by clip.projector_type.
AROUND = {'gemma3': '\n\n'}
N_PREDICT, MARKER = 16, '<__media__>'


class Server:
    """A running server: its address, and its files."""
    def __init__(self, log, argv, env=()):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            port = s.getsockname()[1]
        self.url = f'http://127.0.0.1:{port}'
        with open(log, 'w') as f:
            self.p = subprocess.Popen([*map(str, argv), '--port', str(port)], stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                      env={**os.environ, **dict(env)})
        for _ in range(3000):
            if self.p.poll() is not None: break
            try:
                self.get('/health')
                return
            except OSError: time.sleep(0.1)
        self.end()
        sys.exit(f'compare_mtmd.py: {argv[0]} does not start:\n{Path(log).read_text(errors="replace")[-2000:]}')

    def get(self, path, body=None):
        q = urllib.request.Request(self.url + path, body and json.dumps(body).encode(), {'Content-Type': 'application/json'})
        with urllib.request.urlopen(q, timeout=600) as r: return json.load(r)

    def complete(self, text, image):
        """Returns the answer's tokens, the prompt's length, and the probabilities: [{'id', 'top_logprobs'}]."""
        marker = self.get('/props')['media_marker']
        r = self.get('/completion', {
            'prompt': {'prompt_string': text.replace(MARKER, marker), 'multimodal_data': [base64.b64encode(image).decode()]},
            'temperature': 0, 'n_predict': N_PREDICT, 'n_probs': 3, 'return_tokens': True, 'ignore_eos': True, 'cache_prompt': False})
        return r['tokens'], r['tokens_evaluated'], r['completion_probabilities']

    def end(self):
        self.p.terminate()
        self.p.wait()


def peer_rows(path):
    """Rows that llama.cpp wrote: two numbers (rows, values per row), then floats."""
    import numpy
    raw = numpy.fromfile(path, numpy.uint8)
    n, width = raw[:8].view(numpy.int32)
    return raw[8:].view(numpy.float32).reshape(n, width)


def own_rows(o, mmproj, size, rgb, width, n_deepstack, path):
    """Rows of tool_tower. width: values per row, for the text model and the DeepStack layers."""
    import numpy
    argv = [o.build / 'tests/tool_tower', mmproj, width // (1 + n_deepstack), *size, o.threads, n_deepstack, path]
    r = subprocess.run([str(a) for a in argv], input=rgb, capture_output=True)
    if r.returncode: sys.exit(f'compare_mtmd.py: tool_tower: {r.stderr.decode()}')
    return numpy.fromfile(path, numpy.float32).reshape(-1, width)


def best_differ(own, peer):
    """The largest difference of log-probabilities among the best candidates of the first token, as text."""
    # llama.cpp gives none for tokens that are a part of a character: then it is unknown which token an entry belongs to
    if len(peer) != len(own): return 'are incomplete'
    a, b = ({t['id']: t['logprob'] for t in p[0]['top_logprobs']} for p in (own, peer))
    both = [abs(a[k] - b[k]) for k in a if k in b]
    return f'differ by {max(both):.1e}' if both else 'are of other tokens'


def compare(o, name, model, mmproj, size, folder):
    """Prints the report of one pair of models. Returns whether they agree."""
    import gguf
    from check_images import image_of, png_of
    rgb, f = bytes(image_of(*size)), gguf.GGUFReader(mmproj)
    image, dump = png_of(*size, rgb), os.path.join(folder, 'peer')
    field = lambda key: f.fields[key].contents() if key in f.fields else None
    around = AROUND.get(field('clip.projector_type') or field('clip.vision.projector_type'), '')
    n_deepstack = len({t.name.split('.')[2] for t in f.tensors if t.name.startswith('v.deepstack.')})
    common = ['-m', model, '--mmproj', mmproj, '-c', o.ctx, '-t', o.threads, '-ctk', 'f32', '-ctv', 'f32']
    text = f'the {MARKER} on and'
    servers = []
    try:
        servers.append(Server(os.path.join(folder, 'own.log'), [o.bin, 'serve', *common]))
        own = servers[0].complete(text, image)
        servers.append(Server(os.path.join(folder, 'peer.log'), [o.peer / 'llama-server', *common, '-fa', 'off', '--no-warmup', '-np', '1'],
                              {'MTMD_DEBUG_EMBEDDINGS': dump}))
        peer = servers[1].complete(text.replace(MARKER, around + MARKER + around), image)
    finally:
        for s in servers: s.end()
    theirs = peer_rows(dump)
    ours = own_rows(o, mmproj, size, rgb, theirs.shape[1], n_deepstack, os.path.join(folder, 'own'))
    if ours.shape != theirs.shape: sys.exit(f'compare_mtmd.py: {name}: {len(ours)} and {len(theirs)} rows: give another --size')
    far, scale = abs(ours - theirs).max(), abs(ours).max()
    same = next((i for i, (a, b) in enumerate(zip(own[0], peer[0])) if a != b), min(len(own[0]), len(peer[0])))
    print(f'{name}: {size[0]} x {size[1]} pixels, {len(ours)} rows differ by {far:.1e} of {scale:.2f}; prompts of {own[1]} and {peer[1]} '
          f'tokens; {same} of {N_PREDICT} tokens are equal; log-probabilities {best_differ(own[2], peer[2])}')
    return bool(far <= o.limit * scale and same == N_PREDICT and own[1] == peer[1])


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('kind', nargs='*', metavar='KIND', help=', '.join(SIZES))
    p.add_argument('--peer', type=Path, required=True, metavar='FOLDER', help='programs of llama.cpp')
    p.add_argument('-m', '--model', help='text model, instead of random models')
    p.add_argument('--mmproj', help='its vision model')
    p.add_argument('--size', help='WxH: pixels of the image; with -m, or instead of the sizes above')
    p.add_argument('--build', type=Path, default=Path(os.environ.get('PAGEDINFER_BUILD', ROOT / 'build')), help='%(default)s')
    p.add_argument('--bin', type=Path, help='pagedinfer (default: the one of --build)')
    p.add_argument('-t', '--threads', type=int, default=1, help='%(default)s')
    p.add_argument('-c', '--ctx', type=int, default=1024, help='tokens of a request (%(default)s)')
    p.add_argument('--limit', type=float, default=1e-3, help='of a difference of rows, relative to their largest value (%(default)s)')
    o = p.parse_args()
    o.bin = o.bin or o.build / 'pagedinfer'
    if not (o.peer / 'llama-server').is_file(): p.error(f'{o.peer} lacks llama-server')
    if o.model and not (o.mmproj and o.size): p.error('-m needs --mmproj and --size')
    unknown = [k for k in o.kind if k not in SIZES]
    if unknown: p.error(f'unknown kinds: {", ".join(unknown)}')
    if o.size:
        try: o.size = tuple(int(n) for n in o.size.split('x'))
        except ValueError: o.size = ()
        if len(o.size) != 2: p.error('--size is two numbers: 896x896')
    return o


def main():
    o = arguments()
    import check_images
    check_images.TINY = str(o.build / 'tests/tool_tiny_model')
    with tempfile.TemporaryDirectory() as d:
        if o.model: return 0 if compare(o, Path(o.model).name, o.model, o.mmproj, o.size, d) else 1
        ok = [compare(o, kind, *check_images.model(d, kind, TOWER_SIZES.get(kind)), o.size or SIZES[kind], d) for kind in o.kind or SIZES]
    return 0 if all(ok) else 1


if __name__ == '__main__':
    sys.exit(main())
