#!/usr/bin/env bash
# check_image.sh: runs the steps of packaging/Dockerfile.cpu without Docker, in two clean systems, and uses the image.
#     bash tests/scripts/check_image.sh WORK MODEL
# FROM makes a clean system of the base image's release, RUN runs there, COPY copies. Then ENTRYPOINT runs as USER with
# ENV, HEALTHCHECK must pass, and the server must answer. PAGEDINFER_QUICK=1 builds without vector kernels and LTO.
# Needs root and mmdebstrap, and Debian 12 as the host. Exit 77: not possible here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=${1:?usage: check_image.sh WORK MODEL} model=${2:?MODEL}
# shellcheck source=tools/common.sh
source tools/common.sh
# shellcheck source=tests/scripts/clean_system.sh
source tests/scripts/clean_system.sh
{ pi_have mmdebstrap && pi_have setpriv && [ "$(id -u)" = 0 ]; } || { echo "needs mmdebstrap, setpriv and root"; exit 77; }
grep -q '^VERSION_ID="12"' /etc/os-release || { echo "the base image is Debian 12, this machine is not"; exit 77; }
rm -rf "$work" && mkdir -p "$work" || exit 1
work=$(cd "$work" && pwd)
die() { printf '%s\n' "$*"; exit 1; }

declare -A stage=()
variables=() user='' entry=() health=()
words() { mapfile -t "$2" < <(python3 -c 'import json, sys; print("\n".join(json.loads(sys.argv[1])))' "$1"); }
# step INSTRUCTION ARGUMENTS
step() {
    local rest=$2 from to
    case $1 in
        FROM)
            [[ $rest == debian:12-slim* ]] || die "unknown base image: $rest"
            clean_system "$work/system${#stage[@]}" ca-certificates || { echo "no clean system"; exit 77; }
            stage[${rest##* }]=$clean_system_dir ;;
        RUN)
            [ -z "${PAGEDINFER_QUICK:-}" ] || rest=${rest/-DPAGEDINFER_CUDA=OFF/-DPAGEDINFER_CUDA=OFF -DPAGEDINFER_SIMD=OFF -DPAGEDINFER_LTO=OFF}
            in_system sh -c "$rest" >>"$work/run.log" 2>&1 || { tail -n 10 "$work/run.log"; die "RUN $rest"; } ;;
        COPY)
            read -r from to <<<"${rest#--from=* }"
            if [[ $rest == --from=* ]]; then
                from=${stage[$(sed -E 's/^--from=([^ ]+).*/\1/' <<<"$rest")]}$from
                cp -a "$from/." "$clean_system_dir$to/"
            else
                mkdir -p "$clean_system_dir$to" && git ls-files -z | xargs -0 tar -c | tar -x -C "$clean_system_dir$to"
            fi || die "COPY $rest" ;;
        USER) user=$rest ;;
        ENV) read -ra variables <<<"$rest" ;;
        HEALTHCHECK) words "${rest#*CMD }" health ;;
        ENTRYPOINT) words "$rest" entry ;;
        EXPOSE) ;;
        *) die "unknown instruction: $1" ;;
    esac
}
while read -r instruction rest; do step "$instruction" "$rest"; done < <(
    sed '/^#/d; /^$/d' packaging/Dockerfile.cpu | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta')

mkdir -p "$clean_system_dir/models" && cp "$model" "$clean_system_dir/models/model.gguf" && chmod 644 "$clean_system_dir/models/model.gguf"
[ "$user" -gt 0 ] || die "the image runs as root"
as_user=("${clean_system_command[@]}" setpriv --reuid "$user" --regid "$user" --clear-groups env "${variables[@]}")
in_user() { "${as_user[@]}" "$@"; }
"${as_user[@]}" "${entry[@]}" -m /models/model.gguf --port 18080 >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do grep -qs 'is ready' "$work/server.log" && break; kill -0 $server 2>/dev/null || break; sleep 0.1; done
in_user "${health[@]/8080/18080}" || die "the health check fails: $(tail -n 3 "$work/server.log")"
answer=$(in_user curl -s http://127.0.0.1:18080/v1/chat/completions -H 'content-type: application/json' -d \
    '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 16}')
grep -q Paris <<<"$answer" || die "the server does not answer: $answer"
kill $server
wait $server || die "the server ends with status $?"
in_user "${health[@]/8080/18080}" 2>/dev/null && die "the health check passes without a server"
echo "image: $(du -smx --exclude=proc --exclude=models "$clean_system_dir" | cut -f1) MB, healthy as user $user, one answer"
