#!/usr/bin/env python3
"""Checks README.md, CONTRIBUTING.md, SECURITY.md and docs/ against the tree and the tool.

    check_docs.py [--write]     --write: corrects counts of lines

1. Every relative link, its anchor, and every path in backticks exists.
2. Every flag of a `pagedinfer` command, and every flag in backticks, is an option of PAGEDINFER_BIN or of a script.
3. A table after `<!-- complete: NAME -->` is complete: "routes" (tools/serve/routes.c), "states" (the paths
   with an answer in every state), "options SECTION" (--help of serve), "cmake" (options of CMakeLists.txt and cmake/),
   "linux" (calls of Linux in src/ and tools/).
4. Numbers that the tree has: lines of first.c, chat templates, version; the table of architectures in docs/MODELS.md.
5. With PAGEDINFER_CHAT_MODEL, the `sh` blocks run, page by page, in a folder of their own. Commands that need a
   network, a GPU, several processes or a build are left out. The words MODEL.gguf mean the chat model.
Standard library only."""
import fnmatch, glob, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
LIB = os.environ.get('PAGEDINFER_LIB', os.path.join(BUILD, 'libpagedinfer.so'))
CHAT = os.environ.get('PAGEDINFER_CHAT_MODEL', '')
GENERATED = {'docs/FLAGS.md', 'docs/FIELDS.md', 'docs/SUITES.md'}
FOREIGN = {'docs/LLAMA_CPP.md', 'docs/VLLM.md'} | GENERATED        # have flags of other programs
COMMANDS = 'run|chat|serve|bench|eval|embed|quantize|inspect|tokenize|pull|list|rm|weights|selftest'
SOURCE = re.compile(r'^[\w.*{},/-]+\.(c|h|cu|cuh|cpp|py|sh|md|cmake|in|svg)$')
FOLDER = re.compile(r'^(src|tools|tests|kernels|docs|cmake|packaging|include)(/[\w.*{},-]+)*/?$')
ELSEWHERE = {'run.py', 'convert_hf_to_gguf.py', 'convert_lora_to_gguf.py'}          # files of other projects
EXTERNAL = {'--map-by'}                                            # flags of other programs
LEFT_OUT = re.compile(r'apt-get|quickstart|package\.sh|cmake|cuda|mpirun|srun|torchrun|tests/run\.sh|pip |python3? |compare_peers|pkg-config|-hf |/mnt/')
faults = []


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as f: return f.read()


def fault(path, text):
    faults.append(f'{path}: {text}')


def tracked():
    return subprocess.run(['git', '-C', ROOT, 'ls-files'], capture_output=True, text=True, check=True).stdout.split('\n')[:-1]


def without_code(text):
    """The text without fenced and indented code, and without comments."""
    text = re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)
    return re.sub(r'<!--.*?-->', '', re.sub(r'^    .*$', '', text, flags=re.M), flags=re.S)


# ------------------------------------------------------------------------------------------------- 1. links and paths

def anchors(text):
    """Anchors of a page's headings, as GitHub makes them."""
    found = {}
    for title in re.findall(r'^#+ (.*)$', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S), re.M):
        title = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', title)
        slug = re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-')
        n = found.get(slug, 0)
        found[slug] = n + 1
        if n: found[f'{slug}-{n}'] = 1
    return set(found)


def check_links(path, text):
    n = 0
    for link in re.findall(r'\]\(([^)\s]+)\)', without_code(text)):
        if re.match(r'[a-z]+:', link): continue
        n += 1
        target, _, anchor = link.partition('#')
        to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(target))) if target else path
        if not os.path.exists(os.path.join(ROOT, to)): fault(path, f'no such file: {link}')
        elif anchor and to.endswith('.md') and anchor not in anchors(read(to)): fault(path, f'no such heading: {link}')
    return n


