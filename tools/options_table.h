/* The table of the command line's own options. Parsing, checks, --help, man page and completions use it. The library's
 * options come from pi_options_describe and are listed before these.
 *
 * A row: X(key, TYPE, default, range, flags, env, section, common, help)
 *   TYPE    BOOL INT FLOAT STRING ENUM LIST
 *   range   "LO..HI" for INT, "a|b|c" for ENUM, "" for others
 *   flags, env as in pi_option_info
 *   section of --help; a section named after a subcommand belongs to it alone and has precedence there.
 *           "compat" contains flags without effect: they are accepted, and the tool prints `help`. */
#ifndef PAGEDINFER_OPTIONS_TABLE_H
#define PAGEDINFER_OPTIONS_TABLE_H

#define TOOL_OPTIONS(X)                                                                                                \
    X("help", STRING, "", "", "-h?common --help?common --usage?common", "", "general", true,                           \
      "Print this help; --help all for everything, --help SECTION for one section.")                                   \
    X("version", BOOL, "false", "", "--version", "", "general", true, "Print version and devices of this build.")      \
    X("verbose", BOOL, "false", "", "-v --verbose --log-verbose", "", "general", true, "Log everything to stderr.")    \
    X("verbosity", INT, "2", "0..9", "-lv --verbosity --log-verbosity", "LLAMA_LOG_VERBOSITY", "general", false,       \
      "Log level: 0 nothing, 1 errors, 2 warnings, 3 information, 4 and more everything.")                             \
    X("log-file", STRING, "", "", "--log-file", "LLAMA_LOG_FILE", "general", false,                                    \
      "Write log lines to this file instead of stderr.")                                                               \
    X("log-disable", BOOL, "false", "", "--log-disable", "", "general", false, "Log nothing.")                         \
    X("log-colors", ENUM, "auto", "on|off|auto|1|0|true|false", "--log-colors?on", "LLAMA_LOG_COLORS", "general",      \
      false, "Color log lines by their level; auto: if they go to a terminal.")                                        \
    X("log-prefix", BOOL, "false", "", "--log-prefix", "LLAMA_LOG_PREFIX", "general", false,                           \
      "Begin log lines with the letter of their level: E, W, I or D.")                                                 \
    X("log-timestamps", BOOL, "false", "", "--log-timestamps", "LLAMA_LOG_TIMESTAMPS", "general", false,               \
      "Begin log lines with the time since the start: minutes.seconds.milliseconds.microseconds.")                     \
    X("log-jsonl", BOOL, "false", "", "--log-jsonl", "LLAMA_ARG_LOG_JSONL", "general", false,                          \
      "Write log lines as JSON objects: type \"log\", time (microseconds since the start), level, msg.")               \
    X("list-devices", BOOL, "false", "", "--list-devices", "", "general", false,                                       \
      "Print the devices that this build can use, then exit.")                                                         \
    X("config", STRING, "", "", "--config", "", "general", true,                                                       \
      "INI file with options: keys are long flags without dashes; section [*] is for all models, others have"          \
      " the name of a model. The command line and the environment have precedence.")                                   \
    X("print-config", BOOL, "false", "", "--print-config", "", "general", false,                                       \
      "Print all settings with their sources, in the format of --config, then exit.")                                  \
    X("hf-repo", STRING, "", "", "-hf -hfr --hf-repo", "", "download", true,                                           \
      "USER/NAME[:QUANT]: model from this repository, cached"                                                          \
      " or downloaded; without QUANT Q4_K_M, Q8_0 or the first.")                                                      \
    X("hf-file", STRING, "", "", "-hff --hf-file", "", "download", false,                                              \
      "File of the repository, instead of one with QUANT in its name.")                                                \
    X("hf-token", STRING, "", "", "-hft --hf-token", "HF_TOKEN", "download", false,                                    \
      "Token for private or gated repositories.")                                                                      \
    X("hf-repo-draft", STRING, "", "", "-hfd -hfrd --hf-repo-draft --spec-draft-hf", "LLAMA_ARG_SPEC_DRAFT_HF_REPO",   \
      "download", false, "USER/NAME[:QUANT]: drafter from this repository; -md then names a file of it.")              \
    X("model-url", STRING, "", "", "-mu --model-url", "", "download", true,                                            \
      "URL of the model's GGUF; it is downloaded to the cache, or to the file given by -m.")                           \
    X("mmproj-url", STRING, "", "", "-mmu --mmproj-url", "", "download", false,                                        \
      "URL of the vision part's GGUF, instead of --mmproj; it is downloaded to the cache.")                            \
    X("mmproj-auto", BOOL, "true", "", "--mmproj-auto --no-mmproj=false", "", "download", false,                       \
      "-hf also takes the vision part (mmproj) of the repository, if there is one.")                                   \
    X("offline", BOOL, "false", "", "--offline", "", "download", false,                                                \
      "Use no network: -hf and -mu use cached files only.")                                                            \
    X("dry-run", BOOL, "false", "", "--dry-run", "", "download", false,                                                \
      "Print the files to download, their sizes and destinations, then exit.")                                         \
    X("download-progress", BOOL, "false", "", "--download-progress", "", "download", false,                            \
      "Write the progress of downloads to standard output, as lines: progress BYTES TOTAL URL.")                       \
    X("prompt", STRING, "", "", "-p --prompt", "", "prompt", true, "Prompt text.")                                     \
    X("image", LIST, "", "", "--image", "", "prompt", true,                                                            \
      "Image files for the prompt or the first message: FILE,... ; needs --mmproj, or -hf with a vision model.")       \
    X("file", STRING, "", "", "-f --file -bf --binary-file", "", "prompt", true,                                       \
      "File with the prompt; - is standard input.")                                                                    \
    X("grammar-file", STRING, "", "", "--grammar-file", "", "generation", true, "File with the grammar.")              \
    X("json-schema-file", STRING, "", "", "-jf --json-schema-file", "", "generation", true,                            \
      "File with the JSON Schema.")                                                                                    \
    X("escape", BOOL, "true", "", "-e --escape", "", "prompt", false,                                                  \
      "Replace escapes such as \\n, \\t and \\xHH in prompts.")                                                        \
    X("display-prompt", BOOL, "false", "", "--display-prompt", "", "run", false,                                       \
      "Print the prompt before the answer.")                                                                           \
    X("perf", BOOL, "true", "", "--perf --show-timings", "", "run", false,                                             \
      "Print a line with the speed on stderr at the end.")                                                             \
    X("simple-io", BOOL, "false", "", "--simple-io", "", "run", false, "Edit lines on a terminal without libedit.")    \
    X("color", ENUM, "auto", "on|off|auto", "-co?on --color?on", "", "run", false,                                     \
      "Highlight prompts and reasoning on a terminal; auto: if it supports colors and NO_COLOR is not set.")           \
    X("interactive", BOOL, "false", "", "-i --interactive", "", "run", false,                                          \
      "Write in turns with the model; yours begins at a reverse prompt (-r), at its end, and at Ctrl-C.")              \
    X("interactive-first", BOOL, "false", "", "-if --interactive-first", "", "run", false,                             \
      "Like --interactive, but the first turn is yours.")                                                              \
    X("in-prefix", STRING, "", "", "--in-prefix", "", "run", false, "With --interactive: text before your input.")     \
    X("in-suffix", STRING, "", "", "--in-suffix", "", "run", false, "With --interactive: text after your input.")      \
    X("in-prefix-bos", BOOL, "false", "", "--in-prefix-bos", "", "run", false,                                         \
      "With --interactive: BOS before --in-prefix.")                                                                   \
    X("multiline-input", BOOL, "false", "", "-mli --multiline-input", "", "run", false,                                \
      "Continue the input over line ends, until a line ends in \\.")                                                   \
    X("n-cpu-ffn", INT, "0", "0..10000", "-ncffn --n-cpu-ffn", "", "model", false,                                     \
      "Keep and run the feed-forward matrices of the first N layers on the CPU.")                                      \
    X("kv-stats", BOOL, "false", "", "--kv-stats -dkvc --dump-kv-cache", "", "kv", true,                               \
      "Print cache usage and reuse on stderr at the end.")                                                             \
    X("verbose-prompt", BOOL, "false", "", "--verbose-prompt", "", "run", false,                                       \
      "Print the prompt's tokens on stderr before the answer.")                                                        \
    X("prompt-cache", STRING, "", "", "--prompt-cache", "", "run", false,                                              \
      "Directory that keeps the prompt for the next run; same as --prefix-cache-dir.")                                 \
    X("copies", INT, "1", "1..4096", "--copies", "", "run", false,                                                     \
      "Run the prompt N times concurrently and print the answers one after another.")                                  \
    X("system-prompt", STRING, "", "", "-sys --system-prompt", "", "chat", true,                                       \
      "System prompt at the start of the conversation.")                                                               \
    X("system-prompt-file", STRING, "", "", "-sysf --system-prompt-file", "", "chat", false,                           \
      "File with the system prompt.")                                                                                  \
    X("single-turn", BOOL, "false", "", "-st --single-turn", "", "chat", true, "End after the first answer.")          \
    X("conversation", BOOL, "true", "",                                                                                \
      "-cnv --conversation -no-cnv=false -i=true --interactive=true -if=true --interactive-first=true -ins=true"       \
      " --instruct=true",                                                                                              \
      "", "chat", false, "Hold a conversation; --no-conversation completes the prompt like 'run'.")                    \
    X("markdown", BOOL, "true", "", "--markdown", "", "chat", false,                                                   \
      "On a terminal, wrap words at its width and render headings, bold, code and lists; --no-markdown: print"         \
      " answers unchanged.")                                                                                           \
    X("history-file", STRING, "auto", "", "--history-file", "", "chat", false,                                         \
      "File that keeps the typed lines, except for those that begin with a space; auto:"                               \
      " ~/.local/state/pagedinfer/history, none: no file.")                                                            \
    X("reasoning", ENUM, "auto", "on|off|auto", "-rea --reasoning", "LLAMA_ARG_REASONING", "template", true,           \
      "Enable or disable reasoning in the template (enable_thinking); auto: the template's default.")                  \
    X("reasoning-format", ENUM, "auto", "auto|none|deepseek|deepseek-legacy|hidden",                                   \
      "--reasoning-format --skip-chat-parsing=none --no-skip-chat-parsing=auto", "LLAMA_ARG_THINK", "template", true,  \
      "Reasoning in the output: none leaves it in the answer, hidden drops it, all others return it separately.")      \
    X("reasoning-effort", STRING, "", "", "--reasoning-effort", "", "template", false,                                 \
      "reasoning_effort for the template: low, medium, high or another value it accepts; empty or default: not set.")  \
    X("ids", BOOL, "false", "", "--ids", "", "tokenize", true, "Print only token ids, as a JSON array.")               \
    X("stdin", BOOL, "false", "", "--stdin", "", "tokenize", true, "Read the text from standard input.")               \
    X("no-bos", BOOL, "false", "", "--no-bos", "", "tokenize", true, "Do not add BOS.")                                \
    X("parse-special", BOOL, "true", "", "--parse-special", "", "tokenize", true,                                      \
      "Convert the text of control tokens to the tokens.")                                                             \
    X("show-count", BOOL, "false", "", "--show-count", "", "tokenize", true, "Print the number of tokens at the end.") \
    X("socket", STRING, "", "", "--socket", "", "weights", true, "Path of the Unix socket to create.")                 \
    X("checks", STRING, "", "", "--checks", "", "selftest", true,                                                      \
      "Run only these checks, separated by commas: families as in the"                                                 \
      " report, or one check, linear.formats; rates: only measure rates.")                                             \
    X("stress", INT, "0", "0..1000000", "--stress", "", "selftest", true,                                              \
      "Seconds of a stress test, instead of checks and rates: random checks on two queues of a GPU at the same time.") \
    X("stress-seed", INT, "1", "0..9007199254740992", "--stress-seed", "", "selftest", true,                           \
      "First seed of the stress test; the seed of a failure repeats its check, shapes and values.")                    \
    X("selftest-json", BOOL, "false", "", "--json", "", "selftest", true,                                              \
      "Print the report as one JSON object; docs/CARDS.md describes it.")                                              \
    X("json", BOOL, "false", "", "--json", "", "inspect", true,                                                        \
      "Print JSON: metadata, hyperparameters, tensors, and the memory plan.")                                          \
    X("list-json", BOOL, "false", "", "--json", "", "list", true,                                                      \
      "Print a JSON array: name, repository, file, quantization, bytes, last_used (Unix time), path.")                 \
    X("all", BOOL, "false", "", "--all", "", "inspect", true, "With --json: print arrays in full.")                    \
    X("tensors", BOOL, "true", "", "--tensors", "", "inspect", true, "Print the tensors too.")                         \
    X("cost", BOOL, "true", "", "--cost", "", "inspect", true, "Print the memory needed to run the model.")            \
    X("pure", BOOL, "false", "", "--pure", "", "quantize", true, "Use the given type for all matrices, no mixture.")   \
    X("allow-requantize", BOOL, "false", "", "--allow-requantize", "", "quantize", true,                               \
      "Also convert quantized matrices; this costs quality.")                                                          \
    X("leave-output-tensor", BOOL, "false", "", "--leave-output-tensor", "", "quantize", true,                         \
      "Keep output.weight unchanged.")                                                                                 \
    X("output-tensor-type", STRING, "", "", "--output-tensor-type", "", "quantize", true, "Type of output.weight.")    \
    X("token-embedding-type", STRING, "", "", "--token-embedding-type", "", "quantize", true,                          \
      "Type of the token embeddings.")                                                                                 \
    X("tensor-type", LIST, "", "", "--tensor-type", "", "quantize", true,                                              \
      "NAME=TYPE: type of the tensors with a matching name; may be given several times.")                              \
    X("imatrix", STRING, "", "", "--imatrix", "", "quantize", true,                                                    \
      "File of an importance matrix, the weights of the columns.")                                                     \
    X("embd-output-format", ENUM, "", "|array|json|json+|raw", "--embd-output-format", "", "embed", true,              \
      "Format of vectors: lines (the default; raw: numbers only),"                                                     \
      " JSON arrays, OpenAI's JSON, with similarities (json+).")                                                       \
    X("embd-separator", STRING, "\\n", "", "--embd-separator", "", "embed", true, "Separator of texts.")               \
    X("cls-separator", STRING, "\\t", "", "--cls-separator", "", "embed", false,                                       \
      "Separator of query and document, for a reranker.")                                                              \
    X("tensor-type-file", STRING, "", "", "--tensor-type-file", "", "quantize", true,                                  \
      "File of NAME=TYPE rules, separated by spaces or newlines.")                                                     \
    X("quantize-override-kv", LIST, "", "", "--override-kv", "", "quantize", false,                                    \
      "KEY=TYPE:VALUE sets metadata of the output file; may be given several times.")                                  \
    X("imatrix-output", STRING, "imatrix.gguf", "", "-o --output --output-file", "", "imatrix", true,                  \
      "File to write, a GGUF that quantize --imatrix and llama-quantize read.")                                        \
    X("include-weights", LIST, "", "", "--include-weights", "", "quantize", false,                                     \
      "Use the importance matrix only for tensors with this name; may be given several times.")                        \
    X("exclude-weights", LIST, "", "", "--exclude-weights", "", "quantize", false,                                     \
      "Do not use the importance matrix for tensors with this name; may be given several times.")                      \
    X("prune-layers", STRING, "", "", "--prune-layers", "", "quantize", false,                                         \
      "Numbers of layers to remove from the model, separated by commas.")                                              \
    X("quantize-dry-run", BOOL, "false", "", "--dry-run", "", "quantize", true,                                        \
      "Print the type of each tensor and the size of the file, and write nothing.")                                    \
    X("max-buffer-size", STRING, "", "", "--max-buffer-size", "", "quantize", false,                                   \
      "Not needed: tensors are converted in parts of a few MiB.")                                                      \
    X("n-prompt", LIST, "512", "", "-p --n-prompt -npp", "", "bench", true, "Prompt lengths to measure.")              \
    X("n-gen", LIST, "128", "", "-n --n-gen -ntg", "", "bench", true, "Numbers of tokens to generate.")                \
    X("pg", LIST, "", "", "-pg", "", "bench", true, "PROMPT,GENERATE: prompt and generation in one test.")             \
    X("n-depth", LIST, "0", "", "-d --n-depth", "", "bench", true, "Tokens in the cache before a test.")               \
    X("n-parallel", LIST, "", "", "-npl --n-parallel", "", "bench", true, "Numbers of concurrent requests.")           \
    X("prompt-shared", BOOL, "false", "", "-pps --prompt-shared", "", "bench", false,                                  \
      "-npl: use one prompt for all requests, computed once.")                                                         \
    X("gen-separate", BOOL, "false", "", "-tgs --gen-separate", "", "bench", false,                                    \
      "-npl: generate the answers one after another, with all prompts in the cache.")                                  \
    X("shared-prefix", BOOL, "false", "", "--shared-prefix", "", "bench", true,                                        \
      "Measure requests with a common prefix, with and without the prefix cache: computed tokens and memory.")         \
    X("tenants", INT, "32", "1..4096", "--tenants", "", "bench", false, "Number of requests of --shared-prefix.")      \
    X("prefix-tokens", INT, "1024", "1..1048576", "--prefix-tokens", "", "bench", false,                               \
      "Tokens of the common prefix of --shared-prefix.")                                                               \
    X("tail-tokens", INT, "16", "1..1048576", "--tail-tokens", "", "bench", false,                                     \
      "Tokens of each prompt of --shared-prefix after the prefix.")                                                    \
    X("spec", STRING, "", "", "--spec", "", "bench", true,                                                             \
      "Compare decoding with these drafters (values of --spec-type, separated by commas) and"                          \
      " without, on the text of -f; with -p 0 the complete text is the prompt, else parts of it.")                     \
    X("spec-text", STRING, "", "", "-f --file", "", "bench", false, "Text file for --spec.")                           \
    X("ops", BOOL, "false", "", "--ops", "", "bench", false,                                                           \
      "Print a table of the step time per op for each test on the CPU: time, bytes, products, and"                     \
      " the share of the bound by memory and arithmetic. With -t 1 times are the thread's own.")                       \
    X("op", STRING, "", "", "--op", "", "bench", false,                                                                \
      "Measure a single op of the device, without a model: gdn, the delta rule of recurrent layers.")                  \
    X("op-shape", STRING, "", "", "--op-shape", "", "bench", false,                                                    \
      "KEY_HEADS,VALUE_HEADS,HEAD_SIZE,LAYERS of --op; empty: Qwen 3.5 9B.")                                           \
    X("repetitions", INT, "5", "1..10000", "-r --repetitions", "", "bench", true,                                      \
      "Number of repetitions of each test.")                                                                           \
    X("output", ENUM, "md", "csv|json|jsonl|md|sql", "-o --output --output-format", "", "bench", true,                 \
      "Output format on stdout.")                                                                                      \
    X("output-err", ENUM, "none", "none|csv|json|jsonl|md|sql", "-oe --output-err", "", "bench", false,                \
      "Output format on stderr.")                                                                                      \
    X("progress", BOOL, "false", "", "--progress", "", "bench", true, "Print the running test on stderr.")             \
    X("delay", INT, "0", "0..3600", "--delay", "", "bench", false, "Seconds to wait between tests.")                   \
    X("warmup", BOOL, "true", "", "--warmup", "", "bench", false, "Run each test once before the measurement.")        \
    X("mmap", LIST, "", "", "-mmp?1 --mmap?1", "", "bench", false, "0: read the file, 1: map it; see --load-mode.")    \
    X("direct-io", LIST, "", "", "-dio?1 --direct-io?1", "", "bench", false,                                           \
      "1: read the file without the page cache; see --load-mode.")                                                     \
    X("embeddings", BOOL, "false", "", "-embd --embeddings", "", "bench", false,                                       \
      "Only 0: embeddings are not measured.")                                                                          \
    X("cases", STRING, "", "", "--cases", "", "eval", true, "JSON file of cases to run greedily.")                     \
    X("logits-dir", STRING, "", "", "--logits-dir", "", "eval", true,                                                  \
      "Directory for the logits of each case, as NAME.f32.")                                                           \
    X("chunks", INT, "-1", "-1..2147483647", "--chunks", "", "eval", true, "Chunks of the text to evaluate; -1: all.") \
    X("ppl-stride", INT, "0", "0..2147483647", "--ppl-stride", "", "eval", false,                                      \
      "Start chunks N tokens apart and score the last N tokens of each; 0: adjacent, second half scored.")             \
    X("ppl-output-type", INT, "0", "0..1", "--ppl-output-type", "", "eval", false,                                     \
      "1: print a line for each chunk, beginning with the number of its first token.")                                 \
    X("kl-divergence-base", STRING, "", "", "--kl-divergence-base --save-all-logits", "", "eval", true,                \
      "File of the base model's logits: written, or read with --kl-divergence.")                                       \
    X("kl-divergence", BOOL, "false", "", "--kl-divergence", "", "eval", true,                                         \
      "Compare with the logits of --kl-divergence-base.")                                                              \
    X("hellaswag", BOOL, "false", "", "--hellaswag", "", "eval", true,                                                 \
      "Evaluate the HellaSwag tasks in --file: accuracy of the most likely ending.")                                   \
    X("hellaswag-tasks", INT, "400", "0..2147483647", "--hellaswag-tasks", "", "eval", false,                          \
      "Number of tasks, in a fixed random order; 0: all.")                                                             \
    X("winogrande", BOOL, "false", "", "--winogrande", "", "eval", true,                                               \
      "Evaluate the Winogrande tasks (CSV) in --file: accuracy of the more likely word.")                              \
    X("winogrande-tasks", INT, "0", "0..2147483647", "--winogrande-tasks", "", "eval", false,                          \
      "Number of tasks, a fixed random selection; 0: all.")                                                            \
    X("multiple-choice", BOOL, "false", "", "--multiple-choice", "", "eval", true,                                     \
      "Evaluate the questions in --file (llama-perplexity's binary format): accuracy of the most likely answer.")      \
    X("multiple-choice-tasks", INT, "0", "0..2147483647", "--multiple-choice-tasks", "", "eval", false,                \
      "Number of tasks, a fixed random selection; 0: all.")                                                            \
    X("concurrency-suite", BOOL, "false", "", "--concurrency-suite", "", "eval", true,                                 \
      "Check that answers do not depend on the batch: secret words, alone and 1 to --parallel (64) at once.")          \
    X("host", STRING, "127.0.0.1", "", "--host", "", "serve", true, "Address to listen on; 0.0.0.0 for all.")          \
    X("port", INT, "8080", "0..65535", "--port", "", "serve", true,                                                    \
      "Port to listen on; 0: any free port, which is printed.")                                                        \
    X("unix-socket", STRING, "", "", "--unix-socket", "", "serve", false,                                              \
      "Path to listen on; also listens on a port if --host or --port is given.")                                       \
    X("alias", STRING, "", "", "-a --alias --served-model-name", "", "serve", true,                                    \
      "Model name for clients, or several separated by commas; empty: the file's name.")                               \
    X("models-dir", STRING, "", "", "--models-dir", "", "serve", true,                                                 \
      "Serve the models of this directory: each GGUF file, and each folder with one. A request's field model selects"  \
      " one; it is loaded when it is needed, by a process of its own.")                                                \
    X("models-preset", STRING, "", "", "--models-preset", "", "serve", true,                                           \
      "INI file with a section of options for each model, and [*] for all.")                                           \
    X("models-max", INT, "4", "0..4096", "--models-max", "", "serve", false,                                           \
      "Maximum number of loaded models; the least recently used idle one is unloaded for another. 0: no limit.")       \
    X("models-autoload", BOOL, "true", "", "--models-autoload", "", "serve", false,                                    \
      "Load a model when a request names it; --no-models-autoload: only by POST /models/load.")                        \
    X("models-cache", BOOL, "true", "", "--models-cache", "", "serve", false,                                          \
      "With several models, also serve the models of the cache ('pagedinfer list').")                                  \
    X("models-updates", BOOL, "false", "", "--models-updates", "", "serve", false,                                     \
      "With several models, let clients download models into the cache and remove them (POST, DELETE /models).")       \
    X("models-wait", INT, "300", "1..86400", "--models-wait", "", "serve", false,                                      \
      "Seconds that a request waits for its model before it gets status 503.")                                         \
    X("model-memory", INT, "0", "0..1152921504606846976", "--model-memory", "", "serve", false,                        \
      "Planned memory of all loaded models, bytes; an idle model is unloaded for another. A cache without explicit"    \
      " size gets an equal part. 0: --memory-utilization of the memory that is free without models.")                  \
    X("sleep-idle-seconds", INT, "-1", "-1..31536000", "--sleep-idle-seconds", "", "serve", false,                     \
      "Unload a model after this time without requests, also the only one; the next request loads it again, with its"  \
      " prefixes. -1: never.")                                                                                         \
    X("supervised", BOOL, "false", "", "--supervised", "", "serve", false,                                             \
      "Used by a server of several models for its processes: report to standard output, end with standard input.")     \
    X("api-prefix", STRING, "", "", "--api-prefix", "", "serve", false,                                                \
      "Prefix of all paths, such as /models/a, for a reverse proxy that keeps paths unchanged.")                       \
    X("api-key", LIST, "", "", "--api-key", "LLAMA_API_KEY", "serve", true,                                            \
      "Key that clients must send; several separated by commas, or given several times.")                              \
    X("api-key-file", STRING, "", "", "--api-key-file", "", "serve", true,                                             \
      "File with one key per line; reread on SIGHUP.")                                                                 \
    X("cache-salt-by-key", BOOL, "false", "", "--cache-salt-by-key", "", "serve", false,                               \
      "Separate the prefix cache by API key: a client does not reuse another client's prefixes.")                      \
    X("priority-range", STRING, "0..2147483647", "", "--priority-range", "", "serve", false,                           \
      "Range of request priorities with --policy priority, LO..HI. Lower numbers run first;"                           \
      " the default is 0, so unless LO is below 0, clients can only lower their priority.")                            \
    X("ui", BOOL, "true", "", "--ui --webui", "LLAMA_ARG_UI", "serve", false,                                          \
      "Serve the page at /; --no-ui: respond with 404.")                                                               \
    X("slots", BOOL, "true", "", "--slots", "LLAMA_ARG_ENDPOINT_SLOTS", "serve", false,                                \
      "Serve GET /slots, which shows the running requests without their texts; --no-slots: respond with 501.")         \
    X("lora-updates", BOOL, "false", "", "--lora-updates", "", "serve", false,                                         \
      "Let clients load and unload adapters (POST /v1/load_lora_adapter) from files of this machine, by path.")        \
    X("prefill-assistant", BOOL, "true", "", "--prefill-assistant", "", "serve", false,                                \
      "Continue the last message if it is the assistant's; --no-prefill-assistant: begin a new message.")              \
    X("cors", STRING, "", "", "--cors --cors-origin --allowed-origins", "", "serve", false,                            \
      "Origin of web pages that may send requests (Access-Control-Allow-Origin); * for all, empty: none.")             \
    X("ssl-cert-file", STRING, "", "", "--ssl-cert-file --ssl-certfile", "", "serve", false,                           \
      "PEM file of the certificate and its chain; enables TLS; reread on SIGHUP.")                                     \
    X("ssl-key-file", STRING, "", "", "--ssl-key-file --ssl-keyfile", "", "serve", false,                              \
      "PEM file of the private key.")                                                                                  \
    X("max-connections", INT, "1024", "1..1000000", "--max-connections", "", "serve", false,                           \
      "Maximum number of connections; further ones get 503 and must retry.")                                           \
    X("max-header", INT, "16384", "512..65536", "--max-header", "", "serve", false,                                    \
      "Maximum bytes of a request's header.")                                                                          \
    X("max-body", INT, "16777216", "1024..1073741824", "--max-body", "", "serve", false,                               \
      "Maximum bytes of a request's body.")                                                                            \
    X("max-images", INT, "64", "0..1024", "--max-images", "", "serve", false,                                          \
      "Maximum images of a request; 0: refuse all.")                                                                   \
    X("max-image-bytes", INT, "20971520", "1024..1073741824", "--max-image-bytes", "", "serve", false,                 \
      "Maximum bytes of an image file.")                                                                               \
    X("max-image-pixels", INT, "67108864", "1024..1073741824", "--max-image-pixels", "", "serve", false,               \
      "Maximum width * height of an image; a preparation thread needs 3 bytes per pixel.")                             \
    X("media-path", STRING, "", "", "--media-path", "", "serve", false,                                                \
      "Directory of images for file://PATH in requests; PATH is relative to it. Empty: such requests are refused.")    \
    X("allowed-media-domains", LIST, "", "", "--allowed-media-domains", "", "serve", false,                            \
      "Host from which the server fetches images that clients name by URL; several separated by commas. By default"    \
      " it fetches none. Name only hosts that cannot redirect to your own network.")                                   \
    X("header-timeout", INT, "10", "1..3600", "--header-timeout", "", "serve", false,                                  \
      "Time limit for the arrival of a request's header, in seconds.")                                                 \
    X("idle-timeout", INT, "60", "1..86400", "-to --timeout --idle-timeout", "", "serve", true,                        \
      "Time after which an idle connection is closed, in seconds.")                                                    \
    X("send-buffer", INT, "1048576", "1024..1073741824", "--send-buffer", "", "serve", false,                          \
      "Bytes of a response that may wait for a slow client before the request is canceled.")                           \
    X("sse-ping-interval", INT, "30", "-1..86400", "--sse-ping-interval", "LLAMA_ARG_SSE_PING_INTERVAL", "serve",      \
      false,                                                                                                           \
      "Seconds after which a silent stream gets an empty comment, so that proxies"                                     \
      " keep it open; -1 or 0: never. A request's sse_ping_interval has precedence.")                                  \
    X("drain-timeout", INT, "30", "0..86400", "--drain-timeout", "", "serve", false,                                   \
      "Time for running requests to finish after SIGTERM, in seconds.")                                                \
    X("hang-timeout", FLOAT, "120", "0.01..86400", "--hang-timeout", "", "serve", false,                               \
      "Time without a step after which /health reports a hang, in seconds.")                                           \
    X("threads-http", INT, "2", "1..128", "--threads-http", "LLAMA_ARG_THREADS_HTTP", "serve", false,                  \
      "Threads that read and tokenize requests, at least 2; one of them is reserved for short work.")                  \
    X("prepare-timeout", FLOAT, "60", "0..86400", "--prepare-timeout", "", "serve", false,                             \
      "Time limit for the preparation of a request (body, schema, template, tokens), in seconds; 0: no limit.")        \
    X("response-store", INT, "0", "0..65536", "--response-store", "", "serve", false,                                  \
      "Keep the last N responses of /v1/responses in memory, for previous_response_id and GET /v1/responses/ID; each"  \
      " API key sees only its own. 0: none.")                                                                          \
    X("response-store-bytes", INT, "67108864", "65536..1099511627776", "--response-store-bytes", "", "serve", false,   \
      "Maximum bytes of stored responses and their conversations.")                                                    \
    X("log-json", BOOL, "false", "", "--log-json", "", "serve", false, "Write log lines as JSON objects.")             \
    X("metrics-prefix", STRING, "vllm", "", "--metrics-prefix", "", "serve", false,                                    \
      "Prefix of the names in /metrics that endpoint pickers read.")                                                   \
    X("kv-events", STRING, "", "", "--kv-events", "", "serve", false,                                                  \
      "Publish changes of the prefix cache, for routers: tcp://ADDRESS:PORT or"                                        \
      " ipc://PATH; bound if the address is local (* = all addresses), else connected to.")                            \
    X("kv-events-replay", STRING, "", "", "--kv-events-replay", "", "serve", false,                                    \
      "Endpoint on which routers request missed KV events; format as --kv-events.")                                    \
    X("kv-events-topic", STRING, "", "", "--kv-events-topic", "", "serve", false,                                      \
      "First frame of each batch of KV events; llm-d expects kv@ADDRESS@MODEL.")                                       \
    X("kv-events-buffer", INT, "10000", "1..1000000", "--kv-events-buffer", "", "serve", false,                        \
      "Batches of KV events kept for --kv-events-replay.")                                                             \
    X("reranking", BOOL, "false", "", "--reranking --rerank", "", "serve", false,                                      \
      "Refuse a model without a classifier for scoring documents (POST /v1/rerank).")                                  \
    X("spm-infill", BOOL, "false", "", "--spm-infill", "", "serve", true,                                              \
      "POST /infill: put the suffix before the prefix, as some models were trained.")                                  \
    X("cont-batching", BOOL, "true", "", "-cb --cont-batching -nocb=false", "", "compat", false,                       \
      "requests always join and leave the batch at each step")                                                         \
    X("kv-unified", BOOL, "true", "", "-kvu --kv-unified -no-kvu=false", "", "compat", false,                          \
      "all requests always share one paged pool; --kv-cache-tokens sizes it")                                          \
    X("swa-full", BOOL, "false", "", "--swa-full", "", "compat", false,                                                \
      "sliding-window layers always keep the blocks that a later request can reuse")                                   \
    X("ctx-checkpoints", STRING, "", "", "-ctxcp --ctx-checkpoints --swa-checkpoints", "", "compat", false,            \
      "prefixes are kept block by block (--prefix-cache), checkpoints are not needed")                                 \
    X("defrag-thold", STRING, "", "", "-dt --defrag-thold", "", "compat", false, "a paged cache does not fragment")    \
    X("flash-attn", ENUM, "auto", "on|off|auto|1|0|true|false", "-fa?on --flash-attn?on", "", "compat", false,         \
      "attention always reads the paged cache in one pass")                                                            \
    X("op-offload", BOOL, "true", "", "--op-offload -nopo=false", "", "compat", false,                                 \
      "a model always runs on one device; --device selects it")                                                        \
    X("mmproj-offload", BOOL, "true", "", "--mmproj-offload", "", "compat", false,                                     \
      "the vision part always runs on the model's device")                                                             \
    X("mtmd-batch-max-tokens", STRING, "", "", "--mtmd-batch-max-tokens", "", "compat", false,                         \
      "each image is computed on its own, between steps of other requests")                                            \
    X("no-host", BOOL, "false", "", "--no-host", "", "compat", false,                                                  \
      "weights always have the layout that is fastest on the device")                                                  \
    X("repack", BOOL, "true", "", "--repack -nr=false", "", "compat", false,                                           \
      "weights always have the layout that is fastest on the device")                                                  \
    X("fit-ctx", STRING, "", "", "-fitc --fit-ctx", "", "compat", false,                                               \
      "--ctx-size sets the maximum length of a request")                                                               \
    X("no-agent", BOOL, "true", "",                                                                                    \
      "--no-ui-mcp-proxy=false --no-webui-mcp-proxy=false -no-ag=false --no-agent=false", "", "compat", false,         \
      "this server has no agent and no tool proxy")                                                                    \
    X("metrics", BOOL, "true", "", "--metrics", "", "compat", false, "/metrics is always enabled")                     \
    X("props", BOOL, "true", "", "--props", "", "compat", false, "/props is always enabled, read-only")                \
    X("slot-save-path", STRING, "", "", "--slot-save-path", "", "compat", false,                                       \
      "prefixes are kept automatically; --prefix-cache-dir stores them on disk")                                       \
    X("slot-prompt-similarity", STRING, "", "", "-sps --slot-prompt-similarity", "", "compat", false,                  \
      "a request always reuses the longest cached prefix")                                                             \
    X("keep", STRING, "", "", "--keep", "", "compat", false,                                                           \
      "the context is never shifted: a request ends when it is full")                                                  \
    X("context-shift", BOOL, "false", "", "--context-shift", "", "compat", false,                                      \
      "the context is never shifted: a request ends when it is full")                                                  \
    X("grp-attn-n", STRING, "", "", "-gan --grp-attn-n", "", "compat", false,                                          \
      "self-extend is not needed for models with a long context")                                                      \
    X("grp-attn-w", STRING, "", "", "-gaw --grp-attn-w", "", "compat", false,                                          \
      "self-extend is not needed for models with a long context")                                                      \
    X("no-conversation-run", BOOL, "false", "", "-no-cnv=true --no-conversation=true", "", "compat", false,            \
      "'run' always completes the prompt without a template")                                                          \
    X("jinja", BOOL, "true", "", "--jinja", "", "compat", false, "chat templates are always run as Jinja")             \
    X("no-warmup-run", BOOL, "false", "", "--no-warmup=true --warmup=false", "", "compat", false,                      \
      "there is no warm-up run; the first step is as fast as the others")                                              \
    X("prompt-cache-all", BOOL, "false", "", "--prompt-cache-all", "", "compat", false,                                \
      "answers are always kept with their prompts")                                                                    \
    X("print-token-count", STRING, "", "", "-ptc --print-token-count", "", "compat", false,                            \
      "the line with the speed at the end has the token counts")                                                       \
    X("lazy-mode", STRING, "", "", "-lzm --lazy-mode", "", "compat", false,                                            \
      "--load-mode decides which tensors stay mapped from the file")                                                   \
    X("threads-of-batch", STRING, "", "",                                                                              \
      "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch"                                                 \
      " --prio-batch --poll-batch",                                                                                    \
      "", "compat", false, "prompts and answers share steps and threads")                                              \
    X("backend-sampling", BOOL, "false", "", "-bs --backend-sampling", "", "compat", false,                            \
      "devices that can find the most likely tokens always do so")                                                     \
    X("draft-threads", STRING, "", "",                                                                                 \
      "--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd"                                       \
      " --threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd"                  \
      " --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft"                   \
      " --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft"                        \
      " --spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft"             \
      " --spec-draft-poll-batch --poll-batch-draft",                                                                   \
      "", "compat", false, "the drafter uses the model's threads")                                                     \
    X("draft-device", STRING, "", "",                                                                                  \
      "--spec-draft-device -devd --device-draft --spec-draft-ngl -ngld"                                                \
      " --gpu-layers-draft --n-gpu-layers-draft --spec-draft-override-tensor -otd --override-tensor-draft"             \
      " --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft",                                          \
      "", "compat", false, "the drafter runs on the model's devices")                                                  \
    X("draft-cpu-moe", BOOL, "false", "", "--spec-draft-cpu-moe -cmoed --cpu-moe-draft", "", "compat", false,          \
      "the drafter runs on the model's devices")                                                                       \
    X("draft-cache-type", STRING, "", "",                                                                              \
      "--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd"                                       \
      " --cache-type-v-draft",                                                                                         \
      "", "compat", false, "the drafter's cache has the types of the model's cache")                                   \
    X("draft-ctx-size", STRING, "", "", "-cd --ctx-size-draft", "", "compat", false,                                   \
      "the drafter's cache is a group of the model's cache")                                                           \
    X("draft-split", STRING, "", "", "--spec-draft-p-split --draft-p-split -ps --p-split", "", "compat", false,        \
      "a draft is one chain of --spec-draft-n-max tokens")                                                             \
    X("ngram-hits", STRING, "", "",                                                                                    \
      "--spec-ngram-min-hits --spec-ngram-simple-min-hits --spec-ngram-map-k-min-hits"                                 \
      " --spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-min",                                                         \
      "", "compat", false, "the number of verified drafts adapts to their acceptance rate")                            \
    X("spec-draft-backend-sampling", BOOL, "true", "", "--spec-draft-backend-sampling", "", "compat", false,           \
      "the device always finds the drafter's most likely tokens")                                                      \
    X("spec-replace", STRING, "", "", "--spec-replace", "", "compat", false, "a drafter has the model's vocabulary")   \
    X("reasoning-preserve", BOOL, "true", "", "--reasoning-preserve", "", "compat", false,                             \
      "the template gets earlier reasoning and decides about its use")                                                 \
    X("perf-timings", BOOL, "true", "", "--perf", "", "compat", false, "timings are always measured")                  \
    X("checkpoint-min-step", STRING, "", "", "-cms --checkpoint-min-step", "", "compat", false,                        \
      "--snapshot-interval sets the distance of snapshots of recurrent layers")                                        \
    X("cache-reuse", STRING, "", "", "--cache-reuse", "", "compat", false,                                             \
      "the complete common prefix is reused, block by block")                                                          \
    X("embedding", BOOL, "false", "", "--embedding --embeddings", "", "compat", false,                                 \
      "the server always has /v1/embeddings, in addition to generation")                                               \
    X("cache-idle-slots", BOOL, "true", "", "--cache-idle-slots", "", "compat", false,                                 \
      "there are no slots: computed blocks stay in the cache until they are evicted")                                  \
    X("kv-unified-per-slot", STRING, "", "", "--kv-unified-per-slot", "", "compat", false,                             \
      "--ctx-size limits one request, --kv-cache-tokens all requests together")                                        \
    X("mul-mat-q", BOOL, "true", "", "-mmq --mul-mat-q -nommq=false", "", "compat", false,                             \
      "the weight format selects the kernels")                                                                         \
    X("memory-f32", BOOL, "false", "", "--memory-f32", "", "compat", false,                                            \
      "--cache-type-k and --cache-type-v set the type of the cache")                                                   \
    X("low-vram", BOOL, "false", "", "--low-vram", "", "compat", false,                                                \
      "--gpu-layers and --no-kv-offload select the parts on the device")                                               \
    X("logdir", STRING, "", "", "-ld --logdir", "", "compat", false, "--log-file sets the log file")                   \
    X("log-new", BOOL, "false", "", "--log-enable --log-new --log-append --log-test --slots-endpoint-disable", "",     \
      "compat", false, "log lines go to stderr, or are appended to --log-file")                                        \
    X("log-format", STRING, "", "", "--log-format", "", "compat", false, "see --log-prefix and --log-timestamps")      \
    X("sequences", STRING, "", "", "-ns --sequences", "", "compat", false, "--parallel sets the concurrency")          \
    X("old-hyperparameters", STRING, "", "", "-eps --rms-norm-eps -gqa --gqa", "", "compat", false,                    \
      "the model file has the value; --override-kv changes it")                                                        \
    X("tfs", STRING, "", "", "--tfs", "", "compat", false,                                                             \
      "tail-free sampling is removed, as in llama.cpp; use --min-p")                                                   \
    X("penalize-nl", BOOL, "true", "", "--penalize-nl", "", "compat", false, "penalties always include newlines")

