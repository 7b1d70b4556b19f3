/* pagedinfer: one program with subcommands. When called by the name of a llama.cpp tool, it runs the matching
 * subcommand (program.h). */
#include <locale.h>
#include <signal.h>
#include <string.h>

#include "cli.h"
#include "fetch.h"
#include "model_arg.h"
#include "program.h"

#define ENGINE_SECTIONS "model download kv scheduler speculation cpu"

const cli_command cli_commands[] = {
    {"run", "llama-completion", "text from a prompt", "MODEL (-p TEXT | -f FILE) [options]",
     "Continues a prompt and streams the answer to standard output; everything else goes to standard error. The "
     "prompt is used without a chat template; without -p and -f it is read from standard input. "
     "--prompt-logprobs N prints a line of JSON before the answer: the log-probability of each prompt token and the "
     "N most likely alternatives. With -cnv, -st or -sys it runs 'chat'; with --interactive you and the model write "
     "in turns. Ctrl-C ends the answer, a second one ends the program.",
     "prompt " ENGINE_SECTIONS " generation sampling template run chat general", 1, false, cmd_run, true},
    {"chat", "llama-cli", "a conversation", "MODEL [-sys TEXT] [-p TEXT] [options]",
     "Holds a conversation: your messages go through the model's chat template together with all earlier ones. The "
     "answer is streamed to standard output; reasoning and everything else go to standard error. With -p the "
     "conversation begins with that message; without a terminal each line of standard input is a message. Ctrl-C ends "
     "the answer; /help lists the commands.",
     "chat prompt template " ENGINE_SECTIONS " generation sampling run general", 1, false, cmd_chat, true},
    {"serve", "llama-server", "a server with OpenAI's API", "MODEL [--port N] [--api-key-file FILE] [options]",
     "Serves an HTTP API: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models as in OpenAI's "
     "API; /v1/messages as in Anthropic's; /completion, "
     "/tokenize, /detokenize, /apply-template, /props, /slots as in llama-server; /health and /metrics. The port "
     "opens immediately; /health returns 503 until the model is loaded. Options of generation and sampling are the "
     "defaults of requests. SIGTERM: running requests finish, new ones are refused; a second one ends the server. "
     "SIGHUP: rereads --api-key-file.",
     "serve " ENGINE_SECTIONS " generation sampling template general", 1, false, cmd_serve, true},
    {"bench", "llama-bench llama-batched-bench", "measure speed", "MODEL [options]",
     "Measures prompt processing and generation, prints llama-bench's table and the steady-state speed of "
     "decoding. Most options accept comma lists; every combination is measured.",
     "bench " ENGINE_SECTIONS " general", 1, true, cmd_bench, true},
    {"eval", "llama-perplexity", "perplexity, KL divergence, scores of tasks, logits and greedy answers",
     "MODEL (-f TEXT | -f TASKS --hellaswag | --cases CASES.JSON | --concurrency-suite) [options]",
     "With -f: perplexity of a text, in chunks of --ctx-size tokens, computed like llama-perplexity. With "
     "--hellaswag, --winogrande or --multiple-choice the file has tasks instead, in llama-perplexity's "
     "formats, and a line after each task prints the accuracy so far. With "
     "--cases: runs the cases of a JSON file greedily and prints one JSON line each. With --concurrency-suite: "
     "runs conversations with a secret word each, alone and concurrently, with cancels and a too small cache; "
     "tokens must be the same, and a word in another's answer is a fault (exit status 1).",
     "eval prompt " ENGINE_SECTIONS " generation sampling general", 1, false, cmd_eval, true},
    {"embed", "llama-embedding", "vectors of texts", "MODEL (-p TEXT | -f FILE) [options]",
     "Prints a vector for each text; a line is a text (--embd-separator). Vectors are pooled as the model's metadata "
     "says, else from the last token, or by --pooling, and have length 1 (--embd-normalize). For a reranker, or with "
     "--pooling rank, prints scores: a line is a query and a document, separated by a tab (--cls-separator).",
     "embed prompt " ENGINE_SECTIONS " generation general", 1, false, cmd_embed, true},
    {"quantize", "llama-quantize", "rewrite a GGUF in another format", "[options] IN.gguf [OUT.gguf] TYPE [THREADS]",
     "Writes the model with its matrices in another format. Without OUT.gguf the file is named after the type "
     "and written to the directory of IN.gguf. With -hf or -mu omit IN.gguf; the current directory is used.",
     "quantize download general", 4, false, cmd_quantize, false},
    {"inspect", "", "content of a GGUF, and memory to run it", "MODEL [options]",
     "Prints metadata and tensors of a model file, and the memory to run it with these options, "
     "computed by the same plan that allocates it. Nothing is loaded.",
     "inspect " ENGINE_SECTIONS " general", 1, false, cmd_inspect, true},
    {"tokenize", "llama-tokenize", "text to token ids", "MODEL (-p TEXT | -f FILE | --stdin) [options]",
     "Prints the tokens of a text, one per line, or with --ids as a JSON array. The model may be a file with only a "
     "vocabulary.",
     "tokenize prompt model download general", 1, false, cmd_tokenize, true},
    {"pull", "", "download a model", "(USER/NAME[:QUANT] | URL) [options]",
     "Downloads a model into the cache, unless it is there, and prints the path of its first part.",
     "download general", 1, false, cmd_pull, true},
    {"list", "", "models in the cache", "[--json]",
     "Lists the downloaded models: name, size of all parts, quantization in the file name, and last use. 'rm' accepts "
     "these names, and 'run' those of the form USER/NAME[:QUANT].",
     "list general", 0, false, cmd_list, false},
    {"rm", "", "remove a model from the cache", "NAME",
     "Removes a downloaded model: all parts, and blobs that no other file uses. NAME is a name that 'list' prints, "
     "USER/NAME if it has one model, or a path that 'pull' prints. A name that matches several models is an error.",
     "general", 1, false, cmd_rm, false},
    {"weights", "", "share a model's weights among processes", "-m MODEL --socket PATH [options]",
     "Loads and packs the weights of a model once, for processes of the same user with --weights-from PATH. "
     "They map the weights instead of loading them: they start immediately and share host and GPU memory. Give both "
     "the same --device, -ngl and --split-mode. Ends with SIGINT or SIGTERM; running processes keep the weights.",
     "weights model cpu speculation download general", 0, false, cmd_weights, false},
    {"selftest", "", "check a device and measure its speed", "[--device NAME] [--checks WORDS] [--stress SECONDS]",
     "Runs every kernel of this build on the device and compares with references on the host: formats, unaligned "
     "shapes, replay of captured work, two devices if available; then compares measured memory and matmul rates with "
     "published ones. Prints a report to paste; the exit status is 0 if all checks pass. Needs no model. On "
     "the CPU it checks the matmuls of each instruction set.",
     "selftest model cpu general", 0, false, cmd_selftest, false},
    {0},
};

