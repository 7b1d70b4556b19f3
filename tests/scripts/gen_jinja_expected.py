#!/usr/bin/env python3
"""Writes tests/support/jinja_expected.h: small templates and what Python's jinja2 makes of them (see check_templates.py).

    pip install jinja2; python3 tests/scripts/gen_jinja_expected.py > tests/support/jinja_expected.h
"""
import itertools
import json

import check_templates

VARS = {
    "s": "Hello, World", "e": "", "u": "größe → 日本", "n": 7, "f": 2.5, "t": True, "no": None, "l": [3, 1, 2],
    "ls": ["b", "A", "c", "B"], "d": {"b": 1, "a": {"x": [10, 20]}, "items": "I"}, "empty": {}, "el": [],
    "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2, "o": True}, {"k": "x", "v": 3}],
    "w": "  \t two  words \n", "lines": "one\n\n  two\nthree", "q": "it's \"q\" \\ \n\t\u0007\u00a0\u00ad", "big": 123456789012,
}

def whitespace():
    """One template for each kind of tag: all signs on both sides, between all sorts of neighbours."""
    for kind, (begin, inner, end) in {"block": ("{%", " if t ", "%}"), "print": ("{{", " n ", "}}"),
                                      "comment": ("{#", " c ", "#}")}.items():
        pieces = []
        for before, left, right, after in itertools.product(
                ["a", "a\n", "a  ", "a\n  ", "a\n\n \t"], ["", "-", "+"], ["", "-", "+"], ["b", "\nb", "  b", "\n  b", "\n\nb"]):
            if kind == "print" and (left == "+" or right == "+"):
                continue
            close = "{% endif +%}" if kind == "block" else ""
            pieces.append(before + begin + left + inner + right + end + after + close)
        yield "|".join(pieces)

