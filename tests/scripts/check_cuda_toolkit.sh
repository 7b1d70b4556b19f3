#!/usr/bin/env bash
# check_cuda_toolkit.sh: checks that the configure step refuses a CUDA toolkit that is too old, and names the reason.
#     bash tests/scripts/check_cuda_toolkit.sh
# The toolkits are fake: an nvcc that prints a version, and the files that CMake looks for.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
bad=0
finding() { printf '%s\n' "$*"; bad=1; }

toolkit() { # toolkit VERSION: makes a fake toolkit in $tmp/VERSION
    local at=$tmp/$1
    mkdir -p "$at"/{bin,include,lib64}
    touch "$at"/include/cuda_runtime.h "$at"/lib64/libcudart{.so,_static.a}
    cat >"$at/bin/nvcc" <<END
#!/bin/sh
case "\$*" in
*--version*) echo 'Cuda compilation tools, release $1, V$1.85' ;;
*) echo '#\$ TOP=$at' >&2 ;;
esac
END
    chmod +x "$at/bin/nvcc"
}
configure() { # configure VERSION [options]: prints the output of the configure step
    local version=$1 && shift
    toolkit "$version"
    cmake -S . -B "$tmp/build" -DPAGEDINFER_TOOLS=OFF -DCUDAToolkit_ROOT="$tmp/$version" "$@" 2>&1 | tr -s ' \n' ' '
}

said=$(configure 12.6 -DPAGEDINFER_CUDA=ON)
grep -q 'is 12.6.85, 12.8 or newer is needed' <<<"$said" || finding "12.6 with PAGEDINFER_CUDA=ON: ${said: -400}"
rm -rf "$tmp/build"
said=$(configure 12.6 -DPAGEDINFER_CUDA=AUTO)
grep -q 'CUDA no: .* is 12.6.85, 12.8 or newer is needed' <<<"$said" || finding "12.6 with PAGEDINFER_CUDA=AUTO: ${said: -400}"
[ -f "$tmp/build/Makefile" ] || [ -f "$tmp/build/build.ninja" ] || finding "12.6 with PAGEDINFER_CUDA=AUTO ends the configure"
rm -rf "$tmp/build"
# The check accepts this version; only the fake compiler fails later.
said=$(configure 12.8 -DPAGEDINFER_CUDA=ON)
grep -q '12.8 or newer' <<<"$said" && finding "12.8 is refused: ${said: -400}"
exit $bad
