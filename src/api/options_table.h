/* The one table of options: library, command line, --help, man page and completions all read it.
 *
 * A row: X(ID, key, TYPE, default, range, flags, env, section, common, help)
 *   TYPE    BOOL INT SIZE FLOAT STRING ENUM LIST
 *   range   "LO..HI" (a side may be missing) for numbers, "a|b|c" for ENUM
 *   flags   command line spellings. A plain one takes a value (a BOOL none: it means true, and every long one has a
 *           --no- form). "--x=V" takes none and means V; "--x?V" takes one if the next word is one, else means V.
 *           None at all: for programs only.
 *   env     variables beside LLAMA_ARG_X and PAGEDINFER_X, which exist for each long spelling --x
 *   section of --help; those that are named after a subcommand belong to it alone, and win over others there.
 *           "compat" holds flags that mean nothing here: they are accepted and `help` is what the tool says then. */
#ifndef PI__OPTIONS_TABLE_H
#define PI__OPTIONS_TABLE_H

#include "formats/cache_types.h"

#define PI__ENGINE_OPTIONS(X)                                                                                          \
    X(MODEL, "model", STRING, "", "", "-m --model", "", "model", true,                                                 \
      "GGUF file of the model, or the first of its splits.")                                                           \
    X(LOAD_MODE, "load-mode", ENUM, "auto", "auto|mmap|read|none|dio",                                                 \
      "-lm --load-mode --mmap=mmap --no-mmap=read -dio=dio --direct-io=dio -ndio=auto --no-direct-io=auto", "",        \
      "model", false, "How the file is read: mapped (mmap, which auto means), read, or past the page cache (dio).")    \
    X(OVERRIDE_KV, "override-kv", LIST, "", "", "--override-kv", "", "model", false,                                   \
      "KEY=TYPE:VALUE sets metadata of the model, TYPE int, float, bool or str; may be given several times.")          \
    X(ROPE_FREQ_BASE, "rope-freq-base", FLOAT, "0", "0..1000000000000000", "--rope-freq-base", "", "model", false,     \
      "Base of the rotary embedding's frequencies; 0: the model's.")                                                   \
    X(ROPE_SCALING, "rope-scaling", ENUM, "model", "model|none|linear|yarn", "--rope-scaling", "", "model", false,         \
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
    X(CHECK_TENSORS, "check-tensors", BOOL, "false", "", "--check-tensors", "", "model", false,                        \
      "Look at every value that is loaded and refuse a model with NaN or infinity in it; loading takes longer.")       \
    X(DEVICE, "device", STRING, "auto", "", "-dev --device", "", "model", true,                                        \
      "Where the model runs: cpu, or auto for the best device this build has. Several of a kind: see split-mode.")     \
    X(SPLIT_MODE, "split-mode", ENUM, "none", "none|layer|row|tensor", "-sm --split-mode", "", "model", true,          \
      "On one device (none), or each layer divided among several (tensor): --device cuda0,cuda1, or all there are.")   \
    X(GPU_LAYERS, "gpu-layers", STRING, "auto", "", "-ngl --gpu-layers --n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS",      \
      "model", true,                                                                                                   \
      "Layers on the device, the last ones, with the output as one more; others are on the CPU. all; auto: what fits.")\
    X(CPU_MOE, "cpu-moe", BOOL, "false", "", "-cmoe --cpu-moe", "", "model", true,                                     \
      "The experts of all layers are kept and run on the CPU.")                                                        \
    X(N_CPU_MOE, "n-cpu-moe", INT, "0", "0..2147483647", "-ncmoe --n-cpu-moe", "", "model", true,                      \
      "The experts of the first so many layers are kept and run on the CPU.")                                          \
    X(OVERRIDE_TENSOR, "override-tensor", LIST, "", "", "-ot --override-tensor", "", "model", false,                   \
      "REGEX=DEVICE,...: where tensors are kept and run whose name the expression finds; may be given several times.") \
    X(KV_OFFLOAD, "kv-offload", BOOL, "true", "", "-kvo --kv-offload -nkvo=false", "", "kv", false,                    \
      "The cache is kept, and attention run, where the layer is; --no-kv-offload: on the CPU.")                        \
    X(FP4_MMA, "fp4-mma", ENUM, "auto", "auto|on|off", "--fp4-mma", "", "model", false,                                \
      "On GPUs with FP4 tensor cores, multiply NVFP4 and MXFP4 matrices with activations rounded to FP4 too: faster"  \
      " prompts, about as much error again as the weights have. auto: off.")                                          \
    X(CUBLAS, "cublas", ENUM, "auto", "auto|on|off", "--cublas", "", "model", false,                                   \
      "On GPUs, multiply F16 and BF16 matrices by cuBLAS where a step has 64 tokens or more: faster prompts, whose last"\
      " bits then depend on how they are cut. auto: off.")                                                             \
    X(CUDA_GRAPHS, "cuda-graphs", ENUM, "auto", "auto|on|off", "--cuda-graphs", "", "model", false,                    \
      "On GPUs, record decoding steps as CUDA graphs and play them again, to launch once instead of once for each"     \
      " kernel; off: where a driver has trouble with it. auto: on.")                                                   \
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
    X(CACHE_TYPE_WINDOW, "cache-type-window", ENUM, "same", "same" PI__CACHE_TYPE_WORDS, "--cache-type-window", "",   \
      "kv", false, "Type of keys and values of layers that see only a window; same: as cache-type-k and -v.")          \
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
      "MiB of host memory for prefixes that a GPU evicts, at most 3/4 of what is free; -1: all of that, 0: none.")     \
    X(PREFIX_DIR, "prefix-cache-dir", STRING, "", "", "--prefix-cache-dir", "", "kv", false,                           \
      "Directory in which computed prefixes are kept on disk, across restarts; empty: none.")                          \
    X(PREFIX_DIR_BYTES, "prefix-cache-dir-bytes", SIZE, "4294967296", "1048576..1152921504606846976",                  \
      "--prefix-cache-dir-bytes", "", "kv", false, "Bytes of disk that the directory may take.")                       \
    X(SPEC_TYPE, "spec-type", ENUM, "auto", "auto|none|mtp|draft", "--spec-type", "", "speculation", true,             \
      "Who drafts tokens that are then verified together: the model's MTP block, or model-draft (auto, if given).")    \
    X(MODEL_DRAFT, "model-draft", STRING, "", "", "-md --model-draft --spec-draft-model", "LLAMA_ARG_MODEL_DRAFT",     \
      "speculation", true, "GGUF file of a drafter made for the model.")                                               \
    X(SPEC_N_MAX, "spec-draft-n-max", INT, "3", "0..16", "--spec-draft-n-max --draft --draft-n --draft-max",           \
      "LLAMA_ARG_DRAFT_MAX", "speculation", true, "Tokens drafted at most for each token that is verified.")           \
    X(UBATCH_SIZE, "ubatch-size", INT, "512", "1..65536", "-ub --ubatch-size --max-num-batched-tokens",                \
      "LLAMA_ARG_UBATCH", "scheduler", true, "Tokens a step processes at most, prompts and answers together.")         \
    X(PARALLEL, "parallel", INT, "16", "1..4096", "-np --parallel --max-num-seqs", "LLAMA_ARG_N_PARALLEL",             \
      "scheduler", true, "Requests that run at once.")                                                                 \
    X(MAX_QUEUE, "max-queue", INT, "1024", "0..1000000", "--max-queue", "", "scheduler", false,                        \
      "Requests that may wait; more are refused.")                                                                     \
    X(POLICY, "policy", ENUM, "fcfs", "fcfs|priority", "--policy --scheduling-policy", "", "scheduler", false,         \
      "Which request runs next: the oldest, or the one with the lowest priority number.")                              \
    X(THREADS, "threads", INT, "0", "-1..1024", "-t --threads", "", "cpu", true,                                       \
      "CPU threads; 0 or -1: one for each core the process may use.")                                                  \
    X(CPU_MASK, "cpu-mask", STRING, "", "", "-C --cpu-mask", "", "cpu", false,                                         \
      "Hexadecimal mask of cores that the threads are pinned to; empty: not pinned.")                                  \
    X(POLL, "poll", INT, "50", "0..100", "--poll", "", "cpu", false,                                                   \
      "How long idle threads spin before they sleep; 0: not at all.")                                                  \
    X(CPU_ISA, "cpu-isa", ENUM, "auto", "auto|avx512|avx2|neon|generic", "--cpu-isa", "", "cpu", false,                \
      "Instruction set to use at most; every choice gives a correct answer.")                                          \
    X(CHAT_TEMPLATE, "chat-template", STRING, "", "", "--chat-template", "", "template", false,                        \
      "Chat template (Jinja text, or chatml) to use instead of the model's own.")                                      \
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
    X(STOP, "stop", LIST, "", "", "--stop -r --reverse-prompt", "", "generation", true,                                \
      "Text that ends the answer and is not part of it; may be given several times.")                                  \
    X(STOP_TOKEN, "stop-token", LIST, "", "", "--stop-token", "", "generation", false,                                 \
      "Token id that ends the answer; may be given several times.")                                                    \
    X(SPECIAL, "special", BOOL, "false", "", "-sp --special", "", "generation", false,                                 \
      "Control tokens appear in the text.")                                                                            \
    X(LOGPROBS, "logprobs", INT, "-1", "-1..64", "--logprobs --n-probs", "", "generation", false,                      \
      "Report the probability of each token and of so many alternatives; -1: none.")                                   \
    X(LOGITS, "logits", ENUM, "none", "none|last|all|generated", "--logits", "", "generation", false,                  \
      "Which rows of logits the logits function gets.")                                                                \
    X(LOGITS_FROM, "logits-from", INT, "0", "0..2147483647", "--logits-from", "", "generation", false,                 \
      "With logits=all: only the rows of positions from this one on.")                                                 \
    X(CACHE, "cache", BOOL, "true", "", "--cache-prompt", "", "generation", false,                                     \
      "Reuse and keep prefixes of this request.")                                                                      \
    X(CACHE_SALT, "cache-salt", STRING, "", "", "--cache-salt", "", "generation", false,                               \
      "Prefixes are shared only among requests of the same salt; a tenant's name, say.")                               \
    X(PRIORITY, "priority", INT, "0", "-2147483648..2147483647", "--priority", "", "generation", false,                \
      "Lower numbers run first under the priority policy.")                                                            \
    X(TIMEOUT, "timeout", FLOAT, "0", "0..1000000", "--timeout --deadline", "", "generation", false,                   \
      "Seconds after which the request ends with an error; 0: none.")                                                  \
    X(SEED, "seed", INT, "-1", "-1..9223372036854775807", "-s --seed", "", "sampling", true,                           \
      "Seed of the random numbers; -1: another one each time.")                                                        \
    X(TEMP, "temp", FLOAT, "0.8", "..1000", "--temp --temperature", "", "sampling", true,                              \
      "Temperature: higher is more varied; 0 or less: always the most likely token.")                                  \
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
    X(SAMPLERS, "samplers", STRING, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "",           \
      "--samplers --sampler-seq --sampling-seq", "", "sampling", false,                                                \
      "Order of the sampling stages, names with ; between or letters (edskypmxt).")                                    \
    X(LOGIT_BIAS, "logit-bias", LIST, "", "", "-l --logit-bias", "", "sampling", false,                                \
      "ID+BIAS or ID-BIAS changes a token's logit, ID-inf forbids it; may be given several times.")

