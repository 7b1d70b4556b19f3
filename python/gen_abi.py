#!/usr/bin/env python3
"""Writes the ctypes declarations of C headers with the style of include/pagedinfer.h.

    gen_abi.py HEADER [HEADER_NAME.h]... OUTPUT

The output, pagedinfer/_abi.py, has the constants, the error table, one ctypes.Structure per complete struct, the
function types, and FUNCTIONS: name -> (result type, argument types). Further headers belong to libraries of their own:
the functions of pagedinfer_openai.h are in OPENAI_FUNCTIONS. A declaration that the script cannot translate is an error,
so a new type in a header fails the build instead of giving a wrong layout. Standard library only."""
import os
import re
import sys

BASE = {'int': 'c_int', 'unsigned': 'c_uint', 'char': 'c_char', 'bool': 'c_bool', 'float': 'c_float',
        'double': 'c_double', 'size_t': 'c_size_t', 'int8_t': 'c_int8', 'uint8_t': 'c_uint8', 'int16_t': 'c_int16',
        'uint16_t': 'c_uint16', 'int32_t': 'c_int32', 'uint32_t': 'c_uint32', 'int64_t': 'c_int64',
        'uint64_t': 'c_uint64'}
NUMBER = re.compile(r'-?(?:0x[0-9a-fA-F]+|\d+)[uUlL]*$')


