/* The one table of the command line's own options; parsing, checks, --help, man page and completions read it. Options
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
    X("log-colors", ENUM, "auto", "on|off|auto|1|0|true|false", "--log-colors?on", "LLAMA_LOG_COLORS", "general",      \
      false, "Colour log lines by their level; auto: where they go to a terminal.")                                    \
    X("log-prefix", BOOL, "false", "", "--log-prefix", "LLAMA_LOG_PREFIX", "general", false,                           \
      "Log lines begin with the letter of their level: E, W, I or D.")                                                 \
    X("log-timestamps", BOOL, "false", "", "--log-timestamps", "LLAMA_LOG_TIMESTAMPS", "general", false,               \
      "Log lines begin with the time since the start: minutes.seconds.milliseconds.microseconds.")                     \
    X("log-jsonl", BOOL, "false", "", "--log-jsonl", "LLAMA_ARG_LOG_JSONL", "general", false,                          \
      "Log lines are JSON objects: type \"log\", time (microseconds since the start), level, msg.")                    \
    X("list-devices", BOOL, "false", "", "--list-devices", "", "general", false,                                       \
      "Devices that this build can use, then exit.")                                                                   \
    X("hf-repo", STRING, "", "", "-hf -hfr --hf-repo", "", "download", true,                                           \
      "USER/NAME[:QUANT]: the model of that repository, from the cache or fetched; without QUANT Q4_K_M, Q8_0 or the"  \
      " first.")                                                                                                       \
    X("hf-file", STRING, "", "", "-hff --hf-file", "", "download", false,                                              \
      "File of the repository, instead of one with QUANT in its name.")                                                \
    X("hf-token", STRING, "", "", "-hft --hf-token", "HF_TOKEN", "download", false,                                    \
      "Token for repositories that are private or gated.")                                                             \
    X("hf-repo-draft", STRING, "", "", "-hfd -hfrd --hf-repo-draft --spec-draft-hf", "LLAMA_ARG_SPEC_DRAFT_HF_REPO",   \
      "download", false, "The same for the drafter; -md then names a file of the repository.")                         \
    X("model-url", STRING, "", "", "-mu --model-url", "", "download", true,                                            \
      "Address of the model's GGUF, which is fetched to the cache, or to the file that -m names.")                     \
    X("offline", BOOL, "false", "", "--offline", "", "download", false,                                                \
      "Ask nothing of a network: -hf and -mu take what the cache has.")                                                \
    X("dry-run", BOOL, "false", "", "--dry-run", "", "download", false,                                                \
      "Say what would be fetched, how many bytes and to where, then exit.")                                            \
    X("prompt", STRING, "", "", "-p --prompt", "", "prompt", true, "The prompt.")                                      \
    X("file", STRING, "", "", "-f --file -bf --binary-file", "", "prompt", true,                                       \
      "File that holds the prompt; - is standard input.")                                                              \
    X("grammar-file", STRING, "", "", "--grammar-file", "", "generation", true,                                        \
      "File that holds the grammar.")                                                                                  \
    X("json-schema-file", STRING, "", "", "-jf --json-schema-file", "", "generation", true,                            \
      "File that holds the JSON Schema.")                                                                              \
    X("escape", BOOL, "true", "", "-e --escape", "", "prompt", false,                                                  \
      "Replace \\n, \\t, \\xHH and the like in prompts.")                                                              \
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
    X("n-cpu-ffn", INT, "0", "0..10000", "-ncffn --n-cpu-ffn", "", "model", false,                                     \
      "The feed-forward matrices of the first so many layers are kept and run on the CPU.")                            \
    X("kv-stats", BOOL, "false", "", "--kv-stats -dkvc --dump-kv-cache", "", "kv", true,                               \
      "At the end, say on stderr what the cache holds and what was reused.")                                           \
    X("verbose-prompt", BOOL, "false", "", "--verbose-prompt", "", "run", false,                                       \
      "Print the prompt's tokens on stderr before the answer.")                                                        \
    X("prompt-cache", STRING, "", "", "--prompt-cache", "", "run", false,                                              \
      "Folder in which the prompt is kept for the next run; the same as --prefix-cache-dir.")                          \
    X("copies", INT, "1", "1..4096", "--copies", "", "run", false,                                                     \
      "Run the prompt so many times at once and print one answer after the other.")                                    \
    X("system-prompt", STRING, "", "", "-sys --system-prompt", "", "chat", true,                                       \
      "System prompt: what the conversation begins with.")                                                             \
    X("system-prompt-file", STRING, "", "", "-sysf --system-prompt-file", "", "chat", false,                           \
      "File that holds the system prompt.")                                                                            \
    X("single-turn", BOOL, "false", "", "-st --single-turn", "", "chat", true,                                         \
      "End after the first answer.")                                                                                   \
    X("conversation", BOOL, "true", "",                                                                                \
      "-cnv --conversation -no-cnv=false -i=true --interactive=true -if=true --interactive-first=true -ins=true"       \
      " --instruct=true", "", "chat",                                                                                  \
      false, "Hold a conversation; --no-conversation completes the prompt as 'run' does.")                             \
    X("reasoning", ENUM, "auto", "on|off|auto", "-rea --reasoning", "LLAMA_ARG_REASONING", "template", true,           \
      "Tell the template that the model is to think, or not to (enable_thinking); auto: nothing.")                     \
    X("reasoning-format", ENUM, "auto", "auto|none|deepseek|deepseek-legacy|hidden",                                   \
      "--reasoning-format --skip-chat-parsing=none --no-skip-chat-parsing=auto", "LLAMA_ARG_THINK", "template", true,  \
      "What becomes of thoughts: none leaves them in the answer, hidden drops them, all others keep them apart.")      \
    X("reasoning-effort", STRING, "", "", "--reasoning-effort", "", "template", false,                                    \
      "What the template gets as reasoning_effort: low, medium, high or what it knows; empty or default: nothing.")    \
    X("ids", BOOL, "false", "", "--ids", "", "tokenize", true, "Print token ids alone, as a JSON array.")              \
    X("stdin", BOOL, "false", "", "--stdin", "", "tokenize", true, "Read the text from standard input.")               \
    X("no-bos", BOOL, "false", "", "--no-bos", "", "tokenize", true, "Do not add BOS.")                                \
    X("parse-special", BOOL, "true", "", "--parse-special", "", "tokenize", true,                                      \
      "Text of control tokens becomes the token.")                                                                     \
    X("show-count", BOOL, "false", "", "--show-count", "", "tokenize", true,                                           \
      "Print the number of tokens at the end.")                                                                        \
    X("socket", STRING, "", "", "--socket", "", "weights", true, "Path of the Unix socket that is made.")              \
    X("checks", STRING, "", "", "--checks", "", "selftest", true,                                                      \
      "Check these alone, separated by commas: families as the report names them, or one check, linear.formats; rates:" \
      " measure alone.")                                                                                               \
    X("json", BOOL, "false", "", "--json", "", "inspect", true,                                                        \
      "Print JSON: metadata, hyperparameters, tensors, and the cost as the plan.")                                     \
    X("all", BOOL, "false", "", "--all", "", "inspect", true, "With --json: arrays in full, however long.")            \
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
    X("embd-output-format", ENUM, "", "|array|json|json+|raw", "--embd-output-format", "", "embed", true,              \
      "How vectors are printed: lines (the default, raw: bare), JSON arrays, JSON as OpenAI's, with similarities"      \
      " (json+).")                                                                                                     \
    X("embd-separator", STRING, "\\n", "", "--embd-separator", "", "embed", true, "What stands between two texts.")    \
    X("cls-separator", STRING, "\\t", "", "--cls-separator", "", "embed", false,                                       \
      "What stands between a query and a document, which a reranker scores.")                                          \
    X("tensor-type-file", STRING, "", "", "--tensor-type-file", "", "quantize", true,                                  \
      "File of such rules, NAME=TYPE, separated by spaces or newlines.")                                               \
    X("quantize-override-kv", LIST, "", "", "--override-kv", "", "quantize", false,                                    \
      "KEY=TYPE:VALUE sets metadata of the file that is written; may be given several times.")                         \
    X("include-weights", LIST, "", "", "--include-weights", "", "quantize", false,                                     \
      "Use the importance matrix for tensors of this name alone; may be given several times.")                         \
    X("exclude-weights", LIST, "", "", "--exclude-weights", "", "quantize", false,                                     \
      "Do not use the importance matrix for tensors of this name; may be given several times.")                        \
    X("prune-layers", STRING, "", "", "--prune-layers", "", "quantize", false,                                         \
      "Numbers of layers, with commas between, that are left out of the model.")                                       \
    X("quantize-dry-run", BOOL, "false", "", "--dry-run", "", "quantize", true,                                        \
      "Say which type each tensor gets and how large the file becomes, and write nothing.")                            \
    X("max-buffer-size", STRING, "", "", "--max-buffer-size", "", "quantize", false,                                   \
      "Not needed: a tensor goes through in pieces of a few MiB.")                                                     \
    X("n-prompt", LIST, "512", "", "-p --n-prompt -npp", "", "bench", true,                                            \
      "Prompt lengths to measure.")                                                                                    \
    X("n-gen", LIST, "128", "", "-n --n-gen -ntg", "", "bench", true,                                                  \
      "Numbers of tokens to generate.")                                                                                \
    X("pg", LIST, "", "", "-pg", "", "bench", true, "PROMPT,GENERATE: both in one test.")                              \
    X("n-depth", LIST, "0", "", "-d --n-depth", "", "bench", true, "Tokens in the cache before a test.")               \
    X("n-parallel", LIST, "", "", "-npl --n-parallel", "", "bench", true,                                              \
      "Concurrency: so many requests at once.")                                                                        \
    X("prompt-shared", BOOL, "false", "", "-pps --prompt-shared", "", "bench", false,                                  \
      "-npl: the requests have one prompt, which is computed once.")                                                   \
    X("gen-separate", BOOL, "false", "", "-tgs --gen-separate", "", "bench", false,                                    \
      "-npl: the requests generate one after the other, when all prompts are in the cache.")                           \
    X("shared-prefix", BOOL, "false", "", "--shared-prefix", "", "bench", true,                                        \
      "Requests whose prompts start the same, with and without the prefix cache: computed tokens and cache memory.")   \
    X("tenants", INT, "32", "1..4096", "--tenants", "", "bench", false,                                                \
      "Requests of --shared-prefix.")                                                                                  \
    X("prefix-tokens", INT, "1024", "1..1048576", "--prefix-tokens", "", "bench", false,                               \
      "Tokens with which the prompts of --shared-prefix start.")                                                       \
    X("tail-tokens", INT, "16", "1..1048576", "--tail-tokens", "", "bench", false,                                     \
      "Tokens of each prompt of --shared-prefix after them.")                                                          \
    X("spec", STRING, "", "", "--spec", "", "bench", true,                                                             \
      "Measure decoding with each of these drafters (as --spec-type has them, with , between) beside none, in turns, on" \
      " the text of -f; with -p 0 the whole text is the prompt, else parts of it.")                                    \
    X("spec-text", STRING, "", "", "-f --file", "", "bench", false,                                                    \
      "Text file for --spec.")                                                                                         \
    X("ops", BOOL, "false", "", "--ops", "", "bench", false,                                                           \
      "Of each test on the CPU, a table of where its steps' time went: each op's time, bytes and products, and the share"    \
      " of what memory and arithmetic allow. With -t 1 times are the thread's own.")                                   \
    X("op", STRING, "", "", "--op", "", "bench", false,                                                                \
      "Measure one op of the device by itself, without a model: gdn, the delta rule of recurrent layers.")             \
    X("op-shape", STRING, "", "", "--op-shape", "", "bench", false,                                                    \
      "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS of --op; empty: those of Qwen 3.5 9B.")                                  \
    X("repetitions", INT, "5", "1..10000", "-r --repetitions", "", "bench", true,                                      \
      "Times each test is repeated.")                                                                                  \
    X("output", ENUM, "md", "csv|json|jsonl|md|sql", "-o --output --output-format", "", "bench",                       \
      true, "Format on stdout.")                                                                                       \
    X("output-err", ENUM, "none", "none|csv|json|jsonl|md|sql", "-oe --output-err", "", "bench", false,                \
      "Format on stderr.")                                                                                             \
    X("progress", BOOL, "false", "", "--progress", "", "bench", true, "Say on stderr which test runs.")                \
    X("delay", INT, "0", "0..3600", "--delay", "", "bench", false, "Seconds to wait between tests.")                   \
    X("warmup", BOOL, "true", "", "--warmup", "", "bench", false, "Run each test once unmeasured before.")             \
    X("mmap", LIST, "", "", "-mmp?1 --mmap?1", "", "bench", false,                                                     \
      "0 or 1: the file is read, or mapped; see --load-mode.")                                                         \
    X("direct-io", LIST, "", "", "-dio?1 --direct-io?1", "", "bench", false,                                           \
      "1: the file is read past the page cache; see --load-mode.")                                                     \
    X("embeddings", BOOL, "false", "", "-embd --embeddings", "", "bench", false,                                       \
      "Only 0: embeddings are not measured.")                                                                          \
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
    X("host", STRING, "127.0.0.1", "", "--host", "", "serve", true,                                                    \
      "Address to listen on; 0.0.0.0 for all.")                                                                        \
    X("port", INT, "8080", "0..65535", "--port", "", "serve", true,                                                    \
      "Port to listen on; 0: any that is free, which is printed.")                                                     \
    X("unix-socket", STRING, "", "", "--unix-socket", "", "serve", false,                                              \
      "Listen on this path; on a port, too, if --host or --port is given.")                                            \
    X("alias", STRING, "", "", "-a --alias --served-model-name", "", "serve", true,                                    \
      "The model's name for clients, and others of it with commas behind; empty: the file's.")                         \
    X("api-prefix", STRING, "", "", "--api-prefix", "", "serve", false,                                                \
      "All paths begin with this one, as /models/a: of a server behind another that passes whole paths on.")           \
    X("api-key", LIST, "", "", "--api-key", "LLAMA_API_KEY", "serve", true,                                            \
      "Key that clients must send; several with commas, or given several times.")                                      \
    X("api-key-file", STRING, "", "", "--api-key-file", "", "serve", true,                                             \
      "File with a key a line; read again on SIGHUP.")                                                                 \
    X("cache-salt-by-key", BOOL, "false", "", "--cache-salt-by-key", "", "serve", false,                               \
      "Each API key has prefixes of its own: nobody finds those of another.")                                          \
    X("priority-range", STRING, "0..2147483647", "", "--priority-range", "", "serve", false,                           \
      "Values of priority that clients may ask for with --policy priority, LO..HI. Lower numbers run first, and 0 is that"  \
      " of clients that ask for none: unless LO is below 0, they can only give way to others.")                        \
    X("ui", BOOL, "true", "", "--ui --webui", "LLAMA_ARG_UI", "serve", false,                                          \
      "Serve the page at /; --no-ui: answer 404 there.")                                                               \
    X("slots", BOOL, "true", "", "--slots", "LLAMA_ARG_ENDPOINT_SLOTS", "serve", false,                                \
      "Answer GET /slots, which shows the running requests without their texts; --no-slots: answer 501.")              \
    X("lora-updates", BOOL, "false", "", "--lora-updates", "", "serve", false,                                         \
      "Clients may load and unload adapters (POST /v1/load_lora_adapter): files of this machine, which they name.")    \
    X("prefill-assistant", BOOL, "true", "", "--prefill-assistant", "", "serve", false,                                \
      "An answer goes on with the last message, where that is the assistant's; --no-prefill-assistant: it begins another.") \
    X("cors", STRING, "", "", "--cors --cors-origin --allowed-origins", "", "serve", false,                            \
      "Web pages of this origin may ask (Access-Control-Allow-Origin); * for all, empty: none.")                       \
    X("ssl-cert-file", STRING, "", "", "--ssl-cert-file", "", "serve", false,                                          \
      "PEM file of the certificate and its chain: TLS; read again on SIGHUP.")                                         \
    X("ssl-key-file", STRING, "", "", "--ssl-key-file", "", "serve", false,                                            \
      "PEM file of the private key.")                                                                                  \
    X("max-connections", INT, "1024", "1..1000000", "--max-connections", "", "serve", false,                           \
      "Connections at once; further ones are told to come back.")                                                      \
    X("max-header", INT, "16384", "512..65536", "--max-header", "", "serve", false,                                    \
      "Bytes of a request's header at most.")                                                                          \
    X("max-body", INT, "16777216", "1024..1073741824", "--max-body", "", "serve", false,                               \
      "Bytes of a request's body at most.")                                                                            \
    X("header-timeout", INT, "10", "1..3600", "--header-timeout", "", "serve", false,                                  \
      "Seconds that a request's header may take to arrive.")                                                           \
    X("idle-timeout", INT, "60", "1..86400", "-to --timeout --idle-timeout", "", "serve", true,                        \
      "Seconds after which a connection is closed on which nothing moves.")                                            \
    X("send-buffer", INT, "1048576", "1024..1073741824", "--send-buffer", "", "serve", false,                          \
      "Bytes of an answer that may wait for a slow client before it is canceled.")                                     \
    X("sse-ping-interval", INT, "30", "-1..86400", "--sse-ping-interval", "LLAMA_ARG_SSE_PING_INTERVAL", "serve", false,    \
      "Seconds after which a stream that has nothing to say gets an empty comment, so that nobody between takes it for"     \
      " dead; -1 or 0: never. A request's sse_ping_interval comes first.")                                             \
    X("drain-timeout", INT, "30", "0..86400", "--drain-timeout", "", "serve", false,                                   \
      "Seconds that running requests get to finish after SIGTERM.")                                                    \
    X("hang-timeout", FLOAT, "120", "0.01..86400", "--hang-timeout", "", "serve", false,                                    \
      "Seconds without a step after which /health says that the model hangs.")                                         \
    X("threads-http", INT, "2", "1..128", "--threads-http", "LLAMA_ARG_THREADS_HTTP", "serve", false,                  \
      "Threads that read and tokenise requests, at least 2: all but one may have work that takes long.")               \
    X("prepare-timeout", FLOAT, "60", "0..86400", "--prepare-timeout", "", "serve", false,                             \
      "Seconds that reading a request may take, with its schema, template and tokens, before it runs; 0: no limit.")   \
    X("log-json", BOOL, "false", "", "--log-json", "", "serve", false,                                                 \
      "Log lines are JSON objects.")                                                                                   \
    X("metrics-prefix", STRING, "vllm", "", "--metrics-prefix", "", "serve", false,                                    \
      "What the names of /metrics begin with, those that pickers of endpoints read.")                                  \
    X("kv-events", STRING, "", "", "--kv-events", "", "serve", false,                                                  \
      "Publish what the prefix cache holds, for routers: tcp://ADDRESS:PORT or ipc://PATH, bound here where the"       \
      " address is this machine's (* is all of them), else connected to.")                                             \
    X("kv-events-replay", STRING, "", "", "--kv-events-replay", "", "serve", false,                                    \
      "Where routers ask for KV events that they missed: an endpoint as for --kv-events.")                             \
    X("kv-events-topic", STRING, "", "", "--kv-events-topic", "", "serve", false,                                      \
      "First frame of each batch of KV events; llm-d wants kv@ADDRESS@MODEL.")                                         \
    X("kv-events-buffer", INT, "10000", "1..1000000", "--kv-events-buffer", "", "serve", false,                        \
      "Batches of KV events that are kept for --kv-events-replay.")                                                    \
    X("reranking", BOOL, "false", "", "--reranking --rerank", "", "serve", false,                                      \
      "Refuse a model that has no classifier to score documents with (POST /v1/rerank).")                              \
    X("spm-infill", BOOL, "false", "", "--spm-infill", "", "serve", true,                                              \
      "POST /infill: the suffix first, then the prefix, as some models were trained.")                                 \
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
    X("op-offload", BOOL, "true", "", "--op-offload -nopo=false", "", "compat", false,                                 \
      "a model runs on one device as a whole; --device chooses it")                                                    \
    X("no-host", BOOL, "false", "", "--no-host", "", "compat", false,                                                  \
      "weights are always kept in the layout that the device reads best")                                              \
    X("repack", BOOL, "true", "", "--repack -nr=false", "", "compat", false,                                           \
      "weights are always kept in the layout that the device reads best")                                              \
    X("fit-ctx", STRING, "", "", "-fitc --fit-ctx", "", "compat", false,                                               \
      "--ctx-size says how long a request may be")                                                                     \
    X("no-agent", BOOL, "true", "", "--no-ui-mcp-proxy=false --no-webui-mcp-proxy=false -no-ag=false --no-agent=false", \
      "", "compat", false, "there is no agent, and no proxy for tools")                                                \
    X("metrics", BOOL, "true", "", "--metrics", "", "compat", false,                                                   \
      "/metrics is always there")                                                                                      \
    X("props", BOOL, "true", "", "--props", "", "compat", false,                                                       \
      "/props is always there, to be read")                                                                            \
    X("slot-save-path", STRING, "", "", "--slot-save-path", "", "compat", false,                                       \
      "prefixes are kept by themselves; --prefix-cache-dir keeps them on disk")                                        \
    X("slot-prompt-similarity", STRING, "", "", "-sps --slot-prompt-similarity", "", "compat", false,                  \
      "a request takes the longest prefix there is, whoever made it")                                                  \
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
    X("no-warmup-run", BOOL, "false", "", "--no-warmup=true --warmup=false", "", "compat", false,                      \
      "there is no warm-up run; the first step is as fast as the others")                                              \
    X("prompt-cache-all", BOOL, "false", "", "--prompt-cache-all", "", "compat", false,                                \
      "answers are kept with their prompts in any case")                                                               \
    X("print-token-count", STRING, "", "", "-ptc --print-token-count", "", "compat", false,                            \
      "the line with the speed at the end counts the tokens")                                                          \
    X("lazy-mode", STRING, "", "", "-lzm --lazy-mode", "", "compat", false,                                            \
      "which tensors stay in the file's pages is decided by --load-mode")                                              \
    X("threads-of-batch", STRING, "", "", "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch"             \
      " --prio-batch --poll-batch", "", "compat", false,                                                               \
      "prompts and answers share their steps, and the threads of them")                                                \
    X("backend-sampling", BOOL, "false", "", "-bs --backend-sampling", "", "compat", false,                            \
      "where a device can find the most likely tokens, it does")                                                       \
    X("draft-threads", STRING, "", "", "--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd"      \
      " --threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd"                  \
      " --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft"                   \
      " --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft"                        \
      " --spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft"             \
      " --spec-draft-poll-batch --poll-batch-draft", "", "compat", false,                                              \
      "the drafter runs on the threads of the model")                                                                  \
    X("draft-device", STRING, "", "", "--spec-draft-device -devd --device-draft --spec-draft-ngl -ngld"                \
      " --gpu-layers-draft --n-gpu-layers-draft --spec-draft-override-tensor -otd --override-tensor-draft"             \
      " --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", "", "compat", false,                     \
      "the drafter lies where the model lies")                                                                         \
    X("draft-cpu-moe", BOOL, "false", "", "--spec-draft-cpu-moe -cmoed --cpu-moe-draft", "", "compat", false,          \
      "the drafter lies where the model lies")                                                                         \
    X("draft-cache-type", STRING, "", "", "--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd"   \
      " --cache-type-v-draft", "", "compat", false, "the drafter's cache has the types of the model's")                \
    X("draft-ctx-size", STRING, "", "", "-cd --ctx-size-draft", "", "compat", false,                                   \
      "the drafter's cache is a group of the model's")                                                                 \
    X("draft-split", STRING, "", "", "--spec-draft-p-split --draft-p-split -ps --p-split", "", "compat", false,        \
      "drafts are one chain of --spec-draft-n-max tokens")                                                             \
    X("ngram-hits", STRING, "", "", "--spec-ngram-min-hits --spec-ngram-simple-min-hits --spec-ngram-map-k-min-hits"   \
      " --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-min", "", "compat", false,                                    \
      "how many drafts are verified follows how often they were right")                                                \
    X("spec-draft-backend-sampling", BOOL, "true", "", "--spec-draft-backend-sampling", "", "compat", false,           \
      "the device finds the drafter's most likely tokens in any case")                                                 \
    X("spec-replace", STRING, "", "", "--spec-replace", "", "compat", false, "a drafter has the model's vocabulary")   \
    X("no-mmproj", BOOL, "true", "", "--no-mmproj=false --no-mmproj-auto=false --mmproj-auto --mmproj-offload", "",    \
      "compat", false, "text is all that is read, and no projector is looked for")                                     \
    X("reasoning-preserve", BOOL, "true", "", "--reasoning-preserve", "", "compat", false,                             \
      "earlier thoughts are given to the template, which decides")                                                     \
    X("perf-timings", BOOL, "true", "", "--perf", "", "compat", false, "timings are always taken")                     \
    X("checkpoint-min-step", STRING, "", "", "-cms --checkpoint-min-step", "", "compat", false,                        \
      "--snapshot-interval says how far apart snapshots of recurrent layers are")                                      \
    X("cache-reuse", STRING, "", "", "--cache-reuse", "", "compat", false,                                             \
      "what is reused is the whole common prefix, block by block")                                                     \
    X("embedding", BOOL, "false", "", "--embedding --embeddings", "", "compat", false,                                 \
      "a server answers /v1/embeddings beside everything else")                                                        \
    X("cache-idle-slots", BOOL, "true", "", "--cache-idle-slots", "", "compat", false,                                 \
      "there are no slots: what a request computed stays in the cache until the room is needed")                       \
    X("kv-unified-per-slot", STRING, "", "", "--kv-unified-per-slot", "", "compat", false,                             \
      "--ctx-size is what one request may take, --kv-cache-tokens what all may")                                       \
    X("mul-mat-q", BOOL, "true", "", "-mmq --mul-mat-q -nommq=false", "", "compat", false,                             \
      "kernels follow from the format of the weights")                                                                 \
    X("memory-f32", BOOL, "false", "", "--memory-f32", "", "compat", false,                                            \
      "--cache-type-k and --cache-type-v say how the cache is kept")                                                   \
    X("low-vram", BOOL, "false", "", "--low-vram", "", "compat", false,                                                \
      "--gpu-layers and --no-kv-offload say what lies on the device")                                                  \
    X("logdir", STRING, "", "", "-ld --logdir", "", "compat", false, "--log-file names the file of the log")           \
    X("log-new", BOOL, "false", "", "--log-enable --log-new --log-append --log-test --slots-endpoint-disable", "",     \
      "compat", false, "log lines go to stderr, or are added to --log-file")                                           \
    X("log-format", STRING, "", "", "--log-format", "", "compat", false, "see --log-prefix and --log-timestamps")      \
    X("sequences", STRING, "", "", "-ns --sequences", "", "compat", false, "--parallel says how many run at once")     \
    X("old-hyperparameters", STRING, "", "", "-eps --rms-norm-eps -gqa --gqa", "", "compat", false,                    \
      "the model's file says it; --override-kv changes it")                                                            \
    X("tfs", STRING, "", "", "--tfs", "", "compat", false,                                                             \
      "tail-free sampling is gone from llama.cpp, too; --min-p cuts the tail")                                         \
    X("penalize-nl", BOOL, "true", "", "--penalize-nl", "", "compat", false, "a newline is a token like others")

/* Flags of llama.cpp's tools that are known by name and refused: LATER for what is not built yet, NEVER for what has no
 * meaning here. A name that one of the tables above gains leaves this one (tests/scripts/check_flags.py says so).
 *
 * A row: LATER(flags, env, commands, why)
 *   flags     spellings, with their --no- forms
 *   env       variables beside those that follow from the long spellings; a variable that says no sets nothing
 *   commands  where the variables count, and the flags although another subcommand has them; "": the variables in all
 *             that run a model
 *   why       what to do instead */
