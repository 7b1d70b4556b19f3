#!/usr/bin/env python3
"""Writes the man pages of section 3, or the API reference in Markdown, from the public headers.

    gen_man3.py HEADER... --man DIR         pagedinfer.3, one page per topic, and a link for each function
    gen_man3.py HEADER... --markdown FILE   the same text as one Markdown page
    gen_man3.py HEADER... --check           faults only: declarations without a comment

The first header is pagedinfer.h, which has the version. The text at the start of a further header belongs to its first
topic.

The header consists of topics. A topic begins with a line of dashes and its title; the comment is the topic's text. A
comment directly before a declaration describes it; a comment before an empty line or another comment adds to the
topic's text. Lines of a comment that are indented by four spaces are code. Standard library only."""
import argparse, os, re, sys

SLUGS = {'version, errors': 'errors', 'adapters (LoRA)': 'adapters', 'weights sharing': 'weights', 'work budgets': 'budgets',
         'model files': 'files'}
HELP = {'errors': 'library version and errors', 'options': 'options of engines and requests', 'devices': 'devices of a build',
        'engine': 'engines, memory plans, cache, statistics', 'adapters': 'LoRA adapters', 'weights': 'weights shared by processes',
        'ranks': 'several processes as one engine', 'budgets': 'limits for preparation work', 'text': 'tokens and chat templates',
        'requests': 'requests and prompts', 'events': 'events and polling', 'answers': 'parsing of answers',
        'files': 'reading and converting model files', 'measuring': 'profiling and self-test',
        'completions': "OpenAI's chat completions without a server"}
SECTION = re.compile(r'/\* -{20,} (.+?)\n')
CAPTION = re.compile(r'([A-Z][A-Z ,()]+[A-Z)])\. ')


class Item:
    """A declaration with its comment: kind is function, type, constants or macro."""
    def __init__(self, kind, name, code, text, line):
        self.kind, self.name, self.code, self.text, self.line = kind, name, code, text, line


class Topic:
    def __init__(self, title, text, header):
        self.title, self.text, self.items, self.header = title, [text], [], header
        self.slug = SLUGS.get(title, title)

    def functions(self):
        return [i for i in self.items if i.kind == 'function']


def comment_text(comment):
    """A comment without its frame."""
    body = comment[2:-2]
    lines = [re.sub(r'^ \* ?', '', l) for l in body.split('\n')]
    return '\n'.join([lines[0].strip(), *[l.rstrip() for l in lines[1:]]]).strip('\n ')


def declaration(text, at):
    """The declaration at `at`: (code, end). It ends with a semicolon outside of braces, a macro with its line."""
    if text[at] == '#':
        end = at
        while True:
            end = text.index('\n', end)
            if text[end - 1] != '\\': return text[at:end], end
            end += 1
    depth = 0
    for m in re.finditer(r'/\*.*?\*/|[{};]', text[at:], re.S):
        if m[0] == '{': depth += 1
        elif m[0] == '}': depth -= 1
        elif m[0] == ';' and not depth: return text[at:at + m.end()], at + m.end()
    raise SystemExit(f'a declaration without its end: {text[at:at + 60]}')


def item_of(code, text, line):
    code = re.sub(r' +\\\n', ' \\\\\n', code)   # the backslashes of a macro
    flat = ' '.join(re.sub(r'/\*.*?\*/', '', code, flags=re.S).split())
    if m := re.match(r'PI_API (.*)', flat):
        return Item('function', re.search(r'(pi_\w+)\(', flat)[1], code.replace('PI_API ', '', 1), text, line)
    if m := re.match(r'#define (\w+)', flat): return Item('macro', m[1], code, text, line)
    if flat.startswith('enum {'):
        names = re.findall(r'\b(PI_\w+) *=', re.sub(r'/\*.*?\*/', '', code, flags=re.S))
        prefix = os.path.commonprefix(names)
        name = names[0] if len(names) == 1 else prefix[:prefix.rfind('_') + 1] + '*' if names else 'error codes'
        return Item('constants', name, code, text, line)
    if m := re.match(r'typedef .*\(\*(pi_\w+)\)', flat): return Item('type', m[1], code, text, line)
    if m := re.match(r'typedef struct (pi_\w+)|struct (pi_\w+)|typedef .*?(\w+);$', flat):
        return Item('type', m[1] or m[2] or m[3], code, text, line)
    raise SystemExit(f'line {line}: a declaration of no known kind: {flat[:80]}')