def exists(name, files, folders):
    """A path, a name of a file anywhere, the end of a path, or a pattern; words in capitals stand for any name."""
    pattern = name.rstrip('/') if name.endswith('.md') else re.sub(r'(?<![A-Za-z])[A-Z]{3,}(?![A-Za-z])', '*', name).rstrip('/')
    options = [pattern]
    if m := re.search(r'\{([^}]*)\}', pattern): options = [pattern.replace(m[0], o) for o in m[1].split(',')]
    return all(any(fnmatch.fnmatch(f, o) or fnmatch.fnmatch(f, '*/' + o) for f in (*files, *folders)) for o in options)


def check_paths(path, text, files, folders):
    n = 0
    for code in re.findall(r'`([^`\n]+)`', without_code(text)):
        name = code.split(' ')[0].split(':')[0]
        if name in ELSEWHERE or name.startswith(('/', '~', 'build/')) or not (SOURCE.match(name) or FOLDER.match(name)): continue
        n += 1
        if not exists(name, files, folders): fault(path, f'no such path: `{name}`')
    return n


# -------------------------------------------------------------------------------------------------------------- 2. flags

def help_of(command, what='all'):
    return subprocess.run([BIN, command, '--help', what], capture_output=True, text=True, check=True).stdout


def flags_in(text):
    """Flags of a help text: the heading lines of options, and --no- forms of long ones."""
    found = set()
    for line in re.findall(r'^  (-.*)$', text, re.M): found |= set(re.findall(r'(?<![\w-])(--?[A-Za-z][\w-]*)', line))
    return found | {'--no-' + f[2:] for f in found if f.startswith('--')}


def commands_of(text):
    """[(command, arguments)] of the pagedinfer commands in code."""
    code = re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S) + re.findall(r'^((?:    .*\n)+)', text, re.M) + re.findall(r'`([^`\n]+)`', text)
    out = []
    for block in code:
        for m in re.finditer(rf'(?<![\w/.-])(?:build/)?pagedinfer ({COMMANDS})\b([^\n|;&#]*)', block.replace('\\\n', ' ')):
            out.append((m[1], re.sub(r"'[^']*'|\"[^\"]*\"", '', m[2])))
    return out


def check_flags(pages, files):
    known = {c: flags_in(help_of(c)) for c in COMMANDS.split('|')}
    every = set().union(*known.values())
    for name in files:      # flags of scripts and compilers
        if re.search(r'\.(py|sh)$|CMakeLists.txt$', name): every |= set(re.findall(r'(?<![\w-])--[a-z][\w-]+', read(name)))
    n = 0
    for path, text in pages.items():
        if path in GENERATED: continue
        for command, arguments in commands_of(text):
            for flag in re.findall(r'(?<!\S)(--?[A-Za-z][\w-]*)', arguments):
                n += 1
                if flag not in known[command] and flag.replace('_', '-') not in known[command]:
                    fault(path, f'pagedinfer {command} has no flag {flag}')
        for script, flag in re.findall(r'\b((?:tools|tests)/[\w/]+\.(?:py|sh))[^\n`|;&#]*?\s(--[a-z][\w-]+)', text):
            if os.path.exists(os.path.join(ROOT, script)) and flag not in read(script): fault(path, f'{script} has no flag {flag}')
        if path in FOREIGN: continue
        for flag in re.findall(r'`(--[a-z][\w-]+)[^`]*`', without_code(text)):
            n += 1
            if flag.endswith('-') or flag in every | EXTERNAL: continue
            fault(path, f'no such flag: `{flag}`')
    return n


# --------------------------------------------------------------------------------------------------- 3. complete tables

def rows_after(text, at):
    """First cells of the table that follows position `at`."""
    table = re.compile(r'\s*((?:^\|.*\n)+)', re.M).match(text, at)
    return [re.split(r'(?<!\\)\|', line)[1] for line in table[1].split('\n')[2:-1]] if table else []


def check_routes(path, rows):
    have = {(m, p) for p, m in re.findall(r'\{"(/[^"]*)", HTTP_(GET|POST)', read('tools/serve/routes.c'))} | {('GET', '/v1/models/NAME')}
    said = set()
    for row in rows:
        for part in row.split(';'):
            methods = re.findall(r'\b(GET|POST)\b', part)
            said |= {(m, p) for m in methods for p in re.findall(r'`(/[^`]*)`', part)}
    for m, p in sorted(have - said): fault(path, f'the table lacks {m} {p}')
    for m, p in sorted(said - have): fault(path, f'there is no route {m} {p}')
    return len(said)


