#!/usr/bin/env bash
# check_install.sh: checks that an installed tree is complete on its own.
#     bash tests/scripts/check_install.sh BUILD WORK [MODEL]
# Installs BUILD into WORK, copies the tree and uninstalls the original (the copy must not depend on its old path).
# Then compiles the first C program (tools/examples/first.c) in three ways: with pkg-config, with find_package, and
# with README's commands for a build tree. Runs these programs and the installed tool. With MODEL (one with a chat
# template) the programs must write text. Without it they must end with an error that names the file exactly once.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${1:?usage: check_install.sh BUILD WORK [MODEL]} work=${2:?WORK} model=${3:-}
cc=${CC:-cc}
# shellcheck source=tools/common.sh
source tools/common.sh
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
rm -rf "$work" && mkdir -p "$work" || exit 1
work=$(cd "$work" && pwd)
cmake --install "$build" --prefix "$work/installed" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
cp -a "$work/installed" "$work/moved"
cmake --build "$build" --target uninstall >"$work/uninstall.log" 2>&1 || { cat "$work/uninstall.log"; bad=1; }
left=$(find "$work/installed" ! -type d -o -iname pagedinfer)
[ -z "$left" ] || finding "uninstall left: $left"
prefix=$work/moved
lib=$(dirname "$(find "$prefix" -name libpagedinfer.so | head -n 1)")
[ -d "$lib" ] || { echo "no libpagedinfer.so was installed"; exit 1; }

for f in include/pagedinfer.h include/pagedinfer_openai.h include/pagedinfer.hpp bin/pagedinfer; do
    [ -f "$prefix/$f" ] || finding "not installed: $f"
done
for name in LICENSE pagedinfer.pc pagedinfer-openai.pc PagedInferConfig.cmake PagedInferConfigVersion.cmake pagedinfer.1 pagedinfer-embed.1 pagedinfer-options.7; do
    [ -n "$(find "$prefix" -name "$name")" ] || finding "not installed: $name"
done

# Under the names of llama.cpp's tools, if they are installed, the same program runs.
if grep -q '^PAGEDINFER_LLAMA_NAMES:BOOL=ON' "$build/CMakeCache.txt"; then
    for name in cli completion bench batched-bench perplexity quantize imatrix tokenize embedding; do
        "$prefix/bin/llama-$name" --version 2>&1 | grep -q '^pagedinfer ' || finding "bin/llama-$name is not the tool"
    done
elif [ -e "$prefix/bin/llama-cli" ]; then
    finding "bin/llama-cli was installed without PAGEDINFER_LLAMA_NAMES"
fi

# The service is installed, and as confined as it claims.
unit=$(find "$prefix" -name pagedinfer.service | head -n 1)
if [ -z "$unit" ]; then
    finding "not installed: pagedinfer.service"
elif ! grep -qx "ExecStart=$work/installed/bin/pagedinfer serve" "$unit"; then
    finding "pagedinfer.service does not run the installed program: $(grep '^ExecStart' "$unit")"
elif [ ! -f "$(dirname "$unit")/pagedinfer.socket" ]; then
    finding "not installed: pagedinfer.socket"
elif command -v systemd-analyze >/dev/null; then
    mkdir -p "$work/unit"
    # systemd-analyze needs an ExecStart that exists.
    sed 's,^ExecStart=.*/pagedinfer,ExecStart=/bin/true,' "$unit" >"$work/unit/pagedinfer.service"
    exposure=$(systemd-analyze security --offline=true "$work/unit/pagedinfer.service" 2>/dev/null |
        sed -nE 's/.*exposure level for [^:]*: ([0-9.]+) .*/\1/p')
    [ -n "$exposure" ] && awk "BEGIN { exit !($exposure <= 2.0) }" ||
        finding "pagedinfer.service: exposure ${exposure:-unknown}, not 2.0 or less (systemd-analyze security)"
fi

# Each header compiles alone as C99 and as C++11, the C++ one as C++17.
for header in pagedinfer pagedinfer_openai; do
    printf '#include <%s.h>\nint main(void) { return pi_abi_version() != PI_ABI_VERSION; }\n' $header >"$work/h.c"
    "$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only "$work/h.c" ||
        finding "not C99: $header.h"
    if command -v "${CXX:-c++}" >/dev/null; then
        "${CXX:-c++}" -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only "$work/h.c" ||
            finding "not C++11: $header.h"
    fi
