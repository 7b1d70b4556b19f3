#!/usr/bin/env bash
# release.sh: makes the files of a release from the current commit.
#     bash tools/release.sh [--draft] DIR
# Writes to DIR, for version V of include/pagedinfer.h:
#     libpagedinfer-V.tar.gz         the sources
#     libpagedinfer-V.spdx.json      bill of materials (SPDX 2.3)
#     libpagedinfer-V.changes.md     the section of CHANGELOG.md
#     SHA256SUMS
# The same commit always gives the same bytes. Refused: changes that are not committed, other versions in packaging
# files, a section of the changelog without a date. --draft allows the last one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/common.sh
source tools/common.sh
export LC_ALL=C.UTF-8 TZ=UTC

draft=0
[ "${1:-}" != --draft ] || { draft=1; shift; }
case ${1:-} in ''|-*) pi_die "usage: tools/release.sh [--draft] DIR" ;; esac
out=$1

part() { sed -nE "s/^#define PI_VERSION_$1 ([0-9]+)$/\1/p" include/pagedinfer.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
name=libpagedinfer-$version

[ -z "$(git status --porcelain)" ] || pi_die "the tree has changes: commit or remove them (git status)"
has() { grep -qE "$2" "$1" || pi_die "$1 has another version than $version: correct it"; }
escaped=${version//./\\.}
has debian/changelog "^libpagedinfer \($escaped-[0-9]+\)"
has packaging/libpagedinfer.spec "^Version: +$escaped$"
has deploy/helm/pagedinfer/Chart.yaml "^version: $escaped$"
heading=$(grep -E "^## $escaped, " CHANGELOG.md) || pi_die "CHANGELOG.md has no section $version: add it"
[ $draft = 1 ] || [[ $heading =~ ,\ [0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
    pi_die "CHANGELOG.md: \"$heading\" has no date: write ## $version, YYYY-MM-DD, or use --draft"

mkdir -p "$out"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
git archive --format=tar --prefix="$name/" HEAD | gzip -n -9 >"$out/$name.tar.gz"
awk -v heading="$heading" '$0 == heading { on = 1 } on && /^## / && $0 != heading { exit } on' CHANGELOG.md >"$out/$name.changes.md"
python3 tools/gen/gen_sbom.py "$out/$name.tar.gz" "$version" >"$out/$name.spdx.json"
(cd "$out" && sha256sum "$name.tar.gz" "$name.spdx.json" "$name.changes.md" >SHA256SUMS)
printf '%s\n' "$out/$name.tar.gz" "$out/$name.spdx.json" "$out/$name.changes.md" "$out/SHA256SUMS"
