#!/usr/bin/env python3
"""Compares docs/OPTIONS.md with the options of the library.

    check_options_doc.py [--write]     --write: writes the page

The program pagedinfer_gen_docs of PAGEDINFER_BUILD prints the page from pi_options_describe (tools/gen/gen_docs.c).
The man pages of the build must be free of groff's warnings, and each command of `pagedinfer help` needs one.
Exit status 77: the build has no pagedinfer_gen_docs."""
import difflib, glob, os, re, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
GENERATOR = os.path.join(BUILD, 'pagedinfer_gen_docs')
PAGE = os.path.join(ROOT, 'docs/OPTIONS.md')


def man_faults():
    """Faults of the man pages in the build folder."""
    faults = []
    overview = subprocess.run([BIN, 'help'], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r'^  ([a-z]+) {2,}', overview, re.M):
        if name not in ('help', 'version') and not os.path.exists(f'{BUILD}/docs/man/pagedinfer-{name}.1'):
            faults.append(f'no man page of the command {name}: add it to cmake/PagedInferInstall.cmake')
    pages = glob.glob(f'{BUILD}/docs/man/*.[1-9]')
    for page in pages if shutil.which('groff') else []:
        said = subprocess.run(['groff', '-ww', '-man', '-Tutf8', page], capture_output=True, text=True).stderr
        faults += [f'{os.path.basename(page)}: {line}' for line in said.splitlines()[:3] if 'cannot adjust' not in line]
    return faults, len(pages)


def main():
    if not os.path.exists(GENERATOR):
        print('no pagedinfer_gen_docs in PAGEDINFER_BUILD')
        return 77
    text = subprocess.run([GENERATOR, 'options-md'], capture_output=True, text=True, check=True).stdout
    if '--write' in sys.argv[1:]:
        with open(PAGE, 'w') as f: f.write(text)
    faults, n_pages = man_faults()
    old = open(PAGE).read() if os.path.exists(PAGE) else ''
    if old != text:
        lines = [l for l in difflib.unified_diff(old.split('\n'), text.split('\n'), lineterm='', n=0) if l[:1] in '+-'][2:8]
        faults.append('docs/OPTIONS.md is out of date; check_options_doc.py --write writes it:\n  ' + '\n  '.join(lines))
    print('\n'.join(faults + [f'options: {text.count(chr(10) + "| `")} rows, {n_pages} man pages, {len(faults)} faults']))
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
