#!/usr/bin/env bash
# check_tool.sh: checks the pagedinfer tool from a user's view.
#     bash tests/scripts/check_tool.sh TOOL [MODEL ARCHITECTURE TEXT]
# Without a model: exit codes and streams; the exit status is 77. With a model also a greedy completion: stdout has
# only text, which contains TEXT, stderr the speed, and the text is the same the second time and with one thread.
set -uo pipefail
usage="usage: check_tool.sh TOOL [MODEL ARCHITECTURE TEXT]"
tool=${1:?$usage} model=${2:-}
[ -z "$model" ] || architecture=${3:?$usage} text=${4:?$usage}
bad=0
finding() { printf '%s\n' "$*"; bad=1; }
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
[ -x "$tool" ] || { echo "$tool: not built"; exit 1; }

# expect CODE ARGUMENT...: runs the tool and checks the exit code; its output is in $tmp/out and $tmp/err.
expect() {
    local want=$1 rc
    shift
    timeout 120 "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    [ $rc = "$want" ] || finding "pagedinfer $*: exit $rc, not $want: $(head -c 300 "$tmp/err")"
}
expect 0 --version
expect 0 --help
[ -s "$tmp/out" ] || finding "--help wrote nothing"
for sub in run chat serve bench eval inspect quantize tokenize pull list rm selftest weights; do
    expect 0 "$sub" --help
    [ -s "$tmp/out" ] || finding "$sub --help wrote nothing to stdout"
done
expect 64 run --no-such-flag
[ -s "$tmp/err" ] || finding "an unknown flag: no message"
expect 66 run -m "$tmp/none.gguf" -p x -n 1
grep -q none.gguf "$tmp/err" || finding "a missing model: the message does not name it"
head -c 1000 /dev/zero >"$tmp/bad.gguf"
expect 65 run -m "$tmp/bad.gguf" -p x -n 1
expect 65 inspect "$tmp/bad.gguf"

if [ -z "$model" ]; then
    [ $bad = 0 ] || exit 1
    echo "no model: completions were not tried"
    exit 77
fi
expect 0 inspect "$model"
grep -q "\"$architecture\"" "$tmp/out" || finding "inspect does not name the architecture"
greedy=(run -m "$model" -p "The capital of France is" -n 16 --temp 0)
expect 0 "${greedy[@]}"
cp "$tmp/out" "$tmp/text"
grep -q "$text" "$tmp/text" || finding "greedy completion: $(cat "$tmp/text")"
grep -Eqi '(tok(ens)?|t)/s' "$tmp/err" || finding "no speed on stderr"
expect 0 "${greedy[@]}"
cmp -s "$tmp/out" "$tmp/text" || finding "the second time: $(cat "$tmp/out")"
expect 0 "${greedy[@]}" -t 1
cmp -s "$tmp/out" "$tmp/text" || finding "with one thread: $(cat "$tmp/out")"
[ $bad = 0 ] && echo "completion: $(tr '\n' ' ' <"$tmp/text" | head -c 100)"
exit $bad
