/* The table of the library's options. pi_options_* and requests read it; so do the command line, --help, the man page
 * and completions. Options of the command line tool only are in tools/options_table.h.
 *
 * A row: X(ID, key, TYPE, default, range, flags, env, section, common, help)
 *   TYPE    BOOL INT SIZE FLOAT STRING ENUM LIST
 *   range   "LO..HI" for numbers, either side optional; "a|b|c" for ENUM
 *   flags   command line spellings; "" = programs only. A plain one takes a value. A plain one of a BOOL takes no
 *           value and means true, and every long one has a --no- form. "--x=V" takes no value and means V. "--x?V"
 *           takes the next word if that is a value, and otherwise means V.
 *   env     extra variables; LLAMA_ARG_X and PAGEDINFER_X exist for each long spelling --x
 *   section of --help */
#ifndef PI__OPTIONS_TABLE_H
#define PI__OPTIONS_TABLE_H

#include "formats/cache_types.h"
#include "template/chat_names.h"

#define PI__ENGINE_OPTIONS(X)                                                                                          \
    X(MODEL, "model", STRING, "", "", "-m --model", "", "model", true,                                                 \
      "GGUF file of the model, or the first of its splits.")                                                           \
    X(LOAD_MODE, "load-mode", ENUM, "auto", "auto|mmap|read|none|dio|mlock|mmap+mlock",                                \
      "-lm --load-mode --mmap=mmap --no-mmap=read -dio=dio --direct-io=dio -ndio=auto --no-direct-io=auto", "",        \
      "model", false, "How the file is read: mapped (mmap, which auto means), read, or past the page cache (dio). With"\
      " mlock in the name: and --mlock.")                                                                              \
    X(MLOCK, "mlock", BOOL, "false", "", "--mlock", "", "model", false,                                                \
      "Weights in the host's memory are locked there, so that they are never swapped out.")                            \
    X(WEIGHTS_FROM, "weights-from", STRING, "", "", "--weights-from", "", "model", false,                              \
      "Socket of `pagedinfer weights`, which holds this model's weights: they are mapped, not loaded, and kept once for"\
      " all processes of the machine, on the CPU and on each GPU.")                                                    \
    X(WEIGHTS_CACHE, "weights-cache", STRING, "", "", "--weights-cache", "", "model", false,                           \
      "Directory in which weights are kept as they are packed for the CPU, so that the next start maps them; they take" \
      " as much disk as memory, and nobody removes old ones.")                                                         \
    X(OVERRIDE_KV, "override-kv", LIST, "", "", "--override-kv", "", "model", false,                                   \
      "KEY=TYPE:VALUE sets metadata of the model, TYPE int, float, bool or str; may be given several times.")          \
    X(LORA_FILE, "lora-file", LIST, "", "", "--lora", "", "model", false,                                              \
      "Adapter (LoRA, a GGUF) that requests have unless they choose others: FILE,... or FILE:SCALE,...; its name is the" \
      " file's without .gguf.")                                                                                        \
    X(LORA_SCALED, "lora-scaled", LIST, "", "", "--lora-scaled", "", "model", false,                                   \
      "The same: FILE:SCALE,... ; may be given several times.")                                                        \
    X(LORA_MODULES, "lora-modules", LIST, "", "", "--lora-modules", "", "model", false,                                \
      "NAME=FILE loads an adapter that requests have which name it; may be given several times.")                      \
    X(LORA_NO_APPLY, "lora-init-without-apply", BOOL, "false", "", "--lora-init-without-apply", "", "model", false,    \
      "The adapters of --lora and --lora-scaled, too, are only for requests that name them.")                          \
    X(ROPE_FREQ_BASE, "rope-freq-base", FLOAT, "0", "0..1000000000000000", "--rope-freq-base", "", "model", false,     \
      "Base of the rotary embedding's frequencies; 0: the model's.")                                                   \
    X(ROPE_SCALING, "rope-scaling", ENUM, "model", "model|none|linear|yarn", "--rope-scaling",                         \
      "LLAMA_ARG_ROPE_SCALING_TYPE", "model", false,                                                                   \
      "How the rotary embedding is stretched to longer contexts by rope-scale; model: as the file says.")              \
    X(ROPE_SCALE, "rope-scale", FLOAT, "0", "0..1000000", "--rope-scale", "", "model", false,                          \
      "Contexts become so many times as long; 0: the model's.")                                                        \
    X(ROPE_FREQ_SCALE, "rope-freq-scale", FLOAT, "0", "0..1", "--rope-freq-scale", "", "model", false,                 \
      "The same as 1 / rope-scale.")                                                                                   \
    X(YARN_ORIG_CTX, "yarn-orig-ctx", INT, "0", "0..268435456", "--yarn-orig-ctx", "", "model", false,                 \
      "YaRN: tokens of the context that the model was trained for; 0: the model's.")                                   \
    X(YARN_EXT_FACTOR, "yarn-ext-factor", FLOAT, "-1", "-1..1", "--yarn-ext-factor", "", "model", false,               \
      "YaRN: how far fast pairs stay as they are; 0: not at all; -1: the model's, or 1.")                              \
    X(YARN_ATTN_FACTOR, "yarn-attn-factor", FLOAT, "-1", "-1..1000", "--yarn-attn-factor", "", "model", false,         \
      "YaRN: more that queries and keys are multiplied by; -1: the model's, or 1.")                                    \
    X(YARN_BETA_SLOW, "yarn-beta-slow", FLOAT, "-1", "-1..1000", "--yarn-beta-slow", "", "model", false,               \
      "YaRN: pairs that turn less often in the trained context are stretched; -1: the model's, or 1.")                 \
    X(YARN_BETA_FAST, "yarn-beta-fast", FLOAT, "-1", "-1..1000", "--yarn-beta-fast", "", "model", false,               \
      "YaRN: pairs that turn more often in the trained context stay; -1: the model's, or 32.")                         \
    X(N_LAYER_EXIT, "n-layer-exit", INT, "0", "0..1024", "--n-layer-exit", "", "model", false,                         \
      "Only the first so many layers are loaded and computed, then the output: faster, and another model; 0: all.")    \
    X(MOE_N_EXPERT, "moe-n-expert", INT, "0", "0..1024", "--moe-n-expert", "", "model", false,                         \
      "Experts that a token has, instead of the model's number; 0: that.")                                             \
    X(CHECK_TENSORS, "check-tensors", BOOL, "false", "", "--check-tensors", "", "model", false,                        \
      "Look at every value that is loaded and refuse a model with NaN or infinity in it; loading takes longer.")       \
    X(TRACE_OPS, "trace-ops", BOOL, "false", "", "--trace-ops", "", "model", false,                                    \
      "A line of the log (level debug, -v) for each op of a step: operands, shapes, hashes of values on the CPU.")     \
    X(PROFILE_OPS, "profile-ops", BOOL, "false", "", "--profile-ops", "", "model", false,                              \
      "Keep the time, bytes and products of each op on the CPU, for pi_engine_profile; bench --ops prints them.")      \
    X(DEVICE, "device", STRING, "auto", "", "-dev --device", "", "model", true,                                        \
      "Where the model runs: cpu, or auto for the best device this build has. Several of a kind: see split-mode.")     \
    X(SPLIT_MODE, "split-mode", ENUM, "none", "none|layer|row|tensor", "-sm --split-mode", "", "model", true,          \
      "On one device (none), each layer divided among several (tensor), or some layers on each (layer):"               \
      " --device cuda0,cuda1, or all there are. row is refused.")                                                      \
    X(RANKS, "ranks", ENUM, "off", "off|auto", "--ranks", "", "model", false,                                           \
      "auto: processes that mpirun, srun or torchrun started together divide each layer among them; the first one has the"\
      " model and gives the answers. off: each is alone. The tool's default is auto.")                                           \
    X(RANK_TIMEOUT, "rank-timeout", FLOAT, "30", "0.1..86400", "--rank-timeout", "", "model", false,                   \
      "Seconds that such processes wait for each other: one that is later is taken for dead, and steps end with an error.")\
    X(RANK_SECRET, "rank-secret", STRING, "", "", "--rank-secret", "", "model", false,                                 \
      "A file that ranks which meet at MASTER_ADDR share, made if missing: each proves that it has the secret, and every"\
      " message is signed. PAGEDINFER_RANK_KEY may have the secret itself. Needed where MASTER_ADDR is not this machine.")\
    X(TENSOR_SPLIT, "tensor-split", STRING, "", "", "-ts --tensor-split", "", "model", false,                          \
      "The parts that devices get with split-mode layer, as 3,1; 0 leaves one out. With tensor others get equal parts.")\
    X(MAIN_GPU, "main-gpu", INT, "0", "0..255", "-mg --main-gpu", "", "model", false,                                  \
      "With --device auto and split-mode none: which of the GPUs.")                                                    \
    X(GPU_LAYERS, "gpu-layers", STRING, "auto", "", "-ngl --gpu-layers --n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS",      \
      "model", true,                                                                                                   \
      "Layers on the device, the last ones, with the output as one more; others are on the CPU. all; auto: what fits.")\
    X(FIT, "fit", ENUM, "on", "on|off|1|0|true|false", "-fit?on --fit?on", "", "model", false,                         \
      "off: with gpu-layers auto, too, all layers are on the device, or the model is refused.")                        \
    X(FIT_TARGET, "fit-target", STRING, "", "", "-fitt --fit-target", "", "model", false,                              \
      "MiB that gpu-layers auto leaves free on the device; of several numbers the largest. Empty: 1024, at most 1/8.") \
    X(CPU_MOE, "cpu-moe", BOOL, "false", "", "-cmoe --cpu-moe", "", "model", true,                                     \
      "The experts of all layers are kept and run on the CPU.")                                                        \
    X(N_CPU_MOE, "n-cpu-moe", INT, "0", "0..2147483647", "-ncmoe --n-cpu-moe", "", "model", true,                      \
      "The experts of the first so many layers are kept and run on the CPU.")                                          \
    X(OVERRIDE_TENSOR, "override-tensor", LIST, "", "", "-ot --override-tensor", "", "model", false,                   \
      "REGEX=DEVICE,...: where tensors are kept and run whose name the expression finds; may be given several times.") \
    X(KV_OFFLOAD, "kv-offload", BOOL, "true", "", "-kvo --kv-offload -nkvo=false", "", "kv", false,                    \
      "The cache is kept, and attention run, where the layer is; --no-kv-offload: on the CPU.")                        \
    X(MATMUL, "matmul", ENUM, "auto", "auto|exact|w16", "--matmul", "", "model", true,                                 \
      "On GPUs, how matrices of quantised formats are multiplied. exact: activations in 15 bits. w16: weights and"     \
      " activations in 16-bit floats, where the format has that: faster. auto: w16, as its error is far below that of" \
      " activations in 8 bits, which is usual. The CPU's products are exact.")                                         \
    X(FP4_MODE, "fp4-mode", ENUM, "auto", "auto|off|w4a4|w4a8|w4a16", "--fp4-mode", "", "model", false,                \
      "On GPUs with FP4 tensor cores, activations by which NVFP4 and MXFP4 matrices are multiplied: w4a4 in FP4 too,"  \
      " fastest, about as much error again as the weights have; w4a8 (MXFP4, others w4a16) in FP8, a quarter of that;"   \
      " w4a16 in 16-bit floats. off: by matmul. auto: with matmul auto MXFP4 as w4a8, NVFP4 by matmul, as the error of"  \
      " w4a4 is larger than usual (docs/perf/modes.md).")                                                                   \
    X(CUBLAS, "cublas", ENUM, "auto", "auto|on|off", "--cublas", "", "model", false,                                   \
      "On GPUs, multiply F16 and BF16 matrices by cuBLAS where a step has 64 tokens or more: faster prompts, whose"    \
      " last bits then depend on how they are cut. auto: off.")                                                        \
    X(CUDA_GRAPHS, "cuda-graphs", ENUM, "auto", "auto|on|off", "--cuda-graphs", "", "model", false,                    \
      "On GPUs, record decoding steps as CUDA graphs and play them again, to launch once instead of once for each"     \
      " kernel; off: where a driver has trouble with it. auto: on.")                                                   \
    X(CUDA_FUSE, "cuda-fuse", ENUM, "auto", "auto|on|off", "--cuda-fuse", "", "model", false,                          \
      "On GPUs, launch what several ops do as one kernel where few rows are computed: products, residual, norm and"    \
      " rounding; off: each by itself, with the same results, to look for a fault. auto: on.")                         \
    X(CTX_SIZE, "ctx-size", INT, "0", "0..2147483647", "-c --ctx-size --max-model-len", "", "kv", true,                \
      "Longest request, prompt and answer, in tokens; 0: what the model was trained for.")                             \
    X(KV_TOKENS, "kv-cache-tokens", SIZE, "0", "0..1099511627776", "--kv-cache-tokens", "", "kv", true,                \
      "Tokens the cache holds for all requests together; 0: one request of ctx-size, at most 32768.")                  \
    X(KV_BYTES, "kv-cache-bytes", SIZE, "0", "0..1152921504606846976", "--kv-cache-bytes", "", "kv", true,             \
      "Bytes of the cache, instead of a number of tokens; 0: by kv-cache-tokens.")                                     \
    X(CACHE_TYPE_K, "cache-type-k", ENUM, "f16", &PI__CACHE_TYPE_WORDS[1], "-ctk --cache-type-k", "", "kv", true,      \
      "Type of the keys in the cache.")                                                                                \
    X(CACHE_TYPE_V, "cache-type-v", ENUM, "f16", &PI__CACHE_TYPE_WORDS[1], "-ctv --cache-type-v", "", "kv", true,      \
      "Type of the values in the cache.")                                                                              \
    X(CACHE_TYPE_WINDOW, "cache-type-window", ENUM, "same", "same" PI__CACHE_TYPE_WORDS, "--cache-type-window", "",    \
      "kv", false, "Type of keys and values of layers that see only a window; same: as cache-type-k and -v.")          \
    X(CACHE_TYPE, "cache-type", STRING, "", "", "--cache-type", "", "kv", false,                                       \
      "Types by layer, the first rule that names one decides: WHICH:TYPE,... with WHICH *, full, window (layers that see"\
      " all tokens, or a window), L0-3, first2 or last2, and .k or .v behind it for keys or values alone. For others"  \
      " the options above.")                                                                                           \
    X(BLOCK_SIZE, "block-size", ENUM, "16", "16|32|64", "--block-size", "", "kv", false, "Tokens in a cache block.")   \
    X(KV_COMMIT, "kv-commit", ENUM, "demand", "demand|full", "--kv-commit", "", "kv", false,                           \
      "Take the cache's memory as blocks are first used, or all of it at start.")                                      \
    X(PREFIX_CACHE, "prefix-cache", BOOL, "true", "", "--prefix-cache --enable-prefix-caching", "", "kv", true,        \
      "Keep what was computed and reuse it for requests that start the same.")                                         \
    X(SNAPSHOT_BYTES, "snapshot-bytes", SIZE, "0", "0..1152921504606846976", "--snapshot-bytes", "", "kv", false,      \
      "Memory for snapshots of recurrent states, from which prefixes are reused; 0: as much as the cache takes.")      \
    X(SNAPSHOT_INTERVAL, "snapshot-interval", INT, "512", "16..1048576", "--snapshot-interval", "", "kv", false,       \
      "Tokens from one snapshot to the next where no turn, prompt or answer ends.")                                    \
    X(CACHE_RAM, "cache-ram", INT, "8192", "-1..1073741824", "-cram --cache-ram", "", "kv", true,                      \
      "MiB of host memory for prefixes that a GPU with memory of its own evicts, at most 3/4 of what is free; -1: all"   \
      " of that, 0: none.")                                                                                            \
    X(PREFIX_DIR, "prefix-cache-dir", STRING, "", "", "--prefix-cache-dir", "", "kv", false,                           \
      "Directory in which computed prefixes are kept on disk, across restarts; empty: none.")                          \
    X(PREFIX_DIR_BYTES, "prefix-cache-dir-bytes", SIZE, "4294967296", "1048576..1152921504606846976",                  \
      "--prefix-cache-dir-bytes", "", "kv", false, "Bytes of disk that the directory may take.")                       \
    X(PREFIX_KEY, "prefix-cache-key", STRING, "", "", "--prefix-cache-key", "", "kv", false,                           \
      "Key file that authenticates the directory's files, made if missing; empty: no other user may write there.")     \
    X(PREFIX_DIR_RO, "prefix-cache-dir-ro", BOOL, "false", "", "--prefix-cache-dir-ro --prompt-cache-ro", "", "kv",    \
      false, "Only read that directory: what is new is not kept there.")                                               \
    X(MODEL_DRAFT, "model-draft", STRING, "", "", "-md --model-draft --spec-draft-model", "LLAMA_ARG_MODEL_DRAFT",     \
      "speculation", true, "GGUF file of a drafter made for the model, or of a smaller model with the same vocabulary.")\
    X(SPEC_N_MAX, "spec-draft-n-max", INT, "3", "0..16", "--spec-draft-n-max --draft --draft-n --draft-max",           \
      "LLAMA_ARG_DRAFT_MAX", "speculation", true, "Tokens drafted at most for each token that is verified.")           \
    X(SPEC_N_MIN, "spec-draft-n-min", INT, "0", "0..16", "--spec-draft-n-min --draft-min --draft-n-min",               \
      "LLAMA_ARG_DRAFT_MIN", "speculation", false, "Fewer drafted tokens than so many are not verified.")              \
    X(SPEC_P_MIN, "spec-draft-p-min", FLOAT, "0", "0..1", "--spec-draft-p-min --draft-p-min",                          \
      "LLAMA_ARG_DRAFT_P_MIN", "speculation", false,                                                                   \
      "Drafts end where their likeliest token is less probable than this; 0: never.")                                    \
    X(SPEC_LAYERS, "spec-draft-layers", INT, "0", "0..1024", "--spec-draft-layers", "", "speculation", false,          \
      "layer-exit: layers that draft; 0: half of them.")                                                               \
    X(SPEC_ADAPTIVE, "spec-adaptive", BOOL, "true", "", "--spec-adaptive", "", "speculation", false,                   \
      "How many are drafted follows how often they were right and what they cost; off: always as many as there are.")  \
    X(SPEC_NGRAM_N, "spec-ngram-size-n", INT, "3", "1..1024", "--spec-ngram-size-n --spec-ngram-simple-size-n"         \
      " --spec-ngram-map-k-size-n --spec-ngram-map-k4v-size-n --spec-ngram-mod-n-match", "", "speculation", false,     \
      "ngram: tokens that have to be the same, at least; more than 64 mean 64.")                                       \
    X(SPEC_NGRAM_M, "spec-ngram-size-m", INT, "16", "0..1024", "--spec-ngram-size-m --spec-ngram-simple-size-m"        \
      " --spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m --spec-ngram-mod-n-max", "", "speculation", false,       \
      "ngram: tokens drafted at most; more than 16 mean 16.")                                                          \
    X(SPEC_NGRAM_SHARED, "spec-ngram-shared", SIZE, "0", "0..16777216", "--spec-ngram-shared", "", "speculation", false,\
      "ngram: tokens of ended requests that are looked at, too, by requests of the same cache-salt; 0: none.")         \
    X(UBATCH_SIZE, "ubatch-size", INT, "512", "1..65536", "-ub --ubatch-size --max-num-batched-tokens",                \
      "LLAMA_ARG_UBATCH", "scheduler", true, "Tokens a step processes at most, prompts and answers together.")         \
    X(PREFILL_SPARSITY, "prefill-sparsity", FLOAT, "0", "0..2", "--prefill-sparsity", "", "scheduler", false,          \
      "Tokens of long prompts attend to some blocks of 128 keys alone: the first, the last, and those that score at"   \
      " least so much of the best one. More is faster and less exact, 0.12 is a start; 0: they attend to all.")        \
    X(PREFILL_SPARSITY_FROM, "prefill-sparsity-from", INT, "8192", "0..1073741824", "--prefill-sparsity-from", "",     \
      "scheduler", false, "Tokens of a prompt before so many attend to all, whatever prefill-sparsity is; so do those" \
      " of its last two blocks, and the answer.")                                                                      \
    X(STEP_TARGET_MS, "step-target-ms", FLOAT, "0", "0..1000000", "--step-target-ms", "", "scheduler", false,          \
      "While somebody streams, a step takes only so much of prompts that it lasts about so long; 0: all that fits.")   \
    X(BATCH_SIZE, "batch-size", INT, "0", "0..2147483647", "-b --batch-size", "LLAMA_ARG_BATCH", "scheduler", false,   \
      "Where it is less than ubatch-size, that: there is no larger, logical batch. 0: nothing.")                       \
    X(PARALLEL, "parallel", INT, "16", "1..4096", "-np --parallel --max-num-seqs", "LLAMA_ARG_N_PARALLEL",             \
      "scheduler", true, "Requests that run at once.")                                                                 \
    X(MAX_QUEUE, "max-queue", INT, "1024", "0..1000000", "--max-queue", "", "scheduler", false,                        \
      "Requests that may wait; more are refused.")                                                                     \
    X(POLICY, "policy", ENUM, "fcfs", "fcfs|priority", "--policy --scheduling-policy", "", "scheduler", false,         \
      "Which request runs next: the oldest, or the one with the lowest priority number.")                              \
    X(PRIORITY_AGING, "priority-aging", FLOAT, "10", "0..86400", "--priority-aging", "", "scheduler", false,           \
      "Seconds after which a waiting request goes before all that wait less long, whatever their priority or tenant;"  \
      " 0: never.")                                                                                                    \
    X(ASYNC_SCHEDULING, "async-scheduling", BOOL, "true", "", "--async-scheduling", "", "scheduler", false,            \
      "On GPUs, a decoding step whose tokens the GPU can choose itself (greedy, or by top-k, top-p, min-p and"         \
      " temperature; without grammars, penalties, biases or drafts) begins before those of the step before it have"    \
      " come to the host. Tokens are the same.")                                                                       \
    X(THREADS, "threads", INT, "0", "-1..1024", "-t --threads", "", "cpu", true,                                       \
      "CPU threads; 0 or -1: one for each core the process may use.")                                                  \
    X(THREADS_BATCH, "threads-batch", INT, "0", "-1..1024", "-tb --threads-batch", "", "cpu", false,                   \
      "CPU threads of steps that have tokens of prompts; 0 or -1: as threads, and where that is 0, no more than it.")  \
    X(CPU_MASK, "cpu-mask", STRING, "", "", "-C --cpu-mask", "", "cpu", false,                                         \
      "Hexadecimal mask of cores that the threads are pinned to; empty: not pinned.")                                  \
    X(CPU_RANGE, "cpu-range", STRING, "", "", "-Cr --cpu-range", "", "cpu", false,                                     \
      "Cores LO-HI that the threads are pinned to, beside those of cpu-mask.")                                         \
    X(CPU_STRICT, "cpu-strict", ENUM, "auto", "auto|0|1", "--cpu-strict", "", "cpu", false,                            \
      "1: each thread is pinned to one of these cores; 0: to all of them; auto: to one, if there are enough.")         \
    X(NUMA, "numa", ENUM, "none", "none|distribute|isolate|numactl", "--numa", "", "cpu", false,                       \
      "Threads, and so the weights they load, on all NUMA nodes in turn (distribute), on the node where the process"   \
      " starts (isolate), or where the process may run (numactl, as none).")                                           \
    X(PRIO, "prio", INT, "0", "-1..3", "--prio", "", "cpu", false,                                                     \
      "Priority of the threads: -1 low, 0 normal, 1 medium, 2 high, 3 realtime.")                                      \
    X(POLL, "poll", INT, "50", "0..100", "--poll", "", "cpu", false,                                                   \
      "How long idle threads spin before they sleep; 0: not at all.")                                                  \
    X(CPU_ISA, "cpu-isa", ENUM, "auto", "auto|amx|avx512|avxvnni|avx2|sve256|i8mm|neon|generic", "--cpu-isa", "", "cpu", false, \
      "Instruction set to use at most; every choice gives a correct answer.")                                          \
    X(ACTIVATION_BITS, "activation-bits", ENUM, "15", "8|15", "--activation-bits", "", "cpu", false,                   \
      "On the CPU, what activations are rounded to where quantised matrices are multiplied. 15: results as good as in" \
      " float. 8, as is usual: half of the products, faster prompts; docs/perf/cpu.md has speed and error.")          \
    X(CHAT_TEMPLATE, "chat-template", STRING, "", "", "--chat-template -cml=chatml --chatml=chatml", "",               \
      "template", false,                                                                                               \
      "Chat template to use instead of the model's own: Jinja text, or one of the names" PI__CHAT_NAME_LIST ".")       \
    X(CHAT_TEMPLATE_FILE, "chat-template-file", STRING, "", "", "--chat-template-file", "", "template", true,          \
      "File with the chat template to use instead of the model's own.")                                                \
    X(CHAT_KWARGS, "chat-template-kwargs", STRING, "", "", "--chat-template-kwargs", "", "template", false,            \
      "JSON object with variables for the chat template.")                                                             \
    X(LOG_LEVEL, "log-level", ENUM, "info", "none|error|warn|info|debug", "--log-level", "", "general", false,         \
      "Lines up to this level are logged.")

