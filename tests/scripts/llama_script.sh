#!/bin/sh
# A typical user's script for llama.cpp's tools: completion, tokenize, bench, perplexity, quantize, batched-bench.
#     sh llama_script.sh FOLDER MODEL TEXT TMP
# FOLDER holds llama.cpp's programs or this project's; nothing else differs. Prints one line NAME=VALUE per result, and
# ends at the first unexpected result.
set -eu
bin=$1 model=$2 text=$3 tmp=$4
fail() { echo "$*" >&2; exit 1; }
number() { case $2 in ''|*[!0-9.]*|.) fail "$1: '$2' is not a number" ;; esac; echo "$1=$2"; }

# Completion: prompt and continuation on standard output, the speed somewhere on standard error.
prompt="The capital of France is"
"$bin/llama-completion" -m "$model" -p "$prompt" -n 8 -c 256 -b 128 -ub 64 -t 1 -ngl 0 -fa on --temp 0 --seed 1 \
    --no-warmup -no-cnv --no-context-shift --simple-io --log-colors off >"$tmp/out" 2>"$tmp/err" </dev/null
grep -q "^$prompt " "$tmp/out" || fail "completion: no prompt in the output: $(cat "$tmp/out")"
echo "completion=$(head -n 1 "$tmp/out" | cut -c 1-60)"
number completion_tps "$(sed -n 's/.* eval time = .* runs .*, *\([0-9.]*\) tokens per second.*/\1/p' "$tmp/err" | head -n 1)"
LLAMA_ARG_CTX_SIZE=256 LLAMA_ARG_THREADS=1 "$bin/llama-completion" -m "$model" -p "$prompt" -n 4 --temp 0 -no-cnv \
    --no-display-prompt --no-perf >"$tmp/out" 2>/dev/null </dev/null
if grep -q "$prompt" "$tmp/out"; then fail "completion: the prompt, against --no-display-prompt"; fi

# Tokens: a list that Python can read, and the count in the last line.
ids=$("$bin/llama-tokenize" -m "$model" -p "$prompt" --ids --log-disable 2>/dev/null)
case $ids in \[[0-9]*\]) echo "ids=$ids" ;; *) fail "tokenize --ids: $ids" ;; esac
number n_tokens "$(printf '%s' "$prompt" | "$bin/llama-tokenize" -m "$model" --stdin --show-count 2>/dev/null |
    sed -n 's/^Total number of tokens: //p')"
"$bin/llama-tokenize" -m "$model" -p "$prompt" --no-bos 2>/dev/null | grep -q "^ *[0-9][0-9]* -> '" || fail "tokenize: no lines"

# Benchmark: the table, CSV with named columns, one JSON object per test, SQL.
bench="$bin/llama-bench -m $model -t 1 -ngl 0 -fa 1 -nkvo 0 -ctk f16 -ctv f16 --repack 1 -b 128 -r 1 --no-warmup"
$bench -p 16 -n 4 -ub 32,64 >"$tmp/md" 2>/dev/null
number md_rows "$(grep -cE '\| *(pp16|tg4) \| *[0-9.]+ ± [0-9.]+ \|' "$tmp/md")"
grep -q '^build: ' "$tmp/md" || fail "bench: no build line"
$bench -p 16 -n 0 -o csv 2>/dev/null >"$tmp/csv"
number csv_avg_ts "$(python3 -c 'import csv, sys; print(list(csv.DictReader(open(sys.argv[1])))[0]["avg_ts"])' "$tmp/csv")"
$bench -p 0 -n 4 -o jsonl 2>/dev/null >"$tmp/jsonl"
number json_avg_ts "$(sed -n 's/.*"avg_ts": \([0-9.]*\).*/\1/p' "$tmp/jsonl")"
for key in build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch \
    n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers n_cpu_moe split_mode main_gpu no_kv_offload \
    flash_attn devices tensor_split tensor_buft_overrides load_mode lazy_mode embeddings no_op_offload no_host repack \
    fit_target fit_min_ctx n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts samples_ns samples_ts; do
    grep -q "\"$key\": " "$tmp/jsonl" || fail "bench: no $key"
done
$bench -p 8 -n 0 -o sql 2>/dev/null >"$tmp/sql"
python3 -c 'import sqlite3, sys
db = sqlite3.connect(":memory:")
db.executescript(open(sys.argv[1]).read())
print("sql_rows=%d" % db.execute("select count(*) from llama_bench where n_prompt = 8 and avg_ts > 0").fetchone())' "$tmp/sql"

# Perplexity: the last line, which scripts search for.
"$bin/llama-perplexity" -m "$model" -f "$text" -c 128 -b 128 --chunks 2 -t 1 -ngl 0 >"$tmp/ppl" 2>&1 </dev/null
number ppl "$(sed -n 's/.*Final estimate: PPL = \([0-9.]*\) +\/- [0-9.]*.*/\1/p' "$tmp/ppl")"

# Quantization: type by number, with a rule for a tensor, threads last; and a dry run.
"$bin/llama-quantize" --allow-requantize --leave-output-tensor --tensor-type attn_v=q5_0 "$model" "$tmp/q.gguf" 7 1 \
    >"$tmp/out" 2>&1
[ "$(head -c 4 "$tmp/q.gguf")" = GGUF ] || fail "quantize: no GGUF"
number quantized_mib $(($(wc -c <"$tmp/q.gguf") / 1048576))
rm -f "$tmp/q.gguf"
"$bin/llama-quantize" --dry-run --allow-requantize "$model" Q4_K >"$tmp/out" 2>&1
grep -Eiq '(quant|model)[a-z]* size *[:=] *[0-9.]+ MiB' "$tmp/out" || fail "quantize --dry-run: $(tail -n 3 "$tmp/out")"

# Batched benchmark.
"$bin/llama-batched-bench" -m "$model" -c 512 -b 128 -ub 64 -npp 16 -ntg 4 -npl 1,2 -t 1 -ngl 0 >"$tmp/npl" 2>/dev/null
number npl_rows "$(grep -cE '^\| +16 \| +4 \| +[12] \|' "$tmp/npl")"
