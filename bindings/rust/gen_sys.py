#!/usr/bin/env python3
"""Writes the Rust declarations of include/pagedinfer.h.

    gen_sys.py HEADER OUTPUT

The output, src/sys.rs, has the constants, one #[repr(C)] struct per complete struct, opaque types, function types and
functions. A declaration that the script cannot translate is an error. tests/scripts/check_bindings.py compares the
output with the file, and the sizes of the structs with the C compiler's. Uses the parser of python/gen_abi.py."""
import os, re, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../python'))
from gen_abi import Header  # noqa: E402

BASE = {'int': 'c_int', 'unsigned': 'c_uint', 'char': 'c_char', 'bool': 'bool', 'float': 'f32', 'double': 'f64', 'size_t': 'usize',
        'int8_t': 'i8', 'uint8_t': 'u8', 'int16_t': 'i16', 'uint16_t': 'u16', 'int32_t': 'i32', 'uint32_t': 'u32',
        'int64_t': 'i64', 'uint64_t': 'u64', 'void': 'c_void'}
KEYWORDS = {'type', 'fn', 'in', 'match', 'move', 'ref', 'self', 'use', 'where', 'loop', 'mod', 'box'}


class Rust(Header):
    def array(self, kind, dimensions):
        for size in reversed(re.findall(r'\[([^\]]*)\]', dimensions)): kind = f'[{kind}; {self.number(size)}]'
        return kind

    def type(self, base, stars, argument=False):
        name = base.replace('const ', '').replace('struct ', '').strip()
        if name in self.callbacks and not stars: return name
        kind = BASE.get(name, name)
        if kind == name and name not in self.structs and name not in self.opaque and not re.fullmatch(r'[a-z]\w*', kind):
            raise SystemExit(f'gen_sys: unknown type: {base}')
        if name not in BASE and name not in self.structs and name not in self.opaque:
            raise SystemExit(f'gen_sys: unknown type: {base}')
        if stars: kind = ('*const ' if base.startswith('const ') else '*mut ') + kind
        return '*mut ' * (stars - 1) + kind

    def result(self, text):
        if text == 'void': return ''
        m = re.fullmatch(r'((?:const |struct )*\w+)\s*((?:\*|const|\s)*)', text)
        return self.type(m[1], m[2].count('*'))

    def rust(self):
        out = ['/* C declarations of pagedinfer.h. Written by gen_sys.py: do not edit. */',
               '#![allow(non_camel_case_types, missing_docs)]', 'use std::os::raw::{c_char, c_int, c_void};', '']
        out += [f'pub const {name}: c_int = {value};' for name, value in self.constants.items()]
        for name in sorted(self.opaque - set(self.structs)):
            out += ['', '#[repr(C)]', f'pub struct {name} {{', '    _private: [u8; 0],', '}']
        for name, fields in self.structs.items():
            out += ['', '#[repr(C)]', '#[derive(Clone, Copy)]', f'pub struct {name} {{']
            out += [f'    pub {safe(f)}: {"*mut c_void" if t == "c_void_p" else t},' for f, t in fields] + ['}']
        out.append('')
        for name, (result, arguments) in self.callbacks.items():
            out.append(f'pub type {name} = Option<unsafe extern "C" fn({", ".join(arguments)}){arrow(result)}>;')
        out += ['', '#[link(name = "pagedinfer")]', 'extern "C" {']
        for name, (result, arguments) in self.functions.items():
            out.append(f'    pub fn {name}({", ".join(f"{n}: {t}" for n, t in zip("abcdefghijkl", arguments))}){arrow(result)};')
        out += ['}', '', '/// Name and size of each struct, for tests.', 'pub const LAYOUT: &[(&str, usize)] = &[']
        out += [f'    ("{name}", std::mem::size_of::<{name}>()),' for name in self.structs] + ['];', '']
        return '\n'.join(out)


def safe(name): return 'r#' + name if name in KEYWORDS else name


def arrow(result): return f' -> {result}' if result else ''


def main():
    if len(sys.argv) != 3: raise SystemExit(__doc__)
    with open(sys.argv[1], encoding='utf-8') as f: header = Rust(f.read())
    with open(sys.argv[2], 'w', encoding='utf-8') as f: f.write(header.rust())


if __name__ == '__main__':
    main()
