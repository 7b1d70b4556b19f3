/* By tests/scripts/gen_jinja_expected.py: templates, and what Python's jinja2 makes of them with these variables.
 * NULL: an error. */
#ifndef JINJA_EXPECTED_H
#define JINJA_EXPECTED_H

enum { JINJA_NOW = 1770000000 };
static const char jinja_vars[] =
     "{\"s\": \"Hello, World\", \"e\": \"\", \"u\": \"gr\\u00f6\\u00dfe \\u2192 \\u65e5\\u672c\", \"n\": 7"
     ", \"f\": 2.5, \"t\": true, \"no\": null, \"l\": [3, 1, 2], \"ls\": [\"b\", \"A\", \"c\", \"B\"], \"d"
     "\": {\"b\": 1, \"a\": {\"x\": [10, 20]}, \"items\": \"I\"}, \"empty\": {}, \"el\": [], \"rows\": [{"
     "\"k\": \"x\", \"v\": 1}, {\"k\": \"y\", \"v\": 2, \"o\": true}, {\"k\": \"x\", \"v\": 3}], \"w\": \""
     "  \\t two  words \\n\", \"lines\": \"one\\n\\n  two\\nthree\", \"q\": \"it's \\\"q\\\" \\\\ \\n\\t\\"
     "u0007\\u00a0\\u00ad\", \"big\": 123456789012}";