#define PI__TOOL_OPTIONS(X)                                                                                            \
    X(T_HELP, "help", STRING, "", "", "-h?common --help?common --usage?common", "", "general", true,                   \
      "This help; --help all for everything, --help SECTION for one section.")                                         \
    X(T_VERSION, "version", BOOL, "false", "", "--version", "", "general", true, "Version and devices of this build.") \
    X(T_VERBOSE, "verbose", BOOL, "false", "", "-v --verbose --log-verbose", "", "general", true,                      \
      "Log what happens, on stderr.")                                                                                  \
    X(T_LOG_VERBOSITY, "verbosity", INT, "2", "0..9", "-lv --verbosity --log-verbosity", "LLAMA_LOG_VERBOSITY",        \
      "general", false, "How much is logged: 0 nothing, 1 errors, 2 warnings, 3 information, 4 and more everything.")  \
    X(T_LOG_FILE, "log-file", STRING, "", "", "--log-file", "LLAMA_LOG_FILE", "general", false,                        \
      "Log lines go to this file instead of stderr.")                                                                  \
    X(T_LOG_DISABLE, "log-disable", BOOL, "false", "", "--log-disable", "", "general", false, "Log nothing.")          \
    X(T_LIST_DEVICES, "list-devices", BOOL, "false", "", "--list-devices", "", "general", false,                       \
      "Devices that this build can use, then exit.")                                                                   \
    X(T_PROMPT, "prompt", STRING, "", "", "-p --prompt", "", "prompt", true, "The prompt.")                            \
    X(T_FILE, "file", STRING, "", "", "-f --file -bf --binary-file", "", "prompt", true,                               \
      "File that holds the prompt; - is standard input.")                                                              \
    X(T_ESCAPE, "escape", BOOL, "true", "", "-e --escape", "", "prompt", false,                                        \
      "Replace \\n, \\t, \\xHH and the like in the prompt.")                                                           \
    X(T_DISPLAY_PROMPT, "display-prompt", BOOL, "false", "", "--display-prompt", "", "run", false,                     \
      "Print the prompt before the answer.")                                                                           \
    X(T_PERF, "perf", BOOL, "true", "", "--perf --show-timings", "", "run", false,                                     \
      "Print a line with the speed on stderr at the end.")                                                             \
    X(T_KV_STATS, "kv-stats", BOOL, "false", "", "--kv-stats", "", "kv", true,                                         \
      "At the end, say on stderr what the cache holds and what was reused.")                                           \
    X(T_COPIES, "copies", INT, "1", "1..4096", "--copies", "", "run", false,                                           \
      "Run the prompt so many times at once and print one answer after the other.")                                    \
    X(T_SYSTEM_PROMPT, "system-prompt", STRING, "", "", "-sys --system-prompt", "", "chat", true,                      \
      "System prompt: what the conversation begins with.")                                                             \
    X(T_SYSTEM_FILE, "system-prompt-file", STRING, "", "", "-sysf --system-prompt-file", "", "chat", false,            \
      "File that holds the system prompt.")                                                                            \
    X(T_SINGLE_TURN, "single-turn", BOOL, "false", "", "-st --single-turn", "", "chat", true,                          \
      "End after the first answer.")                                                                                   \
    X(T_CNV, "conversation", BOOL, "true", "",                                                                         \
      "-cnv --conversation -no-cnv=false -i=true --interactive=true -if=true --interactive-first=true", "", "chat",    \
      false, "Hold a conversation; --no-conversation completes the prompt as 'run' does.")                             \
    X(T_REASONING, "reasoning", ENUM, "auto", "on|off|auto", "-rea --reasoning", "", "template", true,                 \
      "Tell the template that the model is to think, or not to (enable_thinking); auto: nothing.")                     \
    X(T_REASONING_FORMAT, "reasoning-format", ENUM, "auto", "auto|none|deepseek|deepseek-legacy|hidden",               \
      "--reasoning-format", "", "template", true,                                                                      \
      "What becomes of thoughts: none leaves them in the answer, hidden drops them, all others keep them apart.")      \
    X(T_REASONING_BUDGET, "reasoning-budget", INT, "-1", "-1..2147483647", "--reasoning-budget", "", "template",       \
      false, "How much the model may think: -1 as it likes, 0 not at all.")                                            \
    X(T_IDS, "ids", BOOL, "false", "", "--ids", "", "tokenize", true, "Print token ids alone, as a JSON array.")       \
    X(T_STDIN, "stdin", BOOL, "false", "", "--stdin", "", "tokenize", true, "Read the text from standard input.")      \
    X(T_NO_BOS, "no-bos", BOOL, "false", "", "--no-bos", "", "tokenize", true, "Do not add BOS.")                      \
    X(T_PARSE_SPECIAL, "parse-special", BOOL, "true", "", "--parse-special", "", "tokenize", true,                     \
      "Text of control tokens becomes the token.")                                                                     \
    X(T_SHOW_COUNT, "show-count", BOOL, "false", "", "--show-count", "", "tokenize", true,                             \
      "Print the number of tokens at the end.")                                                                        \
    X(T_JSON, "json", BOOL, "false", "", "--json", "", "inspect", true, "Print JSON.")                                 \
    X(T_TENSORS, "tensors", BOOL, "true", "", "--tensors", "", "inspect", true, "Print the tensors too.")              \
    X(T_COST, "cost", BOOL, "true", "", "--cost", "", "inspect", true, "Print what running the model would take.")     \
    X(T_PURE, "pure", BOOL, "false", "", "--pure", "", "quantize", true,                                               \
      "All matrices in the type named, no mixture.")                                                                   \
    X(T_ALLOW_REQUANTIZE, "allow-requantize", BOOL, "false", "", "--allow-requantize", "", "quantize", true,           \
      "Also rewrite matrices that are quantised already; this costs quality.")                                         \
    X(T_LEAVE_OUTPUT, "leave-output-tensor", BOOL, "false", "", "--leave-output-tensor", "", "quantize", true,         \
      "Leave output.weight as it is.")                                                                                 \
    X(T_OUTPUT_TYPE, "output-tensor-type", STRING, "", "", "--output-tensor-type", "", "quantize", true,               \
      "Type of output.weight.")                                                                                        \
    X(T_EMBED_TYPE, "token-embedding-type", STRING, "", "", "--token-embedding-type", "", "quantize", true,            \
      "Type of the token embeddings.")                                                                                 \
    X(T_TENSOR_TYPE, "tensor-type", LIST, "", "", "--tensor-type", "", "quantize", true,                               \
      "NAME=TYPE: type of the tensors whose name matches; may be given several times.")                                \
    X(T_IMATRIX, "imatrix", STRING, "", "", "--imatrix", "", "quantize", true,                                         \
      "File of an importance matrix, which says what columns matter.")                                                 \
    X(T_N_PROMPT, "n-prompt", LIST, "512", "", "-p --n-prompt -npp", "", "bench", true,                                \
      "Prompt lengths to measure.")                                                                                    \
    X(T_N_GEN, "n-gen", LIST, "128", "", "-n --n-gen -ntg", "", "bench", true,                                         \
      "Numbers of tokens to generate.")                                                                                \
    X(T_PG, "pg", LIST, "", "", "-pg", "", "bench", true, "PROMPT,GENERATE: both in one test.")                        \
    X(T_N_DEPTH, "n-depth", LIST, "0", "", "-d --n-depth", "", "bench", true, "Tokens in the cache before a test.")    \
    X(T_NPL, "n-parallel", LIST, "", "", "-npl --n-parallel", "", "bench", true,                                       \
      "Concurrency: so many requests at once.")                                                                        \
    X(T_SHARED_PREFIX, "shared-prefix", BOOL, "false", "", "--shared-prefix", "", "bench", true,                       \
      "Requests whose prompts start the same, with and without the prefix cache: computed tokens and cache memory.")   \
    X(T_TENANTS, "tenants", INT, "32", "1..4096", "--tenants", "", "bench", false,                                     \
      "Requests of --shared-prefix.")                                                                                  \
    X(T_PREFIX_TOKENS, "prefix-tokens", INT, "1024", "1..1048576", "--prefix-tokens", "", "bench", false,              \
      "Tokens with which the prompts of --shared-prefix start.")                                                       \
    X(T_TAIL_TOKENS, "tail-tokens", INT, "16", "1..1048576", "--tail-tokens", "", "bench", false,                      \
      "Tokens of each prompt of --shared-prefix after them.")                                                          \
    X(T_OP, "op", STRING, "", "", "--op", "", "bench", false,                                                          \
      "Measure one op of the device by itself, without a model: gdn, the delta rule of recurrent layers.")             \
    X(T_OP_SHAPE, "op-shape", STRING, "", "", "--op-shape", "", "bench", false,                                        \
      "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS of --op; empty: those of Qwen 3.5 9B.")                                  \
    X(T_REPETITIONS, "repetitions", INT, "5", "1..10000", "-r --repetitions", "", "bench", true,                       \
      "Times each test is repeated.")                                                                                  \
    X(T_OUTPUT, "output", ENUM, "md", "csv|json|jsonl|md|sql", "-o --output", "", "bench", true, "Format on stdout.")  \
    X(T_OUTPUT_ERR, "output-err", ENUM, "none", "none|csv|json|jsonl|md|sql", "-oe --output-err", "", "bench", false,  \
      "Format on stderr.")                                                                                             \
    X(T_PROGRESS, "progress", BOOL, "false", "", "--progress", "", "bench", true, "Say on stderr which test runs.")    \
    X(T_DELAY, "delay", INT, "0", "0..3600", "--delay", "", "bench", false, "Seconds to wait between tests.")          \
    X(T_WARMUP, "warmup", BOOL, "true", "", "--warmup", "", "bench", false, "Run each test once unmeasured before.")   \
    X(T_CASES, "cases", STRING, "", "", "--cases", "", "eval", true, "JSON file of cases to run greedily.")            \
    X(T_LOGITS_DIR, "logits-dir", STRING, "", "", "--logits-dir", "", "eval", true,                                    \
      "Folder where NAME.f32 gets each case's logits.")                                                                \
    X(T_CHUNKS, "chunks", INT, "-1", "-1..2147483647", "--chunks", "", "eval", true,                                   \
      "Chunks of the text to evaluate; -1: all.")                                                                      \
    X(T_PPL_STRIDE, "ppl-stride", INT, "0", "0..2147483647", "--ppl-stride", "", "eval", false,                        \
      "Stride of the perplexity; only 0 is supported.")                                                                \
    X(T_KL_BASE, "kl-divergence-base", STRING, "", "", "--kl-divergence-base --save-all-logits", "", "eval", true,     \
      "File of the base model's logits: written, or read with --kl-divergence.")                                       \
    X(T_KL, "kl-divergence", BOOL, "false", "", "--kl-divergence", "", "eval", true,                                   \
      "Compare with the logits of --kl-divergence-base.")                                                              \
    X(T_SUITE, "concurrency-suite", BOOL, "false", "", "--concurrency-suite", "", "eval", true,                        \
      "Conversations with a secret word each, alone and 1 to --parallel (64) at once: do answers stay the same?")      \
    X(T_BATCH, "batch-size", STRING, "", "", "-b --batch-size", "LLAMA_ARG_BATCH", "compat", false,                    \
      "a step takes up to --ubatch-size tokens; there is no larger logical batch")                                     \
    X(T_CONT_BATCHING, "cont-batching", BOOL, "true", "", "-cb --cont-batching -nocb=false", "", "compat", false,      \
      "requests always join and leave the batch at each step")                                                         \
    X(T_KV_UNIFIED, "kv-unified", BOOL, "true", "", "-kvu --kv-unified -no-kvu=false", "", "compat", false,            \
      "one paged pool always serves all requests; --kv-cache-tokens sizes it")                                         \
    X(T_SWA_FULL, "swa-full", BOOL, "false", "", "--swa-full", "", "compat", false,                                    \
      "sliding-window layers keep the blocks that a later request can reuse by themselves")                            \
    X(T_CTXCP, "ctx-checkpoints", STRING, "", "", "-ctxcp --ctx-checkpoints --swa-checkpoints", "", "compat", false,   \
      "prefixes are kept block by block (--prefix-cache), checkpoints are not needed")                                 \
    X(T_DEFRAG, "defrag-thold", STRING, "", "", "-dt --defrag-thold", "", "compat", false,                             \
      "a paged cache does not fragment")                                                                               \
    X(T_FLASH_ATTN, "flash-attn", ENUM, "auto", "on|off|auto|1|0|true|false", "-fa?on --flash-attn?on", "", "compat",  \
      false, "attention always reads the paged cache in one pass")                                                     \
    X(T_TENSOR_SPLIT, "tensor-split", STRING, "", "", "-ts --tensor-split", "", "compat", false,                       \
      "devices of --split-mode tensor get equal parts")                                                                \
    X(T_MAIN_GPU, "main-gpu", STRING, "", "", "-mg --main-gpu", "", "compat", false, "--device chooses the device")    \
    X(T_OP_OFFLOAD, "op-offload", BOOL, "true", "", "--op-offload", "", "compat", false,                               \
      "a model runs on one device as a whole; --device chooses it")                                                    \
    X(T_NO_HOST, "no-host", BOOL, "false", "", "--no-host", "", "compat", false,                                       \
      "weights are always kept in the layout that the device reads best")                                              \
    X(T_REPACK, "repack", BOOL, "true", "", "--repack -nr=false", "", "compat", false,                                 \
      "weights are always kept in the layout that the device reads best")                                              \
    X(T_FIT, "fit", ENUM, "on", "on|off|1|0|true|false", "-fit?on --fit?on", "", "compat", false,                      \
      "--kv-cache-bytes and --kv-cache-tokens say what the cache may take; 'pagedinfer inspect' shows the cost")       \
    X(T_FIT_TARGET, "fit-target", STRING, "", "", "-fitt --fit-target", "", "compat", false,                           \
      "--kv-cache-bytes says what the cache may take")                                                                 \
    X(T_FIT_CTX, "fit-ctx", STRING, "", "", "-fitc --fit-ctx", "", "compat", false,                                    \
      "--ctx-size says how long a request may be")                                                                     \
    X(T_MLOCK, "mlock", BOOL, "false", "", "--mlock", "", "compat", false,                                             \
      "weights are copied into memory of the process at load; they are not locked there")                              \
    X(T_THREADS_BATCH, "threads-batch", STRING, "", "", "-tb --threads-batch", "", "compat", false,                    \
      "prompts and answers share their steps, and --threads serves both")                                              \
    X(T_CPU_STRICT, "cpu-strict", STRING, "", "", "--cpu-strict", "", "compat", false,                                 \
      "--cpu-mask pins each thread to one core")                                                                       \
    X(T_PRIO, "prio", STRING, "", "", "--prio", "", "compat", false, "use nice(1) or chrt(1) for a process's priority")\
    X(T_NUMA, "numa", STRING, "", "", "--numa", "", "compat", false,                                                   \
      "use numactl(8); weights are placed by the threads that read them")                                              \
    X(T_KEEP, "keep", STRING, "", "", "--keep", "", "compat", false,                                                   \
      "the context is never shifted: a request ends when it is full")                                                  \
    X(T_CONTEXT_SHIFT, "context-shift", BOOL, "false", "", "--context-shift", "", "compat", false,                     \
      "the context is never shifted: a request ends when it is full")                                                  \
    X(T_GRP_ATTN_N, "grp-attn-n", STRING, "", "", "-gan --grp-attn-n", "", "compat", false,                            \
      "self-extend is not needed by models that come with a long context")                                             \
    X(T_GRP_ATTN_W, "grp-attn-w", STRING, "", "", "-gaw --grp-attn-w", "", "compat", false,                            \
      "self-extend is not needed by models that come with a long context")                                             \
    X(T_NO_CNV, "no-conversation-run", BOOL, "false", "", "-no-cnv=true --no-conversation=true", "", "compat", false,  \
      "'run' completes the prompt as it is")                                                                           \
    X(T_JINJA, "jinja", BOOL, "true", "", "--jinja", "", "compat", false, "chat templates are always run as Jinja")    \
    X(T_SIMPLE_IO, "simple-io", BOOL, "false", "", "--simple-io", "", "compat", false, "output is always plain")       \
    X(T_COLOR, "color", ENUM, "auto", "on|off|auto", "-co?on --color?on", "", "compat", false,                         \
      "only the answer is printed, without colours")                                                                   \
    X(T_LOG_COLORS, "log-colors", ENUM, "auto", "on|off|auto", "--log-colors?on", "LLAMA_LOG_COLORS", "compat", false, \
      "log lines have no colours")                                                                                     \
    X(T_LOG_PREFIX, "log-prefix", BOOL, "false", "", "--log-prefix", "LLAMA_LOG_PREFIX", "compat", false,              \
      "log lines always carry their level")                                                                            \
    X(T_LOG_TIMESTAMPS, "log-timestamps", BOOL, "false", "", "--log-timestamps", "LLAMA_LOG_TIMESTAMPS", "compat",     \
      false, "log lines carry no time; pipe stderr through ts(1)")                                                     \
    X(T_NO_WARMUP, "no-warmup-run", BOOL, "false", "", "--no-warmup=true --warmup=false", "", "compat", false,         \
      "there is no warm-up run; the first step is as fast as the others")

#endif
