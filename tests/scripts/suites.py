"""Writes results of external suites to docs/SUITES.md; imported by the suites' scripts."""
import os, re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../docs/SUITES.md')


def publish(name, markdown):
    """Replaces the section of suite `name` in docs/SUITES.md by the given Markdown."""
    with open(PAGE) as f: page = f.read()
    section = re.compile(rf'(<!-- suite: {re.escape(name)} -->\n).*?(<!-- end -->)', re.S)
    page, n = section.subn(lambda m: m[1] + markdown.rstrip('\n') + '\n' + m[2], page)
    if n != 1: raise SystemExit(f'{PAGE}: {n} sections are named {name}; there must be one')
    with open(PAGE, 'w') as f: f.write(page)