def parse(path):
    """(preamble, [Topic]) of a header."""
    with open(path, encoding='utf-8') as f: text = f.read()
    preamble = comment_text(re.match(r'/\*.*?\*/', text, re.S)[0])
    topics, at = [], SECTION.search(text).start()
    end_of_api = text.index('#ifdef __cplusplus', at)
    held, faults = None, []
    while True:
        m = re.compile(r'[ \n]*').match(text, at)
        gap, at = m[0], m.end()
        if at >= end_of_api: break
        line = text.count('\n', 0, at) + 1
        if text.startswith('/*', at):
            end = text.index('*/', at) + 2
            comment = text[at:end]
            if held is not None: topics[-1].text.append(held)
            held = None
            if m := SECTION.match(comment): topics.append(Topic(m[1], comment_text('/*' + comment[m.end() - 1:]), os.path.basename(path)))
            else: held = comment_text(comment)
            at = end
            continue
        code, end = declaration(text, at)
        if held is not None and gap.count('\n') > 1:
            topics[-1].text.append(held)
            held = None
        item = item_of(code, held or '', line)
        held = None
        previous = topics[-1].items[-1] if topics[-1].items else None
        if not item.text and previous and gap.count('\n') == 1 and item.kind == previous.kind: item.text = previous.text
        if not item.text and item.kind == 'function': faults.append(f'{path}:{line}: {item.name} has no comment')
        topics[-1].items.append(item)
        at = end
        trailing = re.compile(r' */\*.*?\*/').match(text, at)   # a comment on the declaration's line
        if trailing: at = trailing.end()
    return preamble, topics, faults


def blocks(text):
    """[(is_code, text)]: paragraphs and code of a comment."""
    out = []
    for part in re.split(r'\n\s*\n', text):
        for code, lines in grouped(part.split('\n')):
            out.append((code, '\n'.join(l[4:] for l in lines) if code else ' '.join(' '.join(lines).split())))
    return out


def grouped(lines):
    groups = []
    for l in lines:
        code = l.startswith('    ')
        if groups and groups[-1][0] == code: groups[-1][1].append(l)
        else: groups.append((code, [l]))
    return groups


# ------------------------------------------------------------------------------------------------------------ man pages

def roff(s):
    s = s.replace('\\', '\\e').replace('-', '\\-')
    return '\n'.join('\\&' + l if l[:1] in ('.', "'") else l for l in s.split('\n'))


def roff_text(text):
    out = []
    for code, part in blocks(text):
        caption = CAPTION.match(part)
        if code: out.append('.P\n.RS 4\n.nf\n' + roff(part) + '\n.fi\n.RE')
        elif caption: out.append(f'.SS {caption[1].capitalize()}\n' + roff(part[caption.end():]))
        else: out.append('.P\n' + roff(part))
    return '\n'.join(out)


def man_page(topic, version, topics):
    functions = topic.functions()
    out = [f'.TH PAGEDINFER_{topic.slug.upper()} 3 "" "libpagedinfer {version}" "Library Functions"', '.SH NAME',
           ', '.join([f'pagedinfer_{topic.slug}', *[f.name for f in functions]]) + ' \\- ' + HELP.get(topic.slug, topic.title),
           '.SH SYNOPSIS', '.nf', f'#include <{topic.header}>', '']
    out += [roff(f.code) for f in functions]
    out += ['.fi', '.SH DESCRIPTION', roff_text('\n\n'.join(topic.text))]
    others = [i for i in topic.items if i.kind != 'function']
    if others: out.append('.SH TYPES AND CONSTANTS')
    for i in others:
        out += [f'.SS {i.name}', roff_text(i.text), '.P\n.nf', roff(i.code), '.fi']
    if functions: out.append('.SH FUNCTIONS')
    for f in functions: out += [f'.SS {f.name}', '.nf', roff(f.code), '.fi', roff_text(f.text)]
    out += ['.SH SEE ALSO', '.BR pagedinfer (3),']
    out += [f'.BR pagedinfer_{t.slug} (3),' for t in topics if t is not topic]
    return '\n'.join(out + ['.BR pagedinfer\\-options (7)']) + '\n'