TEMPLATES = list(whitespace()) + [
    # text and tags
    "", "plain", "a\r\nb\rc\n", "a\n\n", "{{ '{{' }}", "{{ '}}' }}", "{{ {'a': {}} }}", "{{ {'a': {'b': 1}}['a'] }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}", "a\n  {%- raw -%}  \n {{ x }}\n  {% endraw %}\n\nb",
    "a{% raw %}\n  b{%- endraw -%}  \n c", "{% raw %} {% raw %} {% endraw %}", "{#- {{ x }} {% y %} -#} a", "a {#\n b\n#}\nc",
    "  {% if t %}  \n  x\n  {% endif %}  \n", "{%-if t-%} x {%-endif-%}", "{% if t %}\n{{ n }}\n{% endif %}\n",
    "{{ n }}\n{{ n }}\n", "{{n}}{{-n-}} {{n}}", "   {{ n }}", "\n   {% set x = 1 %}{{ x }}",
    # literals
    "{{ 1 }} {{ -1 }} {{ 1.5 }} {{ 1e3 }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e-7 }}",
    "{{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ 100.0 }} {{ 123456.789 }} {{ 1e22 }} {{ 1e100 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}",
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "{{ 'a' 'b' \"c\" }}",
    r"{{ 'a\n\t\\\'\"\x41\u00e9\q\0\101' }}", r'{{ "it\'s" }}', "{{ [] }} {{ [1, 'a', none, 2.0, true] }} {{ [1,] }}",
    "{{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}", "{{ {} }} {{ {'a': 1, 2: 'b', 'c': [1]} }} {{ {'a': 1, 'a': 2} }}",
    "{{ q }} {{ [q] }} {{ ['\"', \"'\", 'a'] }} {{ [u] }}",
    # operators
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
    "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 - -1 }} {{ +3 }}",
    "{{ true + 1 }} {{ 1 == true }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }}",
    "{{ 1 < 2 }} {{ 2 <= 2 }} {{ 'a' < 'b' }} {{ 3 > 2 > 1 }} {{ 1 < 3 < 2 }} {{ 1 != 2 }} {{ 'b' >= 'abc' }} {{ [1, 2] < [1, 3] }}",
    "{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ 2 * [1, 2] }} {{ 'x' * 0 }}|{{ 'x' * -1 }}",
    "{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1] }} {{ 'b' in d }} {{ 'z' in d }} {{ '' in 'a' }} {{ 2 in (1, 2) }}",
    "{{ not true }} {{ not 0 and 1 }} {{ 0 or 'x' }} {{ '' or none or 'y' }} {{ 1 and 2 }} {{ 0 and x.y }} {{ not not 1 }}",
    "{{ 'a' if t else 'b' }} {{ 'a' if not t else 'b' }} {{ 'a' if no }}| {{ 1 if no else 2 if no else 3 }}",
    "{{ 1 + 2 ~ 3 + 4 }} {{ 1 if 0 or 1 else 2 }} {{ 2 * 3 ~ 4 }}",
    "{{ '%s is %d%%' % ('x', 3) }} {{ '%s' % 'a' }} {{ '%s-%s' % (1, [2]) }} {{ '%r' % 'a' }}",
    # members
    "{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d['a']['x'][-1] }} {{ d.zz }}| {{ d['zz'] }}| {{ l[0] }} {{ l.0 }} {{ l[-1] }} {{ l[9] }}|",
    "{{ d['items'] }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }}",
    "{{ s[0] }} {{ s[-1] }} {{ s[99] }}| {{ u[2] }} {{ u[-1] }} {{ l[true] }}", "{{ empty['items'] is defined }} {{ empty.items is defined }}",
    "{{ s[1:3] }} {{ s[:2] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ u[2:5] }} {{ u[::-1] }} {{ s[5:2] }}| {{ s[-99:99] }} {{ s[10:0:-3] }}",
    "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[none:2] }} {{ (1, 2, 3)[:2] }} {{ l[-2::-1] }} {{ l[::9223372036854775807] }}",
    # undefined
    "{{ x }}|{{ x is defined }} {{ x is undefined }} {{ not x }} {{ x or 'y' }} {{ x == y }} {{ x | default('d') }} {{ x | length }}",
    "{% for a in x %}a{% else %}none{% endfor %} {{ 1 in x }} {{ x | list }} {{ [x] }} {{ x ~ 'a' }} {{ x | upper }}|{{ x | trim }}|{{ x | join }}|",
    "{{ x.y }}", "{{ x['y'] }}", "{{ x() }}", "{{ x + 1 }}", "{{ x < 1 }}", "{{ d.q.r }}", "{{ x | tojson }}", "{{ x | items | list }}",
    "{{ no.x }}|{{ no['x'] }}|{{ n.x }}|", "{{ no() }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}", "{{ [] < 1 }}", "{{ none < 1 }}", "{{ 1 / 0 }}",
    "{{ 1 % 0 }}", "{{ 'a' - 'b' }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{{ l['a'] }}|", "{{ -'a' }}", "{{ {[]: 1} }}", "{{ n | length }}",
    # statements
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}", "{% if n > 9 %}a{% elif n > 5 %}b{% elif n %}c{% else %}d{% endif %}",
    "{% if n > 9 %}a{% elif no %}b{% else %}{% if t %}d{% endif %}{% endif %}", "{% if no %}{% else %}{% if no %}x{% endif %}y{% endif %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}{% for i in l %}{{ loop.previtem is defined }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in 'ab' %}{{ loop.depth }}{{ loop.depth0 }}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}x{% else %}empty{% endfor %}",
    "{% for i in range(10) if i is odd %}{{ i }}{{ loop.length }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for i in l if i > 99 %}x{% else %}none{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for i in (1, 2, 3) %}{{ i }}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}!",
    "{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l if i != 1 else 3 %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for a in 5 %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for r in rows %}{% if loop.nextitem and loop.nextitem.k == r.k %}same{% endif %}{{ r.v }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in l %}{% if t %}{% set y = i %}{% endif %}{{ y }}{% endfor %}{{ y }}|", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|",
    "{% set ns = namespace() %}{% set ns.x = [] %}{{ ns.x }}{% set ns.x = ns.x + [1] %}{{ ns.x }}", "{% set d.b = 2 %}", "{% set ns = namespace(d) %}{{ ns.b }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}", "{% set z = 3 %}{% set x %}{% set z = 4 %}{{ z }}{% endset %}{{ x }}{{ z }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}banana{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}",
    "{% generation %}{{ n }}{% set g = 1 %}{{ g }}{% endgeneration %}", "a\n  {% generation -%}\n  b\n  {%- endgeneration %}\nc",
    "{% for i in range(4) %}{% for j in range(i) %}{{ i }}{{ j }}{% for k in range(j) %}{{ k }}{% endfor %} {% endfor %}{% endfor %}",
    "{% set n = namespace(x=[]) %}{% for i in range(3) %}{% set n.x = n.x + [range(i + 2) | list] %}{% set r = range(2) %}{% for j in r %}{{ r[j] }}{% endfor %}{% endfor %}{{ n.x }}",
    # macros
    "{% macro m(a, b=2, c=none) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1, c=9) | length }}",
    "{% macro m() %}{{ n }}{{ late }}{% endmacro %}{% set late = 'L' %}{{ m() }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{% set v = 1 %}{% endmacro %}{{ m() }}{{ v }}|", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro o(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call o(1) %}in{{ n }}{% endcall %}",
    "{% macro o() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) o() %}{{ a + b }}{% endcall %}", "{% macro o() %}{{ caller is defined }}{% endmacro %}{{ o() }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% set x = 5 %}{% macro m(x) %}{{ x }}{% endmacro %}{{ m(6) }}{{ x }}",
    "{% macro a(v) %}{{ v | trim }}{% endmacro %}{{ a('  q ') ~ a(' r') }}", "{% set r = [] %}{% macro m() %}{{ r.append(1) }}{% endmacro %}{{ m() }}{{ r }}",
    "{% macro f(x, y=x) %}{{ y }}{% endmacro %}{{ f(3) }}",
    # functions
    "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3, 1) | list }}", "{{ dict(a=1, b=2) }} {{ dict({'z': 0}, a=1) }}",
    "{{ raise_exception('stop') }}", "{{ strftime_now('%Y-%m-%d %H:%M %B') }}", "{{ range(200000) | length }}", "{{ range is callable }}", "{{ nothing() }}",
    # filters
    "{{ w | trim }}| {{ 'xxaxx' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ 'hello world' | title }} {{ 'hELLO wORLD' | capitalize }} {{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aaa' | replace('a', 'aa') }}",
    "{{ s | length }} {{ u | length }} {{ l | length }} {{ d | length }} {{ l | count }} {{ e | length }}", "{{ 5 | string + 'a' }} {{ none | string }} {{ [1] | string | length }} {{ 3 | upper }}",
    "{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '3.7' | int }} {{ 3.7 | int }} {{ true | int }} {{ ' 4 ' | int }} {{ '-5' | int }} {{ none | int }} {{ '1.5' | float }} {{ 'q' | float }} {{ 2 | float }}",
    "{{ x | default }}| {{ e | default('d') }}| {{ e | default('d', true) }} {{ no | default('d') }} {{ no | default('d', boolean=true) }} {{ x | d('q') }}",
    "{{ l | join(', ') }} {{ l | join }} {{ rows | join('-', attribute='k') }} {{ s | join('.') }} {{ [1, none, 'a'] | join('|') }} {{ [] | join(',') }}|",
    "{{ l | first }} {{ l | last }} {{ s | first }} {{ [] | first }}| {{ [] | last }}| {{ d | first }}", "{{ l | list }} {{ s | list }} {{ d | list }} {{ l | reverse | list }} {{ s | reverse }}",
    "{{ l | sort }} {{ ls | sort }} {{ ls | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ rows | sort(attribute='v', reverse=true) | map(attribute='v') | list }}", "{{ ['a', 1] | sort }}",
    "{{ d | dictsort | list | length }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}",
    "{{ d | items | list }} {{ x | items | list }}", "{{ no | items | list }}", "{{ [1, 2, 1, 3] | unique | list }} {{ ['a', 'A', 'b'] | unique | list }} {{ rows | unique(attribute='k') | map(attribute='v') | list }}",
    "{{ l | min }} {{ l | max }} {{ ls | min }} {{ [] | max }}| {{ l | sum }} {{ rows | sum(attribute='v') }} {{ [1, 2] | sum(start=10) }}", "{{ -3 | abs }} {{ (-3) | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }}",
    "{{ rows | map(attribute='k') | list }} {{ ls | map('upper') | list }} {{ rows | map(attribute='o') | list }} {{ rows | map(attribute='o', default='-') | list }} {{ ls | map('replace', 'b', 'z') | join }} {{ [[1, 2], [3]] | map('join', '+') | list }} {{ [{'a': {'b': 5}}] | map(attribute='a.b') | list }} {{ [[7, 8]] | map(attribute=1) | list }}",
    "{{ rows | selectattr('o') | list | length }} {{ rows | selectattr('k', 'equalto', 'x') | map(attribute='v') | list }} {{ rows | rejectattr('k', 'equalto', 'x') | map(attribute='v') | list }} {{ rows | rejectattr('o') | list | length }} {{ rows | selectattr('o', 'defined') | list | length }} {{ rows | selectattr('v', 'in', [1, 3]) | map(attribute='v') | list }}",
    "{{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, 2] | reject | list }} {{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ l | select('gt', 1) | list }} {{ none | select | list }} {{ l | select('divisibleby', 2) | list }}",
    "{{ lines | indent }}|{{ lines | indent(2) }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}|{{ lines | indent('> ', first=true, blank=true) }}|{{ '' | indent(2, true) }}|{{ 'a\n' | indent(3) }}|",
    "{{ d | tojson }} {{ s | tojson }} {{ q | tojson }} {{ u | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ [1, 2.0, none, true, 1e20] | tojson }} {{ {} | tojson }} {{ [] | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }} {{ '\U0001F600' | tojson(ensure_ascii=true) }} {{ '</x>&' | tojson }} {{ (1, 2) | tojson }} {{ '\x7f' | tojson }}",
    "{{ d | tojson(indent=2) }}\n{{ [[], {}, [1]] | tojson(indent=1) }}\n{{ d | tojson(indent=4, separators=(',', ':')) }} {{ d | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1] | tojson(indent=0) }} {{ d | tojson(indent='\t') }}",
    "{{ range | tojson }}", "{{ '{\"a\": [1, 2.5, null]}' | from_json }}", "{{ '{' | from_json }}", "{{ '<a href=\"x\">&\\'' | escape }}", "{{ 'a b  c' | wordcount }} {{ '%s %s' | format(1, 'b') }} {{ d | attr('b') }}|", "{{ 'a' | nofilter }}", "{% if no %}{{ 'a' | nofilter }}{% endif %}ok",
    "{{ s | safe }}{{ 5 | safe }}", "{{ -1 | string ~ 2 }} {{ 'a' ~ 'b' | upper }} {{ 1 + '2' | int }}",
    # tests
    "{{ s is string }} {{ n is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ d is iterable }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ none is iterable }}",
    "{{ n is number }} {{ f is number }} {{ t is number }} {{ s is number }} {{ t is boolean }} {{ 1 is boolean }} {{ none is none }} {{ x is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ n is integer }} {{ f is float }} {{ t is integer }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is lt 1 }} {{ 2 is ge 2 }} {{ 2 is le 1 }} {{ 'a' is in ['a'] }} {{ 'a' is in 'xyz' }} {{ 'abc' is lower }} {{ 'Abc' is upper }}",
    "{{ n is not none }} {{ x is not defined }} {{ n is defined and n is number }} {{ not n is string }} {{ 'yes' if n is defined else 'no' }} {{ n is defined or x }} {{ none is sameas none }} {{ 1 is sameas true }} {{ 'trim' is filter }} {{ 'qq' is filter }} {{ 'odd' is test }}", "{{ 1 is notest }}", "{{ 'a' is odd }}",
    # methods
    "{{ s.upper() }} {{ s.lower() }} {{ 'ab cd'.title() }} {{ 'ab'.capitalize() }} {{ w.strip() }}|{{ w.lstrip() }}|{{ w.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'abc'.rstrip('bc') }} {{ '\u3000a\u00a0'.strip() }}|",
    "{{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('a', 'H')) }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('日') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ ''.find('') }} {{ 'abc'.count('') }}",
    "{{ 'a,b,,c'.split(',') }} {{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a--b'.split('--') }} {{ ''.split(',') }} {{ ''.split() }} {{ 'abc'.split('x') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c'.split(none, 1) }} {{ 'a\nb\r\nc'.splitlines() }} {{ 'a,b,c'.rsplit(',') }} {{ 'a,b'.split(',', 0) }}",
    "{{ s.replace('l', '') }} {{ s.replace('l', 'x', 2) }} {{ 'ab'.replace('', '-') }} {{ '-'.join(['a', 'b']) }} {{ '{} {}'.format(1, 'x') }} {{ '{1}{0}{a}{{}}'.format(1, 2, a=3) }} {{ '12'.isdigit() }} {{ 'a1'.isalpha() }} {{ ' '.isspace() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
    "{{ 'a'.split('') }}", "{{ 'a'.nomethod() }}", "{{ 'a'.join([1]) }}", "{{ '{}'.format() }}", "{{ 'a'.startswith(1) }}",
    "{% set m = [1] %}{% set _ = m.append(2) %}{{ m }} {{ m.pop() }} {{ m }} {{ m.pop(0) }} {{ m }} {% set _ = m.extend([5, 6]) %}{{ m }}{% set _ = m.insert(1, 9) %}{{ m }} {{ m.index(9) }} {{ m.count(5) }}",
    "{% set m = {'a': 1} %}{% set _ = m.update({'b': 2}) %}{{ m }} {{ m.pop('a') }} {{ m }} {{ m.pop('zz', 3) }} {{ m.copy() }}", "{{ [].pop() }}", "{{ {}.pop('a') }}",
    # what is no template
    "{{", "{{ }}", "{% %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% for %}{% endfor %}", "{% for a of b %}{% endfor %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 'a }}", "{# a", "{% raw %}a",
    "{% unknown %}", "{{ a b }}", "{% set %}", "{% set 1 = 2 %}", "{% macro %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{% call 1 %}{% endcall %}", "{% break %}", "{{ a | }}", "{{ a is }}", "{{ a. }}", "{{ {1} }}", "{% if t %}{% endfor %}",
    "{{ a ! b }}", "{{ 1 $ 2 }}", "{% else %}", "{% for i in l %}{% else %}{% else %}{% endfor %}", "{% set true = 1 %}", "{{ f(a=1, 2 }}", "{{ } }}",
]