def check_states(path, rows):
    """Paths that respond in every state of the server: the table names them, and no other path."""
    have = set(re.findall(r'\{"(/[^"]*)", HTTP_\w+, [^,]*ROUTE_ANY_STATE', read('tools/serve/routes.c')))
    said = {p for row in rows for p in re.findall(r'`(/[^`]*)`', row)}
    for p in sorted(have ^ said): fault(path, f'{p}: the table and ROUTE_ANY_STATE of routes.c differ')
    return len(said)


def check_options(path, rows, section):
    said = {f for row in rows for f in re.findall(r'`(--?[\w-]+)`', row)}
    options = [set(re.findall(r'(?<![\w-])(--?[A-Za-z][\w-]*)', line)) for line in re.findall(r'^  (-.*)$', help_of(section, section), re.M)]
    for o in options:
        if not o & said: fault(path, f'the table lacks {max(o, key=len)}')
    for f in sorted(said - set().union(*options)): fault(path, f'section {section} has no option {f}')
    return len(options)


def check_cmake(path, rows, files):
    have = set()
    for name in files:
        if name == 'CMakeLists.txt' or name.startswith('cmake/') or re.match(r'integrations/\w+/CMakeLists', name):
            have |= set(re.findall(r'^\s*option\((PAGEDINFER_\w+)|^\s*set\((PAGEDINFER_\w+) [^\n]* CACHE (?!INTERNAL)', read(name), re.M))
            have |= {('PAGEDINFER_' + part, '') for part in re.findall(r'^\s*pi_optional\(([A-Z_]+)', read(name), re.M)}
    have = {a or b for a, b in have}
    said = {o for row in rows for o in re.findall(r'`(PAGEDINFER_\w+)`', row)}
    for o in sorted(have - said): fault(path, f'the table lacks {o}')
    for o in sorted(said - have): fault(path, f'there is no option {o}')
    return len(said)


LINUX = ('accept4|arch_prctl|eventfd|F_ADD_SEALS|getauxval|getrandom|MADV_DONTNEED|MADV_HUGEPAGE|MAP_NORESERVE|memfd_create|MSG_NOSIGNAL|O_DIRECT|'
         'pipe2|posix_fadvise|pthread_setaffinity_np|pthread_setname_np|sched_getaffinity|sched_getcpu|SO_PEERCRED|SOCK_CLOEXEC|gettid')
BEYOND = r'epoll_\w+|signalfd|timerfd_\w+|inotify_\w+|futex|sched_setaffinity|mbind|mremap|fallocate|copy_file_range|sendfile|splice|statx|F_OFD_SETLKW?|renameat2|prctl'


def check_linux(path, rows, files):
    """Calls that POSIX does not have: the table has a row for each pair of a call and a file. Examples are left out, as
    some show interfaces of Linux."""
    have = set()
    for name in files:
        if not re.match(r'(src|tools/(?!examples/))/?.*\.[ch]$', name): continue
        code = re.sub(r'/\*.*?\*/', '', read(name), flags=re.S)
        have |= {(call.replace('SYS_', ''), name) for call in re.findall(rf'(?<!\w)(?:SYS_)?(?:{LINUX}|{BEYOND})(?!\w)', code)}
        have |= {('/proc' if m == 'proc' else '/sys', name) for m in re.findall(r'"/(proc|sys)[/"]', code)}
    said = set()
    for row in rows:
        call, *names = re.findall(r'`([^`]+)`', row)
        said |= {(call, name) for name in names}
    for call, name in sorted(have - said): fault(path, f'the table lacks {call} in {name}: call it behind src/base, or add it')
    for call, name in sorted(said - have): fault(path, f'{name} does not call {call}')
    return len(said)