class Header:
    def __init__(self, text):
        self.constants, self.errors, self.structs, self.callbacks = {}, [], {}, {}
        self.opaque, self.tables = set(), {}
        self.read(text, 'FUNCTIONS')

    def read(self, text, table):
        """Adds the declarations of a header; its functions go to self.tables[table]."""
        self.functions = self.tables[table] = {}
        text = re.sub(r'/\*.*?\*/|//[^\n]*', ' ', text, flags=re.S).replace('\\\n', ' ')
        for name, value in re.findall(r'^#define (PI_\w+) (-?\d+)\s*$', text, re.M): self.constants[name] = int(value)
        for name, code, message, retry in re.findall(r'X\((\w+), (-?\d+), "([^"]*)", (true|false)\)', text):
            self.constants[name] = int(code)
            self.errors.append((name, int(code), message, retry == 'true'))
        text = re.sub(r'enum \{\s*#define.*?\};', ' ', text, flags=re.S)
        text = re.sub(r'^\s*#.*$', ' ', text, flags=re.M).replace('extern "C" {', ' ')
        for declaration in self.split(text): self.declare(' '.join(declaration.split()))

    @staticmethod
    def split(text):
        """Declarations at the outermost level, without the final semicolon."""
        depth = start = 0
        for i, c in enumerate(text):
            depth += {'{': 1, '}': -1}.get(c, 0)
            if c == ';' and depth <= 0:
                yield text[start:i]
                start = i + 1

    def declare(self, text):
        if not text: return
        if m := re.fullmatch(r'enum \{(.*)\}', text): return self.enum(m[1])
        if m := re.fullmatch(r'typedef struct (\w+) (\w+)', text): return self.opaque.add(m[2])
        if m := re.fullmatch(r'typedef struct \w* ?\{(.*)\} (\w+)', text): return self.struct(m[2], m[1])
        if m := re.fullmatch(r'struct (\w+) \{(.*)\}', text): return self.struct(m[1], m[2])
        if m := re.fullmatch(r'typedef (.*?)\(\*(\w+)\)\((.*)\)', text):
            self.callbacks[m[2]] = (self.result(m[1].strip()), self.arguments(m[3]))
        elif m := re.fullmatch(r'PI_API (.*?)\b(\w+)\((.*)\)', text):
            self.functions[m[2]] = (self.result(m[1].strip()), self.arguments(m[3]))
        else:
            raise SystemExit(f'gen_abi: cannot translate: {text[:200]}')

    def enum(self, body):
        value = -1
        for item in filter(None, (x.strip() for x in body.split(','))):
            name, _, given = (x.strip() for x in item.partition('='))
            value = self.number(given) if given else value + 1
            self.constants[name] = value

    def number(self, text):
        """The value of a sum or product of constants."""
        words = re.findall(r'[A-Za-z_]\w*|\d\w*|<<|[-+*()|]', text)
        python = ' '.join(str(self.constants[w]) if w in self.constants else
                          w.rstrip('uUlL') if NUMBER.match(w) else w for w in words)
        if re.search(r'[A-Za-z_]', python.replace('0x', '')): raise SystemExit(f'gen_abi: not a number: {text}')
        return eval(python, {'__builtins__': {}})  # digits and operators only, see above

    def struct(self, name, body):
        self.opaque.discard(name)
        fields = []
        for member in self.split(body): fields += self.member(name, ' '.join(member.split()))
        names = {f for f, _ in fields}
        # A text with a length may contain NULs, so it is read by address and length.
        lengths = {f[:-4] for f in names if f.endswith('_len')} | ({'text'} if 'len' in names else set())
        self.structs[name] = [(f, 'c_void_p' if t == 'c_char_p' and f in lengths else t) for f, t in fields]

    def member(self, struct, text):
        if not text: return []
        if m := re.fullmatch(r'struct \w* ?\{(.*)\} (\w+)((?:\[[^\]]*\])*)', text):
            self.struct(f'{struct}_{m[2]}', m[1])
            return [(m[2], self.array(f'{struct}_{m[2]}', m[3]))]
        if m := re.fullmatch(r'[^()]*\(\*(\w+)\)\(.*\)', text): return [(m[1], 'c_void_p')]
        m = re.match(r'((?:const |unsigned |struct )*\w+)\s*(.*)', text)
        found = []
        for part in m[2].split(','):
            d = re.fullmatch(r'((?:\*|const|\s)*)(\w+)((?:\[[^\]]*\])*)', part.strip())
            if not d: raise SystemExit(f'gen_abi: struct {struct}: cannot translate: {text}')
            found.append((d[2], self.array(self.type(m[1], d[1].count('*')), d[3])))
        return found

    def array(self, kind, dimensions):
        for size in reversed(re.findall(r'\[([^\]]*)\]', dimensions)): kind = f'({kind} * {self.number(size)})'
        return kind

    def type(self, base, stars, argument=False):
        constant = base.startswith('const ')
        name = base.replace('const ', '').replace('struct ', '').strip()
        if not stars:
            if name in self.callbacks: return name if argument else 'c_void_p'
            if name in BASE: return BASE[name]
            if name in self.structs: return name
            raise SystemExit(f'gen_abi: unknown type: {base}')
        if name not in BASE and name not in self.structs and name not in self.opaque and name != 'void':
            raise SystemExit(f'gen_abi: unknown type: {base} *')
        if name == 'char': return 'c_char_p' if stars == 1 and constant else 'c_void_p' if argument or stars == 1 else 'POINTER(c_char_p)'
        if stars > 1 or name == 'void' or name in self.opaque: return 'c_void_p'
        if argument and name in BASE: return 'c_void_p'
        return f'POINTER({BASE.get(name, name)})'

    def result(self, text):
        if text == 'void': return 'None'
        m = re.fullmatch(r'((?:const |struct )*\w+)\s*((?:\*|const|\s)*)', text)
        return self.type(m[1], m[2].count('*'))

    def arguments(self, text):
        if text.strip() == 'void': return []
        found = []
        for part in text.split(','):
            m = re.fullmatch(r'\s*((?:const |struct )*\w+)\s*((?:\*|const\b|\s)*)(\w*)\s*', part)
            if not m: raise SystemExit(f'gen_abi: cannot translate argument: {part}')
            found.append(self.type(m[1], m[2].count('*'), argument=True))
        return found

    def python(self):
        out = ['# Written by gen_abi.py from the C header: do not edit.', '# mypy: ignore-errors',
               'from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int8,',
               '                    c_int16, c_int32, c_int64, c_size_t, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)',
               '']
        out += [f'{name} = {value}' for name, value in self.constants.items()]
        out += ['', '# code -> (name, text, retryable)', 'ERRORS = {']
        out += [f'    {code}: ({name!r}, {text!r}, {retry}),' for name, code, text, retry in self.errors] + ['}', '']
        for name, fields in self.structs.items():
            out += ['', f'class {name}(Structure):', '    _fields_ = [']
            out += [f'        ({field!r}, {kind}),' for field, kind in fields] + ['    ]', '']
        for name, (result, arguments) in self.callbacks.items():
            out.append(f'{name} = CFUNCTYPE({", ".join([result, *arguments])})')
        out += ['', 'STRUCTS = {' + ', '.join(f'{n!r}: {n}' for n in self.structs) + '}']
        for table, functions in self.tables.items():
            out.append(f'{table} = {{')
            for name, (result, arguments) in functions.items():
                out.append(f'    {name!r}: ({result}, [{", ".join(arguments)}]),')
            out.append('}')
        return '\n'.join(out + [f'CONSTANTS = {self.constants!r}', ''])


def main():
    if len(sys.argv) < 3: raise SystemExit(__doc__)
    with open(sys.argv[1], encoding='utf-8') as f: header = Header(f.read())
    for path in sys.argv[2:-1]:
        table = os.path.splitext(os.path.basename(path))[0].partition('_')[2].upper() + '_FUNCTIONS'
        with open(path, encoding='utf-8') as f: header.read(f.read(), table)
    with open(sys.argv[-1], 'w', encoding='utf-8') as f: f.write(header.python())


if __name__ == '__main__':
    main()
