#!/usr/bin/env bash
# Measures what decides the next changes of the CUDA backend, on a card that is available for some minutes.
#
#     tools/measure_card.sh [--tool PATH] [--device NAME] [--out DIR] [--models DIR | --model FILE...]
#                           [--scale N] [--dry-run] [STEP...]
#
#   --tool PATH     the tool; default build/pagedinfer
#   --device NAME   default cuda0
#   --out DIR       folder for the results, one text file per step; default $OUT, else ./measured
#   --models DIR    folder for the synthetic models, which are kept; default a temporary folder
#   --model FILE    measure this model instead of synthetic ones; may be repeated
#   --scale N       divides sequences, tokens and seconds by N, and selects short checks; for tests of this script
#   --dry-run       print the commands of each step, run nothing
#   STEP            card models selftest launch fuse keys prompts stress sanitizer; default: all, in this order
#
# Every command has a time limit; a step that exceeds it ends with "rc 124" in its file, and the next step begins. The
# exit status is 0 if every command ended with 0, else 1; summary.txt lists commands with their exit status and seconds.
#
# Files, and the questions that they answer:
#
#   card.txt        clocks, power, ECC.
#   selftest.txt    results and rates; also selftest.json, for docs/cards.
#   launch.txt      time that dependent launches and waiting blocks save in decode of 1 and 8 sequences.
#   fuse.txt        time that fused launches and graphs save.
#   keys.txt        F16 keys and values against Q8_0, with long contexts.
#   prompts.txt     speed of prompts by length.
#   stress.txt      races and hangs of two queues.
#   sanitizer.txt   races in shared memory, by compute-sanitizer if it is installed
.set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

tool=build/pagedinfer device=cuda0 out=${OUT:-measured} models="" scale=1 dry="" steps=() files=()
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
    case $1 in
        --tool|--device|--out|--models|--scale)
            [ $# -gt 1 ] || { echo "$1 needs a value" >&2; exit 64; }
            declare "${1#--}=$2"
            shift ;;
        --model)
            [ $# -gt 1 ] || { echo "$1 needs a value" >&2; exit 64; }
            files+=("$2")
            shift ;;
        --dry-run) dry=1 ;;
        -h|--help) usage; exit 0 ;;
        card|models|selftest|launch|fuse|keys|prompts|stress|sanitizer) steps+=("$1") ;;
        *) echo "$1 is not known: see --help" >&2; exit 64 ;;
    esac
    shift