#ifndef PI_HAVE_SERVER
int cmd_serve(const cli *c)
{
    return cli_error(c, CLI_UNAVAILABLE, "this build has no server: install libuv1-dev, then configure with "
                     "-DPAGEDINFER_SERVER=ON");
}
#endif

static const cli_command *find_command(const char *name)
{
    for (const cli_command *c = cli_commands; c->name; c++) {
        if (!strcmp(c->name, name)) return c;
    }
    return NULL;
}

static void note_template(void *found, const char *line)
{
    static const char key[] = "tokenizer.chat_template ";
    if (!strncmp(line, key, sizeof key - 1)) *(bool *) found = true;
}

/* True if `run` starts a conversation: if conversation flags are given or, as in llama-completion, if the model has a
 * chat template and --no-conversation is not given. */
static bool wants_chat(const cli *c)
{
    bool found = *cli_str(c, "chat-template") || *cli_str(c, "chat-template-file");
    pi_error err = {0};
    if (cli_given(c, "conversation")) return cli_bool(c, "conversation");
    if (cli_given(c, "system-prompt") || cli_given(c, "system-prompt-file") || cli_bool(c, "single-turn")) return true;
    if (strcmp(c->called, "llama-completion") || !*cli_str(c, "model")) return false;
    if (!found) pi_model_inspect(cli_str(c, "model"), false, note_template, &found, &err);
    return found; /* `run` reports an unreadable file */
}