def c_string(s):
    out = []
    for b in s.encode():
        if b in b'"\\':
            out.append("\\" + chr(b))
        elif b == 10:
            out.append("\\n")
        elif b == 63 or b < 32 or b > 126:
            out.append(f"\\{b:03o}")
        else:
            out.append(chr(b))
    lines, line = [], ""
    for c in out:
        if len(line) + len(c) > 100:
            lines.append(line)
            line = ""
        line += c
    return "\n     ".join(f'"{x}"' for x in lines + [line])


def main():
    import jinja2
    env = check_templates.environment(jinja2)
    print("/* By tests/scripts/gen_jinja_expected.py: templates, and what Python's jinja2 makes of them with these variables. NULL: an\n"
          " * error. */\n#ifndef JINJA_EXPECTED_H\n#define JINJA_EXPECTED_H\n")
    print(f"enum {{ JINJA_NOW = {check_templates.NOW} }};")
    print("static const char jinja_vars[] =\n     " + c_string(json.dumps(VARS)) + ";\n")
    print("static const struct {\n    const char *text, *want;\n} jinja_expected[] = {")
    for text in TEMPLATES:
        try:
            want = env.from_string(text).render(**json.loads(json.dumps(VARS)))
        except Exception:  # noqa: BLE001: any error is one
            want = None
        print("    {" + c_string(text) + ",\n     " + (c_string(want) if want is not None else "NULL") + "},")
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
