#!/usr/bin/env bash
# package.sh: makes the folder that LocalAI installs: run.sh, the backend, and all of its libraries in lib/.
#
#     bash integrations/localai/package.sh [--build DIR] [--tar FILE] OUT
#
# --build DIR   use a build that has pagedinfer-localai; otherwise build/localai is configured and built
# --tar FILE    also write an OCI archive of the folder for `local-ai backends install ocifile://FILE` (needs umoci)
# OUT           the folder; an existing one is replaced only if it has a run.sh
#
# libcuda.so.1 belongs to the machine's driver and is not copied.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build='' archive='' out=''
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
        --build) [ $# -ge 2 ] || die "--build needs a folder"; build=$2; shift 2 ;;
        --tar) [ $# -ge 2 ] || die "--tar needs a file"; archive=$2; shift 2 ;;
        -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        -*) die "unknown option: $1 (see --help)" ;;
        *) [ -z "$out" ] || die "one folder is enough: $1"; out=$1; shift ;;
    esac
done
[ -n "$out" ] || die "name the folder to make (see --help)"
[ -z "$archive" ] || command -v umoci >/dev/null || die "--tar needs umoci (Debian, Ubuntu: apt-get install umoci)"
if [ -z "$build" ]; then
    build=$root/build/localai
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_LOCALAI=ON
    cmake --build "$build" --target pagedinfer_localai -j "$(nproc)"
fi
program=$build/pagedinfer-localai
[ -x "$program" ] || die "no $program: build the target pagedinfer_localai, with gRPC installed"
if [ -e "$out" ]; then
    [ -f "$out/run.sh" ] || die "$out exists and is no package: name a new folder"
    rm -rf "$out"
fi
mkdir -p "$out/lib"
cp "$program" "$here/run.sh" "$out/"
cp "$root/LICENSE" "$out/"
chmod 755 "$out/run.sh" "$out/pagedinfer-localai"
# Lines of ldd: "NAME => PATH (ADDRESS)"; the loader is "PATH (ADDRESS)".
missing=$(ldd "$program" | awk '/not found/ {print $1}')
[ -z "$missing" ] || die "libraries are missing: $missing"
ldd "$program" | awk '$2 == "=>" {print $1, $3}' | while read -r name path; do
    case $name in libcuda.so.*) continue ;; esac
    cp -L "$path" "$out/lib/$name"
done
loader=$(ldd "$program" | awk '$2 != "=>" && $1 ~ /^\// {print $1}')
cp -L "$loader" "$out/lib/ld.so"
if [ -n "$archive" ]; then
    layout=$(mktemp -d)
    trap 'rm -rf "$layout"' EXIT
    umoci init --layout "$layout/oci"
    umoci new --image "$layout/oci:pagedinfer"
    umoci insert --image "$layout/oci:pagedinfer" "$out" /
    umoci config --image "$layout/oci:pagedinfer" --config.entrypoint /run.sh
    tar -C "$layout/oci" -cf "$archive" .
fi
printf '%s: %s\n' "$out" "$(du -sh "$out" | cut -f1)"