#define REFUSED_OPTIONS(LATER, NEVER)                                                                                  \
    LATER("-cl --cache-list", "", "", "the models lie in the cache folder, one file each")                             \
    LATER("-dr --docker-repo", "", "", "download the GGUF by hand and give it with -m")                                \
    LATER("--gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default"          \
          " --embd-gemma-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec"                       \
          " --fim-qwen-14b-spec --fim-qwen-30b-default", "", "", "download the GGUF by hand and give it with -m")      \
    LATER("--control-vector --control-vector-scaled --control-vector-layer-range", "", "", "there is no replacement")  \
    LATER("-rpc --rpc", "", "", "devices are those of this machine; --list-devices shows them")                        \
    LATER("-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --image --audio --video --image-min-tokens"           \
          " --image-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir --mtmd-batch-max-tokens"      \
          " --media-path", "", "", "only text is read")                                                                \
    LATER("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", "", "",                                            \
          "--spec-type ngram looks at prompts and answers, with --spec-ngram-shared at those of other requests, too")  \
    NEVER("--spec-synth-len --spec-synth-rates", "", "", "drafts are always verified against the model")               \
    NEVER("--server-base", "", "", "the model is run by this program; any client talks to a server")                   \
    NEVER("--completion-bash", "", "", "completions are installed beside the program")                                 \
    LATER("-o --output --output-file", "", "chat", "redirect the standard output, which holds the answers alone")      \
    LATER("--log-prompts-dir", "", "", "--verbose-prompt shows a prompt")                                              \
    LATER("--infill", "", "", "a server answers POST /infill")                                                         \
    NEVER("--cfg-scale --cfg-negative-prompt --random-prompt", "", "", "it is gone from llama.cpp, too")               \
    LATER("--keep-split", "", "", "the output is one file, of any size")                                               \
    LATER("--tags --reuse-port --path --cors-methods --cors-headers --cors-credentials --no-cors-credentials"          \
          " --cors-origins --ui-config --webui-config --ui-config-file --webui-config-file"               \
          " --ui-mcp-proxy --webui-mcp-proxy", "", "serve", "the page at / needs no options; see --cors")              \
    LATER("--tools --tools-runtime --mcp-servers-config --mcp-servers-json -ag --agent", "", "serve",                  \
          "the client runs the tools that an answer calls")                                                            \
    LATER("--models-dir --models-preset --models-max --models-autoload --no-models-autoload --sleep-idle-seconds", "", \
          "serve", "a server has one model, which stays loaded")                                                       \
    NEVER("-spf", "", "serve", "a system prompt is a message of the request")
#endif