done
case $scale in ''|*[!0-9]*|0*) echo "--scale $scale: give a positive integer" >&2; exit 64 ;; esac
[ ${#steps[@]} -gt 0 ] || steps=(card models selftest launch fuse keys prompts stress sanitizer)
if [ -z "$dry" ] && [ ! -x "$tool" ]; then echo "$tool does not exist: build it, or give --tool" >&2; exit 66; fi

by_scale() { local n=$(($1 / scale)); [ "$n" -ge "${2:-1}" ] && echo "$n" || echo "${2:-1}"; }
[ -n "$dry" ] || mkdir -p "$out" || exit 73
if [ -z "$models" ]; then
    if [ -n "$dry" ]; then models=MODELS
    else models=$(mktemp -d) && trap 'rm -rf "$models"' EXIT || exit 73
    fi
fi
failed=0
# run FILE SECONDS COMMAND...: appends the command, its output and its exit status to FILE.
run() {
    local file=$1 limit=$2 begin rc
    shift 2
    if [ -n "$dry" ]; then echo "$file: timeout $limit $*"; return 0; fi
    begin=$(date +%s)
    { echo "== $*"; timeout -k 5 "$limit" "$@" 2>&1; rc=$?; echo "rc $rc"; } >>"$out/$file"
    [ "$rc" = 0 ] || failed=1
    echo "rc $rc, $(($(date +%s) - begin)) s, $file: $*" | tee -a "$out/summary.txt"
    return "$rc"
}

# Shapes of models: dense with delta nets, experts, heads of 256 and 512; with their numbers of layers.
shapes=(qwen3.6-27b:16 qwen3.6-35b-a3b:8 gemma-4-31b:6)
model_of() { echo "$models/${1%:*}-q4_k.gguf"; }
if [ ${#files[@]} = 0 ]; then for s in "${shapes[@]}"; do files+=("$(model_of "$s")"); done; else shapes=(); fi
each_model() { local f; for f in "${files[@]}"; do "$@" "$f"; done; }
# bench FILE MODEL FLAGS...
bench() {
    local file=$1 model=$2
    shift 2
    if [ -z "$dry" ] && [ ! -f "$model" ]; then
        echo "== $model does not exist: run step models first" | tee -a "$out/$file"
        failed=1
        return
    fi
    run "$file" "$limit" "$tool" bench -m "$model" --device "$device" -r "$(by_scale 2)" "$@"
}

step_card() {
    command -v nvidia-smi >/dev/null || [ -n "$dry" ] || { echo "nvidia-smi was not found" >>"$out/card.txt"; return; }
    run card.txt 20 nvidia-smi -q -d CLOCK,POWER,ECC
}
make_model() {
    local shape=$1
    [ -f "$(model_of "$shape")" ] && return
    run models.txt 180 python3 tools/synth.py "${shape%:*}" q4_k "$(model_of "$shape")" --layers "${shape#*:}"
}
step_models() {
    local s
    for s in "${shapes[@]}"; do make_model "$s" & done
    wait
    for s in "${shapes[@]}"; do [ -n "$dry" ] || [ -f "$(model_of "$s")" ] || failed=1; done
}
checks=()
[ "$scale" -gt 1 ] && checks=(--checks rows.rope,rates)
step_selftest() {
    run selftest.txt 120 "$tool" selftest --device "$device" "${checks[@]}"
    run selftest.json.txt 120 "$tool" selftest --device "$device" --json "${checks[@]}"
    [ -n "$dry" ] || grep '^{' "$out/selftest.json.txt" >"$out/selftest.json"
}
limit=20 # seconds of a measurement
[ "$scale" = 1 ] || limit=300
decode() { bench "$@" -p 0 -n "$(by_scale 64 2)" -npl "$(by_scale 1),$(by_scale 8 2)"; }
launch_model() {
    local s
    for s in "auto 0" "off 0" "auto 1" "auto 64" "off 1"; do
        decode launch.txt "$1" --pdl "${s% *}" --cuda-waiting-blocks "${s#* }"
    done
}
step_launch() { each_model launch_model; }
fuse_model() {
    decode fuse.txt "$1" --cuda-fuse off
    decode fuse.txt "$1" --cuda-graphs off
    decode fuse.txt "$1" --cuda-fuse off --pdl off
}
step_fuse() { each_model fuse_model; }
step_keys() {
    local k
    for k in f16 q8_0; do
        bench keys.txt "${files[0]}" -p "$(by_scale 8192 64)" -n "$(by_scale 32 2)" -npl "$(by_scale 8)" -ctk "$k" -ctv "$k"
    done
}
step_prompts() {
    prompts() { bench prompts.txt "$1" -p "$(by_scale 2048 16),$(by_scale 8192 32)" -n 0; }
    each_model prompts
}
stress=(--stress "$(by_scale 30)" --stress-seed 1)
[ "$scale" -gt 1 ] && stress+=(--checks rows.rope,rows.add_norm)
step_stress() { run stress.txt 90 "$tool" selftest --device "$device" "${stress[@]}"; }
step_sanitizer() {
    command -v compute-sanitizer >/dev/null || [ -n "$dry" ] || { echo "compute-sanitizer was not found" >>"$out/sanitizer.txt"; return; }
    run sanitizer.txt 60 compute-sanitizer --tool racecheck "$tool" selftest --device "$device" --checks tails
}

for step in "${steps[@]}"; do "step_$step"; done
exit "$failed"
