#!/usr/bin/env python3
"""Writes tests/support/jinja_expected.h: small templates and their results in Python's jinja2 (see
check_templates.py).

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
    """Yields one template for each kind of tag: all sign characters on both sides, with all kinds of text around
    it."""
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
    # letter case, classes and printing of characters
    "{{ u | upper }} {{ u.upper() }} {{ 'ß ﬁn ŉ ΐ' | upper }} {{ 'ΑΣ ΣΑΣ Σ ΑΣ. Α.Σ ΑΣ\u00adΑ' | lower }} {{ 'İI' | lower }} {{ 'ǆ ǅ Ǆ' | upper }} {{ 'ÀÉ' | lower }} {{ 'აბ' | upper }}",
    "{{ 'hello-world (foo) [bar {baz <q it\\'s o.k. x_y' | title }} {{ \"hello-world (foo) it's o.k. x_y\".title() }} {{ 'ǆab ßx éÉ' | title }} {{ 'ǆab ßx éÉ აბ'.title() }} {{ 'a\u3000bc\u2028de' | title }} {{ 'ΑΣ-ΣΑΣ' | title }} {{ 'ΑΣ-ΣΑΣ'.title() }}",
    "{{ 'ǆAB' | capitalize }} {{ 'ßAB'.capitalize() }} {{ 'ΣΑΣ' | capitalize }} {{ '' | capitalize }}| {{ 'éA' | capitalize }} {{ 5 | title }} {{ none | capitalize }}",
    "{{ ['\u2028\u3000\u200b\ufeff\u00ad\u0378\ue000é日', '\U000e0001\U0001f600\U0010ffff', '\x01\x7f\x85'] }} {{ {'a\u2029': '\u3000'} }} {{ '%r' % '\u2060' }}",
    "{{ 'é'.isalpha() }}{{ '日'.isalpha() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '٣'.isdecimal() }}{{ 'a½'.isalnum() }}{{ 'É'.isupper() }}{{ 'ǅ'.isupper() }}{{ 'éa'.islower() }}{{ '1'.islower() }}{{ '\u2003'.isspace() }}",
    "{{ 'é' is lower }} {{ 'É1' is upper }} {{ 1 is lower }} {{ true is upper }} {{ none is upper }} {{ 'a-b, c_d é½ 日' | wordcount }}",
    "{{ 'a\rb\r\nc\x0bd\u2028e\x85f\x1cg\n'.splitlines() }} {{ 'a\n\nb\r\n'.splitlines(true) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ' a b '.rsplit(none, 0) }} {{ 'a b c'.rsplit() }}",
    # booleans are integers
    "{{ true + true }} {{ true * 2.5 }} {{ -true }} {{ +false }} {{ true // 2 }} {{ 5 % true }} {{ true ** 3 }} {{ true / 2 }} {{ 'ab' * true }}| {{ [1] * false }} {{ true < 2 }} {{ [true, 2] | sum }} {{ [true, 0] | sort }} {{ [false, 3] | max }}",
    "{{ l[true] }} {{ s[false] }} {{ l[true:] }} {{ range(true) | list }} {{ 'a b c'.split(' ', true) }} {{ '%d' % true }} {{ true | abs }} {{ true | round }} {{ true | int }} {{ false | float }} {{ true is odd }} {{ {1: 'x'}[true] }} {{ [1, 2].pop(false) }}",
    "{{ lines | indent(true) }} {{ 'aaa' | replace('a', 'b', true) }} {{ [1] | tojson(indent=true) }} {{ 2.55 | round(true) }} {{ 1 in [true] }} {{ [0, 1].index(true) }}",
    # numbers from strings
    "{{ '1_000' | int }} {{ '1__0' | int }} {{ '_1' | int }} {{ '٣٤' | int }} {{ '+5' | int }} {{ '- 5' | int }} {{ '' | int }} {{ '1e3' | int }} {{ '.5' | int }} {{ 'inf' | int(7) }} {{ 'nan' | int(7) }} {{ [] | int(7) }} {{ '007' | int }} {{ '\u30005\u2003' | int }} {{ '\x1c5' | int }}",
    "{{ 'ff' | int(0, 16) }} {{ '0xff' | int(0, 16) }} {{ '0b11' | int(0, 2) }} {{ '0o17' | int(base=8) }} {{ '0x1F' | int(9, 0) }} {{ '017' | int(9, 0) }} {{ '00' | int(9, 0) }} {{ 'z' | int(1, 36) }} {{ '12' | int(3, 1) }} {{ '12' | int(3, 'a') }} {{ '0x_f' | int(0, 16) }} {{ '9' | int(5, 8) }}",
    "{{ '1_0.5' | float }} {{ '.5' | float }} {{ '5.' | float }} {{ '.' | float }} {{ 'Infinity' | float }} {{ '-inf' | float }} {{ 'NaN' | float }} {{ '1e5' | float }} {{ '1e_5' | float }} {{ '1._5' | float }} {{ none | float }} {{ none | float(1) }} {{ '٣.٥' | float }} {{ '1e400' | float }} {{ ' -2.5 ' | float }} {{ 'x' | float('y') }}",
    "{{ x | int }}", "{{ x | float }}", "{{ ('inf' | float) | int }}", "{{ ('nan' | float) | int(3) }}", "{{ 2.7 | int }} {{ -2.7 | int }} {{ '2.7' | int }} {{ 1e3 | int }}",
    "{{ 2 | round }} {{ 25 | round(-1) }} {{ 35 | round(-1) }} {{ -25 | round(-1) }} {{ 2.5 | round(none) }} {{ 2.675 | round(2) }} {{ 0.5 | round }} {{ 1.5 | round }} {{ 1234.5 | round(-2) }} {{ 1e300 | round(2) }} {{ 2 | round(1, 'floor') }} {{ -0.5 | round(0, 'ceil') }}",
    "{{ 2.5 | round('a') }}", "{{ 2.5 | round(0, 'x') }}", "{{ 'a' | round }}", "{{ 7.5 % 0.1 }} {{ -1.0 // 0.1 }} {{ 1.0 // 0.1 }} {{ -0.0 }} {{ +(-0.0) }} {{ 5.0 is odd }} {{ 4.0 is divisibleby(2) }}", "{{ 'a' is divisibleby(2) }}",
    # arguments of indent
    "{{ 'a\rb\u2028\nc\x1cd' | indent(1) }}|{{ 'a\r' | indent(1) }}|{{ 'a\n\nb' | indent(-1) }}|{{ '\n' | indent(2, true, true) }}|", "{{ 1 | indent }}", "{{ none | indent }}", "{{ x | indent }}", "{{ [1] | indent }}", "{{ s | indent(1.5) }}", "{{ s | indent(none) }}", "{{ s | indent([]) }}",
    # loops
    "{% for i in range(5) %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(i // 2) }} {% endfor %}", "{% for i in l %}{{ loop.cycle() }}{% endfor %}", "{% for i in l %}{{ loop.cycle(*['x', 'y']) }}{{ loop.changed() }}{{ loop.changed(1, i is odd) }} {% endfor %}",
    "{% for i in [1, 1.0, true, 2] %}{{ loop.changed(i) }} {% endfor %}{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.changed(i) }}{% endfor %}{% endfor %}", "{% for i in l %}{{ loop.nothing is defined }}{% set c = loop.cycle %}{{ c(1, 2) }}{% endfor %}",
    # arguments
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, 4, x=5) }} {{ m(*[1, 2, 3], **{'z': 1}) }} {{ m() }} {{ m(1, a=2) }} {{ m(*'ab') }} {{ m(*{'k': 1}) }} {{ m(b=1, *[7]) }} {{ m(*x) }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }} {{ m(**{'b': 3}) }} {{ m(*[], **{}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1, 2]) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{'q': 1}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, **{'a': 1}) }}",
    "{{ dict(**{'a': 1}) }} {{ dict(a=1, **d) }} {{ dict({'q': 0}, **{'b': 2}) }} {{ range(*[1, 7, 2]) | list }} {{ s | replace(*['l', 'L']) }} {{ '{} {x}'.format(*[1], **{'x': 2}) }} {{ 9 is divisibleby(*[3]) }} {{ namespace(**{'v': 3}).v }}",
    "{{ dict(a=1, **{'a': 2}) }}", "{{ dict(**{1: 2}) }}", "{{ dict(**1) }}", "{{ dict(**x) }}", "{{ range(*5) }}", "{{ dict(a=1, a=2) }}", "{{ range(a=1, 2) }}", "{{ range(*[1], 2) }}", "{{ dict(**{}, a=1) }}", "{{ range(*[], *[]) }}", "{{ dict(**{}, **{}) }}", "{{ range(1, 2, 3, 4) }}",
    "{% macro o() %}[{{ caller(1, *[2], z=3) }}]{% endmacro %}{% call(a) o() %}{{ a }}{{ varargs }}{{ kwargs }}{% endcall %}", "{% macro o() %}x{% endmacro %}{% call o() %}y{% endcall %}", "{% macro o() %}{{ caller() }}{% endmacro %}{{ o() }}", "{% call range(3) %}y{% endcall %}",
    "{% macro m() %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}", "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(kwargs=2) }}", "{% macro m() %}{% macro i() %}{{ varargs }}{% endmacro %}{{ i(1) }}{% endmacro %}{{ m(2) }}", "{% macro m(caller=1) %}{{ caller }}{% endmacro %}{{ m() }}{{ m(2) }}",
    "{{ ('abc' % l) }} {{ '%s' % l }} {{ 'a' % x }} {{ '%s' % x }}| {{ x is callable }}", "{{ 'a' % 1 }}", "{{ 'a' % (1,) }}", "{{ [{}] | unique | list }}", "{{ [[1]] | unique | list }}", "{{ [(1,), (1,)] | unique | list }}", "{{ [1] + (2,) }}", "{{ [1] < (2,) }}", "{{ [1] in d }}", "{{ {} in d }}", "{{ (1,) in d }} {{ (1,) + (2,) }} {{ (1,) < (2,) }}",
    # invalid templates
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
    print("/* By tests/scripts/gen_jinja_expected.py: templates, and their results in Python's jinja2 with these\n"
          " * variables. NULL: an error. */\n#ifndef JINJA_EXPECTED_H\n#define JINJA_EXPECTED_H\n")
    print(f"enum {{ JINJA_NOW = {check_templates.NOW} }};")
    print("static const char jinja_vars[] =\n     " + c_string(json.dumps(VARS)) + ";\n")
    print("static const struct {\n    const char *text, *want;\n} jinja_expected[] = {")
    for text in TEMPLATES:
        try:
            want = env.from_string(text).render(**json.loads(json.dumps(VARS)))
        except Exception:  # any exception counts as an error
            want = None
        print("    {" + c_string(text) + ",\n     " + (c_string(want) if want is not None else "NULL") + "},")
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