#define PI__REQUEST_OPTIONS(X)                                                                                         \
    X(N, "n", INT, "1", "1..64", "", "", "generation", false,                                                          \
      "Answers to generate at the same time, which share the prompt's part of the cache; seeds count up from seed.")   \
    X(MAX_TOKENS, "max-tokens", INT, "-1", "-2..2147483647", "-n --predict --n-predict --max-tokens", "",              \
      "generation", true, "Tokens to generate; -1 or -2: until the model ends or the context is full.")                \
    X(MIN_TOKENS, "min-tokens", INT, "0", "0..2147483647", "--min-tokens", "", "generation", false,                    \
      "The model may not end its answer before so many tokens.")                                                       \
    X(IGNORE_EOS, "ignore-eos", BOOL, "false", "", "--ignore-eos", "", "generation", true,                             \
      "The model never ends its answer: end-of-generation tokens are not sampled.")                                    \
    X(NO_STOP, "no-stop", BOOL, "false", "", "--no-stop", "", "generation", false,                                     \
      "End-of-generation tokens are sampled like others and end nothing.")                                             \
    X(REASONING_BUDGET, "reasoning-budget", INT, "-1", "-1..2147483647", "--reasoning-budget", "LLAMA_ARG_THINK_BUDGET",\
      "generation", false, "Tokens that a thought may have before its end is forced; 0: none, -1: as many as it likes.")\
    X(REASONING_MESSAGE, "reasoning-budget-message", STRING, "", "", "--reasoning-budget-message",                     \
      "LLAMA_ARG_THINK_BUDGET_MESSAGE", "generation",                                                                  \
      false, "Text that is put before the end of a thought which took too long.")                                      \
    X(STOP, "stop", LIST, "", "", "--stop -r --reverse-prompt", "", "generation", true,                                \
      "Text that ends the answer and is not part of it; may be given several times.")                                  \
    X(STOP_TOKEN, "stop-token", LIST, "", "", "--stop-token", "", "generation", false,                                 \
      "Token id that ends the answer; may be given several times.")                                                    \
    X(BAD_WORDS, "bad-words", LIST, "", "", "--bad-words", "", "generation", false,                                    \
      "Text that the answer may not hold: the token that would complete it is not sampled; may be given several times.")\
    X(JSON_SCHEMA, "json-schema", STRING, "", "", "-j --json-schema", "", "generation", true,                          \
      "The answer is JSON that meets this JSON Schema; {} for any JSON, {\"type\": \"object\"} for any object.")         \
    X(GRAMMAR, "grammar", STRING, "", "", "--grammar", "", "generation", true,                                         \
      "The answer is a text of this grammar, in GBNF; %json{...} in it stands for a text of a JSON Schema.")           \
    X(REGEX, "regex", STRING, "", "", "--regex", "", "generation", false,                                              \
      "The answer matches this regular expression, as a whole.")                                                       \
    X(CHOICE, "choice", STRING, "", "", "--choice", "", "generation", false,                                           \
      "The answer is one of these texts, a JSON array of strings.")                                                    \
    X(GRAMMAR_TRIGGER, "grammar-trigger", STRING, "", "", "--grammar-trigger", "", "generation", false,                \
      "JSON array of texts or control tokens: the answer is free until it has one of them; what follows has the form"  \
      " that grammar, json-schema, regex or choice asks for.")                                                         \
    X(SPECIAL, "special", BOOL, "false", "", "-sp --special", "", "generation", false,                                 \
      "Control tokens appear in the text.")                                                                            \
    X(LOGPROBS, "logprobs", INT, "-1", "-1..1024", "--logprobs --n-probs", "", "generation", false,                    \
      "Report the probability of each token and of so many alternatives; -1: none.")                                   \
    X(LOGPROBS_MODE, "logprobs-mode", ENUM, "raw", "raw|processed", "--logprobs-mode", "", "generation", false,         \
      "Probabilities of logprobs are the model's (raw), or those that the sampler chose by, of what its filters left"    \
      " (processed).")                                                                                                 \
    X(PROMPT_LOGPROBS, "prompt-logprobs", INT, "-1", "-1..64", "--prompt-logprobs", "", "generation", false,           \
      "Report the probability of each token of the prompt that has one before it, and of so many alternatives; with"   \
      " logits-from, of those behind that position. -1: none.")                                                        \
    X(PROMPT_PROGRESS, "prompt-progress", BOOL, "false", "", "--prompt-progress", "", "generation", false,             \
      "Tell after each step how much of the prompt is computed.")                                                      \
    X(LOGITS, "logits", ENUM, "none", "none|last|all|generated", "--logits", "", "generation", false,                  \
      "Which rows of logits the logits function gets.")                                                                \
    X(LOGITS_FROM, "logits-from", INT, "0", "0..2147483647", "--logits-from", "", "generation", false,                 \
      "With logits=all and prompt-logprobs: only the rows of positions from this one on.")                             \
    X(POOLING, "pooling", ENUM, "off", "off|model|none|mean|cls|last|rank", "--pooling", "", "generation", false,      \
      "Vectors of the prompt instead of an answer: of each token, their mean, the first's, the last's, as the model"   \
      " says; rank: the scores of its classifier.")                                                                    \
    X(EMBD_NORMALIZE, "embd-normalize", INT, "2", "-1..64", "--embd-normalize", "", "generation", false,               \
      "How vectors are normalised: -1 not, 0 the largest value is 32760, 1 the sum, 2 the length, P the P-norm is 1.") \
    X(DIMENSIONS, "dimensions", INT, "0", "0..1048576", "--dimensions", "", "generation", false,                       \
      "Vectors have their first so many values, for models trained for that; 0: all.")                                 \
    X(LORA, "lora", STRING, "", "", "--lora-use", "", "generation", false,                                             \
      "Adapters of the request, NAME or NAME:SCALE with commas between; none: none; empty: those that the engine gives" \
      " to all.")                                                                                                      \
    X(CACHE, "cache", BOOL, "true", "", "--cache-prompt", "", "generation", false,                                     \
      "Reuse and keep prefixes of this request.")                                                                      \
    X(CACHE_SALT, "cache-salt", STRING, "", "", "--cache-salt", "", "generation", false,                               \
      "Prefixes are shared only among requests of the same salt; a tenant's name, say.")                               \
    X(PRIORITY, "priority", INT, "0", "-2147483648..2147483647", "--priority", "", "generation", false,                \
      "Under the priority policy, requests with lower numbers run first; see priority-aging.")                         \
    X(TENANT, "tenant", STRING, "", "", "--tenant", "", "generation", false,                                           \
      "Name of a user or customer: those who have requests waiting take turns. The server sets it by API key.")        \
    X(TIMEOUT, "timeout", FLOAT, "0", "0..1000000", "--timeout --deadline", "", "generation", false,                   \
      "Seconds after which the request ends with an error; 0: none.")                                                  \
    X(SPEC_TYPE, "spec-type", STRING, "auto", "", "--spec-type --spec-default=ngram", "", "speculation", true,         \
      "Who drafts tokens that are then verified together: mtp (a head of the model), draft (model-draft), ngram (what" \
      " followed the same words in prompt and answer), layer-exit (the model's first layers), none; auto: model-draft, if" \
      " given. Of an engine several with , between: a request may choose one of them, and has the first one else.")    \
    X(SEED, "seed", INT, "-1", "-9223372036854775808..9223372036854775807", "-s --seed", "", "sampling", true,         \
      "Seed of the random numbers, any integer of 64 bits; -1: another one each time.")                                \
    X(TEMP, "temp", FLOAT, "0.8", "..1000", "--temp --temperature", "", "sampling", true,                              \
      "Temperature: higher is more varied; 0 or less: always the most likely token.")                                  \
    X(DYNATEMP_RANGE, "dynatemp-range", FLOAT, "0", "0..1000", "--dynatemp-range", "", "sampling", false,              \
      "Dynamic temperature: from temp minus this, where the model is sure, to temp plus this, where it is not; 0: off.")\
    X(DYNATEMP_EXP, "dynatemp-exp", FLOAT, "1", "0..1000", "--dynatemp-exp", "", "sampling", false,                    \
      "Dynamic temperature: exponent of the entropy; above 1 temperatures are nearer to the lower end.")               \
    X(TOP_K, "top-k", INT, "40", "-1..2147483647", "--top-k", "", "sampling", true,                                    \
      "Only the K most likely tokens; 0: all.")                                                                        \
    X(TOP_P, "top-p", FLOAT, "0.95", "0..1", "--top-p", "", "sampling", true,                                          \
      "Only the likeliest tokens that together have probability P; 1: all.")                                           \
    X(MIN_P, "min-p", FLOAT, "0.05", "0..1", "--min-p", "", "sampling", true,                                          \
      "Only tokens at least P times as likely as the likeliest; 0: all.")                                              \
    X(TYPICAL, "typical", FLOAT, "1", "0..1", "--typical --typical-p", "", "sampling", false,                          \
      "Locally typical sampling with parameter P; 1: off.")                                                            \
    X(TOP_N_SIGMA, "top-n-sigma", FLOAT, "-1", "..1000000", "--top-n-sigma --top-nsigma", "", "sampling", false,       \
      "Only tokens whose logit is within N standard deviations of the best; 0 or less: off.")                          \
    X(MIN_KEEP, "min-keep", INT, "0", "0..2147483647", "--min-keep", "", "sampling", false,                            \
      "Filters leave at least so many tokens.")                                                                        \
    X(REPEAT_PENALTY, "repeat-penalty", FLOAT, "1", "0.01..100", "--repeat-penalty", "", "sampling", true,             \
      "Divides the logit of tokens that occurred lately; 1: off.")                                                     \
    X(REPEAT_LAST_N, "repeat-last-n", INT, "64", "-1..2147483647", "--repeat-last-n", "", "sampling", false,           \
      "Tokens that the penalties look back at; 0: none, -1: all.")                                                     \
    X(PRESENCE_PENALTY, "presence-penalty", FLOAT, "0", "-100..100", "--presence-penalty", "", "sampling", false,      \
      "Subtracted from the logit of tokens that occurred lately.")                                                     \
    X(FREQUENCY_PENALTY, "frequency-penalty", FLOAT, "0", "-100..100", "--frequency-penalty", "", "sampling", false,   \
      "The same, for each time they occurred.")                                                                        \
    X(DRY_MULTIPLIER, "dry-multiplier", FLOAT, "0", "0..1000", "--dry-multiplier", "", "sampling", false,              \
      "Strength of the DRY penalty on repeated sequences; 0: off.")                                                    \
    X(DRY_BASE, "dry-base", FLOAT, "1.75", "1..1000", "--dry-base", "", "sampling", false,                             \
      "Factor by which the DRY penalty grows with each repeated token.")                                               \
    X(DRY_ALLOWED_LENGTH, "dry-allowed-length", INT, "2", "0..2147483647", "--dry-allowed-length", "", "sampling",     \
      false, "Repetitions up to so many tokens are free under DRY.")                                                   \
    X(DRY_PENALTY_LAST_N, "dry-penalty-last-n", INT, "64", "-1..2147483647", "--dry-penalty-last-n", "", "sampling",   \
      false, "Tokens that DRY looks back at; 0: none, -1: all.")                                                       \
    X(DRY_BREAKER, "dry-sequence-breaker", LIST, "\\n : \" *", "", "--dry-sequence-breaker", "", "sampling", false,    \
      "Text that ends a sequence for DRY; the first one given replaces the defaults, none means none.")                \
    X(XTC_PROBABILITY, "xtc-probability", FLOAT, "0", "0..1", "--xtc-probability", "", "sampling", false,              \
      "Chance that XTC removes the likeliest tokens; 0: off.")                                                         \
    X(XTC_THRESHOLD, "xtc-threshold", FLOAT, "0.1", "0..1", "--xtc-threshold", "", "sampling", false,                  \
      "XTC removes all but the last of the tokens at least this probable; above 0.5: off.")                            \
    X(MIROSTAT, "mirostat", INT, "0", "0..2", "--mirostat", "", "sampling", false,                                     \
      "Mirostat 1 or 2: keeps the surprise of tokens near mirostat-ent, instead of all other stages but temp; 0: off.")\
    X(MIROSTAT_LR, "mirostat-lr", FLOAT, "0.1", "0..1000", "--mirostat-lr", "", "sampling", false,                     \
      "Mirostat's learning rate eta: how much of each token's error it corrects.")                                     \
    X(MIROSTAT_ENT, "mirostat-ent", FLOAT, "5", "0..1000", "--mirostat-ent", "", "sampling", false,                    \
      "Mirostat's target tau: surprise of a token, in bits.")                                                          \
    X(ADAPTIVE_TARGET, "adaptive-target", FLOAT, "-1", "..1", "--adaptive-target", "", "sampling", false,              \
      "Stage adaptive_p: prefer tokens of this probability; below 0: off.")                                            \
    X(ADAPTIVE_DECAY, "adaptive-decay", FLOAT, "0.9", "0..0.99", "--adaptive-decay", "", "sampling", false,            \
      "Stage adaptive_p: weight that a token keeps from one to the next; higher is steadier.")                         \
    X(SAMPLERS, "samplers", STRING, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "",           \
      "--samplers --sampler-seq --sampling-seq", "", "sampling", false,                                                \
      "Order of the sampling stages, names with ; between or letters (edskypmxt, and a: adaptive_p, always the last).") \
    X(LOGIT_BIAS, "logit-bias", LIST, "", "", "-l --logit-bias", "", "sampling", false,                                \
      "ID+BIAS or ID-BIAS changes a token's logit, ID-inf forbids it; may be given several times.")

#endif
