#!/usr/bin/env bash
# check_package.sh: builds the Debian package, installs it, runs it, and removes it without a trace.
#     bash tests/scripts/check_package.sh WORK [MODEL]
# Installs into this system. Needs root, dpkg and cpack; no pagedinfer package may be installed. Exit 77: not possible
# here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_package.sh WORK [MODEL]} model=${2:-}
# shellcheck source=tools/common.sh
source tools/common.sh
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
{ pi_have dpkg && pi_have cpack && [ "$(id -u)" = 0 ]; } || { echo "needs dpkg, cpack and root"; exit 77; }
! dpkg -s pagedinfer >/dev/null 2>&1 || { echo "a pagedinfer package is installed here"; exit 77; }
rm -rf "$work" && mkdir -p "$work" || exit 1
mapfile -t defaults < <(pi_cmake_defaults)
{ cmake -S . -B "$work" "${defaults[@]}" -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_CUDA=OFF -DPAGEDINFER_LTO=OFF \
    -DCMAKE_INSTALL_PREFIX=/usr && cmake --build "$work" -j "$PI_JOBS" && (cd "$work" && cpack -G DEB); } \
    >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
deb=("$work"/pagedinfer_*.deb)
dpkg-deb -c "${deb[0]}" | awk '{ print substr($6, 2) }' | grep -v '/$' >"$work/files"
dpkg -i "${deb[0]}" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; exit 1; }
while read -r f; do [ -e "$f" ] || finding "not installed: $f"; done <"$work/files"
/usr/bin/pagedinfer --version >/dev/null || finding "pagedinfer --version fails"
[ -f /etc/pagedinfer/pagedinfer.conf ] || finding "no /etc/pagedinfer/pagedinfer.conf"
if [ -n "$model" ]; then
    [ -n "$(/usr/bin/pagedinfer run -m "$model" -p 'Once upon' -n 4 --log-disable)" ] || finding "the tool writes no text"
fi
dpkg -P pagedinfer >>"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; finding "the package cannot be removed"; }
while read -r f; do [ ! -e "$f" ] || finding "not removed: $f"; done <"$work/files"
echo "package: $(wc -l <"$work/files") files"
exit $bad
