#!/usr/bin/env bash
# check_rpm.sh: builds the RPMs from the tarball of a release, lints them, and runs the tool of the packages.
#     bash tests/scripts/check_rpm.sh WORK MODEL
# The build has no vector kernels, which take most of the time.
# On Debian the packages cannot be installed, because their dependencies have Fedora's names: the files are unpacked.
# Needs rpmbuild and rpmlint (Debian: rpm, rpmlint), and a tree without changes. Exit 77: not possible here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_rpm.sh WORK MODEL} model=${2:?MODEL}
# shellcheck source=tools/common.sh
source tools/common.sh
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
for program in rpmbuild rpmlint rpm2cpio cpio; do pi_have $program || { echo "needs $program"; exit 77; }; done
[ -z "$(git status --porcelain)" ] || { echo "the tree has changes"; exit 77; }
rm -rf "$work" && mkdir -p "$work/SOURCES" "$work/root" || exit 1
work=$(cd "$work" && pwd)
rpmlint packaging/libpagedinfer.spec >"$work/rpmlint.log" 2>&1 || { cat "$work/rpmlint.log"; finding "rpmlint finds errors in the spec"; }
bash tools/release.sh --draft "$work/SOURCES" >/dev/null || exit 1
more="-DPAGEDINFER_LTO=OFF -DPAGEDINFER_SIMD=OFF"
pi_have ccache && more+=" -DCMAKE_C_COMPILER_LAUNCHER=ccache"
# Debian's rpm has no macros of systemd and no optimization flags.
rpmbuild -ba --nodeps --define "_topdir $work" --define "optflags %{nil}" --define "debug_package %{nil}" \
    --define "_unitdir /usr/lib/systemd/system" --define "_sysusersdir /usr/lib/sysusers.d" --define "cmake_more $more" \
    packaging/libpagedinfer.spec >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
mapfile -t rpms < <(find "$work/RPMS" -name '*.rpm')
[ ${#rpms[@]} = 5 ] || finding "packages: ${rpms[*]}"
for file in "${rpms[@]}"; do (cd "$work/root" && rpm2cpio "$file" | cpio -idm --quiet) || finding "cannot unpack $file"; done
lib=$(dirname "$(find "$work/root/usr" -name 'libpagedinfer.so.0' | head -n 1)")
text=$(LD_LIBRARY_PATH=$lib "$work/root/usr/bin/pagedinfer" run -m "$model" -p 'The capital of France is' -n 4 --temp 0 --log-disable)
[[ $text == *Paris* ]] || finding "the tool writes '$text'"
server=$(find "$work/RPMS" -name 'pagedinfer-server-*.rpm')
rpm -qp --configfiles "$server" 2>/dev/null | grep -qx /etc/pagedinfer/pagedinfer.conf || finding "pagedinfer.conf is not a configuration file"
[ $bad = 1 ] || echo "rpm: ${#rpms[@]} packages, the tool answers"
exit $bad
