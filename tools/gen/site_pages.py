#!/usr/bin/env python3
"""Collects the pages of the HTML site in a folder, for tools/gen/site.sh.

    site_pages.py DIR

DIR/pages gets README.md as index.md, the files of docs/, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md. The API page of
gen_man3.py becomes api.md. Every other file that a page links to gets a page with its text. Links are rewritten.
DIR/mkdocs.yml gets the navigation. Standard library only."""
import glob, os, re, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OWN = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']
NAV = [('Use', ['FEATURES', 'MODELS', 'OPTIONS', 'FLAGS', 'LLAMA_CPP', 'VLLM']),
       ('Embed', ['api', 'EMBEDDING', 'ABI', 'PYTHON']),
       ('Server', ['SERVER', 'SERVER_API', 'CONVERSATIONS', 'STRUCTURED', 'FIELDS', 'KV_EVENTS', 'LOCALAI']),
       ('Operate', ['PACKAGES', 'SCALING', 'RANKS', 'TRUST', 'DEVICES', 'CUDA']),
       ('Design', ['TOUR', 'design/overview', 'design/*']),
       ('Measurements', ['perf/README', 'perf/*', 'SUITES']),
       ('Contribute', ['CONTRIBUTING', 'STYLE', 'SECURITY', 'CHANGELOG', '*'])]
CSS = """.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: .66rem; }
.md-typeset code { overflow-wrap: anywhere; }
.md-typeset h1, .md-typeset h2, .md-typeset h3 { overflow-wrap: anywhere; }
"""
LINK = re.compile(r'(\]\()([^)\s#]*)(#[^)\s]*)?(\))')


def site_path(path):
    """Path in the site of a file of the repository."""
    if path == 'README.md': return 'index.md'
    if path == 'include/pagedinfer.h': return 'api.md'
    if path in OWN: return path
    if path.startswith('docs/'): return path[5:]
    return f'source/{path}.md'


def source_page(path):
    """A page for a file that is not Markdown, or for a folder."""
    full = os.path.join(ROOT, path)
    if os.path.isdir(full):
        names = sorted(n for n in os.listdir(full) if os.path.isfile(os.path.join(full, n)))
        return f'# {path}\n\n' + ''.join(f'- [{n}]({os.path.basename(path)}/{n}.md)\n' for n in names), \
            [os.path.join(path, n) for n in names]
    with open(full, encoding='utf-8') as f: text = f.read()
    kind = {'.c': 'c', '.h': 'c', '.cpp': 'cpp', '.hpp': 'cpp', '.rs': 'rust', '.go': 'go', '.py': 'python', '.sh': 'bash'}.get(os.path.splitext(path)[1], 'text')
    return f'# {path}\n\n````{kind}\n{text.rstrip()}\n````\n', []


def rewrite(path, text, more):
    """Links of a page, from the repository's tree to the site's. Files that need a page are added to `more`."""
    def one(m):
        target = m[2]
        if not target or re.match(r'[a-z]+:', target): return m[0]
        to = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if not os.path.exists(os.path.join(ROOT, to)): return m[0]   # mkdocs reports it
        if not to.startswith('docs/') and to not in OWN and to != 'include/pagedinfer.h': more.append(to)
        return m[1] + os.path.relpath(site_path(to), os.path.dirname(site_path(path)) or '.') + (m[3] or '') + m[4]
    parts = re.split(r'(^```.*?^```)', text, flags=re.M | re.S)      # code stays
    return ''.join(p if i % 2 else LINK.sub(one, p) for i, p in enumerate(parts))


def tidy(text):
    """Markdown that GitHub and mkdocs read differently: a list directly after a paragraph, pipes in code."""
    text = re.sub(r'^(?![-*|#> ]|\d+\.|```|<!--)(\S.*)\n(?=[-*] |\d+\. )', r'\1\n\n', text, flags=re.M)
    return re.sub(r'(?m)^\|.*$', lambda m: re.sub(r'`[^`]*`', lambda c: c[0].replace(r'\|', '|'), m[0]), text)


def write(folder, path, text):
    out = os.path.join(folder, path)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, 'w', encoding='utf-8') as f: f.write(text)


def nav_yaml(pages):
    left, lines = set(pages) - {'index.md'}, ['nav:', '  - index.md']
    for title, names in NAV:
        found = []
        for name in names:
            more = sorted(p for p in left if p.startswith(name[:-1]) and (name != '*' or '/' not in p)) if name[-1] == '*' else [name + '.md']
            found += [p for p in more if p in left]
            left -= set(found)
        lines += [f'  - {title}:'] + [f'    - {p}' for p in found]
    lines += ['  - Source files:'] + [f'    - {p}' for p in sorted(left)]
    return '\n'.join(lines) + '\n'


def main():
    folder = os.path.abspath(sys.argv[1])
    pages = os.path.join(folder, 'pages')
    shutil.rmtree(pages, ignore_errors=True)
    names = OWN + sorted(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, 'docs/**/*.md'), recursive=True))
    more, done = [], set()
    for path in names:
        with open(os.path.join(ROOT, path), encoding='utf-8') as f: write(pages, site_path(path), tidy(rewrite(path, f.read(), more)))
    while more:
        path = more.pop()
        if path in done: continue
        text, files = source_page(path)
        write(pages, site_path(path), text)
        done.add(path)
        more += files
    for name in ('images', 'cards'):
        shutil.copytree(os.path.join(ROOT, 'docs', name), os.path.join(pages, name), dirs_exist_ok=True)
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools/gen/gen_man3.py'), os.path.join(ROOT, 'include/pagedinfer.h'),
                    os.path.join(ROOT, 'include/pagedinfer_openai.h'), '--markdown', os.path.join(pages, 'api.md')], check=True)
    write(pages, 'site.css', CSS)
    found = [os.path.relpath(p, pages) for p in glob.glob(os.path.join(pages, '**/*.md'), recursive=True)]
    config = os.path.relpath(os.path.join(ROOT, 'tools/gen/mkdocs.yml'), folder)
    write(folder, 'mkdocs.yml', f'INHERIT: {config}\ndocs_dir: pages\nsite_dir: {os.path.join(os.path.dirname(folder), "site")}\n' +
          nav_yaml(found))


if __name__ == '__main__':
    main()
