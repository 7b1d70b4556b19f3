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
      "GGUF file of the model, or the first of its parts.")                                                            \
    X(MMPROJ, "mmproj", STRING, "", "", "-mm --mmproj", "", "model", true,                                             \
      "GGUF file of the model's vision part, for images in prompts.")                                                  \
    X(MMPROJ_CACHE, "mmproj-cache", SIZE, "0", "0..1099511627776", "--mmproj-cache", "", "model", false,               \
      "Bytes for images that were computed and may be used again; 0: a few large images.")                             \
    X(LOAD_MODE, "load-mode", ENUM, "auto", "auto|mmap|read|none|dio|mlock|mmap+mlock",                                \
      "-lm --load-mode --mmap=mmap --no-mmap=read -dio=dio --direct-io=dio -ndio=auto --no-direct-io=auto", "",        \
      "model", false,                                                                                                  \
      "How to read the file: map it (mmap; auto uses it), read it, or read"                                            \
      " it without the page cache (dio). Modes with mlock also set --mlock.")                                          \
    X(MLOCK, "mlock", BOOL, "false", "", "--mlock", "", "model", false,                                                \
      "Lock the weights in host memory, so that they are never swapped out.")                                          \
    X(WEIGHTS_FROM, "weights-from", STRING, "", "", "--weights-from", "", "model", false,                              \
      "Socket of `pagedinfer weights`, which holds this model's weights: map them instead"                             \
      " of loading, one copy for all processes of the machine, on the CPU and on each GPU.")                           \
    X(WEIGHTS_CACHE, "weights-cache", STRING, "", "", "--weights-cache", "", "model", false,                           \
      "Directory that keeps the weights packed for the CPU, so that the next start"                                    \
      " maps them; they take as much disk as memory. Old files are never removed.")                                    \
    X(OVERRIDE_KV, "override-kv", LIST, "", "", "--override-kv", "", "model", false,                                   \
      "KEY=TYPE:VALUE sets metadata of the model, TYPE int, float, bool or str; may be given several times.")          \
    X(LORA_FILE, "lora-file", LIST, "", "", "--lora", "", "model", false,                                              \
      "LoRA adapter (GGUF) that requests use by default: FILE,..."                                                     \
      " or FILE:SCALE,...; its name is the file's without .gguf.")                                                     \
    X(LORA_SCALED, "lora-scaled", LIST, "", "", "--lora-scaled", "", "model", false,                                   \
      "Adapters like --lora, with scales: FILE:SCALE,... ; may be given several times.")                               \
    X(LORA_MODULES, "lora-modules", LIST, "", "", "--lora-modules", "", "model", false,                                \
      "NAME=FILE loads an adapter for requests that name it; may be given several times.")                             \
    X(LORA_NO_APPLY, "lora-init-without-apply", BOOL, "false", "", "--lora-init-without-apply", "", "model", false,    \
      "Use the adapters of --lora and --lora-scaled only for requests that name them.")                                \
    X(ROPE_FREQ_BASE, "rope-freq-base", FLOAT, "0", "0..1000000000000000", "--rope-freq-base --rope-theta", "",        \
      "model", false,                                                                                                  \
      "Base of the RoPE frequencies; 0: the model's.")                                                                 \
    X(ROPE_SCALING, "rope-scaling", ENUM, "model", "model|none|linear|yarn", "--rope-scaling",                         \
      "LLAMA_ARG_ROPE_SCALING_TYPE", "model", false,                                                                   \
      "Method by which rope-scale stretches RoPE to longer contexts; model: the file's.")                              \
    X(ROPE_SCALE, "rope-scale", FLOAT, "0", "0..1000000", "--rope-scale", "", "model", false,                          \
      "Factor by which contexts become longer; 0: the model's.")                                                       \
    X(ROPE_FREQ_SCALE, "rope-freq-scale", FLOAT, "0", "0..1", "--rope-freq-scale", "", "model", false,                 \
      "1 / rope-scale.")                                                                                               \
    X(YARN_ORIG_CTX, "yarn-orig-ctx", INT, "0", "0..268435456", "--yarn-orig-ctx", "", "model", false,                 \
      "YaRN: context of the model's training, in tokens; 0: the model's.")                                             \
    X(YARN_EXT_FACTOR, "yarn-ext-factor", FLOAT, "-1", "-1..1", "--yarn-ext-factor", "", "model", false,               \
      "YaRN: part of the fast pairs that is not stretched; 0: none; -1: the model's, or 1.")                           \
    X(YARN_ATTN_FACTOR, "yarn-attn-factor", FLOAT, "-1", "-1..1000", "--yarn-attn-factor", "", "model", false,         \
      "YaRN: additional factor of queries and keys; -1: the model's, or 1.")                                           \
    X(YARN_BETA_SLOW, "yarn-beta-slow", FLOAT, "-1", "-1..1000", "--yarn-beta-slow", "", "model", false,               \
      "YaRN: pairs with fewer rotations in the trained context are stretched; -1: the model's, or 1.")                 \
    X(YARN_BETA_FAST, "yarn-beta-fast", FLOAT, "-1", "-1..1000", "--yarn-beta-fast", "", "model", false,               \
      "YaRN: pairs with more rotations in the trained context are unchanged; -1: the model's, or 32.")                 \
    X(N_LAYER_EXIT, "n-layer-exit", INT, "0", "0..1024", "--n-layer-exit", "", "model", false,                         \
      "Load and compute only the first N layers, then the output: faster, but another model; 0: all.")                 \
    X(MOE_N_EXPERT, "moe-n-expert", INT, "0", "0..1024", "--moe-n-expert", "", "model", false,                         \
      "Number of experts per token; 0: the model's.")                                                                  \
    X(CHECK_TENSORS, "check-tensors", BOOL, "false", "", "--check-tensors", "", "model", false,                        \
      "Check every loaded value and refuse a model with NaN or infinity; loading takes longer.")                       \
    X(TRACE_OPS, "trace-ops", BOOL, "false", "", "--trace-ops", "", "model", false,                                    \
      "Log each op of a step (level debug, -v): operands, shapes, on the CPU also hashes of the values.")              \
    X(PROFILE_OPS, "profile-ops", BOOL, "false", "", "--profile-ops", "", "model", false,                              \
      "Record time, bytes and products of each op on the CPU, for pi_engine_profile; bench --ops prints them.")        \
    X(IMATRIX_FILE, "imatrix-file", STRING, "", "", "--imatrix-file", "", "model", false,                              \
      "Write an importance matrix of all computed tokens to this file at the end, for quantize --imatrix. Only on a"   \
      " CPU.")                                                                                                         \
    X(IMATRIX_DATASET, "imatrix-dataset", STRING, "", "", "--imatrix-dataset", "", "model", false,                     \
      "Name of the text, for the file of imatrix-file.")                                                               \
    X(DEVICE, "device", STRING, "auto", "", "-dev --device", "", "model", true,                                        \
      "Device for the model: cpu, or auto for the best device of this build. For several devices see split-mode.")     \
    X(SPLIT_MODE, "split-mode", ENUM, "none", "none|layer|row|tensor", "-sm --split-mode", "", "model", true,          \
      "Use one device (none), divide each layer among several (tensor), or put some"                                   \
      " layers on each (layer): --device cuda0,cuda1, or all devices. row is refused.")                                \
    X(RANKS, "ranks", ENUM, "off", "off|auto", "--ranks", "", "model", false,                                          \
      "auto: processes started together by mpirun, srun or torchrun divide each layer; rank 0 has"                     \
      " the model and the answers. off: each process is independent. The tool's default is auto.")                     \
    X(RANK_TIMEOUT, "rank-timeout", FLOAT, "30", "0.1..86400", "--rank-timeout", "", "model", false,                   \
      "Seconds that ranks wait for each other; a later rank counts as dead, and steps end with an error.")             \
    X(RANK_SECRET, "rank-secret", STRING, "", "", "--rank-secret", "", "model", false,                                 \
      "Secret file shared by ranks that meet at MASTER_ADDR, created if missing; ranks prove that they have it, and"   \
      " messages are signed. PAGEDINFER_RANK_KEY may hold the secret. Required if MASTER_ADDR is another machine.")    \
    X(TENSOR_SPLIT, "tensor-split", STRING, "", "", "-ts --tensor-split", "", "model", false,                          \
      "Parts of the devices with split-mode layer, such as 3,1; 0 skips a device. With tensor all parts are equal.")   \
    X(MAIN_GPU, "main-gpu", INT, "0", "0..255", "-mg --main-gpu", "", "model", false,                                  \
      "Index of the GPU to use with --device auto and split-mode none.")                                               \
    X(GPU_LAYERS, "gpu-layers", STRING, "auto", "", "-ngl --gpu-layers --n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS",      \
      "model", true,                                                                                                   \
      "Layers on the device: the last N, the output counts as one; others run on the CPU. all; auto: as fit.")         \
    X(FIT, "fit", ENUM, "on", "on|off|1|0|true|false", "-fit?on --fit?on", "", "model", false,                         \
      "off: gpu-layers auto puts all layers on the device, or refuses the model.")                                     \
    X(FIT_TARGET, "fit-target", STRING, "", "", "-fitt --fit-target", "", "model", false,                              \
      "MiB that gpu-layers auto leaves free on the device; of several numbers the largest. Empty: 1024, at most 1/8.") \
    X(CPU_MOE, "cpu-moe", BOOL, "false", "", "-cmoe --cpu-moe", "", "model", true,                                     \
      "Keep and run the experts of all layers on the CPU.")                                                            \
    X(N_CPU_MOE, "n-cpu-moe", INT, "0", "0..2147483647", "-ncmoe --n-cpu-moe", "", "model", true,                      \
      "Keep and run the experts of the first N layers on the CPU.")                                                    \
    X(EXPERT_CACHE, "expert-cache", INT, "0", "0..65536", "--moe-expert-cache", "", "model", true,                     \
      "With cpu-moe or n-cpu-moe on a GPU: the GPU computes these experts. It reads them from host memory, and"        \
      " keeps copies of this many per layer, those used last. 0: the CPU computes them.")                              \
    X(OVERRIDE_TENSOR, "override-tensor", LIST, "", "", "-ot --override-tensor", "", "model", false,                   \
      "REGEX=DEVICE,...: device of the tensors with matching names; may be given several times.")                      \
    X(KV_OFFLOAD, "kv-offload", BOOL, "true", "", "-kvo --kv-offload -nkvo=false", "", "kv", false,                    \
      "Keep the cache and run attention on the layer's device; --no-kv-offload: on the CPU.")                          \
    X(MATMUL, "matmul", ENUM, "auto", "auto|exact|w16", "--matmul", "", "model", true,                                 \
      "Matmul of quantized formats on GPUs. exact: 15-bit activations. w16: weights and"                               \
      " activations in 16-bit floats, if the format supports it: faster. auto: w16, since"                             \
      " its error is far below that of the usual 8-bit activations. CPU matmuls are exact.")                           \
    X(FP4_MODE, "fp4-mode", ENUM, "auto", "auto|off|w4a4|w4a8|w4a16", "--fp4-mode", "", "model", false,                \
      "Activations of NVFP4 and MXFP4 matmuls on GPUs with FP4 tensor cores. w4a4: FP4,"                               \
      " fastest, adds about the error of the weights; w4a8 (MXFP4, others w4a16): FP8, a quarter"                      \
      " of that; w4a16: 16-bit floats. off: by matmul. auto: with matmul auto MXFP4 as w4a8,"                          \
      " NVFP4 by matmul, because the error of w4a4 is larger than usual (docs/perf/modes.md).")                        \
    X(CUBLAS, "cublas", ENUM, "auto", "auto|on|off", "--cublas", "", "model", false,                                   \
      "On GPUs, use cuBLAS for F16 and BF16 matrices in steps of 64 tokens or more:"                                   \
      " faster prompts, but the last bits depend on the prompt chunks. auto: off.")                                    \
    X(CUDA_GRAPHS, "cuda-graphs", ENUM, "auto", "auto|on|off",                                                         \
      "--cuda-graphs --enforce-eager=off --no-enforce-eager=on", "", "model", false,                                   \
      "On GPUs, record decode steps as CUDA graphs and replay them, for one launch"                                    \
      " instead of one per kernel; off: for drivers with graph bugs. auto: on.")                                       \
    X(CUDA_FUSE, "cuda-fuse", STRING, "auto", "", "--cuda-fuse", "", "model", false,                                   \
      "On GPUs, fuse several ops into one kernel for few rows: matmuls, residual, norm and"                            \
      " rounding; off: one kernel per op with the same results, for debugging. A list of rules with"                   \
      " commas (docs/design/cuda.md) disables only these. auto: on.")                                                  \
    X(CUDA_DEPENDENT, "cuda-dependent-launches", ENUM, "auto", "auto|on|off", "--cuda-dependent-launches --pdl", "",   \
      "model", false,                                                                                                  \
      "On GPUs, start a kernel while the one before it ends, and prefetch its weights; off: one after"                 \
      " the other, to find faults. auto: on from sm_90 on.")                                                           \
    X(CUDA_WAITING, "cuda-waiting-blocks", INT, "0", "0..65535", "--cuda-waiting-blocks", "", "model", false,          \
      "On GPUs, maximum blocks of a kernel that wait for its other blocks. 1: none waits, for GPUs"                    \
      " that several processes share by MPS; slower, same results. 0: by the number of multiprocessors"                \
      " and of engines in this process.")                                                                              \
    X(CTX_SIZE, "ctx-size", INT, "0", "0..2147483647", "-c --ctx-size --max-model-len", "", "kv", true,                \
      "Maximum tokens of a request, prompt and answer; 0: the model's trained context.")                               \
    X(KV_TOKENS, "kv-cache-tokens", SIZE, "0", "0..1099511627776", "--kv-cache-tokens", "", "kv", true,                \
      "Capacity of the cache for all requests, in tokens; 0: by memory-utilization.")                                  \
    X(KV_BYTES, "kv-cache-bytes", SIZE, "0", "0..1152921504606846976", "--kv-cache-bytes --kv-cache-memory-bytes",     \
      "", "kv", true,                                                                                                  \
      "Capacity of the cache in bytes, instead of tokens; 0: by kv-cache-tokens.")                                     \
    X(MEMORY_UTILIZATION, "memory-utilization", FLOAT, "0.9", "0.01..1",                                               \
      "--memory-utilization --gpu-memory-utilization", "", "kv", true,                                                 \
      "Part of the device's free memory, on the CPU of the available memory, that weights, buffers and the"            \
      " cache use together, if kv-cache-tokens and kv-cache-bytes are 0. The cache holds at most parallel"             \
      " requests of ctx-size. One request, or 32768 tokens without a ctx-size, may exceed this part.")                 \
    X(CACHE_TYPE_K, "cache-type-k", ENUM, "f16", &PI__CACHE_TYPE_WORDS[1], "-ctk --cache-type-k", "", "kv", true,      \
      "Type of the keys in the cache.")                                                                                \
    X(CACHE_TYPE_V, "cache-type-v", ENUM, "f16", &PI__CACHE_TYPE_WORDS[1], "-ctv --cache-type-v", "", "kv", true,      \
      "Type of the values in the cache.")                                                                              \
    X(CACHE_TYPE_WINDOW, "cache-type-window", ENUM, "same", "same" PI__CACHE_TYPE_WORDS, "--cache-type-window", "",    \
      "kv", false, "Type of keys and values of sliding-window layers; same: as cache-type-k and -v.")                  \
    X(CACHE_TYPE, "cache-type", STRING, "", "", "--cache-type", "", "kv", false,                                       \
      "Types by layer; the first matching rule applies: LAYERS:TYPE,... LAYERS is *, full,"                            \
      " window (layers with full or sliding-window attention), L0-3, first2 or last2;"                                 \
      " append .k or .v for keys or values only. Other layers use the options above.")                                 \
    X(BLOCK_SIZE, "block-size", ENUM, "16", "16|32|64", "--block-size", "", "kv", false, "Tokens per cache block.")    \
    X(KV_COMMIT, "kv-commit", ENUM, "demand", "demand|full", "--kv-commit", "", "kv", false,                           \
      "Allocate the cache's memory as blocks are first used, or all of it at start.")                                  \
    X(PREFIX_CACHE, "prefix-cache", BOOL, "true", "", "--prefix-cache --enable-prefix-caching", "", "kv", true,        \
      "Keep computed prefixes and reuse them for requests with the same start.")                                       \
    X(SNAPSHOT_BYTES, "snapshot-bytes", SIZE, "0", "0..1152921504606846976", "--snapshot-bytes", "", "kv", false,      \
      "Memory for snapshots of recurrent states, from which prefixes are reused; 0: the size of the cache.")           \
    X(SNAPSHOT_INTERVAL, "snapshot-interval", INT, "512", "16..1048576", "--snapshot-interval", "", "kv", false,       \
      "Tokens between snapshots within a turn, prompt or answer.")                                                     \
    X(CACHE_RAM, "cache-ram", INT, "8192", "-1..1073741824", "-cram --cache-ram", "", "kv", true,                      \
      "MiB of host memory for prefixes that a discrete GPU evicts,"                                                    \
      " at most 3/4 of the free memory; -1: all of that, 0: none.")                                                    \
    X(PREFIX_DIR, "prefix-cache-dir", STRING, "", "", "--prefix-cache-dir", "", "kv", false,                           \
      "Directory that keeps computed prefixes on disk, across restarts; empty: none.")                                 \
    X(PREFIX_DIR_BYTES, "prefix-cache-dir-bytes", SIZE, "4294967296", "1048576..1152921504606846976",                  \
      "--prefix-cache-dir-bytes", "", "kv", false, "Maximum size of the directory, bytes.")                            \
    X(PREFIX_KEY, "prefix-cache-key", STRING, "", "", "--prefix-cache-key", "", "kv", false,                           \
      "Key file that authenticates the directory's files, created if missing; empty: no other user may write there.")  \
    X(PREFIX_DIR_RO, "prefix-cache-dir-ro", BOOL, "false", "", "--prefix-cache-dir-ro --prompt-cache-ro", "", "kv",    \
      false, "Only read the directory; do not store new prefixes.")                                                    \
    X(MODEL_DRAFT, "model-draft", STRING, "", "", "-md --model-draft --spec-draft-model", "LLAMA_ARG_MODEL_DRAFT",     \
      "speculation", true,                                                                                             \
      "GGUF file of a drafter made for the model, or of a smaller model with the same vocabulary.")                    \
    X(SPEC_N_MAX, "spec-draft-n-max", INT, "3", "0..16", "--spec-draft-n-max --draft --draft-n --draft-max",           \
      "LLAMA_ARG_DRAFT_MAX", "speculation", true, "Maximum drafted tokens for each verified token.")                   \
    X(SPEC_N_MIN, "spec-draft-n-min", INT, "0", "0..16", "--spec-draft-n-min --draft-min --draft-n-min",               \
      "LLAMA_ARG_DRAFT_MIN", "speculation", false, "Minimum drafted tokens; shorter drafts are not verified.")         \
    X(SPEC_P_MIN, "spec-draft-p-min", FLOAT, "0", "0..1", "--spec-draft-p-min --draft-p-min", "LLAMA_ARG_DRAFT_P_MIN", \
      "speculation", false, "End a draft if its most likely token has a lower probability; 0: never.")                 \
    X(SPEC_LAYERS, "spec-draft-layers", INT, "0", "0..1024", "--spec-draft-layers", "", "speculation", false,          \
      "layer-exit: number of layers that draft; 0: half of them.")                                                     \
    X(SPEC_ADAPTIVE, "spec-adaptive", BOOL, "true", "", "--spec-adaptive", "", "speculation", false,                   \
      "Adapt the draft length to the acceptance rate and the cost; off: always the maximum.")                          \
    X(SPEC_NGRAM_N, "spec-ngram-size-n", INT, "3", "1..1024",                                                          \
      "--spec-ngram-size-n --spec-ngram-simple-size-n"                                                                 \
      " --spec-ngram-map-k-size-n --spec-ngram-map-k4v-size-n --spec-ngram-mod-n-match",                               \
      "", "speculation", false, "ngram: minimum number of equal tokens; more than 64 mean 64.")                        \
    X(SPEC_NGRAM_M, "spec-ngram-size-m", INT, "16", "0..1024",                                                         \
      "--spec-ngram-size-m --spec-ngram-simple-size-m"                                                                 \
      " --spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m --spec-ngram-mod-n-max",                                 \
      "", "speculation", false, "ngram: maximum drafted tokens; more than 16 mean 16.")                                \
    X(SPEC_NGRAM_SHARED, "spec-ngram-shared", SIZE, "0", "0..16777216", "--spec-ngram-shared", "", "speculation",      \
      false,                                                                                                           \
      "ngram: tokens of ended requests that are also searched, for requests with the same cache-salt; 0: none.")       \
    X(UBATCH_SIZE, "ubatch-size", INT, "512", "1..65536", "-ub --ubatch-size --max-num-batched-tokens",                \
      "LLAMA_ARG_UBATCH", "scheduler", true, "Maximum tokens per step, prompts and answers together.")                 \
    X(PREFILL_SPARSITY, "prefill-sparsity", FLOAT, "0", "0..2", "--prefill-sparsity", "", "scheduler", false,          \
      "In long prompts, attend only to some blocks of 128 keys: the first, the last, and blocks that score"            \
      " at least this part of the best. More is faster and less exact; start with 0.12; 0: attend to all.")            \
    X(PREFILL_SPARSITY_FROM, "prefill-sparsity-from", INT, "8192", "0..1073741824", "--prefill-sparsity-from", "",     \
      "scheduler", false,                                                                                              \
      "Prompt tokens before this position attend to all keys, regardless"                                              \
      " of prefill-sparsity; so do the last two blocks and the answer.")                                               \
    X(STEP_TARGET_MS, "step-target-ms", FLOAT, "0", "0..1000000", "--step-target-ms", "", "scheduler", false,          \
      "Target step time while a client streams: limits the prompt tokens of a step,"                                   \
      " and the part of an image after it; 0: no limit.")                                                              \
    X(BATCH_SIZE, "batch-size", INT, "0", "0..2147483647", "-b --batch-size", "LLAMA_ARG_BATCH", "scheduler", false,   \
      "Lower limit for ubatch-size: there is no larger, logical batch. 0: no effect.")                                 \
    X(PARALLEL, "parallel", INT, "16", "1..4096", "-np --parallel --max-num-seqs", "LLAMA_ARG_N_PARALLEL",             \
      "scheduler", true, "Maximum number of concurrent requests.")                                                     \
    X(MAX_QUEUE, "max-queue", INT, "1024", "0..1000000", "--max-queue", "", "scheduler", false,                        \
      "Maximum number of waiting requests; more are refused.")                                                         \
    X(POLICY, "policy", ENUM, "fcfs", "fcfs|priority", "--policy --scheduling-policy", "", "scheduler", false,         \
      "Request that runs next: the oldest, or the one with the lowest priority number.")                               \
    X(PRIORITY_AGING, "priority-aging", FLOAT, "10", "0..86400", "--priority-aging", "", "scheduler", false,           \
      "Seconds after which a waiting request runs before all that"                                                     \
      " have waited less, regardless of priority and tenant; 0: never.")                                               \
    X(ASYNC_SCHEDULING, "async-scheduling", BOOL, "true", "", "--async-scheduling", "", "scheduler", false,            \
      "On GPUs, queue a decode step before the host has the previous step's tokens, if"                                \
      " the GPU can choose them itself (greedy, or by top-k, top-p, min-p and temperature;"                            \
      " without grammars, penalties, biases or drafts). The tokens are the same.")                                     \
    X(THREADS, "threads", INT, "0", "-1..1024", "-t --threads", "", "cpu", true,                                       \
      "CPU threads; 0 or -1: one for each core available to the process.")                                             \
    X(THREADS_BATCH, "threads-batch", INT, "0", "-1..1024", "-tb --threads-batch", "", "cpu", false,                   \
      "CPU threads of steps with prompt tokens; 0 or -1: as threads, and at most that number if it is set.")           \
    X(CPU_MASK, "cpu-mask", STRING, "", "", "-C --cpu-mask", "", "cpu", false,                                         \
      "Hexadecimal mask of cores to pin the threads to; empty: not pinned.")                                           \
    X(CPU_RANGE, "cpu-range", STRING, "", "", "-Cr --cpu-range", "", "cpu", false,                                     \
      "Cores LO-HI to pin the threads to, in addition to cpu-mask.")                                                   \
    X(CPU_STRICT, "cpu-strict", ENUM, "auto", "auto|0|1", "--cpu-strict", "", "cpu", false,                            \
      "1: pin each thread to one of these cores; 0: to all of them; auto: to one, if there are enough.")               \
    X(NUMA, "numa", ENUM, "none", "none|distribute|isolate|numactl", "--numa", "", "cpu", false,                       \
      "Place threads, and so the weights that they load, round-robin on all NUMA nodes (distribute), on"               \
      " the node where the process starts (isolate), or where the process may run (numactl, as none).")                \
    X(PRIO, "prio", INT, "0", "-1..3", "--prio", "", "cpu", false,                                                     \
      "Priority of the threads: -1 low, 0 normal, 1 medium, 2 high, 3 realtime.")                                      \
    X(POLL, "poll", INT, "50", "0..100", "--poll", "", "cpu", false,                                                   \
      "Time that idle threads spin before they sleep; 0: not at all.")                                                 \
    X(CPU_ISA, "cpu-isa", ENUM, "auto", "auto|amx|avx512|avxvnni|avx2|sve256|i8mm|neon|generic", "--cpu-isa", "",      \
      "cpu", false, "Highest instruction set to use; every choice gives correct results.")                             \
    X(ACTIVATION_BITS, "activation-bits", ENUM, "15", "8|15", "--activation-bits", "", "cpu", false,                   \
      "Activation bits in quantized matmuls on the CPU. 15: results as good as in float. 8, the"                       \
      " usual choice: half of the products, faster prompts; see docs/perf/cpu.md for speed and error.")                \
    X(CHAT_TEMPLATE, "chat-template", STRING, "", "", "--chat-template -cml=chatml --chatml=chatml", "", "template",   \
      false,                                                                                                           \
      "Chat template to use instead of the model's own: Jinja text, or one of the names" PI__CHAT_NAME_LIST ".")       \
    X(CHAT_TEMPLATE_FILE, "chat-template-file", STRING, "", "", "--chat-template-file", "", "template", true,          \
      "File with the chat template to use instead of the model's own.")                                                \
    X(CHAT_KWARGS, "chat-template-kwargs", STRING, "", "", "--chat-template-kwargs --default-chat-template-kwargs",    \
      "", "template", false,                                                                                           \
      "JSON object with variables for the chat template.")                                                             \
    X(LOG_LEVEL, "log-level", ENUM, "info", "none|error|warn|info|debug", "--log-level", "", "general", false,         \
      "Highest level of lines to log.")