/* True for commands that open an engine, which can span several processes. */
static bool has_ranks(const cli_command *cmd)
{
    return cmd->run == cmd_run || cmd->run == cmd_chat || cmd->run == cmd_serve || cmd->run == cmd_bench ||
           cmd->run == cmd_eval || cmd->run == cmd_embed;
}

/* With several processes, a rank other than 0 executes rank 0's commands instead of the subcommand. Rank 0 handles the
 * signals. Returns an exit code, or -1 to continue. */
static int follow(cli *c)
{
    const bool given = cli_given(c, "ranks");
    pi_error err = {0};
    int n = 1, rank = -1, rc;
    if (!has_ranks(c->cmd)) return -1;
    pi_options *o = pi_options_new();
    if (!o) return cli_error(c, CLI_OS, "out of memory");
    rc = pi_options_set(o, "ranks", given ? cli_str(c, "ranks") : "auto", &err);
    if (!rc) rc = pi_options_set(o, "rank-timeout", cli_str(c, "rank-timeout"), &err);
    if (!rc) rank = pi_rank(o, &n, &err);
    if (!rc && rank < 0) rc = rank;
    cli_set_log(c, o);
    if (!rc && rank > 0) {
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        rc = pi_rank_follow(o, &err);
    }
    pi_options_free(o);
    if (rc) return cli_pi_error(c, &err);
    if (rank > 0) return CLI_OK;
    return n == 1 || given || cli_set(c, "ranks", "auto") ? -1 : cli_error(c, CLI_OS, "out of memory");
}

/* called: the program's name if it selected the subcommand, else NULL. */
static int run_command(const cli_command *cmd, const char *name, const char *called, int argc, char **argv)
{
    cli c = {.name = name, .called = called};
    int code = cli_parse(&c, cmd, argc, argv);
    if (code < 0) code = follow(&c);
    if (code < 0) code = model_argument(&c);
    if (code < 0) code = fetch_models(&c);
    if (code < 0) {
        code = cmd->run == cmd_run && wants_chat(&c) ? cmd_chat(&c) : cmd->run(&c);
        if (!code) code = cli_flush(&c);
    }
    cli_free(&c);
    return code;
}

static int help_on(const char *name)
{
    const cli_command *cmd = name ? find_command(name) : NULL;
    if (name && !cmd) {
        fprintf(stderr, "pagedinfer: no command named '%s'; 'pagedinfer help' lists them\n", name);
        return CLI_USAGE;
    }
    if (cmd) cli_help(stdout, cmd, "common");
    else cli_overview(stdout);
    return cli_flush(&(cli) {.name = "pagedinfer"});
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe ends running work cleanly: see cli_flush */
    setlocale(LC_CTYPE, "");
    const program called = program_of(argc > 0 ? argv[0] : "");
    if (called.cmd) return run_command(called.cmd, argv[0], called.name, argc, argv);
    if (*called.advice) {
        fprintf(stderr, "pagedinfer: there is no command for the program name '%.80s'; the nearest one is: %s\n",
                argv[0], called.advice);
        return CLI_USAGE;
    }
    if (argc < 2) {
        cli_overview(stderr);
        return CLI_USAGE;
    }
    const cli_command *cmd;
    const char *word = argv[1];
    if (!strcmp(word, "help")) return help_on(argc > 2 ? argv[2] : NULL);
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) return help_on(NULL);
    if (!strcmp(word, "version")) word = "--version";
    if (word[0] == '-') { /* no subcommand: `run` */
        argv[1] = (char *) word;
        return run_command(&cli_commands[0], "pagedinfer", NULL, argc, argv);
    }
    cmd = find_command(word);
    if (!cmd) {
        fprintf(stderr, "pagedinfer: no command named '%s'; 'pagedinfer help' lists them\n", word);
        return CLI_USAGE;
    }
    char name[64];
    snprintf(name, sizeof name, "pagedinfer %s", cmd->name);
    return run_command(cmd, name, NULL, argc - 1, argv + 1);
}
