#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md, chapter "Words", that a program can check.

    check_language.py [--list] [--table] [PATH...]

Per folder (comments) and per document: at most LIMIT pronoun words in 1,000; words in backticks and code do not count.
Per sentence and paragraph: the limits below. Per line of code: WIDTH columns; LONG lists the files that exceed it, and a
file that no longer does has to leave the list. Messages of src and tools: no person as the subject. Commits after SINCE:
subjects of the form `area: verb object`.

PATH limits the check to files that start with it. --list prints every sentence with a pronoun word, --table the numbers.
"""
import argparse, ast, collections, io, os, re, subprocess, sys, tokenize

LIMIT = 3            # pronoun words per 1,000 words
SENTENCE = 40        # words
PARAGRAPH = 100      # words, in documents
COMMENT = 150        # words, in one paragraph of a comment
WIDTH = 120          # columns
SUBJECT = 72         # characters of a commit's first line
SINCE = '28aa1d831cd5c38ea67b80b059fcdd619fe26cb5'
LONG = {'kernels/ptx.cuh', 'src/backend/cpu/attention_kernels.h', 'src/backend/cpu/linear_kernel.inc.h',
        'src/template/chat_generic.c', 'src/template/chat_names.h', 'tests/programs/tool_bench_sparse.c', 'tests/programs/tool_structured.c',
        'tests/unit/test_chat.c', 'tests/unit/test_chat_grammar.c', 'tests/unit/test_chat_parser.c', 'tests/unit/test_hash.c',
        'tests/unit/test_jinja.c', 'tools/bench_ops.c', 'tools/bench_spec.c', 'tools/help.c'}
PROMPTS = {'tools/eval_suite.c'}   # texts for models, not for people
# Lists: words are counted, paragraphs are not.
GENERATED = {'docs/FIELDS.md', 'docs/FLAGS.md', 'docs/OPTIONS.md', 'docs/SUITES.md'}

PRONOUN = re.compile(r'\b(what|who|whose|whom|those|nobody|somebody|anybody|whoever|whatever|such|of which)\b', re.I)
PERSON = re.compile(r'\b(who|whose|whom|nobody|somebody|anybody|whoever)\b|^what\b|[.:;] what\b', re.I)
WORD = re.compile(r"[A-Za-z][A-Za-z']*")
C_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//(?:[^\n\\]|\\.)*|/\*.*?\*/', re.S)
C_FILE = re.compile(r'\.(c|h|cu|cuh|cpp)$')


def tracked():
    out = subprocess.run(['git', 'ls-files', '-z'], capture_output=True, text=True, check=True).stdout
    return [f for f in out.split('\0') if f and os.path.isfile(f)]


def comments(path, text):
    """[(line, comment)]: comments of adjacent lines are one."""
    found = []
    if C_FILE.search(path):
        for m in C_TOKEN.finditer(text):
            if m[0][0] == '/':
                body = m[0][2:-2] if m[0][1] == '*' else m[0][2:]
                alone = not text[text.rfind('\n', 0, m.start()) + 1:m.start()].strip()
                body = re.sub(r'\n\s*\*(?=\s|$)', '\n', body) # the frame of a block comment
                found.append((text.count('\n', 0, m.start()) + 1, body, alone))
    elif path.endswith('.py'):
        for t in tokenize.generate_tokens(io.StringIO(text).readline):
            if t.type == tokenize.COMMENT:
                found.append((t.start[0], t.string[1:], not t.line[:t.start[1]].strip()))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                found.append((node.body[0].lineno, ast.get_docstring(node), False))
    else:
        for n, line in enumerate(text.split('\n'), 1):
            m = re.match(r'(.*?(?:^|\s))#(.*)', line)
            if m:
                found.append((n, m[2], not m[1].strip()))
    joined = []
    for n, body, alone in found:
        if alone and joined and joined[-1][2] and n == joined[-1][3] + 1:
            joined[-1][1] += '\n' + body
            joined[-1][3] = n + body.count('\n')
        else:
            joined.append([n, body, alone, n + body.count('\n')])
    return [(n, body) for n, body, _, _ in joined]


def prose(text):
    """Words without what is quoted."""
    return re.sub(r'`[^`]*`|<!--.*?-->|\]\([^)]*\)', ' x ', text, flags=re.S)


def sentences(paragraph):
    return re.split(r'(?<=[.!?:;])\s+', ' '.join(paragraph.split()))


def doc_paragraphs(text):
    """[(line, paragraph)] of a Markdown document: list items are paragraphs of their own; tables and code are left out."""
    out, fenced, start, held = [], False, 0, []
    for n, line in enumerate(text.split('\n') + [''], 1):
        if line.lstrip().startswith('```'):
            fenced = not fenced
            line = ''
        if fenced or re.match(r'\s*\||    \S|\s*<|#', line):
            line = ''
        if held and (not line.strip() or re.match(r'\s*([-*]|\d+\.)\s', line)):
            out.append((start, ' '.join(held)))
            held = []
        if line.strip():
            start = start if held else n
            held.append(line.strip())
    return out


def messages(text):
    """[(line, text)] of C string literals that are sentences; adjacent literals are one."""
    out = []
    for m in re.finditer(r'"(?:\\.|[^"\\\n])*"(?:\s*(?:PRI\w+\s*)?"(?:\\.|[^"\\\n])*")*', C_TOKEN.sub(
            lambda m: m[0] if m[0][0] == '"' else re.sub(r'[^\n]', ' ', m[0]), text)):
        body = ''.join(re.findall(r'"((?:\\.|[^"\\\n])*)"', m[0]))
        if len(WORD.findall(body)) >= 4:
            out.append((text.count('\n', 0, m.start()) + 1, body))
    return out


class Report:
    def __init__(self):
        self.faults, self.words, self.pronouns, self.listed = [], collections.Counter(), collections.Counter(), []

    def fault(self, path, line, text):
        self.faults.append(f'{path}:{line}: {text}')

    def count(self, key, path, line, text):
        text = prose(text)
        self.words[key] += len(WORD.findall(text))
        self.pronouns[key] += len(PRONOUN.findall(text))
        for s in sentences(text):
            if PRONOUN.search(s):
                self.listed.append(f'{path}:{line}: {s[:160]}')

    def shape(self, path, line, text, limit):
        text = prose(text)
        n = len(WORD.findall(text))
        if n > limit:
            self.fault(path, line, f'a paragraph of {n} words; the limit is {limit}')
        for s in sentences(text):
            n = len(WORD.findall(s))
            if n > SENTENCE:
                self.fault(path, line, f'a sentence of {n} words; the limit is {SENTENCE}: {s[:70]}')


def check_doc(r, path, text):
    r.count(path, path, 1, re.sub(r'^```.*?^```', '', text, flags=re.S | re.M))
    if path not in GENERATED:
        for line, p in doc_paragraphs(text):
            r.shape(path, line, p, PARAGRAPH)


def check_code(r, path, text):
    folder = os.path.dirname(path) or path
    for line, body in comments(path, text):
        r.count(folder, path, line, body)
        for p in re.split(r'\n\s*\n', body):
            drawn = len(re.findall(r'[|+=<>^*/\\-]{2,}|\d', p)) * 4 > len(WORD.findall(p))   # a picture, a table, a formula
            if not drawn:
                r.shape(path, line, p, COMMENT)
    if C_FILE.search(path):
        if re.match(r'src/|tools/', path) and path not in PROMPTS:
            for line, body in messages(text):
                r.count(folder + ' (messages)', path, line, body)
                if PERSON.search(body):
                    r.fault(path, line, f'a message about a person: "{body[:80]}"')
        wide = [n for n, l in enumerate(text.split('\n'), 1) if len(l) > WIDTH]
        if wide and path not in LONG:
            r.fault(path, wide[0], f'{len(wide)} lines of more than {WIDTH} columns')
        elif not wide and path in LONG:
            r.fault(path, 1, 'no line is too long any more: take the file out of LONG in check_language.py')


def check_commits(r):
    log = subprocess.run(['git', 'log', '--no-merges', '--format=%h %s', SINCE + '..HEAD'], capture_output=True, text=True)
    for line in log.stdout.splitlines() if log.returncode == 0 else []:   # a shallow clone does not have SINCE
        commit, subject = line.split(' ', 1)
        if len(subject) > SUBJECT or not re.match(r'[a-z][\w./-]*(, [\w./-]+)*: [a-z]\S* \S', subject):
            r.fault(commit, 0, f'the subject is not `area: verb object` in {SUBJECT} characters: {subject}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--table', action='store_true')
    parser.add_argument('paths', nargs='*', metavar='PATH')
    args = parser.parse_args()
    r = Report()
    for path in tracked():
        if args.paths and not path.startswith(tuple(args.paths)):
            continue
        if path.endswith('.md'):
            check_doc(r, path, open(path, encoding='utf-8').read())
        elif C_FILE.search(path) or re.search(r'\.(py|sh|cmake)$|CMakeLists\.txt$|^\.ci/run$', path):
            check_code(r, path, open(path, encoding='utf-8').read())
    if not args.paths:
        check_commits(r)
    for key in sorted(r.words):
        words, n = r.words[key], r.pronouns[key]
        if args.table:
            print(f'{1000 * n / max(words, 1):6.1f}  {n:4} of {words:6}  {key}')
        if n > max(1, LIMIT * words / 1000):
            r.fault(key, 0, f'{1000 * n / words:.1f} pronoun words in 1,000; the limit is {LIMIT}')
    if args.list:
        print('\n'.join(r.listed))
    print('\n'.join(r.faults))
    print(f'check_language: {sum(r.words.values())} words, {sum(r.pronouns.values())} pronoun words, {len(r.faults)} faults')
    return 1 if r.faults else 0


if __name__ == '__main__':
    sys.exit(main())