#define PI__REQUEST_OPTIONS(X)                                                                                         \
    X(N, "n", INT, "1", "1..64", "", "", "generation", false,                                                          \
      "Number of answers to generate concurrently; they share the prompt's cache blocks and use consecutive seeds.")   \
    X(MAX_TOKENS, "max-tokens", INT, "-1", "-2..2147483647", "-n --predict --n-predict --max-tokens", "",              \
      "generation", true, "Tokens to generate; -1 or -2: until the model ends or the context is full.")                \
    X(MIN_TOKENS, "min-tokens", INT, "0", "0..2147483647", "--min-tokens", "", "generation", false,                    \
      "Minimum number of tokens before the model may end its answer.")                                                 \
    X(IGNORE_EOS, "ignore-eos", BOOL, "false", "", "--ignore-eos", "", "generation", true,                             \
      "Do not sample end-of-generation tokens, so that the model never ends its answer.")                              \
    X(NO_STOP, "no-stop", BOOL, "false", "", "--no-stop", "", "generation", false,                                     \
      "Sample end-of-generation tokens like others, without ending the answer.")                                       \
    X(REASONING_BUDGET, "reasoning-budget", INT, "-1", "-1..2147483647", "--reasoning-budget",                         \
      "LLAMA_ARG_THINK_BUDGET", "generation", false,                                                                   \
      "Maximum tokens of reasoning before its end is forced; 0: none, -1: no limit.")                                  \
    X(REASONING_MESSAGE, "reasoning-budget-message", STRING, "", "", "--reasoning-budget-message",                     \
      "LLAMA_ARG_THINK_BUDGET_MESSAGE", "generation", false, "Text to insert before the forced end of reasoning.")     \
    X(STOP, "stop", LIST, "", "", "--stop -r --reverse-prompt", "", "generation", true,                                \
      "Text that ends the answer and is not part of it; may be given several times.")                                  \
    X(STOP_TOKEN, "stop-token", LIST, "", "", "--stop-token", "", "generation", false,                                 \
      "Token id that ends the answer; may be given several times.")                                                    \
    X(BAD_WORDS, "bad-words", LIST, "", "", "--bad-words", "", "generation", false,                                    \
      "Text that must not occur in the answer: its last token is never sampled; may be given several times.")          \
    X(JSON_SCHEMA, "json-schema", STRING, "", "", "-j --json-schema", "", "generation", true,                          \
      "JSON Schema of the answer; {} for any JSON, {\"type\": \"object\"} for any object.")                            \
    X(GRAMMAR, "grammar", STRING, "", "", "--grammar", "", "generation", true,                                         \
      "Grammar of the answer, in GBNF; %json{...} in it matches a JSON Schema.")                                       \
    X(REGEX, "regex", STRING, "", "", "--regex", "", "generation", false,                                              \
      "Regular expression that matches the complete answer.")                                                          \
    X(CHOICE, "choice", STRING, "", "", "--choice", "", "generation", false,                                           \
      "Allowed answers, a JSON array of strings.")                                                                     \
    X(GRAMMAR_TRIGGER, "grammar-trigger", STRING, "", "", "--grammar-trigger", "", "generation", false,                \
      "JSON array of texts or control tokens: the answer is unconstrained up to one"                                   \
      " of them; grammar, json-schema, regex or choice constrain the text after it.")                                  \
    X(SPECIAL, "special", BOOL, "false", "", "-sp --special", "", "generation", false,                                 \
      "Include control tokens in the text.")                                                                           \
    X(LOGPROBS, "logprobs", INT, "-1", "-1..1024", "--logprobs --n-probs", "", "generation", false,                    \
      "Report the probability of each token and of N alternatives; -1: none.")                                         \
    X(LOGPROBS_MODE, "logprobs-mode", ENUM, "raw", "raw|processed", "--logprobs-mode", "", "generation", false,        \
      "Probabilities of logprobs: the model's (raw),"                                                                  \
      " or after the sampler's filters (processed).")                                                                  \
    X(PROMPT_LOGPROBS, "prompt-logprobs", INT, "-1", "-1..64", "--prompt-logprobs", "", "generation", false,           \
      "Report the probability of each prompt token except the first, and of"                                           \
      " N alternatives; with logits-from, only after that position. -1: none.")                                        \
    X(PROMPT_PROGRESS, "prompt-progress", BOOL, "false", "", "--prompt-progress", "", "generation", false,             \
      "Report the computed part of the prompt after each step.")                                                       \
    X(LOGITS, "logits", ENUM, "none", "none|last|all|generated", "--logits", "", "generation", false,                  \
      "Rows that the logits function receives.")                                                                       \
    X(LOGITS_FROM, "logits-from", INT, "0", "0..2147483647", "--logits-from", "", "generation", false,                 \
      "First position for logits=all and prompt-logprobs.")                                                            \
    X(POOLING, "pooling", ENUM, "off", "off|model|none|mean|cls|last|rank", "--pooling", "", "generation", false,      \
      "Return vectors of the prompt instead of an answer: of each token (none), their mean, the"                       \
      " first's (cls), the last's, or the model's choice; rank: the scores of its classifier.")                        \
    X(EMBD_NORMALIZE, "embd-normalize", INT, "2", "-1..64", "--embd-normalize", "", "generation", false,               \
      "Norm of vectors: -1 none, 0 maximum is 32760, 1 sum, 2 length, P the P-norm is 1.")                             \
    X(DIMENSIONS, "dimensions", INT, "0", "0..1048576", "--dimensions", "", "generation", false,                       \
      "Number of values of a vector to return, for models trained for that; 0: all.")                                  \
    X(LORA, "lora", STRING, "", "", "--lora-use", "", "generation", false,                                             \
      "Adapters of the request, NAME or NAME:SCALE, separated by"                                                      \
      " commas; none: no adapters; empty: the engine's default.")                                                      \
    X(IMAGE_MIN_TOKENS, "image-min-tokens", INT, "0", "0..16384", "--image-min-tokens", "", "generation", false,       \
      "Minimum tokens of an image: smaller images are enlarged; 0: the model's.")                                      \
    X(IMAGE_MAX_TOKENS, "image-max-tokens", INT, "0", "0..16384", "--image-max-tokens", "", "generation", false,       \
      "Maximum tokens of an image: larger images are reduced. Small text needs more tokens. The engine's value"        \
      " bounds the one of requests, and is part of the memory plan; 0: the model's.")                                  \
    X(CACHE, "cache", BOOL, "true", "", "--cache-prompt", "", "generation", false,                                     \
      "Reuse and keep prefixes of this request.")                                                                      \
    X(CACHE_SALT, "cache-salt", STRING, "", "", "--cache-salt", "", "generation", false,                               \
      "Share prefixes only with requests of the same salt, such as a tenant's name.")                                  \
    X(PRIORITY, "priority", INT, "0", "-2147483648..2147483647", "--priority", "", "generation", false,                \
      "Under the priority policy, requests with lower numbers run first; see priority-aging.")                         \
    X(TENANT, "tenant", STRING, "", "", "--tenant", "", "generation", false,                                           \
      "Name of a user or customer; waiting tenants are served round-robin. The server sets it by API key.")            \
    X(TIMEOUT, "timeout", FLOAT, "0", "0..1000000", "--timeout --deadline", "", "generation", false,                   \
      "Time limit of the request in seconds, then it ends with an error; 0: none.")                                    \
    X(SPEC_TYPE, "spec-type", STRING, "auto", "", "--spec-type --spec-default=ngram", "", "speculation", true,         \
      "Drafters of tokens for verification: mtp (a head of the model), draft (model-draft), ngram (earlier"            \
      " text after the same words), layer-exit (the model's first layers), none; auto: model-draft, if given."         \
      " An engine accepts several, separated by commas: a request chooses one of them, by default the first.")         \
    X(SEED, "seed", INT, "-1", "-9223372036854775808..9223372036854775807", "-s --seed", "", "sampling", true,         \
      "Seed of the random numbers, any integer of 64 bits; -1: random.")                                               \
    X(TEMP, "temp", FLOAT, "0.8", "..1000", "--temp --temperature", "", "sampling", true,                              \
      "Temperature: higher is more varied; 0 or less: always the most likely token.")                                  \
    X(DYNATEMP_RANGE, "dynatemp-range", FLOAT, "0", "0..1000", "--dynatemp-range", "", "sampling", false,              \
      "Dynamic temperature: from temp minus this, for certain predictions, to temp plus this; 0: off.")                \
    X(DYNATEMP_EXP, "dynatemp-exp", FLOAT, "1", "0..1000", "--dynatemp-exp", "", "sampling", false,                    \
      "Dynamic temperature: exponent of the entropy; above 1 temperatures are closer to the lower end.")               \
    X(TOP_K, "top-k", INT, "40", "-1..2147483647", "--top-k", "", "sampling", true,                                    \
      "Only the K most likely tokens; 0: all.")                                                                        \
    X(TOP_P, "top-p", FLOAT, "0.95", "0..1", "--top-p", "", "sampling", true,                                          \
      "Only the most likely tokens with a total probability of P; 1: all.")                                            \
    X(MIN_P, "min-p", FLOAT, "0.05", "0..1", "--min-p", "", "sampling", true,                                          \
      "Only tokens at least P times as likely as the most likely token; 0: all.")                                      \
    X(TYPICAL, "typical", FLOAT, "1", "0..1", "--typical --typical-p", "", "sampling", false,                          \
      "Locally typical sampling with parameter P; 1: off.")                                                            \
    X(TOP_N_SIGMA, "top-n-sigma", FLOAT, "-1", "..1000000", "--top-n-sigma --top-nsigma", "", "sampling", false,       \
      "Only tokens with a logit within N standard deviations of the best; 0 or less: off.")                            \
    X(MIN_KEEP, "min-keep", INT, "0", "0..2147483647", "--min-keep", "", "sampling", false,                            \
      "Minimum number of tokens that filters keep.")                                                                   \
    X(REPEAT_PENALTY, "repeat-penalty", FLOAT, "1", "0.01..100", "--repeat-penalty", "", "sampling", true,             \
      "Divides the logit of recent tokens; 1: off.")                                                                   \
    X(REPEAT_LAST_N, "repeat-last-n", INT, "64", "-1..2147483647", "--repeat-last-n", "", "sampling", false,           \
      "Number of recent tokens for the penalties; 0: none, -1: all.")                                                  \
    X(PRESENCE_PENALTY, "presence-penalty", FLOAT, "0", "-100..100", "--presence-penalty", "", "sampling", false,      \
      "Subtracted from the logit of recent tokens.")                                                                   \
    X(FREQUENCY_PENALTY, "frequency-penalty", FLOAT, "0", "-100..100", "--frequency-penalty", "", "sampling", false,   \
      "Subtracted from the logit of recent tokens for each occurrence.")                                               \
    X(DRY_MULTIPLIER, "dry-multiplier", FLOAT, "0", "0..1000", "--dry-multiplier", "", "sampling", false,              \
      "Strength of the DRY penalty on repeated sequences; 0: off.")                                                    \
    X(DRY_BASE, "dry-base", FLOAT, "1.75", "1..1000", "--dry-base", "", "sampling", false,                             \
      "Factor by which the DRY penalty grows with each repeated token.")                                               \
    X(DRY_ALLOWED_LENGTH, "dry-allowed-length", INT, "2", "0..2147483647", "--dry-allowed-length", "", "sampling",     \
      false, "Length of repetitions without DRY penalty.")                                                             \
    X(DRY_PENALTY_LAST_N, "dry-penalty-last-n", INT, "64", "-1..2147483647", "--dry-penalty-last-n", "", "sampling",   \
      false, "Number of recent tokens for DRY; 0: none, -1: all.")                                                     \
    X(DRY_BREAKER, "dry-sequence-breaker", LIST, "\\n : \" *", "", "--dry-sequence-breaker", "", "sampling", false,    \
      "Text that ends a sequence for DRY; the first one given replaces the defaults; none: no breakers.")              \
    X(XTC_PROBABILITY, "xtc-probability", FLOAT, "0", "0..1", "--xtc-probability", "", "sampling", false,              \
      "Probability that XTC removes the most likely tokens; 0: off.")                                                  \
    X(XTC_THRESHOLD, "xtc-threshold", FLOAT, "0.1", "0..1", "--xtc-threshold", "", "sampling", false,                  \
      "XTC removes all but the last of the tokens with at least this probability; above 0.5: off.")                    \
    X(MIROSTAT, "mirostat", INT, "0", "0..2", "--mirostat", "", "sampling", false,                                     \
      "Mirostat 1 or 2: keeps the surprise near mirostat-ent, instead of all other stages but temp; 0: off.")          \
    X(MIROSTAT_LR, "mirostat-lr", FLOAT, "0.1", "0..1000", "--mirostat-lr", "", "sampling", false,                     \
      "Mirostat's learning rate eta: corrected part of each token's error.")                                           \
    X(MIROSTAT_ENT, "mirostat-ent", FLOAT, "5", "0..1000", "--mirostat-ent", "", "sampling", false,                    \
      "Mirostat's target tau: surprise of a token, in bits.")                                                          \
    X(ADAPTIVE_TARGET, "adaptive-target", FLOAT, "-1", "..1", "--adaptive-target", "", "sampling", false,              \
      "Stage adaptive_p: target probability of tokens; below 0: off.")                                                 \
    X(ADAPTIVE_DECAY, "adaptive-decay", FLOAT, "0.9", "0..0.99", "--adaptive-decay", "", "sampling", false,            \
      "Stage adaptive_p: decay of the running average; higher is steadier.")                                           \
    X(SAMPLERS, "samplers", STRING, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "",           \
      "--samplers --sampler-seq --sampling-seq", "", "sampling", false,                                                \
      "Order of the sampling stages: names separated by ;, or letters (edskypmxt, and a: adaptive_p, always last).")   \
    X(LOGIT_BIAS, "logit-bias", LIST, "", "", "-l --logit-bias", "", "sampling", false,                                \
      "ID+BIAS or ID-BIAS changes a token's logit, ID-inf forbids it; may be given several times.")

#endif