/* Flags of llama.cpp's tools that are recognized and refused: LATER = not implemented yet, NEVER = not applicable.
 * Remove a row when one of the tables above gets its name (tests/scripts/check_flags.py checks this).
 *
 * A row: LATER(flags, env, commands, why)
 *   flags     spellings, with their --no- forms
 *   env       variables in addition to those derived from the long spellings; a false value has no effect
 *   commands  subcommands in which the variables count, and in which the flags are refused although another subcommand
 *             has them; "" = the variables count in all subcommands that run a model
 *   why       the alternative to use */
#define REFUSED_OPTIONS(LATER, NEVER)                                                                                  \
    LATER("-cl --cache-list", "", "", "use 'pagedinfer list'")                      \
    LATER("-dr --docker-repo", "", "", "download the GGUF by hand and give it with -m")                                \
    LATER("--gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default"          \
          " --embd-gemma-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec"                       \
          " --fim-qwen-14b-spec --fim-qwen-30b-default", "", "", "download the GGUF by hand and give it with -m")      \
    LATER("--control-vector --control-vector-scaled --control-vector-layer-range", "", "", "there is no replacement")  \
    LATER("-rpc --rpc", "", "", "use local devices; --list-devices shows them")                                        \
    LATER("--audio --video --video-fps --video-timestamp-interval --video-ffmpeg-dir", "", "",                         \
          "input is text and images")                                                                                  \
    LATER("-mmdev --mmproj-device", "", "", "the vision part runs on the model's device")                              \
    LATER("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", "", "",                                            \
      "use --spec-type ngram, with --spec-ngram-shared to include other requests")                                     \
    NEVER("--spec-synth-len --spec-synth-rates", "", "", "drafts are always verified against the model")               \
    NEVER("--server-base", "", "", "the model runs in this program; use any client for a server")                      \
    NEVER("--completion-bash", "", "", "completions are installed with the program")                                   \
    LATER("-o --output --output-file", "", "chat", "redirect standard output, which has only the answers")             \
    LATER("--log-prompts-dir", "", "", "use --verbose-prompt to print a prompt")                                       \
    LATER("--infill", "", "", "use POST /infill of a server")                                                          \
    NEVER("--cfg-scale --cfg-negative-prompt --random-prompt", "", "", "removed, as in llama.cpp")                     \
    LATER("--keep-split", "", "", "the output is one file of any size")                                                \
    LATER("--tags --reuse-port --path --cors-methods --cors-headers --cors-credentials --no-cors-credentials"          \
          " --cors-origins --ui-config --webui-config --ui-config-file --webui-config-file"                            \
          " --ui-mcp-proxy --webui-mcp-proxy", "", "serve", "the page at / needs no options; see --cors")              \
    LATER("--tools --tools-runtime --mcp-servers-config --mcp-servers-json -ag --agent", "", "serve",                  \
      "the client runs the tools that an answer calls")                                                                \
    NEVER("-spf", "", "serve", "send a system prompt as a message of the request")
#endif