def check_tables(pages, files):
    n = 0
    for path, text in pages.items():
        for m in re.finditer(r'(?m)^<!-- complete: (\w+) ?(\w*) -->', text):
            rows = rows_after(text, m.end())
            if m[1] == 'routes': n += check_routes(path, rows)
            elif m[1] == 'states': n += check_states(path, rows)
            elif m[1] == 'options': n += check_options(path, rows, m[2])
            elif m[1] == 'cmake': n += check_cmake(path, rows, files)
            elif m[1] == 'linux': n += check_linux(path, rows, files)
            else: fault(path, f'unknown table: {m[0]}')
    return n


# -------------------------------------------------------------------------------------------------------------- 4. numbers

def n_lines(path): return read(path).count('\n')


def architectures():
    """The rows of src/model/archs.h: (name, file, models, parts)."""
    return re.findall(r'ARCH\(\w+, "(.*?)", "(.*?)", "(.*?)",[\s\\\\]*"(.*?)"\)', read('src/model/archs.h'))


def correct(path, text):
    """The page with its counts of lines and its table of architectures corrected."""
    if path == 'docs/MODELS.md':
        rows = ''.join(f'| `{name}` | {models} | {file} | {parts} |\n' for name, file, models, parts in architectures())
        head = '| architecture | models | file | specific parts |\n|---|---|---|---|\n'
        text = re.sub(r'(?m)^\| architecture \|.*\n(\|.*\n)+', lambda m: head + rows, text, count=1)
    return re.sub(r'(\[first\.c\]\([^)]*\) is )\d+( lines)', lambda m: f'{m[1]}{n_lines("tools/examples/first.c")}{m[2]}', text)


def check_numbers(pages):
    for path, text in pages.items():
        right = correct(path, text)
        if right == text: continue
        if '--write' in sys.argv[1:]:
            with open(os.path.join(ROOT, path), 'w', encoding='utf-8') as f: f.write(right)
            continue
        new = [l for l in right.split('\n') if l not in text.split('\n')]
        fault(path, f'counts or rows differ; check_docs.py --write corrects them: {new[0][:120] if new else "a row too many"}')

    def number(path, pattern, value, meaning):
        for said in re.findall(pattern, pages[path]):
            if said != str(value): fault(path, f'{said} {meaning}; there are {value}')
    n = read('src/model/archs.h').count('    ARCH(')
    if len(architectures()) != n: fault('src/model/archs.h', f'{n} rows, of which {len(architectures())} have the expected form')
    for name, file, _, _ in architectures():
        if f'"{name}"' not in read('src/model/' + file): fault('src/model/archs.h', f'{file} has no architecture "{name}"')
    number('README.md', r'(\d+) architectures', n, 'architectures')
    number('docs/FEATURES.md', r'(\d+) built-in forms', len(re.findall(r'X\("', read('src/template/chat_names.h'))), 'built-in templates')
    version = re.findall(r'#define PI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)', read('include/pagedinfer.h'))
    for path, text in pages.items():
        for said in re.findall(r'(?:pagedinfer |Status: )(\d+\.\d+(?:\.\d+)?)\b(?! to )', text):
            if path != 'CHANGELOG.md' and said.split('.') != version[:said.count('.') + 1]:
                fault(path, f'version {said}; the header has {".".join(version)}')


# ------------------------------------------------------------------------------------------------------------- 5. commands

def shell_commands(text):
    """Commands of the `sh` blocks. A command ends at the end of a line outside of quotes."""
    out = []
    for block in re.findall(r'^```sh\n(.*?)^```', text, re.M | re.S):
        held = ''
        for line in block.split('\n'):
            held += line + '\n'
            if line.endswith('\\') or held.count("'") % 2: continue
            if held.strip() and not LEFT_OUT.search(held): out.append(held.strip())
            held = ''
    return out