static const struct {
    const char *text, *want;
} jinja_expected[] = {
    {"a{% if t %}b{% endif +%}|a{% if t %}\nb{% endif +%}|a{% if t %}  b{% endif +%}|a{% if t %}\n  b{% en"
     "dif +%}|a{% if t %}\n\nb{% endif +%}|a{% if t -%}b{% endif +%}|a{% if t -%}\nb{% endif +%}|a{% if t "
     "-%}  b{% endif +%}|a{% if t -%}\n  b{% endif +%}|a{% if t -%}\n\nb{% endif +%}|a{% if t +%}b{% endif"
     " +%}|a{% if t +%}\nb{% endif +%}|a{% if t +%}  b{% endif +%}|a{% if t +%}\n  b{% endif +%}|a{% if t "
     "+%}\n\nb{% endif +%}|a{%- if t %}b{% endif +%}|a{%- if t %}\nb{% endif +%}|a{%- if t %}  b{% endif +"
     "%}|a{%- if t %}\n  b{% endif +%}|a{%- if t %}\n\nb{% endif +%}|a{%- if t -%}b{% endif +%}|a{%- if t "
     "-%}\nb{% endif +%}|a{%- if t -%}  b{% endif +%}|a{%- if t -%}\n  b{% endif +%}|a{%- if t -%}\n\nb{% "
     "endif +%}|a{%- if t +%}b{% endif +%}|a{%- if t +%}\nb{% endif +%}|a{%- if t +%}  b{% endif +%}|a{%- "
     "if t +%}\n  b{% endif +%}|a{%- if t +%}\n\nb{% endif +%}|a{%+ if t %}b{% endif +%}|a{%+ if t %}\nb{%"
     " endif +%}|a{%+ if t %}  b{% endif +%}|a{%+ if t %}\n  b{% endif +%}|a{%+ if t %}\n\nb{% endif +%}|a"
     "{%+ if t -%}b{% endif +%}|a{%+ if t -%}\nb{% endif +%}|a{%+ if t -%}  b{% endif +%}|a{%+ if t -%}\n "
     " b{% endif +%}|a{%+ if t -%}\n\nb{% endif +%}|a{%+ if t +%}b{% endif +%}|a{%+ if t +%}\nb{% endif +%"
     "}|a{%+ if t +%}  b{% endif +%}|a{%+ if t +%}\n  b{% endif +%}|a{%+ if t +%}\n\nb{% endif +%}|a\n{% i"
     "f t %}b{% endif +%}|a\n{% if t %}\nb{% endif +%}|a\n{% if t %}  b{% endif +%}|a\n{% if t %}\n  b{% e"
     "ndif +%}|a\n{% if t %}\n\nb{% endif +%}|a\n{% if t -%}b{% endif +%}|a\n{% if t -%}\nb{% endif +%}|a"
     "\n{% if t -%}  b{% endif +%}|a\n{% if t -%}\n  b{% endif +%}|a\n{% if t -%}\n\nb{% endif +%}|a\n{% i"
     "f t +%}b{% endif +%}|a\n{% if t +%}\nb{% endif +%}|a\n{% if t +%}  b{% endif +%}|a\n{% if t +%}\n  b"
     "{% endif +%}|a\n{% if t +%}\n\nb{% endif +%}|a\n{%- if t %}b{% endif +%}|a\n{%- if t %}\nb{% endif +"
     "%}|a\n{%- if t %}  b{% endif +%}|a\n{%- if t %}\n  b{% endif +%}|a\n{%- if t %}\n\nb{% endif +%}|a\n"
     "{%- if t -%}b{% endif +%}|a\n{%- if t -%}\nb{% endif +%}|a\n{%- if t -%}  b{% endif +%}|a\n{%- if t "
     "-%}\n  b{% endif +%}|a\n{%- if t -%}\n\nb{% endif +%}|a\n{%- if t +%}b{% endif +%}|a\n{%- if t +%}\n"
     "b{% endif +%}|a\n{%- if t +%}  b{% endif +%}|a\n{%- if t +%}\n  b{% endif +%}|a\n{%- if t +%}\n\nb{%"
     " endif +%}|a\n{%+ if t %}b{% endif +%}|a\n{%+ if t %}\nb{% endif +%}|a\n{%+ if t %}  b{% endif +%}|a"
     "\n{%+ if t %}\n  b{% endif +%}|a\n{%+ if t %}\n\nb{% endif +%}|a\n{%+ if t -%}b{% endif +%}|a\n{%+ i"
     "f t -%}\nb{% endif +%}|a\n{%+ if t -%}  b{% endif +%}|a\n{%+ if t -%}\n  b{% endif +%}|a\n{%+ if t -"
     "%}\n\nb{% endif +%}|a\n{%+ if t +%}b{% endif +%}|a\n{%+ if t +%}\nb{% endif +%}|a\n{%+ if t +%}  b{%"
     " endif +%}|a\n{%+ if t +%}\n  b{% endif +%}|a\n{%+ if t +%}\n\nb{% endif +%}|a  {% if t %}b{% endif "
     "+%}|a  {% if t %}\nb{% endif +%}|a  {% if t %}  b{% endif +%}|a  {% if t %}\n  b{% endif +%}|a  {% i"
     "f t %}\n\nb{% endif +%}|a  {% if t -%}b{% endif +%}|a  {% if t -%}\nb{% endif +%}|a  {% if t -%}  b{"
     "% endif +%}|a  {% if t -%}\n  b{% endif +%}|a  {% if t -%}\n\nb{% endif +%}|a  {% if t +%}b{% endif "
     "+%}|a  {% if t +%}\nb{% endif +%}|a  {% if t +%}  b{% endif +%}|a  {% if t +%}\n  b{% endif +%}|a  {"
     "% if t +%}\n\nb{% endif +%}|a  {%- if t %}b{% endif +%}|a  {%- if t %}\nb{% endif +%}|a  {%- if t %}"
     "  b{% endif +%}|a  {%- if t %}\n  b{% endif +%}|a  {%- if t %}\n\nb{% endif +%}|a  {%- if t -%}b{% e"
     "ndif +%}|a  {%- if t -%}\nb{% endif +%}|a  {%- if t -%}  b{% endif +%}|a  {%- if t -%}\n  b{% endif "
     "+%}|a  {%- if t -%}\n\nb{% endif +%}|a  {%- if t +%}b{% endif +%}|a  {%- if t +%}\nb{% endif +%}|a  "
     "{%- if t +%}  b{% endif +%}|a  {%- if t +%}\n  b{% endif +%}|a  {%- if t +%}\n\nb{% endif +%}|a  {%+"
     " if t %}b{% endif +%}|a  {%+ if t %}\nb{% endif +%}|a  {%+ if t %}  b{% endif +%}|a  {%+ if t %}\n  "
     "b{% endif +%}|a  {%+ if t %}\n\nb{% endif +%}|a  {%+ if t -%}b{% endif +%}|a  {%+ if t -%}\nb{% endi"
     "f +%}|a  {%+ if t -%}  b{% endif +%}|a  {%+ if t -%}\n  b{% endif +%}|a  {%+ if t -%}\n\nb{% endif +"
     "%}|a  {%+ if t +%}b{% endif +%}|a  {%+ if t +%}\nb{% endif +%}|a  {%+ if t +%}  b{% endif +%}|a  {%+"
     " if t +%}\n  b{% endif +%}|a  {%+ if t +%}\n\nb{% endif +%}|a\n  {% if t %}b{% endif +%}|a\n  {% if "
     "t %}\nb{% endif +%}|a\n  {% if t %}  b{% endif +%}|a\n  {% if t %}\n  b{% endif +%}|a\n  {% if t %}"
     "\n\nb{% endif +%}|a\n  {% if t -%}b{% endif +%}|a\n  {% if t -%}\nb{% endif +%}|a\n  {% if t -%}  b{"
     "% endif +%}|a\n  {% if t -%}\n  b{% endif +%}|a\n  {% if t -%}\n\nb{% endif +%}|a\n  {% if t +%}b{% "
     "endif +%}|a\n  {% if t +%}\nb{% endif +%}|a\n  {% if t +%}  b{% endif +%}|a\n  {% if t +%}\n  b{% en"
     "dif +%}|a\n  {% if t +%}\n\nb{% endif +%}|a\n  {%- if t %}b{% endif +%}|a\n  {%- if t %}\nb{% endif "
     "+%}|a\n  {%- if t %}  b{% endif +%}|a\n  {%- if t %}\n  b{% endif +%}|a\n  {%- if t %}\n\nb{% endif "
     "+%}|a\n  {%- if t -%}b{% endif +%}|a\n  {%- if t -%}\nb{% endif +%}|a\n  {%- if t -%}  b{% endif +%}"
     "|a\n  {%- if t -%}\n  b{% endif +%}|a\n  {%- if t -%}\n\nb{% endif +%}|a\n  {%- if t +%}b{% endif +%"
     "}|a\n  {%- if t +%}\nb{% endif +%}|a\n  {%- if t +%}  b{% endif +%}|a\n  {%- if t +%}\n  b{% endif +"
     "%}|a\n  {%- if t +%}\n\nb{% endif +%}|a\n  {%+ if t %}b{% endif +%}|a\n  {%+ if t %}\nb{% endif +%}|"
     "a\n  {%+ if t %}  b{% endif +%}|a\n  {%+ if t %}\n  b{% endif +%}|a\n  {%+ if t %}\n\nb{% endif +%}|"
     "a\n  {%+ if t -%}b{% endif +%}|a\n  {%+ if t -%}\nb{% endif +%}|a\n  {%+ if t -%}  b{% endif +%}|a\n"
     "  {%+ if t -%}\n  b{% endif +%}|a\n  {%+ if t -%}\n\nb{% endif +%}|a\n  {%+ if t +%}b{% endif +%}|a"
     "\n  {%+ if t +%}\nb{% endif +%}|a\n  {%+ if t +%}  b{% endif +%}|a\n  {%+ if t +%}\n  b{% endif +%}|"
     "a\n  {%+ if t +%}\n\nb{% endif +%}|a\n\n \011{% if t %}b{% endif +%}|a\n\n \011{% if t %}\nb{% endif"
     " +%}|a\n\n \011{% if t %}  b{% endif +%}|a\n\n \011{% if t %}\n  b{% endif +%}|a\n\n \011{% if t %}"
     "\n\nb{% endif +%}|a\n\n \011{% if t -%}b{% endif +%}|a\n\n \011{% if t -%}\nb{% endif +%}|a\n\n \011"
     "{% if t -%}  b{% endif +%}|a\n\n \011{% if t -%}\n  b{% endif +%}|a\n\n \011{% if t -%}\n\nb{% endif"
     " +%}|a\n\n \011{% if t +%}b{% endif +%}|a\n\n \011{% if t +%}\nb{% endif +%}|a\n\n \011{% if t +%}  "
     "b{% endif +%}|a\n\n \011{% if t +%}\n  b{% endif +%}|a\n\n \011{% if t +%}\n\nb{% endif +%}|a\n\n "
     "\011{%- if t %}b{% endif +%}|a\n\n \011{%- if t %}\nb{% endif +%}|a\n\n \011{%- if t %}  b{% endif +"
     "%}|a\n\n \011{%- if t %}\n  b{% endif +%}|a\n\n \011{%- if t %}\n\nb{% endif +%}|a\n\n \011{%- if t "
     "-%}b{% endif +%}|a\n\n \011{%- if t -%}\nb{% endif +%}|a\n\n \011{%- if t -%}  b{% endif +%}|a\n\n "
     "\011{%- if t -%}\n  b{% endif +%}|a\n\n \011{%- if t -%}\n\nb{% endif +%}|a\n\n \011{%- if t +%}b{% "
     "endif +%}|a\n\n \011{%- if t +%}\nb{% endif +%}|a\n\n \011{%- if t +%}  b{% endif +%}|a\n\n \011{%- "
     "if t +%}\n  b{% endif +%}|a\n\n \011{%- if t +%}\n\nb{% endif +%}|a\n\n \011{%+ if t %}b{% endif +%}"
     "|a\n\n \011{%+ if t %}\nb{% endif +%}|a\n\n \011{%+ if t %}  b{% endif +%}|a\n\n \011{%+ if t %}\n  "
     "b{% endif +%}|a\n\n \011{%+ if t %}\n\nb{% endif +%}|a\n\n \011{%+ if t -%}b{% endif +%}|a\n\n \011{"
     "%+ if t -%}\nb{% endif +%}|a\n\n \011{%+ if t -%}  b{% endif +%}|a\n\n \011{%+ if t -%}\n  b{% endif"
     " +%}|a\n\n \011{%+ if t -%}\n\nb{% endif +%}|a\n\n \011{%+ if t +%}b{% endif +%}|a\n\n \011{%+ if t "
     "+%}\nb{% endif +%}|a\n\n \011{%+ if t +%}  b{% endif +%}|a\n\n \011{%+ if t +%}\n  b{% endif +%}|a\n"
     "\n \011{%+ if t +%}\n\nb{% endif +%}",
     "ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|a"
     "b|a\nb|a  b|a\n  b|a\n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\nb|a\nb|a"
     "\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|ab|ab|a  b|a  b|a"
     "\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\nb|a\nb|a\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\n"
     "b|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|a  b|a  b|a    b|a    b|a  \nb|a  b|a  b|a  b|a  b|a  b|a  b|"
     "a  \nb|a    b|a  \n  b|a  \n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a  b|"
     "a  b|a    b|a    b|a  \nb|a  b|a  b|a  b|a  b|a  b|a  b|a  \nb|a    b|a  \n  b|a  \n\nb|a\nb|a\nb|a"
     "\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|ab|ab|a  b|a  b|a"
     "\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\n  b|a\n  b|a\n    b|a\n    b|a\n  \nb|a\n  b|a\n  b"
     "|a\n  b|a\n  b|a\n  b|a\n  b|a\n  \nb|a\n    b|a\n  \n  b|a\n  \n\nb|a\n\nb|a\n\nb|a\n\n  b|a\n\n  b"
     "|a\n\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\n\nb|a\n\n  b|a\n\n\n  b|a\n\n\n\nb|ab|ab|a "
     " b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\n\n \011b|a\n\n \011b|a\n\n \011  b|a\n\n "
     "\011  b|a\n\n \011\nb|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n "
     "\011\nb|a\n\n \011  b|a\n\n \011\n  b|a\n\n \011\n\nb"},
    {"a{{ n }}b|a{{ n }}\nb|a{{ n }}  b|a{{ n }}\n  b|a{{ n }}\n\nb|a{{ n -}}b|a{{ n -}}\nb|a{{ n -}}  b|a"
     "{{ n -}}\n  b|a{{ n -}}\n\nb|a{{- n }}b|a{{- n }}\nb|a{{- n }}  b|a{{- n }}\n  b|a{{- n }}\n\nb|a{{-"
     " n -}}b|a{{- n -}}\nb|a{{- n -}}  b|a{{- n -}}\n  b|a{{- n -}}\n\nb|a\n{{ n }}b|a\n{{ n }}\nb|a\n{{ "
     "n }}  b|a\n{{ n }}\n  b|a\n{{ n }}\n\nb|a\n{{ n -}}b|a\n{{ n -}}\nb|a\n{{ n -}}  b|a\n{{ n -}}\n  b|"
     "a\n{{ n -}}\n\nb|a\n{{- n }}b|a\n{{- n }}\nb|a\n{{- n }}  b|a\n{{- n }}\n  b|a\n{{- n }}\n\nb|a\n{{-"
     " n -}}b|a\n{{- n -}}\nb|a\n{{- n -}}  b|a\n{{- n -}}\n  b|a\n{{- n -}}\n\nb|a  {{ n }}b|a  {{ n }}\n"
     "b|a  {{ n }}  b|a  {{ n }}\n  b|a  {{ n }}\n\nb|a  {{ n -}}b|a  {{ n -}}\nb|a  {{ n -}}  b|a  {{ n -"
     "}}\n  b|a  {{ n -}}\n\nb|a  {{- n }}b|a  {{- n }}\nb|a  {{- n }}  b|a  {{- n }}\n  b|a  {{- n }}\n\n"
     "b|a  {{- n -}}b|a  {{- n -}}\nb|a  {{- n -}}  b|a  {{- n -}}\n  b|a  {{- n -}}\n\nb|a\n  {{ n }}b|a"
     "\n  {{ n }}\nb|a\n  {{ n }}  b|a\n  {{ n }}\n  b|a\n  {{ n }}\n\nb|a\n  {{ n -}}b|a\n  {{ n -}}\nb|a"
     "\n  {{ n -}}  b|a\n  {{ n -}}\n  b|a\n  {{ n -}}\n\nb|a\n  {{- n }}b|a\n  {{- n }}\nb|a\n  {{- n }} "
     " b|a\n  {{- n }}\n  b|a\n  {{- n }}\n\nb|a\n  {{- n -}}b|a\n  {{- n -}}\nb|a\n  {{- n -}}  b|a\n  {{"
     "- n -}}\n  b|a\n  {{- n -}}\n\nb|a\n\n \011{{ n }}b|a\n\n \011{{ n }}\nb|a\n\n \011{{ n }}  b|a\n\n "
     "\011{{ n }}\n  b|a\n\n \011{{ n }}\n\nb|a\n\n \011{{ n -}}b|a\n\n \011{{ n -}}\nb|a\n\n \011{{ n -}}"
     "  b|a\n\n \011{{ n -}}\n  b|a\n\n \011{{ n -}}\n\nb|a\n\n \011{{- n }}b|a\n\n \011{{- n }}\nb|a\n\n "
     "\011{{- n }}  b|a\n\n \011{{- n }}\n  b|a\n\n \011{{- n }}\n\nb|a\n\n \011{{- n -}}b|a\n\n \011{{- n"
     " -}}\nb|a\n\n \011{{- n -}}  b|a\n\n \011{{- n -}}\n  b|a\n\n \011{{- n -}}\n\nb",
     "a7b|a7\nb|a7  b|a7\n  b|a7\n\nb|a7b|a7b|a7b|a7b|a7b|a7b|a7\nb|a7  b|a7\n  b|a7\n\nb|a7b|a7b|a7b|a7b|"
     "a7b|a\n7b|a\n7\nb|a\n7  b|a\n7\n  b|a\n7\n\nb|a\n7b|a\n7b|a\n7b|a\n7b|a\n7b|a7b|a7\nb|a7  b|a7\n  b|"
     "a7\n\nb|a7b|a7b|a7b|a7b|a7b|a  7b|a  7\nb|a  7  b|a  7\n  b|a  7\n\nb|a  7b|a  7b|a  7b|a  7b|a  7b|"
     "a7b|a7\nb|a7  b|a7\n  b|a7\n\nb|a7b|a7b|a7b|a7b|a7b|a\n  7b|a\n  7\nb|a\n  7  b|a\n  7\n  b|a\n  7\n"
     "\nb|a\n  7b|a\n  7b|a\n  7b|a\n  7b|a\n  7b|a7b|a7\nb|a7  b|a7\n  b|a7\n\nb|a7b|a7b|a7b|a7b|a7b|a\n"
     "\n \0117b|a\n\n \0117\nb|a\n\n \0117  b|a\n\n \0117\n  b|a\n\n \0117\n\nb|a\n\n \0117b|a\n\n \0117b|"
     "a\n\n \0117b|a\n\n \0117b|a\n\n \0117b|a7b|a7\nb|a7  b|a7\n  b|a7\n\nb|a7b|a7b|a7b|a7b|a7b"},
    {"a{# c #}b|a{# c #}\nb|a{# c #}  b|a{# c #}\n  b|a{# c #}\n\nb|a{# c -#}b|a{# c -#}\nb|a{# c -#}  b|a"
     "{# c -#}\n  b|a{# c -#}\n\nb|a{# c +#}b|a{# c +#}\nb|a{# c +#}  b|a{# c +#}\n  b|a{# c +#}\n\nb|a{#-"
     " c #}b|a{#- c #}\nb|a{#- c #}  b|a{#- c #}\n  b|a{#- c #}\n\nb|a{#- c -#}b|a{#- c -#}\nb|a{#- c -#} "
     " b|a{#- c -#}\n  b|a{#- c -#}\n\nb|a{#- c +#}b|a{#- c +#}\nb|a{#- c +#}  b|a{#- c +#}\n  b|a{#- c +#"
     "}\n\nb|a{#+ c #}b|a{#+ c #}\nb|a{#+ c #}  b|a{#+ c #}\n  b|a{#+ c #}\n\nb|a{#+ c -#}b|a{#+ c -#}\nb|"
     "a{#+ c -#}  b|a{#+ c -#}\n  b|a{#+ c -#}\n\nb|a{#+ c +#}b|a{#+ c +#}\nb|a{#+ c +#}  b|a{#+ c +#}\n  "
     "b|a{#+ c +#}\n\nb|a\n{# c #}b|a\n{# c #}\nb|a\n{# c #}  b|a\n{# c #}\n  b|a\n{# c #}\n\nb|a\n{# c -#"
     "}b|a\n{# c -#}\nb|a\n{# c -#}  b|a\n{# c -#}\n  b|a\n{# c -#}\n\nb|a\n{# c +#}b|a\n{# c +#}\nb|a\n{#"
     " c +#}  b|a\n{# c +#}\n  b|a\n{# c +#}\n\nb|a\n{#- c #}b|a\n{#- c #}\nb|a\n{#- c #}  b|a\n{#- c #}\n"
     "  b|a\n{#- c #}\n\nb|a\n{#- c -#}b|a\n{#- c -#}\nb|a\n{#- c -#}  b|a\n{#- c -#}\n  b|a\n{#- c -#}\n"
     "\nb|a\n{#- c +#}b|a\n{#- c +#}\nb|a\n{#- c +#}  b|a\n{#- c +#}\n  b|a\n{#- c +#}\n\nb|a\n{#+ c #}b|a"
     "\n{#+ c #}\nb|a\n{#+ c #}  b|a\n{#+ c #}\n  b|a\n{#+ c #}\n\nb|a\n{#+ c -#}b|a\n{#+ c -#}\nb|a\n{#+ "
     "c -#}  b|a\n{#+ c -#}\n  b|a\n{#+ c -#}\n\nb|a\n{#+ c +#}b|a\n{#+ c +#}\nb|a\n{#+ c +#}  b|a\n{#+ c "
     "+#}\n  b|a\n{#+ c +#}\n\nb|a  {# c #}b|a  {# c #}\nb|a  {# c #}  b|a  {# c #}\n  b|a  {# c #}\n\nb|a"
     "  {# c -#}b|a  {# c -#}\nb|a  {# c -#}  b|a  {# c -#}\n  b|a  {# c -#}\n\nb|a  {# c +#}b|a  {# c +#}"
     "\nb|a  {# c +#}  b|a  {# c +#}\n  b|a  {# c +#}\n\nb|a  {#- c #}b|a  {#- c #}\nb|a  {#- c #}  b|a  {"
     "#- c #}\n  b|a  {#- c #}\n\nb|a  {#- c -#}b|a  {#- c -#}\nb|a  {#- c -#}  b|a  {#- c -#}\n  b|a  {#-"
     " c -#}\n\nb|a  {#- c +#}b|a  {#- c +#}\nb|a  {#- c +#}  b|a  {#- c +#}\n  b|a  {#- c +#}\n\nb|a  {#+"
     " c #}b|a  {#+ c #}\nb|a  {#+ c #}  b|a  {#+ c #}\n  b|a  {#+ c #}\n\nb|a  {#+ c -#}b|a  {#+ c -#}\nb"
     "|a  {#+ c -#}  b|a  {#+ c -#}\n  b|a  {#+ c -#}\n\nb|a  {#+ c +#}b|a  {#+ c +#}\nb|a  {#+ c +#}  b|a"
     "  {#+ c +#}\n  b|a  {#+ c +#}\n\nb|a\n  {# c #}b|a\n  {# c #}\nb|a\n  {# c #}  b|a\n  {# c #}\n  b|a"
     "\n  {# c #}\n\nb|a\n  {# c -#}b|a\n  {# c -#}\nb|a\n  {# c -#}  b|a\n  {# c -#}\n  b|a\n  {# c -#}\n"
     "\nb|a\n  {# c +#}b|a\n  {# c +#}\nb|a\n  {# c +#}  b|a\n  {# c +#}\n  b|a\n  {# c +#}\n\nb|a\n  {#- "
     "c #}b|a\n  {#- c #}\nb|a\n  {#- c #}  b|a\n  {#- c #}\n  b|a\n  {#- c #}\n\nb|a\n  {#- c -#}b|a\n  {"
     "#- c -#}\nb|a\n  {#- c -#}  b|a\n  {#- c -#}\n  b|a\n  {#- c -#}\n\nb|a\n  {#- c +#}b|a\n  {#- c +#}"
     "\nb|a\n  {#- c +#}  b|a\n  {#- c +#}\n  b|a\n  {#- c +#}\n\nb|a\n  {#+ c #}b|a\n  {#+ c #}\nb|a\n  {"
     "#+ c #}  b|a\n  {#+ c #}\n  b|a\n  {#+ c #}\n\nb|a\n  {#+ c -#}b|a\n  {#+ c -#}\nb|a\n  {#+ c -#}  b"
     "|a\n  {#+ c -#}\n  b|a\n  {#+ c -#}\n\nb|a\n  {#+ c +#}b|a\n  {#+ c +#}\nb|a\n  {#+ c +#}  b|a\n  {#"
     "+ c +#}\n  b|a\n  {#+ c +#}\n\nb|a\n\n \011{# c #}b|a\n\n \011{# c #}\nb|a\n\n \011{# c #}  b|a\n\n "
     "\011{# c #}\n  b|a\n\n \011{# c #}\n\nb|a\n\n \011{# c -#}b|a\n\n \011{# c -#}\nb|a\n\n \011{# c -#}"
     "  b|a\n\n \011{# c -#}\n  b|a\n\n \011{# c -#}\n\nb|a\n\n \011{# c +#}b|a\n\n \011{# c +#}\nb|a\n\n "
     "\011{# c +#}  b|a\n\n \011{# c +#}\n  b|a\n\n \011{# c +#}\n\nb|a\n\n \011{#- c #}b|a\n\n \011{#- c "
     "#}\nb|a\n\n \011{#- c #}  b|a\n\n \011{#- c #}\n  b|a\n\n \011{#- c #}\n\nb|a\n\n \011{#- c -#}b|a\n"
     "\n \011{#- c -#}\nb|a\n\n \011{#- c -#}  b|a\n\n \011{#- c -#}\n  b|a\n\n \011{#- c -#}\n\nb|a\n\n "
     "\011{#- c +#}b|a\n\n \011{#- c +#}\nb|a\n\n \011{#- c +#}  b|a\n\n \011{#- c +#}\n  b|a\n\n \011{#- "
     "c +#}\n\nb|a\n\n \011{#+ c #}b|a\n\n \011{#+ c #}\nb|a\n\n \011{#+ c #}  b|a\n\n \011{#+ c #}\n  b|a"
     "\n\n \011{#+ c #}\n\nb|a\n\n \011{#+ c -#}b|a\n\n \011{#+ c -#}\nb|a\n\n \011{#+ c -#}  b|a\n\n \011"
     "{#+ c -#}\n  b|a\n\n \011{#+ c -#}\n\nb|a\n\n \011{#+ c +#}b|a\n\n \011{#+ c +#}\nb|a\n\n \011{#+ c "
     "+#}  b|a\n\n \011{#+ c +#}\n  b|a\n\n \011{#+ c +#}\n\nb",
     "ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|a"
     "b|a\nb|a  b|a\n  b|a\n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\nb|a\nb|a"
     "\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|ab|ab|a  b|a  b|a"
     "\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\nb|a\nb|a\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\n"
     "b|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|a  b|a  b|a    b|a    b|a  \nb|a  b|a  b|a  b|a  b|a  b|a  b|"
     "a  \nb|a    b|a  \n  b|a  \n\nb|ab|ab|a  b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a  b|"
     "a  b|a    b|a    b|a  \nb|a  b|a  b|a  b|a  b|a  b|a  b|a  \nb|a    b|a  \n  b|a  \n\nb|a\nb|a\nb|a"
     "\n  b|a\n  b|a\n\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\nb|a\n\nb|a\n  b|a\n\n  b|a\n\n\nb|ab|ab|a  b|a  b|a"
     "\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\n  b|a\n  b|a\n    b|a\n    b|a\n  \nb|a\n  b|a\n  b"
     "|a\n  b|a\n  b|a\n  b|a\n  b|a\n  \nb|a\n    b|a\n  \n  b|a\n  \n\nb|a\n\nb|a\n\nb|a\n\n  b|a\n\n  b"
     "|a\n\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\nb|a\n\n\nb|a\n\n  b|a\n\n\n  b|a\n\n\n\nb|ab|ab|a "
     " b|a  b|a\nb|ab|ab|ab|ab|ab|ab|a\nb|a  b|a\n  b|a\n\nb|a\n\n \011b|a\n\n \011b|a\n\n \011  b|a\n\n "
     "\011  b|a\n\n \011\nb|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n \011b|a\n\n "
     "\011\nb|a\n\n \011  b|a\n\n \011\n  b|a\n\n \011\n\nb"},
    {"",
     ""},
    {"plain",
     "plain"},
    {"a\015\nb\015c\n",
     "a\nb\nc"},
    {"a\n\n",
     "a\n"},
    {"{{ '{{' }}",
     "{{"},
    {"{{ '}}' }}",
     "}}"},
    {"{{ {'a': {}} }}",
     "{'a': {}}"},
    {"{{ {'a': {'b': 1}}['a'] }}",
     "{'b': 1}"},
    {"{% raw %}{{ x }}{% if %}{% endraw %}",
     "{{ x }}{% if %}"},
    {"a\n  {%- raw -%}  \n {{ x }}\n  {% endraw %}\n\nb",
     "a{{ x }}\n\nb"},
    {"a{% raw %}\n  b{%- endraw -%}  \n c",
     "a\n  bc"},
    {"{% raw %} {% raw %} {% endraw %}",
     " {% raw %} "},
    {"{#- {{ x }} {% y %} -#} a",
     "a"},
    {"a {#\n b\n#}\nc",
     "a c"},
    {"  {% if t %}  \n  x\n  {% endif %}  \n",
     "  \n  x\n  "},
    {"{%-if t-%} x {%-endif-%}",
     "x"},
    {"{% if t %}\n{{ n }}\n{% endif %}\n",
     "7\n"},
    {"{{ n }}\n{{ n }}\n",
     "7\n7"},
    {"{{n}}{{-n-}} {{n}}",
     "777"},
    {"   {{ n }}",
     "   7"},
    {"\n   {% set x = 1 %}{{ x }}",
     "\n1"},
    {"{{ 1 }} {{ -1 }} {{ 1.5 }} {{ 1e3 }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1"
     ".5e-7 }}",
     "1 -1 1.5 1000.0 1.0 1e+16 1000000000000000.0 0.0001 1e-05 1.5e-07"},
    {"{{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ 100.0 }} {{ 123456.789 }} {{ 1e22 }} {{ 1e100 }} {{ 5e-324 }} {{ 1.79"
     "76931348623157e308 }}",
     "0.30000000000000004 0.3333333333333333 100.0 123456.789 1e+22 1e+100 5e-324 1.7976931348623157e+308"},
    {"{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
     "True True False None None"},
    {"{{ 'a' 'b' \"c\" }}",
     "abc"},
    {"{{ 'a\\n\\t\\\\\\'\\\"\\x41\\u00e9\\q\\0\\101' }}",
     "a\n\011\\'\"A\303\251\\q\000A"},
    {"{{ \"it\\'s\" }}",
     "it's"},
    {"{{ [] }} {{ [1, 'a', none, 2.0, true] }} {{ [1,] }}",
     "[] [1, 'a', None, 2.0, True] [1]"},
    {"{{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}",
     "() (1,) (1, 2) (1, 2)"},
    {"{{ {} }} {{ {'a': 1, 2: 'b', 'c': [1]} }} {{ {'a': 1, 'a': 2} }}",
     "{} {'a': 1, 2: 'b', 'c': [1]} {'a': 2}"},
    {"{{ q }} {{ [q] }} {{ ['\"', \"'\", 'a'] }} {{ [u] }}",
     "it's \"q\" \\ \n\011\007\302\240\302\255 ['it\\'s \"q\" \\\\ \\n\\t\\x07\\xa0\\xad'] ['\"', \"'\", '"
     "a'] ['gr\303\266\303\237e \342\206\222 \346\227\245\346\234\254']"},
    {"{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{"
     " 7 % -3 }}",
     "7 9 3.5 3 -4 1 2 -2"},
    {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 - -1 "
     "}} {{ +3 }}",
     "1024 0.5 64 4 3.0 0.5 2 3"},
    {"{{ true + 1 }} {{ 1 == true }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2]"
     " }} {{ (1,) == [1] }}",
     "2 True True False False True False"},
    {"{{ 1 < 2 }} {{ 2 <= 2 }} {{ 'a' < 'b' }} {{ 3 > 2 > 1 }} {{ 1 < 3 < 2 }} {{ 1 != 2 }} {{ 'b' >= 'abc"
     "' }} {{ [1, 2] < [1, 3] }}",
     "True True True True False True True True"},
    {"{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ 2 * [1, 2] }} {{ "
     "'x' * 0 }}|{{ 'x' * -1 }}",
     "a1None2.0[1] ab [1, 2] ababab [1, 2, 1, 2] |"},
    {"{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1] }} {{ 'b' in d }} {{ 'z' in d }} {{ '' in 'a' "
     "}} {{ 2 in (1, 2) }}",
     "True True True True False True True"},
    {"{{ not true }} {{ not 0 and 1 }} {{ 0 or 'x' }} {{ '' or none or 'y' }} {{ 1 and 2 }} {{ 0 and x.y }"
     "} {{ not not 1 }}",
     "False 1 x y 2 0 True"},
    {"{{ 'a' if t else 'b' }} {{ 'a' if not t else 'b' }} {{ 'a' if no }}| {{ 1 if no else 2 if no else 3 "
     "}}",
     "a b | 3"},
    {"{{ 1 + 2 ~ 3 + 4 }} {{ 1 if 0 or 1 else 2 }} {{ 2 * 3 ~ 4 }}",
     NULL},
    {"{{ '%s is %d%%' % ('x', 3) }} {{ '%s' % 'a' }} {{ '%s-%s' % (1, [2]) }} {{ '%r' % 'a' }}",
     "x is 3% a 1-[2] 'a'"},
    {"{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d['a']['x'][-1] }} {{ d.zz }}| {{ d['zz'] }}| {{ l[0] }} {{"
     " l.0 }} {{ l[-1] }} {{ l[9] }}|",
     "1 1 20 20 | | 3 3 2 |"},
    {"{{ d['items'] }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') "
     "}} {{ d.get('q') }} {{ d.get('q', 5) }}",
     "I [('b', 1), ('a', {'x': [10, 20]}), ('items', 'I')] ['b', 'a', 'items'] [1, {'x': [10, 20]}, 'I'] 1"
     " None 5"},
    {"{{ s[0] }} {{ s[-1] }} {{ s[99] }}| {{ u[2] }} {{ u[-1] }} {{ l[true] }}",
     "H d | \303\266 \346\234\254 1"},
    {"{{ empty['items'] is defined }} {{ empty.items is defined }}",
     "True True"},
    {"{{ s[1:3] }} {{ s[:2] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ u[2:5] }} {{ u[::-1] }} {{ s[5:2"
     "] }}| {{ s[-99:99] }} {{ s[10:0:-3] }}",
     "el He rld Hlo ol dlroW ,olleH \303\266\303\237e \346\234\254\346\227\245 \342\206\222 e\303\237\303"
     "\266rg | Hello, World lWoe"},
    {"{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[none:2] }} {{ (1, 2, 3)[:2] }} "
     "{{ l[-2::-1] }} {{ l[::9223372036854775807] }}",
     "[1, 2] [3, 1] [2, 1, 3] [3, 2] [] [3, 1] (1, 2) [1, 3] [3]"},
    {"{{ x }}|{{ x is defined }} {{ x is undefined }} {{ not x }} {{ x or 'y' }} {{ x == y }} {{ x | defau"
     "lt('d') }} {{ x | length }}",
     "|False True True y True d 0"},
    {"{% for a in x %}a{% else %}none{% endfor %} {{ 1 in x }} {{ x | list }} {{ [x] }} {{ x ~ 'a' }} {{ x"
     " | upper }}|{{ x | trim }}|{{ x | join }}|",
     "none False [] [Undefined] a |||"},
    {"{{ x.y }}",
     NULL},
    {"{{ x['y'] }}",
     NULL},
    {"{{ x() }}",
     NULL},
    {"{{ x + 1 }}",
     NULL},
    {"{{ x < 1 }}",
     NULL},
    {"{{ d.q.r }}",
     NULL},
    {"{{ x | tojson }}",
     NULL},
    {"{{ x | items | list }}",
     "[]"},
    {"{{ no.x }}|{{ no['x'] }}|{{ n.x }}|",
     "|||"},
    {"{{ no() }}",
     NULL},
    {"{{ 'a' + 1 }}",
     NULL},
    {"{{ none + 'a' }}",
     NULL},
    {"{{ [] < 1 }}",
     NULL},
    {"{{ none < 1 }}",
     NULL},
    {"{{ 1 / 0 }}",
     NULL},
    {"{{ 1 % 0 }}",
     NULL},
    {"{{ 'a' - 'b' }}",
     NULL},
    {"{{ 1 in 2 }}",
     NULL},
    {"{{ 1 in 'a' }}",
     NULL},
    {"{{ l['a'] }}|",
     "|"},
    {"{{ -'a' }}",
     NULL},
    {"{{ {[]: 1} }}",
     NULL},
    {"{{ n | length }}",
     NULL},
    {"{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}",
     "big"},
    {"{% if n > 9 %}a{% elif n > 5 %}b{% elif n %}c{% else %}d{% endif %}",
     "b"},
    {"{% if n > 9 %}a{% elif no %}b{% else %}{% if t %}d{% endif %}{% endif %}",
     "d"},
    {"{% if no %}{% else %}{% if no %}x{% endif %}y{% endif %}",
     "y"},
    {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.firs"
     "t }}{{ loop.last }}{{ loop.length }} {% endfor %}",
     "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 "},
    {"{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}{% for i in l %}{{ loop."
     "previtem is defined }}{% endfor %}",
     "<3>1 3<1>2 1<2> FalseTrueTrue"},
    {"{% for i in [1, 2] %}{% for j in 'ab' %}{{ loop.depth }}{{ loop.depth0 }}{{ i }}{{ j }}{{ loop.index"
     " }} {% endfor %}{{ loop.index }}{% endfor %}",
     "101a1 101b2 1102a1 102b2 2"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a, "
     "(b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}",
     "b=1;a={'x': [10, 20]};items=I;baitems6"},
    {"{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}x{% else %}empty{% endfor %}",
     "emptyx"},
    {"{% for i in range(10) if i is odd %}{{ i }}{{ loop.length }}{% if not loop.last %},{% endif %}{% end"
     "for %}",
     "15,35,55,75,95"},
    {"{% for i in l if i > 99 %}x{% else %}none{% endfor %}",
     "none"},
    {"{% for c in u %}[{{ c }}]{% endfor %}",
     "[g][r][\303\266][\303\237][e][ ][\342\206\222][ ][\346\227\245][\346\234\254]"},
    {"{% for i in (1, 2, 3) %}{{ i }}{% endfor %}",
     "123"},
    {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}"
     "{{ i }}{% endfor %}!",
     "0134!"},
    {"{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% "
     "endfor %}{% endfor %}",
     "11 21 "},
    {"{% for i in l if i != 1 else 3 %}{% endfor %}",
     NULL},
    {"{% for a, b in [(1,)] %}{% endfor %}",
     NULL},
    {"{% for a in 5 %}{% endfor %}",
     NULL},
    {"{% for a, b in [(1, 2, 3)] %}{% endfor %}",
     NULL},
    {"{% for r in rows %}{% if loop.nextitem and loop.nextitem.k == r.k %}same{% endif %}{{ r.v }}{% endfo"
     "r %}",
     "123"},
    {"{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
     "1311121"},
    {"{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
     "2"},
    {"{% for i in l %}{% if t %}{% set y = i %}{% endif %}{{ y }}{% endfor %}{{ y }}|",
     "312|"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
     "12(1, 2)"},
    {"{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{"
     "{ ns.b }}{{ ns.c }}|",
     "7x|"},
    {"{% set ns = namespace() %}{% set ns.x = [] %}{{ ns.x }}{% set ns.x = ns.x + [1] %}{{ ns.x }}",
     "[][1]"},
    {"{% set d.b = 2 %}",
     NULL},
    {"{% set ns = namespace(d) %}{{ ns.b }}",
     "1"},
    {"{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}",
     "[a7b]ABC"},
    {"{% set z = 3 %}{% set x %}{% set z = 4 %}{{ z }}{% endset %}{{ x }}{{ z }}",
     "43"},
    {"{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}banana{% endfilter"
     " %}",
     "ABC HELLO, WORLDBBNBNB"},
    {"{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|",
     "17|"},
    {"{% with %}{% set q = 1 %}{{ q }}{% endwith %}",
     "1"},
    {"{% generation %}{{ n }}{% set g = 1 %}{{ g }}{% endgeneration %}",
     "71"},
    {"a\n  {% generation -%}\n  b\n  {%- endgeneration %}\nc",
     "a\nbc"},
    {"{% for i in range(4) %}{% for j in range(i) %}{{ i }}{{ j }}{% for k in range(j) %}{{ k }}{% endfor "
     "%} {% endfor %}{% endfor %}",
     "10 20 210 30 310 3201 "},
    {"{% set n = namespace(x=[]) %}{% for i in range(3) %}{% set n.x = n.x + [range(i + 2) | list] %}{% se"
     "t r = range(2) %}{% for j in r %}{{ r[j] }}{% endfor %}{% endfor %}{{ n.x }}",
     "010101[[0, 1], [0, 1, 2], [0, 1, 2, 3]]"},
    {"{% macro m(a, b=2, c=none) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5,"
     " a=4) }}{{ m() }}{{ m(1, c=9) | length }}",
     "[1,2,None][1,3,None][4,5,None][,2,None]7"},
    {"{% macro m() %}{{ n }}{{ late }}{% endmacro %}{% set late = 'L' %}{{ m() }}",
     "7L"},
    {"{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
     "54321"},
    {"{% macro m() %}{% set v = 1 %}{% endmacro %}{{ m() }}{{ v }}|",
     "|"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
     NULL},
    {"{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
     NULL},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
     NULL},
    {"{% macro o(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call o(1) %}in{{ n }}{% endcall %}",
     "<in71>"},
    {"{% macro o() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) o() %}{{ a + b }}{% endcall %}",
     "3"},
    {"{% macro o() %}{{ caller is defined }}{% endmacro %}{{ o() }}",
     "False"},
    {"{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
     "312"},
    {"{% set x = 5 %}{% macro m(x) %}{{ x }}{% endmacro %}{{ m(6) }}{{ x }}",
     "65"},
    {"{% macro a(v) %}{{ v | trim }}{% endmacro %}{{ a('  q ') ~ a(' r') }}",
     "qr"},
    {"{% set r = [] %}{% macro m() %}{{ r.append(1) }}{% endmacro %}{{ m() }}{{ r }}",
     "None[1]"},
    {"{% macro f(x, y=x) %}{{ y }}{% endmacro %}{{ f(3) }}",
     "3"},
    {"{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{"
     " range(3, 1) | list }}",
     "[0, 1, 2] [1, 2, 3] [5, 3, 1] [] []"},
    {"{{ dict(a=1, b=2) }} {{ dict({'z': 0}, a=1) }}",
     "{'a': 1, 'b': 2} {'z': 0, 'a': 1}"},
    {"{{ raise_exception('stop') }}",
     NULL},
    {"{{ strftime_now('%Y-%m-%d %H:%M %B') }}",
     "2026-02-02 02:40 February"},
    {"{{ range(200000) | length }}",
     NULL},
    {"{{ range is callable }}",
     "True"},
    {"{{ nothing() }}",
     NULL},
    {"{{ w | trim }}| {{ 'xxaxx' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ 'hello world' | title }"
     "} {{ 'hELLO wORLD' | capitalize }} {{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aa"
     "a' | replace('a', 'aa') }}",
     "two  words| a HELLO, WORLD hello, world Hello World Hello world HeLLo, WorLd HeLlo, World aaaaaa"},
    {"{{ s | length }} {{ u | length }} {{ l | length }} {{ d | length }} {{ l | count }} {{ e | length }}",
     "12 10 3 3 3 0"},
    {"{{ 5 | string + 'a' }} {{ none | string }} {{ [1] | string | length }} {{ 3 | upper }}",
     "5a None 3 3"},
    {"{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '3.7' | int }} {{ 3.7 | int }} {{ true | int "
     "}} {{ ' 4 ' | int }} {{ '-5' | int }} {{ none | int }} {{ '1.5' | float }} {{ 'q' | float }} {{ 2 | "
     "float }}",
     "12 0 5 3 3 1 4 -5 0 1.5 0.0 2.0"},
    {"{{ x | default }}| {{ e | default('d') }}| {{ e | default('d', true) }} {{ no | default('d') }} {{ n"
     "o | default('d', boolean=true) }} {{ x | d('q') }}",
     "| | d None d q"},
    {"{{ l | join(', ') }} {{ l | join }} {{ rows | join('-', attribute='k') }} {{ s | join('.') }} {{ [1,"
     " none, 'a'] | join('|') }} {{ [] | join(',') }}|",
     "3, 1, 2 312 x-y-x H.e.l.l.o.,. .W.o.r.l.d 1|None|a |"},
    {"{{ l | first }} {{ l | last }} {{ s | first }} {{ [] | first }}| {{ [] | last }}| {{ d | first }}",
     "3 2 H | | b"},
    {"{{ l | list }} {{ s | list }} {{ d | list }} {{ l | reverse | list }} {{ s | reverse }}",
     "[3, 1, 2] ['H', 'e', 'l', 'l', 'o', ',', ' ', 'W', 'o', 'r', 'l', 'd'] ['b', 'a', 'items'] [2, 1, 3]"
     " dlroW ,olleH"},
    {"{{ l | sort }} {{ ls | sort }} {{ ls | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ "
     "rows | sort(attribute='v', reverse=true) | map(attribute='v') | list }}",
     "[1, 2, 3] ['A', 'b', 'B', 'c'] ['A', 'B', 'b', 'c'] [3, 2, 1] [3, 2, 1]"},
    {"{{ ['a', 1] | sort }}",
     NULL},
    {"{{ d | dictsort | list | length }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort }} {{ {'b': 1, 'A': 2, 'c'"
     ": 0} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsor"
     "t(reverse=true) }}",
     "3 [('A', 2), ('b', 1), ('c', 0)] [('c', 0), ('b', 1), ('A', 2)] [('A', 2), ('b', 1)] [('b', 1), ('a'"
     ", 2)]"},
    {"{{ d | items | list }} {{ x | items | list }}",
     "[('b', 1), ('a', {'x': [10, 20]}), ('items', 'I')] []"},
    {"{{ no | items | list }}",
     NULL},
    {"{{ [1, 2, 1, 3] | unique | list }} {{ ['a', 'A', 'b'] | unique | list }} {{ rows | unique(attribute="
     "'k') | map(attribute='v') | list }}",
     "[1, 2, 3] ['a', 'b'] [1, 2]"},
    {"{{ l | min }} {{ l | max }} {{ ls | min }} {{ [] | max }}| {{ l | sum }} {{ rows | sum(attribute='v'"
     ") }} {{ [1, 2] | sum(start=10) }}",
     "1 3 A | 6 6 13"},
    {"{{ -3 | abs }} {{ (-3) | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | "
     "round(method='ceil') }} {{ 2.9 | round(0, 'floor') }}",
     "3 3 2.0 4.0 2.57 3.0 2.0"},
    {"{{ rows | map(attribute='k') | list }} {{ ls | map('upper') | list }} {{ rows | map(attribute='o') |"
     " list }} {{ rows | map(attribute='o', default='-') | list }} {{ ls | map('replace', 'b', 'z') | join"
     " }} {{ [[1, 2], [3]] | map('join', '+') | list }} {{ [{'a': {'b': 5}}] | map(attribute='a.b') | list"
     " }} {{ [[7, 8]] | map(attribute=1) | list }}",
     "['x', 'y', 'x'] ['B', 'A', 'C', 'B'] [Undefined, True, Undefined] ['-', True, '-'] zAcB ['1+2', '3']"
     " [5] [8]"},
    {"{{ rows | selectattr('o') | list | length }} {{ rows | selectattr('k', 'equalto', 'x') | map(attribu"
     "te='v') | list }} {{ rows | rejectattr('k', 'equalto', 'x') | map(attribute='v') | list }} {{ rows |"
     " rejectattr('o') | list | length }} {{ rows | selectattr('o', 'defined') | list | length }} {{ rows "
     "| selectattr('v', 'in', [1, 3]) | map(attribute='v') | list }}",
     "1 [1, 3] [2] 2 1 [1, 3]"},
    {"{{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, 2] | reject | list }} {{ l | select('odd') | l"
     "ist }} {{ l | reject('odd') | list }} {{ l | select('gt', 1) | list }} {{ none | select | list }} {{"
     " l | select('divisibleby', 2) | list }}",
     "[1, 'a'] [0] [3, 1] [2] [3, 2] [] [2]"},
    {"{{ lines | indent }}|{{ lines | indent(2) }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blan"
     "k=true) }}|{{ lines | indent('> ', first=true, blank=true) }}|{{ '' | indent(2, true) }}|{{ 'a\n' | "
     "indent(3) }}|",
     "one\n\n      two\n    three|one\n\n    two\n  three|  one\n\n    two\n  three|one\n  \n    two\n  th"
     "ree|> one\n> \n>   two\n> three|  |a\n|"},
    {"{{ d | tojson }} {{ s | tojson }} {{ q | tojson }} {{ u | tojson }} {{ u | tojson(ensure_ascii=true)"
     " }} {{ [1, 2.0, none, true, 1e20] | tojson }} {{ {} | tojson }} {{ [] | tojson }} {{ {1: 2, none: 3,"
     " true: 4, 1.5: 6} | tojson }} {{ '\360\237\230\200' | tojson(ensure_ascii=true) }} {{ '</x>&' | tojs"
     "on }} {{ (1, 2) | tojson }} {{ '\177' | tojson }}",
     "{\"b\": 1, \"a\": {\"x\": [10, 20]}, \"items\": \"I\"} \"Hello, World\" \"it's \\\"q\\\" \\\\ \\n\\t"
     "\\u0007\302\240\302\255\" \"gr\303\266\303\237e \342\206\222 \346\227\245\346\234\254\" \"gr\\u00f6"
     "\\u00dfe \\u2192 \\u65e5\\u672c\" [1, 2.0, null, true, 1e+20] {} [] {\"1\": 4, \"null\": 3, \"1.5\":"
     " 6} \"\\ud83d\\ude00\" \"</x>&\" [1, 2] \"\177\""},
    {"{{ d | tojson(indent=2) }}\n{{ [[], {}, [1]] | tojson(indent=1) }}\n{{ d | tojson(indent=4, separato"
     "rs=(',', ':')) }} {{ d | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=tru"
     "e) }} {{ [1] | tojson(indent=0) }} {{ d | tojson(indent='\011') }}",
     "{\n  \"b\": 1,\n  \"a\": {\n    \"x\": [\n      10,\n      20\n    ]\n  },\n  \"items\": \"I\"\n}\n["
     "\n [],\n {},\n [\n  1\n ]\n]\n{\n    \"b\":1,\n    \"a\":{\n        \"x\":[\n            10,\n      "
     "      20\n        ]\n    },\n    \"items\":\"I\"\n} {\"b\":1,\"a\":{\"x\":[10,20]},\"items\":\"I\"} "
     "{\"a\": 2, \"b\": 1} [\n1\n] {\n\011\"b\": 1,\n\011\"a\": {\n\011\011\"x\": [\n\011\011\01110,\n\011"
     "\011\01120\n\011\011]\n\011},\n\011\"items\": \"I\"\n}"},
    {"{{ range | tojson }}",
     NULL},
    {"{{ '{\"a\": [1, 2.5, null]}' | from_json }}",
     "{'a': [1, 2.5, None]}"},
    {"{{ '{' | from_json }}",
     NULL},
    {"{{ '<a href=\"x\">&\\'' | escape }}",
     "&lt;a href=&#34;x&#34;&gt;&amp;&#39;"},
    {"{{ 'a b  c' | wordcount }} {{ '%s %s' | format(1, 'b') }} {{ d | attr('b') }}|",
     "3 1 b |"},
    {"{{ 'a' | nofilter }}",
     NULL},
    {"{% if no %}{{ 'a' | nofilter }}{% endif %}ok",
     "ok"},
    {"{{ s | safe }}{{ 5 | safe }}",
     "Hello, World5"},
    {"{{ -1 | string ~ 2 }} {{ 'a' ~ 'b' | upper }} {{ 1 + '2' | int }}",
     "-12 aB 3"},
    {"{{ s is string }} {{ n is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s i"
     "s iterable }} {{ n is iterable }} {{ d is iterable }} {{ l is sequence }} {{ s is sequence }} {{ d i"
     "s sequence }} {{ n is sequence }} {{ none is iterable }}",
     "True False True False True True False True True True True False False"},
    {"{{ n is number }} {{ f is number }} {{ t is number }} {{ s is number }} {{ t is boolean }} {{ 1 is b"
     "oolean }} {{ none is none }} {{ x is none }} {{ true is true }} {{ 1 is true }} {{ false is false }}"
     " {{ 0 is false }} {{ n is integer }} {{ f is float }} {{ t is integer }}",
     "True True True False True False True False True False True False True True False"},
    {"{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{"
     " 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is lt 1 }} {{ 2 is ge 2 }} {{ 2 is le 1 }} {"
     "{ 'a' is in ['a'] }} {{ 'a' is in 'xyz' }} {{ 'abc' is lower }} {{ 'Abc' is upper }}",
     "True True True False True False True True False True False True False True False"},
    {"{{ n is not none }} {{ x is not defined }} {{ n is defined and n is number }} {{ not n is string }} "
     "{{ 'yes' if n is defined else 'no' }} {{ n is defined or x }} {{ none is sameas none }} {{ 1 is same"
     "as true }} {{ 'trim' is filter }} {{ 'qq' is filter }} {{ 'odd' is test }}",
     "True True True True yes True True False True False True"},
    {"{{ 1 is notest }}",
     NULL},
    {"{{ 'a' is odd }}",
     NULL},
    {"{{ s.upper() }} {{ s.lower() }} {{ 'ab cd'.title() }} {{ 'ab'.capitalize() }} {{ w.strip() }}|{{ w.l"
     "strip() }}|{{ w.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'abc'.rstrip('bc"
     "') }} {{ '\343\200\200a\302\240'.strip() }}|",
     "HELLO, WORLD hello, world Ab Cd Ab two  words|two  words \n|  \011 two  words| a axy a a|"},
    {"{{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('a', 'H')) }} {{ s.find('o') }} {{ s"
     ".rfind('o') }} {{ s.find('zz') }} {{ u.find('\346\227\245') }} {{ s.count('l') }} {{ 'aaa'.count('aa"
     "') }} {{ ''.find('') }} {{ 'abc'.count('') }}",
     "True False True 4 8 -1 8 3 1 0 4"},
    {"{{ 'a,b,,c'.split(',') }} {{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a--b'.split('--') "
     "}} {{ ''.split(',') }} {{ ''.split() }} {{ 'abc'.split('x') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b"
     " c'.split(none, 1) }} {{ 'a\nb\015\nc'.splitlines() }} {{ 'a,b,c'.rsplit(',') }} {{ 'a,b'.split(',',"
     " 0) }}",
     "['a', 'b', '', 'c'] ['a', 'b', 'c'] ['a', 'b,c'] ['a', 'b'] [''] [] ['abc'] ['a,b', 'c'] ['a', 'b c'"
     "] ['a', 'b', 'c'] ['a', 'b', 'c'] ['a,b']"},
    {"{{ s.replace('l', '') }} {{ s.replace('l', 'x', 2) }} {{ 'ab'.replace('', '-') }} {{ '-'.join(['a', "
     "'b']) }} {{ '{} {}'.format(1, 'x') }} {{ '{1}{0}{a}{{}}'.format(1, 2, a=3) }} {{ '12'.isdigit() }} {"
     "{ 'a1'.isalpha() }} {{ ' '.isspace() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
     "Heo, Word Hexxo, World -a-b- a-b 1 x 213{} True False True bc ab"},
    {"{{ 'a'.split('') }}",
     NULL},
    {"{{ 'a'.nomethod() }}",
     NULL},
    {"{{ 'a'.join([1]) }}",
     NULL},
    {"{{ '{}'.format() }}",
     NULL},
    {"{{ 'a'.startswith(1) }}",
     NULL},
    {"{% set m = [1] %}{% set _ = m.append(2) %}{{ m }} {{ m.pop() }} {{ m }} {{ m.pop(0) }} {{ m }} {% se"
     "t _ = m.extend([5, 6]) %}{{ m }}{% set _ = m.insert(1, 9) %}{{ m }} {{ m.index(9) }} {{ m.count(5) }"
     "}",
     "[1, 2] 2 [1] 1 [] [5, 6][5, 9, 6] 1 1"},
    {"{% set m = {'a': 1} %}{% set _ = m.update({'b': 2}) %}{{ m }} {{ m.pop('a') }} {{ m }} {{ m.pop('zz'"
     ", 3) }} {{ m.copy() }}",
     "{'a': 1, 'b': 2} 1 {'b': 2} 3 {'b': 2}"},
    {"{{ [].pop() }}",
     NULL},
    {"{{ {}.pop('a') }}",
     NULL},
    {"{{ u | upper }} {{ u.upper() }} {{ '\303\237 \357\254\201n \305\211 \316\220' | upper }} {{ '\316"
     "\221\316\243 \316\243\316\221\316\243 \316\243 \316\221\316\243. \316\221.\316\243 \316\221\316\243"
     "\302\255\316\221' | lower }} {{ '\304\260I' | lower }} {{ '\307\206 \307\205 \307\204' | upper }} {{"
     " '\303\200\303\211' | lower }} {{ '\341\203\220\341\203\221' | upper }}",
     "GR\303\226SSE \342\206\222 \346\227\245\346\234\254 GR\303\226SSE \342\206\222 \346\227\245\346\234"
     "\254 SS FIN \312\274N \316\231\314\210\314\201 \316\261\317\202 \317\203\316\261\317\202 \317\203 "
     "\316\261\317\202. \316\261.\317\202 \316\261\317\203\302\255\316\261 i\314\207i \307\204 \307\204 "
     "\307\204 \303\240\303\251 \341\262\220\341\262\221"},
    {"{{ 'hello-world (foo) [bar {baz <q it\\'s o.k. x_y' | title }} {{ \"hello-world (foo) it's o.k. x_y"
     "\".title() }} {{ '\307\206ab \303\237x \303\251\303\211' | title }} {{ '\307\206ab \303\237x \303"
     "\251\303\211 \341\203\220\341\203\221'.title() }} {{ 'a\343\200\200bc\342\200\250de' | title }} {{ '"
     "\316\221\316\243-\316\243\316\221\316\243' | title }} {{ '\316\221\316\243-\316\243\316\221\316\243'"
     ".title() }}",
     "Hello-World (Foo) [Bar {Baz <Q It's O.k. X_y Hello-World (Foo) It'S O.K. X_Y \307\204ab SSx \303\211"
     "\303\251 \307\205ab Ssx \303\211\303\251 \341\203\220\341\203\221 A\343\200\200Bc\342\200\250De \316"
     "\221\317\203-\316\243\316\261\317\202 \316\221\317\202-\316\243\316\261\317\202"},
    {"{{ '\307\206AB' | capitalize }} {{ '\303\237AB'.capitalize() }} {{ '\316\243\316\221\316\243' | capi"
     "talize }} {{ '' | capitalize }}| {{ '\303\251A' | capitalize }} {{ 5 | title }} {{ none | capitalize"
     " }}",
     "\307\205ab Ssab \316\243\316\261\317\202 | \303\211a 5 None"},
    {"{{ ['\342\200\250\343\200\200\342\200\213\357\273\277\302\255\315\270\356\200\200\303\251\346\227"
     "\245', '\363\240\200\201\360\237\230\200\364\217\277\277', '\001\177\302\205'] }} {{ {'a\342\200\251"
     "': '\343\200\200'} }} {{ '%r' % '\342\201\240' }}",
     "['\\u2028\\u3000\\u200b\\ufeff\\xad\\u0378\\ue000\303\251\346\227\245', '\\U000e0001\360\237\230\200"
     "\\U0010ffff', '\\x01\\x7f\\x85'] {'a\\u2029': '\\u3000'} '\\u2060'"},
    {"{{ '\303\251'.isalpha() }}{{ '\346\227\245'.isalpha() }}{{ '\302\262'.isdigit() }}{{ '\302\262'.isde"
     "cimal() }}{{ '\331\243'.isdecimal() }}{{ 'a\302\275'.isalnum() }}{{ '\303\211'.isupper() }}{{ '\307"
     "\205'.isupper() }}{{ '\303\251a'.islower() }}{{ '1'.islower() }}{{ '\342\200\203'.isspace() }}",
     "TrueTrueTrueFalseTrueTrueTrueFalseTrueFalseTrue"},
    {"{{ '\303\251' is lower }} {{ '\303\2111' is upper }} {{ 1 is lower }} {{ true is upper }} {{ none is"
     " upper }} {{ 'a-b, c_d \303\251\302\275 \346\227\245' | wordcount }}",
     "True True False False False 5"},
    {"{{ 'a\015b\015\nc\013d\342\200\250e\302\205f\034g\n'.splitlines() }} {{ 'a\n\nb\015\n'.splitlines(tr"
     "ue) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ' a b '.rsplit(none, 0) }} {{ 'a b c'.rsplit() }}",
     "['a', 'b', 'c', 'd', 'e', 'f', 'g'] ['a\\n', '\\n', 'b\\n'] [' a b', 'c'] [' a b'] ['a', 'b', 'c']"},
    {"{{ true + true }} {{ true * 2.5 }} {{ -true }} {{ +false }} {{ true // 2 }} {{ 5 % true }} {{ true *"
     "* 3 }} {{ true / 2 }} {{ 'ab' * true }}| {{ [1] * false }} {{ true < 2 }} {{ [true, 2] | sum }} {{ ["
     "true, 0] | sort }} {{ [false, 3] | max }}",
     "2 2.5 -1 0 0 0 1 0.5 ab| [] True 3 [0, True] 3"},
    {"{{ l[true] }} {{ s[false] }} {{ l[true:] }} {{ range(true) | list }} {{ 'a b c'.split(' ', true) }} "
     "{{ '%d' % true }} {{ true | abs }} {{ true | round }} {{ true | int }} {{ false | float }} {{ true i"
     "s odd }} {{ {1: 'x'}[true] }} {{ [1, 2].pop(false) }}",
     "1 H [1, 2] [0] ['a', 'b c'] 1 1 1 1 0.0 True x 1"},
    {"{{ lines | indent(true) }} {{ 'aaa' | replace('a', 'b', true) }} {{ [1] | tojson(indent=true) }} {{ "
     "2.55 | round(true) }} {{ 1 in [true] }} {{ [0, 1].index(true) }}",
     "one\n\n   two\n three baa [\n 1\n] 2.5 True 1"},
    {"{{ '1_000' | int }} {{ '1__0' | int }} {{ '_1' | int }} {{ '\331\243\331\244' | int }} {{ '+5' | int"
     " }} {{ '- 5' | int }} {{ '' | int }} {{ '1e3' | int }} {{ '.5' | int }} {{ 'inf' | int(7) }} {{ 'nan"
     "' | int(7) }} {{ [] | int(7) }} {{ '007' | int }} {{ '\343\200\2005\342\200\203' | int }} {{ '\0345'"
     " | int }}",
     "1000 0 0 34 5 0 0 1000 0 7 7 7 7 5 0"},
    {"{{ 'ff' | int(0, 16) }} {{ '0xff' | int(0, 16) }} {{ '0b11' | int(0, 2) }} {{ '0o17' | int(base=8) }"
     "} {{ '0x1F' | int(9, 0) }} {{ '017' | int(9, 0) }} {{ '00' | int(9, 0) }} {{ 'z' | int(1, 36) }} {{ "
     "'12' | int(3, 1) }} {{ '12' | int(3, 'a') }} {{ '0x_f' | int(0, 16) }} {{ '9' | int(5, 8) }}",
     "255 255 3 15 31 17 0 35 12 12 15 9"},
    {"{{ '1_0.5' | float }} {{ '.5' | float }} {{ '5.' | float }} {{ '.' | float }} {{ 'Infinity' | float "
     "}} {{ '-inf' | float }} {{ 'NaN' | float }} {{ '1e5' | float }} {{ '1e_5' | float }} {{ '1._5' | flo"
     "at }} {{ none | float }} {{ none | float(1) }} {{ '\331\243.\331\245' | float }} {{ '1e400' | float "
     "}} {{ ' -2.5 ' | float }} {{ 'x' | float('y') }}",
     "10.5 0.5 5.0 0.0 inf -inf nan 100000.0 0.0 0.0 0.0 1 3.5 inf -2.5 y"},
    {"{{ x | int }}",
     NULL},
    {"{{ x | float }}",
     NULL},
    {"{{ ('inf' | float) | int }}",
     NULL},
    {"{{ ('nan' | float) | int(3) }}",
     "3"},
    {"{{ 2.7 | int }} {{ -2.7 | int }} {{ '2.7' | int }} {{ 1e3 | int }}",
     "2 -2 2 1000"},
    {"{{ 2 | round }} {{ 25 | round(-1) }} {{ 35 | round(-1) }} {{ -25 | round(-1) }} {{ 2.5 | round(none)"
     " }} {{ 2.675 | round(2) }} {{ 0.5 | round }} {{ 1.5 | round }} {{ 1234.5 | round(-2) }} {{ 1e300 | r"
     "ound(2) }} {{ 2 | round(1, 'floor') }} {{ -0.5 | round(0, 'ceil') }}",
     "2 20 40 -20 2 2.67 0.0 2.0 1200.0 1e+300 2.0 0.0"},
    {"{{ 2.5 | round('a') }}",
     NULL},
    {"{{ 2.5 | round(0, 'x') }}",
     NULL},
    {"{{ 'a' | round }}",
     NULL},
    {"{{ 7.5 % 0.1 }} {{ -1.0 // 0.1 }} {{ 1.0 // 0.1 }} {{ -0.0 }} {{ +(-0.0) }} {{ 5.0 is odd }} {{ 4.0 "
     "is divisibleby(2) }}",
     "0.09999999999999959 -10.0 9.0 -0.0 -0.0 True True"},
    {"{{ 'a' is divisibleby(2) }}",
     NULL},
    {"{{ 'a\015b\342\200\250\nc\034d' | indent(1) }}|{{ 'a\015' | indent(1) }}|{{ 'a\n\nb' | indent(-1) }}"
     "|{{ '\n' | indent(2, true, true) }}|",
     "a\n b\n\n c\n d|a\n|a\n\nb|  \n  |"},
    {"{{ 1 | indent }}",
     NULL},
    {"{{ none | indent }}",
     NULL},
    {"{{ x | indent }}",
     NULL},
    {"{{ [1] | indent }}",
     NULL},
    {"{{ s | indent(1.5) }}",
     NULL},
    {"{{ s | indent(none) }}",
     NULL},
    {"{{ s | indent([]) }}",
     NULL},
    {"{% for i in range(5) %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(i // 2) }} {% endfor %}",
     "aTrue bFalse cTrue aFalse bTrue "},
    {"{% for i in l %}{{ loop.cycle() }}{% endfor %}",
     NULL},
    {"{% for i in l %}{{ loop.cycle(*['x', 'y']) }}{{ loop.changed() }}{{ loop.changed(1, i is odd) }} {% "
     "endfor %}",
     "xTrueTrue yTrueTrue xTrueTrue "},
    {"{% for i in [1, 1.0, true, 2] %}{{ loop.changed(i) }} {% endfor %}{% for i in [1, 2] %}{% for j in ["
     "1, 2] %}{{ loop.changed(i) }}{% endfor %}{% endfor %}",
     "True False False True TrueFalseTrueFalse"},
    {"{% for i in l %}{{ loop.nothing is defined }}{% set c = loop.cycle %}{{ c(1, 2) }}{% endfor %}",
     "False1False2False1"},
    {"{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, 4, x=5) }} {"
     "{ m(*[1, 2, 3], **{'z': 1}) }} {{ m() }} {{ m(1, a=2) }} {{ m(*'ab') }} {{ m(*{'k': 1}) }} {{ m(b=1,"
     " *[7]) }} {{ m(*x) }}",
     "12(3, 4){'x': 5} 12(3,){'z': 1} 2(){} 12(){'a': 2} ab(){} k2(){} 71(){} 2(){}"},
    {"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }} {{ m(**{'b': 3}) }} {{ m(*[], **{}"
     ") }}",
     "12 3 2"},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1, 2]) }}",
     NULL},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{'q': 1}) }}",
     NULL},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, **{'a': 1}) }}",
     NULL},
    {"{{ dict(**{'a': 1}) }} {{ dict(a=1, **d) }} {{ dict({'q': 0}, **{'b': 2}) }} {{ range(*[1, 7, 2]) | "
     "list }} {{ s | replace(*['l', 'L']) }} {{ '{} {x}'.format(*[1], **{'x': 2}) }} {{ 9 is divisibleby(*"
     "[3]) }} {{ namespace(**{'v': 3}).v }}",
     NULL},
    {"{{ dict(a=1, **{'a': 2}) }}",
     NULL},
    {"{{ dict(**{1: 2}) }}",
     NULL},
    {"{{ dict(**1) }}",
     NULL},
    {"{{ dict(**x) }}",
     NULL},
    {"{{ range(*5) }}",
     NULL},
    {"{{ dict(a=1, a=2) }}",
     NULL},
    {"{{ range(a=1, 2) }}",
     NULL},
    {"{{ range(*[1], 2) }}",
     NULL},
    {"{{ dict(**{}, a=1) }}",
     NULL},
    {"{{ range(*[], *[]) }}",
     NULL},
    {"{{ dict(**{}, **{}) }}",
     NULL},
    {"{{ range(1, 2, 3, 4) }}",
     NULL},
    {"{% macro o() %}[{{ caller(1, *[2], z=3) }}]{% endmacro %}{% call(a) o() %}{{ a }}{{ varargs }}{{ kwa"
     "rgs }}{% endcall %}",
     "[1(2,){'z': 3}]"},
    {"{% macro o() %}x{% endmacro %}{% call o() %}y{% endcall %}",
     NULL},
    {"{% macro o() %}{{ caller() }}{% endmacro %}{{ o() }}",
     NULL},
    {"{% call range(3) %}y{% endcall %}",
     NULL},
    {"{% macro m() %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}",
     NULL},
    {"{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(kwargs=2) }}",
     "12"},
    {"{% macro m() %}{% macro i() %}{{ varargs }}{% endmacro %}{{ i(1) }}{% endmacro %}{{ m(2) }}",
     "(1,)"},
    {"{% macro m(caller=1) %}{{ caller }}{% endmacro %}{{ m() }}{{ m(2) }}",
     "12"},
    {"{{ ('abc' % l) }} {{ '%s' % l }} {{ 'a' % x }} {{ '%s' % x }}| {{ x is callable }}",
     "abc [3, 1, 2] a | True"},
    {"{{ 'a' % 1 }}",
     NULL},
    {"{{ 'a' % (1,) }}",
     NULL},
    {"{{ [{}] | unique | list }}",
     NULL},
    {"{{ [[1]] | unique | list }}",
     NULL},
    {"{{ [(1,), (1,)] | unique | list }}",
     "[(1,)]"},
    {"{{ [1] + (2,) }}",
     NULL},
    {"{{ [1] < (2,) }}",
     NULL},
    {"{{ [1] in d }}",
     NULL},
    {"{{ {} in d }}",
     NULL},
    {"{{ (1,) in d }} {{ (1,) + (2,) }} {{ (1,) < (2,) }}",
     "False (1, 2) True"},
    {"{{",
     NULL},
    {"{{ }}",
     NULL},
    {"{% %}",
     NULL},
    {"{% if %}{% endif %}",
     NULL},
    {"{% if t %}",
     NULL},
    {"{% endif %}",
     NULL},
    {"{% for %}{% endfor %}",
     NULL},
    {"{% for a of b %}{% endfor %}",
     NULL},
    {"{{ 1 + }}",
     NULL},
    {"{{ (1 }}",
     NULL},
    {"{{ [1 }}",
     NULL},
    {"{{ 'a }}",
     NULL},
    {"{# a",
     NULL},
    {"{% raw %}a",
     NULL},
    {"{% unknown %}",
     NULL},
    {"{{ a b }}",
     NULL},
    {"{% set %}",
     NULL},
    {"{% set 1 = 2 %}",
     NULL},
    {"{% macro %}{% endmacro %}",
     NULL},
    {"{% macro m(1) %}{% endmacro %}",
     NULL},
    {"{% call 1 %}{% endcall %}",
     NULL},
    {"{% break %}",
     NULL},
    {"{{ a | }}",
     NULL},
    {"{{ a is }}",
     NULL},
    {"{{ a. }}",
     NULL},
    {"{{ {1} }}",
     NULL},
    {"{% if t %}{% endfor %}",
     NULL},
    {"{{ a ! b }}",
     NULL},
    {"{{ 1 $ 2 }}",
     NULL},
    {"{% else %}",
     NULL},
    {"{% for i in l %}{% else %}{% else %}{% endfor %}",
     NULL},
    {"{% set true = 1 %}",
     NULL},
    {"{{ f(a=1, 2 }}",
     NULL},
    {"{{ } }}",
     NULL},
};

#endif
