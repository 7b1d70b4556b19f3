#!/usr/bin/env bash
# check_musl.sh: builds the library with musl, without vector kernels, and generates text with it.
#     bash tests/scripts/check_musl.sh WORK MODEL
# PCRE2 comes from Debian's source package and is built with musl too. Exit 77: no musl-gcc (Debian: musl-tools), or the
# source package cannot be fetched.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_musl.sh WORK MODEL} model=${2:?MODEL}
# shellcheck source=tools/common.sh
source tools/common.sh
pi_have musl-gcc || { echo "needs musl-gcc"; exit 77; }
mkdir -p "$work/include" && work=$(cd "$work" && pwd) || exit 1

# musl-gcc has only musl's headers. The kernel's are added, and xxHash, which is a header alone.
multiarch=$(cc -print-multiarch)
for folder in linux asm-generic "$multiarch/asm"; do
    ln -sfn "/usr/include/$folder" "$work/include/$(basename "$folder")"
done
ln -sfn /usr/include/xxhash.h "$work/include/xxhash.h"

# apt with its own list of sources, so that the system's lists stay as they are.
sources() {
    local codename
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$work/lists/partial"
    echo "deb-src http://deb.debian.org/debian $codename main" >"$work/sources.list"
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists" "$@"
}
if [ ! -f "$work/lib/libpcre2-8.a" ]; then
    (cd "$work" && rm -rf pcre2-1* && sources update && sources source --download-only pcre2 && tar -xf pcre2_*.orig.tar.* &&
        cd pcre2-1*/ &&
        ./configure CC=musl-gcc --host="$(uname -m)-linux-musl" --prefix="$work" --disable-shared --enable-unicode &&
        make -j "$PI_JOBS" libpcre2-8.la && make install-libLTLIBRARIES install-nodist_includeHEADERS) \
        >"$work/pcre2.log" 2>&1 || { tail -n 3 "$work/pcre2.log"; echo "PCRE2 cannot be built with musl"; exit 77; }
fi
mapfile -t defaults < <(pi_cmake_defaults)
{ cmake -S . -B "$work/build" "${defaults[@]}" -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_TOOLS=OFF \
    -DPAGEDINFER_SIMD=OFF -DPAGEDINFER_LTO=OFF -DPAGEDINFER_WERROR=ON -DPAGEDINFER_CUDA=OFF -DPAGEDINFER_MPI=OFF \
    -DPAGEDINFER_STATIC=ON "-DCMAKE_C_FLAGS=-isystem $work/include" \
    "-DPCRE2_INCLUDE_DIR=$work/include" "-DPCRE2_LIBRARY=$work/lib/libpcre2-8.a" "-DXXHASH_INCLUDE_DIR=$work/include" &&
    cmake --build "$work/build" -j "$PI_JOBS" &&
    musl-gcc -static tools/examples/first.c -Iinclude "$work/build/libpagedinfer.a" "$work/lib/libpcre2-8.a" -lm -o "$work/first"; } \
    >"$work/build.log" 2>&1 || { grep -m 5 error: "$work/build.log"; tail -n 5 "$work/build.log"; exit 1; }
file -L "$work/first" 2>/dev/null | grep -q 'statically linked' || echo "the program is not static"
text=$("$work/first" "$model" '[{"role": "user", "content": "What is the capital of France?"}]' 2>&1)
[[ $text == *Paris* ]] || { echo "the program with musl says '$text'"; exit 1; }
echo "musl: a static program of $(du -k "$work/first" | cut -f1) KB answers"