def script_of(commands, port):
    """A bash script that runs the commands. A server runs in the background, and ends with the script."""
    out = ['set -uo pipefail', 'curl() { command curl -fsS "$@"; }', 'jobs=()',
           'trap \'for j in ${jobs[@]+"${jobs[@]}"}; do kill "$j"; wait "$j"; done\' EXIT']
    for c in commands:
        c = re.sub(r'\s+#[^\'"\n]*$', '', c)
        place = re.search(r'--port (\d+)', c)
        c = c.replace('localhost:8080', f'localhost:{port}')
        if place: c = c.replace(place[0], f'--port {port + int(place[1]) - 8000}')
        elif 'pagedinfer serve' in c: c = re.sub(r'pagedinfer serve', f'pagedinfer serve --port {port}', c)
        c = re.sub(r'\b(555\d)\b', lambda m: str(port + int(m[1]) - 5500), c).replace('--host 0.0.0.0', '--host 127.0.0.1')
        shown = c.replace("'", "'\\''")
        if re.search(r'pagedinfer (serve|weights)', c):
            ready = f'curl localhost:{(re.search(r"--port (.d*[0-9]+)", c) or [0, port])[1]}/health >/dev/null 2>&1' if 'serve' in c else '[ -S weights.socket ]'
            out += [c.rstrip('& ') + ' &', 'jobs+=($!)', f'for i in $(seq 200); do {ready} && break; sleep 0.1; done',
                    f"{ready} || {{ echo 'not ready: {shown}' >&2; exit 1; }}"]
        else:
            out += [c, f"rc=$?; [ $rc = 0 ] || {{ echo \"exit status $rc:\" '{shown}' >&2; exit 1; }}"]
    return '\n'.join(out) + '\n'


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(('', port))
        except OSError:
            return False
    return True


def free_ports():
    """The first of 200 free ports. They lie below the range from which the system takes ports of connections
    (ip_local_port_range): a connection cannot take one of them before the server does."""
    first = random.randrange(10000, 30000, 200)
    for i in range(100):
        port = 10000 + (first - 10000 + 200 * i) % 20000
        if all(is_free(p) for p in range(port, port + 200)): return port
    sys.exit('check_docs: no 200 free ports between 10000 and 30000')


def run_page(path, text):
    """Runs the commands of a page. Returns their number."""
    commands = shell_commands(text)
    if not shutil.which('cc'): commands = [c for c in commands if not re.match(r'cc |\./first', c)]
    if not any('pagedinfer' in c or c.startswith('cc ') for c in commands): return 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f'{folder}/build')
        os.symlink(os.path.abspath(BIN), f'{folder}/build/pagedinfer')
        for lib in glob.glob(os.path.abspath(LIB) + '*'): os.symlink(lib, f'{folder}/build/{os.path.basename(lib)}')
        for name in ('include', 'tools'): os.symlink(os.path.join(ROOT, name), f'{folder}/{name}')
        os.symlink(os.path.abspath(CHAT), f'{folder}/MODEL.gguf')
        commands = [c.replace('~/.cache/pagedinfer/SmolLM2-135M-Instruct.Q4_1.gguf', 'MODEL.gguf') for c in commands]
        env = {k: v for k, v in os.environ.items() if not k.startswith(('PAGEDINFER_', 'LLAMA_'))}
        env['PATH'] = f'{folder}/build:' + env['PATH']
        p = subprocess.Popen(['bash', '-c', script_of(commands, free_ports())], cwd=folder, env=env, stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said = p.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            said = 'not finished in 60 s: ' + (p.communicate()[0] or '')
        if p.returncode: fault(path, said[-700:])
    return len(commands)


def main():
    files = tracked()
    folders = {os.path.dirname(f) for f in files} | {os.path.dirname(os.path.dirname(f)) for f in files}
    pages = {p: read(p) for p in files if re.fullmatch(r'(README|CONTRIBUTING|SECURITY)\.md|docs/.*\.md', p)}
    n_links = sum(check_links(p, t) for p, t in pages.items())
    n_paths = sum(check_paths(p, t, files, folders) for p, t in pages.items() if p not in GENERATED)
    n_flags = check_flags(pages, files)
    n_rows = check_tables(pages, files)
    check_numbers(pages)
    n_commands = sum(run_page(p, t) for p, t in pages.items()) if CHAT else 0
    print('\n'.join(faults))
    print(f'docs: {len(pages)} pages, {n_links} links, {n_paths} paths, {n_flags} flags, {n_rows} rows of complete tables, '
          f'{n_commands} commands run{"" if CHAT else " (no chat model)"}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
