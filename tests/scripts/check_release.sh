#!/usr/bin/env bash
# check_release.sh: releases are reproducible.
#     bash tests/scripts/check_release.sh WORK [MODEL]
# Two clones in folders of different names give the same release files, and builds of them the same bytes: library, MPI
# plug-in, tool and manual pages, with LTO. With PAGEDINFER_QUICK=1 the builds have no vector kernels, which take most of
# the time. The bill of materials is checked by PyPI's spdx-tools, if it can be fetched. Needs a tree without changes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_release.sh WORK}
# shellcheck source=tools/common.sh
source tools/common.sh
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
rm -rf "$work" && mkdir -p "$work" || exit 1
work=$(cd "$work" && pwd)
simd=ON
[ -z "${PAGEDINFER_QUICK:-}" ] || simd=OFF
for name in a another-folder; do
    clone=$work/$name/sources
    git clone -q . "$clone" || exit 1
    bash "$clone/tools/release.sh" --draft "$work/$name/release" >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
    (cd "$work/$name/release" && sha256sum --quiet -c SHA256SUMS) || finding "$name: wrong checksums"
    { CCACHE_DISABLE=1 cmake -S "$clone" -B "$work/$name/build" -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_CUDA=OFF \
        -DPAGEDINFER_LOCALAI=OFF "-DPAGEDINFER_SIMD=$simd" -DCMAKE_INSTALL_PREFIX=/usr && CCACHE_DISABLE=1 cmake --build "$work/$name/build" -j "$PI_JOBS" &&
        DESTDIR=$work/$name/installed cmake --install "$work/$name/build"; } >"$work/$name.log" 2>&1 ||
        { tail -n 20 "$work/$name.log"; exit 1; }
done
diff -r "$work/a/release" "$work/another-folder/release" || finding "two releases of one commit differ"
diff -r "$work/a/installed" "$work/another-folder/installed" || finding "two builds of one commit differ"
clone=$work/a/sources
echo x >>"$clone/README.md"
bash "$clone/tools/release.sh" --draft "$work/dirty" >/dev/null 2>&1 && finding "a tree with changes is released"
git -C "$clone" checkout -q README.md
sed -i 's/^#define PI_VERSION_PATCH .*/#define PI_VERSION_PATCH 77/' "$clone/include/pagedinfer.h"
git -C "$clone" -c user.name=x -c user.email=x@example.org commit -qam x
bash "$clone/tools/release.sh" --draft "$work/version" >/dev/null 2>&1 && finding "different versions are released"
if python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q spdx-tools >"$work/pip.log" 2>&1; then
    "$work/venv/bin/pyspdxtools" -i "$work"/a/release/*.spdx.json >"$work/spdx.log" 2>&1 ||
        { head -n 5 "$work/spdx.log"; finding "the bill of materials is not valid SPDX"; }
else
    echo "spdx-tools cannot be fetched: the bill of materials is not checked"
fi
[ $bad = 1 ] || echo "release: $(find "$work/a/installed" -type f | wc -l) installed files are reproducible"
exit $bad