def overview(preamble, topics, version):
    title, _, rest = preamble.partition('\n')
    out = [f'.TH PAGEDINFER 3 "" "libpagedinfer {version}" "Library Functions"', '.SH NAME', 'pagedinfer \\- LLM inference library',
           '.SH SYNOPSIS', '.nf', '#include <pagedinfer.h>', '', 'cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs pagedinfer)', '.fi',
           '.SH DESCRIPTION', roff_text(rest), '.SH TOPICS']
    for t in topics:
        out += ['.TP', f'.BR pagedinfer_{t.slug} (3)', HELP.get(t.slug, t.title) + (': ' if t.functions() else '') +
                ', '.join(f.name for f in t.functions())]
    return '\n'.join(out + ['.SH SEE ALSO', '.BR pagedinfer (1),', '.BR pagedinfer\\-options (7)']) + '\n'


def write_man(folder, version, preamble, topics):
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.endswith('.3'): os.remove(os.path.join(folder, name))

    def write(name, text):
        with open(os.path.join(folder, name + '.3'), 'w', encoding='utf-8') as f: f.write(text)
    write('pagedinfer', overview(preamble, topics, version))
    for t in topics:
        write(f'pagedinfer_{t.slug}', man_page(t, version, topics))
        for f in t.functions(): write(f.name, f'.so man3/pagedinfer_{t.slug}.3\n')


# ------------------------------------------------------------------------------------------------------------- Markdown

def md_inline(text, links):
    """Names of functions become links, other identifiers code; markup is escaped."""
    def one(m):
        if m[0] in links: return f'[`{m[0]}`](#{m[0]})'
        return f'`{m[0]}`' if re.match(r'pi_|PI_', m[0]) else re.sub(r'([<>*|])', r'\\\1', m[0]).replace('_', '\\_')
    return re.sub(r'\bPI_[A-Z]\w*\*?|\w+|[<>*|]', one, text)


def md_text(text, links, level):
    out = []
    for code, part in blocks(text):
        caption = CAPTION.match(part)
        if code: out.append('```c\n' + part + '\n```')
        elif caption: out.append(f'{"#" * level} {caption[1].capitalize()}\n\n' + md_inline(part[caption.end():], links))
        else: out.append(md_inline(part, links))
    return '\n\n'.join(out)


def write_markdown(path, version, preamble, topics):
    links = {i.name for t in topics for i in t.items if i.kind == 'function'}
    out = ['# C API', f'Version {version}. Written by `tools/gen/gen_man3.py` from the public headers.',
           md_text(preamble.partition('\n')[2], links, 2)]
    for t in topics:
        out += [f'## {HELP.get(t.slug, t.title).capitalize().replace("Lora", "LoRA").replace("Openai", "OpenAI")} {{#topic-{t.slug}}}',
                md_text('\n\n'.join(t.text), links, 3)]
        for i in t.items:
            anchor = f' {{#{i.name}}}' if i.kind == 'function' else ''
            out += [f'### {i.name}{anchor}', '```c\n' + i.code + '\n```', md_text(i.text, links, 4)]
    with open(path, 'w', encoding='utf-8') as f: f.write('\n\n'.join(p for p in out if p) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('header')
    parser.add_argument('more', nargs='*')
    parser.add_argument('--man', metavar='DIR')
    parser.add_argument('--markdown', metavar='FILE')
    parser.add_argument('--check', action='store_true')
    a = parser.parse_args()
    preamble, topics, faults = parse(a.header)
    for header in a.more:
        start, more, bad = parse(header)
        more[0].text.insert(0, start.partition('\n')[2])
        topics, faults = topics + more, faults + bad
    text = ''
    for header in [a.header, *a.more]:
        with open(header, encoding='utf-8') as f: text += f.read()
    version = '.'.join(re.search(rf'#define PI_VERSION_{part} (\d+)', text)[1] for part in ('MAJOR', 'MINOR', 'PATCH'))
    declared = set(re.findall(r'^PI_API\b[^;]*?\b(pi_\w+)\(', text, re.M))
    found = {f.name for t in topics for f in t.functions()}
    faults += [f'{a.header}: not parsed: {name}' for name in sorted(declared - found)]
    if a.man: write_man(a.man, version, preamble, topics)
    if a.markdown: write_markdown(a.markdown, version, preamble, topics)
    print('\n'.join(faults + [f'{len(topics)} topics, {len(found)} functions, {len(faults)} faults']), file=sys.stderr)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
