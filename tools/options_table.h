/* The one table of the command line's own options; parsing, checks, --help, man page and completions read it. The options
 * of the library come from pi_options_describe, and stand before these.
 *
 * A row: X(key, TYPE, default, range, flags, env, section, common, help)
 *   TYPE    BOOL INT STRING ENUM LIST
 *   range   "LO..HI" for INT, "a|b|c" for ENUM, "" for others
 *   flags, env as in pi_option_info
 *   section of --help; those that are named after a subcommand belong to it alone, and win over others there.
 *           "compat" holds flags that mean nothing here: they are accepted and `help` is what the tool says then. */
#ifndef PAGEDINFER_OPTIONS_TABLE_H
#define PAGEDINFER_OPTIONS_TABLE_H

#define TOOL_OPTIONS(X)                                                                                                \
    X("help", STRING, "", "", "-h?common --help?common --usage?common", "", "general", true,                           \
      "This help; --help all for everything, --help SECTION for one section.")                                         \
    X("version", BOOL, "false", "", "--version", "", "general", true, "Version and devices of this build.")            \
    X("verbose", BOOL, "false", "", "-v --verbose --log-verbose", "", "general", true,                                 \
      "Log what happens, on stderr.")                                                                                  \
    X("verbosity", INT, "2", "0..9", "-lv --verbosity --log-verbosity", "LLAMA_LOG_VERBOSITY",                         \
      "general", false, "How much is logged: 0 nothing, 1 errors, 2 warnings, 3 information, 4 and more everything.")  \
    X("log-file", STRING, "", "", "--log-file", "LLAMA_LOG_FILE", "general", false,                                    \
      "Log lines go to this file instead of stderr.")                                                                  \
    X("log-disable", BOOL, "false", "", "--log-disable", "", "general", false, "Log nothing.")                         \
    X("list-devices", BOOL, "false", "", "--list-devices", "", "general", false,                                       \
      "Devices that this build can use, then exit.")                                                                   \
    X("prompt", STRING, "", "", "-p --prompt", "", "prompt", true, "The prompt.")                                      \
    X("file", STRING, "", "", "-f --file -bf --binary-file", "", "prompt", true,                                       \
      "File that holds the prompt; - is standard input.")                                                              \
    X("escape", BOOL, "true", "", "-e --escape", "", "prompt", false,                                                  \
      "Replace \\n, \\t, \\xHH and the like in the prompt.")                                                           \
    X("display-prompt", BOOL, "false", "", "--display-prompt", "", "run", false,                                       \
      "Print the prompt before the answer.")                                                                           \
    X("perf", BOOL, "true", "", "--perf --show-timings", "", "run", false,                                             \
      "Print a line with the speed on stderr at the end.")                                                             \
    X("simple-io", BOOL, "false", "", "--simple-io", "", "run", false,                                                 \
      "Edit lines on a terminal without libedit.")                                                                     \
    X("color", ENUM, "auto", "on|off|auto", "-co?on --color?on", "", "run", false,                                     \
      "Prompts and thoughts stand out on a terminal; auto: where it has colours and NO_COLOR is not set.")             \
    X("interactive", BOOL, "false", "", "-i --interactive", "", "run", false,                                          \
      "Write in turns with the model: it is yours at a reverse prompt (-r), when it ends its text, and at Ctrl-C.")    \
    X("interactive-first", BOOL, "false", "", "-if --interactive-first", "", "run", false,                             \
      "The same, and you begin.")                                                                                      \
    X("in-prefix", STRING, "", "", "--in-prefix", "", "run", false,                                                    \
      "With --interactive: text before what is typed.")                                                                \
    X("in-suffix", STRING, "", "", "--in-suffix", "", "run", false,                                                    \
      "With --interactive: text behind what is typed.")                                                                \
    X("in-prefix-bos", BOOL, "false", "", "--in-prefix-bos", "", "run", false,                                         \
      "With --interactive: BOS before that.")                                                                          \
    X("multiline-input", BOOL, "false", "", "-mli --multiline-input", "", "run", false,                                \
      "What is typed goes on over the ends of lines, until one ends in \\.")                                           \
    X("kv-stats", BOOL, "false", "", "--kv-stats", "", "kv", true,                                                     \
      "At the end, say on stderr what the cache holds and what was reused.")                                           \
    X("copies", INT, "1", "1..4096", "--copies", "", "run", false,                                                     \
      "Run the prompt so many times at once and print one answer after the other.")                                    \
    X("system-prompt", STRING, "", "", "-sys --system-prompt", "", "chat", true,                                       \
      "System prompt: what the conversation begins with.")                                                             \
    X("system-prompt-file", STRING, "", "", "-sysf --system-prompt-file", "", "chat", false,                           \
      "File that holds the system prompt.")                                                                            \
    X("single-turn", BOOL, "false", "", "-st --single-turn", "", "chat", true,                                         \
      "End after the first answer.")                                                                                   \
    X("conversation", BOOL, "true", "",                                                                                \
      "-cnv --conversation -no-cnv=false -i=true --interactive=true -if=true --interactive-first=true", "", "chat",    \
      false, "Hold a conversation; --no-conversation completes the prompt as 'run' does.")                             \
    X("reasoning", ENUM, "auto", "on|off|auto", "-rea --reasoning", "", "template", true,                              \
      "Tell the template that the model is to think, or not to (enable_thinking); auto: nothing.")                     \
    X("reasoning-format", ENUM, "auto", "auto|none|deepseek|deepseek-legacy|hidden",                                   \
      "--reasoning-format", "", "template", true,                                                                      \
      "What becomes of thoughts: none leaves them in the answer, hidden drops them, all others keep them apart.")      \
    X("reasoning-budget", INT, "-1", "-1..2147483647", "--reasoning-budget", "", "template",                           \
      false, "How much the model may think: -1 as it likes, 0 not at all.")                                            \
    X("ids", BOOL, "false", "", "--ids", "", "tokenize", true, "Print token ids alone, as a JSON array.")              \
    X("stdin", BOOL, "false", "", "--stdin", "", "tokenize", true, "Read the text from standard input.")               \
    X("no-bos", BOOL, "false", "", "--no-bos", "", "tokenize", true, "Do not add BOS.")                                \
    X("parse-special", BOOL, "true", "", "--parse-special", "", "tokenize", true,                                      \
      "Text of control tokens becomes the token.")                                                                     \
    X("show-count", BOOL, "false", "", "--show-count", "", "tokenize", true,                                           \
      "Print the number of tokens at the end.")                                                                        \
    X("json", BOOL, "false", "", "--json", "", "inspect", true, "Print JSON.")                                         \
    X("tensors", BOOL, "true", "", "--tensors", "", "inspect", true, "Print the tensors too.")                         \
    X("cost", BOOL, "true", "", "--cost", "", "inspect", true, "Print what running the model would take.")             \
    X("pure", BOOL, "false", "", "--pure", "", "quantize", true,                                                       \
      "All matrices in the type named, no mixture.")                                                                   \
    X("allow-requantize", BOOL, "false", "", "--allow-requantize", "", "quantize", true,                               \
      "Also rewrite matrices that are quantised already; this costs quality.")                                         \
    X("leave-output-tensor", BOOL, "false", "", "--leave-output-tensor", "", "quantize", true,                         \
      "Leave output.weight as it is.")                                                                                 \
    X("output-tensor-type", STRING, "", "", "--output-tensor-type", "", "quantize", true,                              \
      "Type of output.weight.")                                                                                        \
    X("token-embedding-type", STRING, "", "", "--token-embedding-type", "", "quantize", true,                          \
      "Type of the token embeddings.")                                                                                 \
    X("tensor-type", LIST, "", "", "--tensor-type", "", "quantize", true,                                              \
      "NAME=TYPE: type of the tensors whose name matches; may be given several times.")                                \
    X("imatrix", STRING, "", "", "--imatrix", "", "quantize", true,                                                    \
      "File of an importance matrix, which says what columns matter.")                                                 \
    X("n-prompt", LIST, "512", "", "-p --n-prompt -npp", "", "bench", true,                                            \
      "Prompt lengths to measure.")                                                                                    \
    X("n-gen", LIST, "128", "", "-n --n-gen -ntg", "", "bench", true,                                                  \
      "Numbers of tokens to generate.")                                                                                \
    X("pg", LIST, "", "", "-pg", "", "bench", true, "PROMPT,GENERATE: both in one test.")                              \
    X("n-depth", LIST, "0", "", "-d --n-depth", "", "bench", true, "Tokens in the cache before a test.")               \
    X("n-parallel", LIST, "", "", "-npl --n-parallel", "", "bench", true,                                              \
      "Concurrency: so many requests at once.")                                                                        \
    X("shared-prefix", BOOL, "false", "", "--shared-prefix", "", "bench", true,                                        \
      "Requests whose prompts start the same, with and without the prefix cache: computed tokens and cache memory.")   \
    X("tenants", INT, "32", "1..4096", "--tenants", "", "bench", false,                                                \
      "Requests of --shared-prefix.")                                                                                  \
    X("prefix-tokens", INT, "1024", "1..1048576", "--prefix-tokens", "", "bench", false,                               \
      "Tokens with which the prompts of --shared-prefix start.")                                                       \
    X("tail-tokens", INT, "16", "1..1048576", "--tail-tokens", "", "bench", false,                                     \
      "Tokens of each prompt of --shared-prefix after them.")                                                          \
    X("op", STRING, "", "", "--op", "", "bench", false,                                                                \
      "Measure one op of the device by itself, without a model: gdn, the delta rule of recurrent layers.")             \
    X("op-shape", STRING, "", "", "--op-shape", "", "bench", false,                                                    \
      "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS of --op; empty: those of Qwen 3.5 9B.")                                  \
    X("repetitions", INT, "5", "1..10000", "-r --repetitions", "", "bench", true,                                      \
      "Times each test is repeated.")                                                                                  \
    X("output", ENUM, "md", "csv|json|jsonl|md|sql", "-o --output", "", "bench", true, "Format on stdout.")            \
    X("output-err", ENUM, "none", "none|csv|json|jsonl|md|sql", "-oe --output-err", "", "bench", false,                \
      "Format on stderr.")                                                                                             \
    X("progress", BOOL, "false", "", "--progress", "", "bench", true, "Say on stderr which test runs.")                \
    X("delay", INT, "0", "0..3600", "--delay", "", "bench", false, "Seconds to wait between tests.")                   \
    X("warmup", BOOL, "true", "", "--warmup", "", "bench", false, "Run each test once unmeasured before.")             \
    X("cases", STRING, "", "", "--cases", "", "eval", true, "JSON file of cases to run greedily.")                     \
    X("logits-dir", STRING, "", "", "--logits-dir", "", "eval", true,                                                  \
      "Folder where NAME.f32 gets each case's logits.")                                                                \
    X("chunks", INT, "-1", "-1..2147483647", "--chunks", "", "eval", true,                                             \
      "Chunks of the text to evaluate; -1: all.")                                                                      \
    X("ppl-stride", INT, "0", "0..2147483647", "--ppl-stride", "", "eval", false,                                      \
      "Chunks begin so many tokens apart, and only so many at the end of each count; 0: side by side, half counts.")   \
    X("ppl-output-type", INT, "0", "0..1", "--ppl-output-type", "", "eval", false,                                     \
      "1: a line for each chunk, beginning with the number of its first token.")                                       \
    X("kl-divergence-base", STRING, "", "", "--kl-divergence-base --save-all-logits", "", "eval", true,                \
      "File of the base model's logits: written, or read with --kl-divergence.")                                       \
    X("kl-divergence", BOOL, "false", "", "--kl-divergence", "", "eval", true,                                         \
      "Compare with the logits of --kl-divergence-base.")                                                              \
    X("hellaswag", BOOL, "false", "", "--hellaswag", "", "eval", true,                                                 \
      "--file has HellaSwag tasks: how often is the right ending the likeliest?")                                      \
    X("hellaswag-tasks", INT, "400", "0..2147483647", "--hellaswag-tasks", "", "eval", false,                          \
      "So many of them, in a random order that is always the same; 0: all.")                                           \
    X("winogrande", BOOL, "false", "", "--winogrande", "", "eval", true,                                               \
      "--file has Winogrande tasks (CSV): which of two words fits the sentence?")                                      \
    X("winogrande-tasks", INT, "0", "0..2147483647", "--winogrande-tasks", "", "eval", false,                          \
      "So many of them, picked at random but always the same; 0: all.")                                                \
    X("multiple-choice", BOOL, "false", "", "--multiple-choice", "", "eval", true,                                     \
      "--file has questions with answers (llama-perplexity's binary form): how often is the right one the likeliest?") \
    X("multiple-choice-tasks", INT, "0", "0..2147483647", "--multiple-choice-tasks", "", "eval", false,                \
      "So many of them, picked at random but always the same; 0: all.")                                                \
    X("concurrency-suite", BOOL, "false", "", "--concurrency-suite", "", "eval", true,                                 \
      "Conversations with a secret word each, alone and 1 to --parallel (64) at once: do answers stay the same?")      \
    X("batch-size", STRING, "", "", "-b --batch-size", "LLAMA_ARG_BATCH", "compat", false,                             \
      "a step takes up to --ubatch-size tokens; there is no larger logical batch")                                     \
    X("cont-batching", BOOL, "true", "", "-cb --cont-batching -nocb=false", "", "compat", false,                       \
      "requests always join and leave the batch at each step")                                                         \
    X("kv-unified", BOOL, "true", "", "-kvu --kv-unified -no-kvu=false", "", "compat", false,                          \
      "one paged pool always serves all requests; --kv-cache-tokens sizes it")                                         \
    X("swa-full", BOOL, "false", "", "--swa-full", "", "compat", false,                                                \
      "sliding-window layers keep the blocks that a later request can reuse by themselves")                            \
    X("ctx-checkpoints", STRING, "", "", "-ctxcp --ctx-checkpoints --swa-checkpoints", "", "compat", false,            \
      "prefixes are kept block by block (--prefix-cache), checkpoints are not needed")                                 \
    X("defrag-thold", STRING, "", "", "-dt --defrag-thold", "", "compat", false,                                       \
      "a paged cache does not fragment")                                                                               \
    X("flash-attn", ENUM, "auto", "on|off|auto|1|0|true|false", "-fa?on --flash-attn?on", "", "compat",                \
      false, "attention always reads the paged cache in one pass")                                                     \
    X("tensor-split", STRING, "", "", "-ts --tensor-split", "", "compat", false,                                       \
      "devices of --split-mode tensor get equal parts")                                                                \
    X("main-gpu", STRING, "", "", "-mg --main-gpu", "", "compat", false, "--device chooses the device")                \
    X("op-offload", BOOL, "true", "", "--op-offload", "", "compat", false,                                             \
      "a model runs on one device as a whole; --device chooses it")                                                    \
    X("no-host", BOOL, "false", "", "--no-host", "", "compat", false,                                                  \
      "weights are always kept in the layout that the device reads best")                                              \
    X("repack", BOOL, "true", "", "--repack -nr=false", "", "compat", false,                                           \
      "weights are always kept in the layout that the device reads best")                                              \
    X("fit", ENUM, "on", "on|off|1|0|true|false", "-fit?on --fit?on", "", "compat", false,                             \
      "--kv-cache-bytes and --kv-cache-tokens say what the cache may take; 'pagedinfer inspect' shows the cost")       \
    X("fit-target", STRING, "", "", "-fitt --fit-target", "", "compat", false,                                         \
      "--kv-cache-bytes says what the cache may take")                                                                 \
    X("fit-ctx", STRING, "", "", "-fitc --fit-ctx", "", "compat", false,                                               \
      "--ctx-size says how long a request may be")                                                                     \
    X("mlock", BOOL, "false", "", "--mlock", "", "compat", false,                                                      \
      "weights are copied into memory of the process at load; they are not locked there")                              \
    X("threads-batch", STRING, "", "", "-tb --threads-batch", "", "compat", false,                                     \
      "prompts and answers share their steps, and --threads serves both")                                              \
    X("cpu-strict", STRING, "", "", "--cpu-strict", "", "compat", false,                                               \
      "--cpu-mask pins each thread to one core")                                                                       \
    X("prio", STRING, "", "", "--prio", "", "compat", false, "use nice(1) or chrt(1) for a process's priority")        \
    X("numa", STRING, "", "", "--numa", "", "compat", false,                                                           \
      "use numactl(8); weights are placed by the threads that read them")                                              \
    X("keep", STRING, "", "", "--keep", "", "compat", false,                                                           \
      "the context is never shifted: a request ends when it is full")                                                  \
    X("context-shift", BOOL, "false", "", "--context-shift", "", "compat", false,                                      \
      "the context is never shifted: a request ends when it is full")                                                  \
    X("grp-attn-n", STRING, "", "", "-gan --grp-attn-n", "", "compat", false,                                          \
      "self-extend is not needed by models that come with a long context")                                             \
    X("grp-attn-w", STRING, "", "", "-gaw --grp-attn-w", "", "compat", false,                                          \
      "self-extend is not needed by models that come with a long context")                                             \
    X("no-conversation-run", BOOL, "false", "", "-no-cnv=true --no-conversation=true", "", "compat", false,            \
      "'run' completes the prompt as it is")                                                                           \
    X("jinja", BOOL, "true", "", "--jinja", "", "compat", false, "chat templates are always run as Jinja")             \
    X("log-colors", ENUM, "auto", "on|off|auto", "--log-colors?on", "LLAMA_LOG_COLORS", "compat", false,               \
      "log lines have no colours")                                                                                     \
    X("log-prefix", BOOL, "false", "", "--log-prefix", "LLAMA_LOG_PREFIX", "compat", false,                            \
      "log lines always carry their level")                                                                            \
    X("log-timestamps", BOOL, "false", "", "--log-timestamps", "LLAMA_LOG_TIMESTAMPS", "compat",                       \
      false, "log lines carry no time; pipe stderr through ts(1)")                                                     \
    X("no-warmup-run", BOOL, "false", "", "--no-warmup=true --warmup=false", "", "compat", false,                      \
      "there is no warm-up run; the first step is as fast as the others")

#endif
