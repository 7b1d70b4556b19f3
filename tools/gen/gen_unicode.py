#!/usr/bin/env python3
"""Writes src/base/unicode_tables.h: letter case and classes of characters like Python's str, and forms without accents.

    python3 tools/gen/gen_unicode.py > src/base/unicode_tables.h

Chat templates are written for Python. The script therefore queries Python about every code point and has no data of
its own. unicode.c describes the tables. Standard library only."""
import unicodedata

CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
COLUMNS = 116


def ignorable(c):
    """Case_Ignorable, which Python does not export: characters between a word and its final sigma."""
    s = chr(c)
    return ('a' + s + '\u03a3').lower()[-1] == '\u03c2' and (' ' + s + '\u03a3').lower()[-1] != '\u03c2'


SETS = {
    'PRINT': lambda c: chr(c).isprintable(),
    'ALPHA': lambda c: chr(c).isalpha(),
    'NUMERIC': lambda c: chr(c).isalnum() and not chr(c).isalpha(),
    'DECIMAL': lambda c: chr(c).isdecimal(),
    'DIGIT': lambda c: chr(c).isdigit(),
    'CASED': lambda c: chr(c).isupper() or chr(c).islower() or chr(c).istitle(),
    'TITLE': lambda c: unicodedata.category(chr(c)) == 'Lt',
    'UPPER_ODD': lambda c: chr(c).isupper() != (chr(c).lower() != chr(c) and not SETS['TITLE'](c)),
    'IGNORABLE': ignorable,
    'MARK': lambda c: unicodedata.category(chr(c)) == 'Mn',
    'PUNCT': lambda c: unicodedata.category(chr(c))[0] == 'P',
}


PLANES = (0, 1, 2, 3, 14)  # planes with characters of any set


def bounds(member, plane):
    """Returns the sorted code points of a plane at which membership begins or ends."""
    out, inside = [], False
    for c in range(plane << 16, (plane + 1) << 16):
        now = not 0xD800 <= c < 0xE000 and member(c)
        if now != inside:
            out.append(c & 0xFFFF)
            inside = now
    if inside:
        raise SystemExit('a set continues after plane %d' % plane)
    return out


def rows(items, text):
    line = '   '
    for item in items:
        if len(line) + len(text(item)) + 2 > COLUMNS:
            print(line)
            line = '   '
        line += ' ' + text(item) + ','
    if items:
        print(line)


def print_sets():
    values, starts = [], []
    for name, member in SETS.items():
        if any(bounds(member, p) for p in range(17) if p not in PLANES):
            raise SystemExit('%s has characters in other planes' % name)
        starts.append((name, []))
        for p in PLANES:
            starts[-1][1].append(len(values))
            values += bounds(member, p)
        starts[-1][1].append(len(values))
    print('static const uint16_t set_bounds[] = {')
    rows(values, lambda v: '0x%X' % v)
    print('};\n')
    print('/* Start of the bounds of planes 0, 1, 2, 3 and 14, and the end of the last. */')
    print('static const uint16_t set_start[][6] = {')
    for name, start in starts:
        print('    [PI__U_%s] = {%s},' % (name, ', '.join(map(str, start))))
    print('};\n')


def runs(pairs):
    """Returns (first, count, stride, delta) of runs of characters with one delta: adjacent ones, or every second
    one."""
    out = []
    for c, to in pairs:
        if out:
            first, n, stride, delta = out[-1]
            step = c - (first + (n - 1) * stride)
            if to - c == delta and n < 512 and step in ((1, 2) if n == 1 else (stride,)):
                out[-1] = (first, n + 1, step, delta)
                continue
        out.append((c, 1, 1, to - c))
    return out


def print_maps(name, how, base=None):
    single, several = [], []
    for c in CHARS:
        s = how(chr(c))
        if s == (base(chr(c)) if base else chr(c)):
            continue
        if len(s) == 1:
            single.append((c, ord(s)))
        else:
            several.append((c, [ord(x) for x in s]))
    print('static const case_run %s_runs[] = {' % name)
    rows(runs(single), lambda r: '{0x%X, %d, %d, %d}' % (r[0], r[1] - 1, r[2] - 1, r[3]))
    print('};')
    print('static const case_special %s_special[] = {' % name)
    rows(several, lambda r: '{0x%X, {%s}}' % (r[0], ', '.join('0x%X' % x for x in r[1])))
    print('};\n')


def print_bare():
    """Characters with a canonical decomposition that has base characters; Hangul is computed."""
    out = []
    for c in CHARS:
        s = unicodedata.normalize('NFD', chr(c))
        if s == chr(c) or 0xAC00 <= c < 0xAC00 + 11172:
            continue
        left = [ord(x) for x in s if unicodedata.category(x) != 'Mn']
        if len(left) > 3 or (not left and unicodedata.category(chr(c)) != 'Mn'):
            raise SystemExit('U+%04X has %d characters without its accents' % (c, len(left)))
        if left:
            out.append((c, left))
    print('static const bare_char bare_chars[] = {')
    rows(out, lambda r: '{0x%X, {%s}}' % (r[0], ', '.join('0x%X' % x for x in r[1])))
    print('};\n')


def main():
    print('/* By tools/gen/gen_unicode.py from Python\'s Unicode %s: sets of characters, and maps of letter case and accents.\n'
          ' * See unicode.c. */'
          % unicodedata.unidata_version)
    print('#ifndef PI__UNICODE_TABLES_H\n#define PI__UNICODE_TABLES_H\n')
    print_sets()
    print_maps('lower', str.lower)
    print_maps('upper', str.upper)
    print('/* Characters with a titlecase that differs from their uppercase. */')
    print_maps('title', str.title, str.upper)
    print_bare()
    print('#endif')


if __name__ == '__main__':
    main()