done
if command -v "${CXX:-c++}" >/dev/null; then
    printf '#include <pagedinfer.hpp>\n' | "${CXX:-c++}" -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror \
        -I"$prefix/include" -fsyntax-only - || finding "not C++17: pagedinfer.hpp"
fi

# marked FILE NAME: prints the code between the markers of that name in a document.
marked() {
    awk -v begin="<!-- $2: begin -->" -v end="<!-- $2: end -->" \
        '$0 == begin { on = 1; next } $0 == end { on = 0 } on && !/^```/' "$1"
}
cp tools/examples/first.c "$work/first.c"
marked docs/EMBEDDING.md first-program | diff - tools/examples/first.c >"$work/diff" ||
    { head -n 20 "$work/diff"; finding "the first program of docs/EMBEDDING.md differs from tools/examples/first.c"; }

mkdir -p "$work/cmake"
mapfile -t defaults < <(pi_cmake_defaults)
cp "$work/first.c" "$work/cmake/"
marked docs/EMBEDDING.md first-cmake >"$work/cmake/CMakeLists.txt"
cmake -S "$work/cmake" -B "$work/cmake/build" "${defaults[@]}" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" \
    >"$work/cmake.log" 2>&1 && cmake --build "$work/cmake/build" >>"$work/cmake.log" 2>&1 ||
    { tail -n 20 "$work/cmake.log"; finding "the first program does not build with find_package"; }
programs=("$work/cmake/build/first")

if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2046 # flags are words
    PKG_CONFIG_PATH=$lib/pkgconfig "$cc" -std=c11 -Wall -Wextra -Werror "$work/first.c" -o "$work/first" \
        $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs pagedinfer) ||
        finding "the first program does not build with pkg-config"
    programs+=("$work/first")
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$lib/pkgconfig "$cc" -std=gnu11 -Wall -Wextra -Werror tools/examples/completions.c -o "$work/completions" \
        $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs pagedinfer-openai) ||
        finding "tools/examples/completions.c does not build with pkg-config"
    if [ -n "$model" ] && [ -x "$work/completions" ]; then
        LD_LIBRARY_PATH=$lib timeout 300 "$work/completions" "$model" \
            '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}' 2>"$work/err" |
            grep -q '"object":"chat.completion"' || { cat "$work/err"; finding "completions: no chat completion"; }
    fi
else
    echo "pkg-config is not installed: not tried"
fi

# Run the two commands of README.md in a folder that looks like the clone.
mkdir -p "$work/clone"
ln -s "$PWD/include" "$work/clone/include"
ln -s "$(cd "$build" && pwd)" "$work/clone/build"
mkdir -p "$work/clone/tools"
ln -s "$PWD/tools/examples" "$work/clone/tools/examples"
marked README.md first-commands | sed -n 's|\$M |"$MODEL" |; /./p' >"$work/commands"
[ "$(wc -l <"$work/commands")" = 2 ] || finding "README.md does not have two commands between the markers of first-commands"
(cd "$work/clone" && sh -ec "$(head -n 1 "$work/commands")") || finding "README.md: the first command does not build the program"
if [ -n "$model" ]; then
    text=$(cd "$work/clone" && MODEL=$model timeout 300 sh -c "$(tail -n 1 "$work/commands")" 2>"$work/err")
    rc=$?
    [ $rc = 0 ] && [ ${#text} -gt 10 ] || { cat "$work/err"; finding "README.md: the second command: exit $rc, text '$text'"; }
fi
question='[{"role": "user", "content": "What is a lighthouse for?"}]'

for program in "${programs[@]}"; do
    [ -x "$program" ] || continue
    if [ -n "$model" ]; then
        text=$(LD_LIBRARY_PATH=$lib timeout 300 "$program" "$model" "$question" 2>"$work/err")
        rc=$?
        [ $rc = 0 ] && [ ${#text} -gt 10 ] || { cat "$work/err"; finding "$program: exit $rc, text '$text'"; }
    fi
    LD_LIBRARY_PATH=$lib timeout 60 "$program" /nonexistent/model.gguf "$question" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc = 1 ] && [ "$(grep -o "/nonexistent/model.gguf" "$work/err" | wc -l)" = 1 ] ||
        finding "$program with a model that does not exist: exit $rc, '$(cat "$work/err")'"
done

version=$(sed -nE 's/^Version: //p' "$lib/pkgconfig/pagedinfer.pc")
"$prefix/bin/pagedinfer" --version 2>&1 | grep -qF "$version" ||
    finding "bin/pagedinfer --version does not say $version"
exit $bad
