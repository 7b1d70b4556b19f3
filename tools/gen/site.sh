#!/usr/bin/env bash
# site.sh: builds the HTML documentation in build/site from README.md, docs/ and the header.
#
#     bash tools/gen/site.sh
#
# MkDocs and its theme come from PyPI, into build/venv-docs; later runs need no network. A link that leads nowhere is an
# error. Exit status 77: MkDocs cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=build/venv-docs
packages='mkdocs==1.6.1 mkdocs-material==9.8.2'

mkdir -p build/site-src
if ! "$venv/bin/python" -c 'import material, mkdocs' 2>/dev/null; then
    # shellcheck disable=SC2086
    if ! { python3 -m venv "$venv" &&
           timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check --no-input --retries 2 $packages; } \
        >build/site-src/pip.log 2>&1; then
        tail -n 3 build/site-src/pip.log
        echo "MkDocs cannot be installed"
        exit 77
    fi
fi
"$venv/bin/python" tools/gen/site_pages.py build/site-src
if ! NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict --clean -f build/site-src/mkdocs.yml \
    >build/site-src/build.log 2>&1; then
    grep -v ^INFO build/site-src/build.log
    exit 1
fi
echo "build/site/index.html"
