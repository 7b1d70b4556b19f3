/* pagedinfer: one program with subcommands. Called by the name of a llama.cpp tool it is the subcommand that does what
 * that tool does. */
#include <locale.h>
#include <signal.h>
#include <string.h>

#include "cli.h"
#include "fetch.h"

#define ENGINE_SECTIONS "model download kv scheduler speculation cpu"

const cli_command cli_commands[] = {
    {"run", "llama-completion", "text from a prompt", "-m MODEL (-p TEXT | -f FILE) [options]",
     "Continues a prompt and prints the answer on standard output as it comes; everything else goes to standard "
     "error. The prompt is taken as it is, with no chat template around it; without -p and -f it is read from "
     "standard input. --prompt-logprobs N prints a line of JSON before the answer: the log-probability of each token of "
     "the prompt, and the N likeliest in its place. With -cnv, -st or -sys it is 'chat'; with --interactive you and the model "
     "write in turns. Ctrl-C ends the answer where it is, a second one ends the program.",
     "prompt " ENGINE_SECTIONS " generation sampling template run chat general", 0, false, cmd_run},
    {"chat", "llama-cli", "a conversation", "-m MODEL [-sys TEXT] [-p TEXT] [options]",
     "Talks with the model: what you type goes through its chat template with all that was said before, and the answer "
     "appears on standard output as it comes; thoughts and everything else go to standard error. With -p the "
     "conversation begins with that message; without a terminal each line of standard input is a message. Ctrl-C ends "
     "the answer where it is; /help tells the commands.",
     "chat prompt template " ENGINE_SECTIONS " generation sampling run general", 0, false, cmd_chat},
    {"serve", "llama-server", "a server with OpenAI's API", "-m MODEL [--port N] [--api-key-file FILE] [options]",
     "Answers requests over HTTP: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models as OpenAI has "
     "them; /v1/messages as Anthropic has it; /completion, "
     "/tokenize, /detokenize, /apply-template, /props, /slots as llama-server has them; /health and /metrics. The port is "
     "open at once, /health says 503 until the model is loaded. Options of generation and sampling are what a request has "
     "that says nothing else. SIGTERM: running requests finish, new ones are refused; a second one ends at once. SIGHUP: "
     "--api-key-file is read again.",
     "serve " ENGINE_SECTIONS " generation sampling template general", 0, false, cmd_serve},
    {"bench", "llama-bench llama-batched-bench", "measure speed", "-m MODEL [options]",
     "Measures prompt processing and generation, prints a table as llama-bench does, and the steady-state speed of "
     "decoding. Most options take comma lists; every combination is measured.",
     "bench " ENGINE_SECTIONS " general", 0, true, cmd_bench},
    {"eval", "llama-perplexity", "perplexity, KL divergence, scores of tasks, logits and greedy answers",
     "-m MODEL (-f TEXT | -f TASKS --hellaswag | --cases CASES.JSON | --concurrency-suite) [options]",
     "With -f: perplexity of a text, in chunks of --ctx-size tokens, counted as llama-perplexity counts. With "
     "--hellaswag, --winogrande or --multiple-choice the file has tasks instead, in the forms that llama-perplexity "
     "reads, and a line tells after each how many were solved so far. With "
     "--cases: runs the cases of a JSON file greedily and prints one JSON line each. With --concurrency-suite: "
     "conversations that each know a secret word run alone and then many at once, with cancels and too small a cache; "
     "tokens must be the same, and a word in another's answer is a fault (exit status 1).",
     "eval prompt " ENGINE_SECTIONS " generation sampling general", 0, false, cmd_eval},
    {"embed", "llama-embedding", "vectors of texts", "-m MODEL (-p TEXT | -f FILE) [options]",
     "Prints a vector for each text; a line is a text (--embd-separator). Vectors are made as the model's metadata says, or "
     "of its last token, or as --pooling says, and have length 1 (--embd-normalize). Of a reranker, or with --pooling "
     "rank, it prints scores: a line is a query and a document, between them a tab (--cls-separator).",
     "embed prompt " ENGINE_SECTIONS " generation general", 0, false, cmd_embed},
    {"quantize", "llama-quantize", "rewrite a GGUF in another format", "[options] IN.gguf [OUT.gguf] TYPE [THREADS]",
     "Writes the model again with its matrices in another format. Without OUT.gguf the file is named after the type "
     "and put beside IN.gguf. With -hf or -mu there is no IN.gguf, and the file is put into the current folder.",
     "quantize download general", 4, false, cmd_quantize},
    {"inspect", "", "what is in a GGUF, and what running it would cost", "MODEL [options]",
     "Prints metadata and tensors of a model file, and the memory that running it with these options would take, "
     "computed by the same plan that allocates it. Nothing is loaded.",
     "inspect " ENGINE_SECTIONS " general", 1, false, cmd_inspect},
    {"tokenize", "llama-tokenize", "text to token ids", "-m MODEL (-p TEXT | -f FILE | --stdin) [options]",
     "Prints the tokens of a text, one a line, or with --ids as a JSON array. The model may be a file that holds a "
     "vocabulary alone.",
     "tokenize prompt model download general", 0, false, cmd_tokenize},
    {"weights", "", "hold a model's weights for several processes", "-m MODEL --socket PATH [options]",
     "Loads and packs the weights of a model once, and passes them on to processes of the same user with --weights-from PATH, "
     "which map them instead of loading their own: they start at once and share the memory, the host's and a GPU's. Give both "
     "the same --device, -ngl and --split-mode. Ends with SIGINT or SIGTERM; those who have the weights keep them.",
     "weights model cpu speculation download general", 0, false, cmd_weights},
    {"selftest", "", "check a device, and how fast it is", "[--device NAME] [--checks WORDS]",
     "Runs every kernel of this build on the device, against references on the host: formats, shapes that fit nothing, "
     "replay of captured work, two devices where there are two; then measures memory and products beside what is "
     "published. Prints a page to paste into a report; the exit status is 0 where all is right. No model is needed. On "
     "the CPU it checks the products of each instruction set.",
     "selftest model cpu general", 0, false, cmd_selftest},
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

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The subcommand that a symlink's name stands for. */
static const cli_command *by_program_name(const char *argv0)
{
    const char *base = base_name(argv0);
    size_t n = strlen(base);
    for (const cli_command *c = cli_commands; c->name; c++) {
        for (const char *p = c->symlink; *p;) {
            size_t len = strcspn(p, " ");
            if (len == n && !memcmp(p, base, n)) return c;
            p += len + (p[len] == ' ');
        }
    }
    return NULL;
}

static void note_template(void *found, const char *line)
{
    static const char key[] = "tokenizer.chat_template ";
    if (!strncmp(line, key, sizeof key - 1)) *(bool *) found = true;
}

/* `run` is a conversation where flags of one are given, and, as in llama-completion, for a model with a chat template
 * unless --no-conversation says otherwise. */
static bool wants_chat(const cli *c)
{
    bool found = *cli_str(c, "chat-template") || *cli_str(c, "chat-template-file");
    pi_error err = {0};
    if (cli_given(c, "conversation")) return cli_bool(c, "conversation");
    if (cli_given(c, "system-prompt") || cli_given(c, "system-prompt-file") || cli_bool(c, "single-turn")) return true;
    if (strcmp(c->called, "llama-completion") || !*cli_str(c, "model")) return false;
    if (!found) pi_model_inspect(cli_str(c, "model"), false, note_template, &found, &err);
    return found; /* a file that cannot be read is an error that `run` reports */
}

/* The commands that open an engine, which may be that of several processes. */
static bool has_ranks(const cli_command *cmd)
{
    return cmd->run == cmd_run || cmd->run == cmd_chat || cmd->run == cmd_serve || cmd->run == cmd_bench || cmd->run == cmd_eval ||
           cmd->run == cmd_embed;
}

/* One of several processes that is not rank 0 does what that one asks, instead of the command; its signals are rank 0's
 * business. Returns an exit code, or -1: go on. */
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

/* called: the symlink's name where it chose the subcommand, else NULL. */
static int run_command(const cli_command *cmd, const char *name, const char *called, int argc, char **argv)
{
    cli c = {.name = name, .called = called};
    int code = cli_parse(&c, cmd, argc, argv);
    if (code < 0) code = follow(&c);
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
    signal(SIGPIPE, SIG_IGN); /* a reader that went away ends what runs, cleanly: see cli_flush */
    setlocale(LC_CTYPE, "");
    const cli_command *cmd = argc > 0 ? by_program_name(argv[0]) : NULL;
    if (cmd) return run_command(cmd, argv[0], base_name(argv[0]), argc, argv);
    if (argc < 2) {
        cli_overview(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "help")) return help_on(argc > 2 ? argv[2] : NULL);
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) return help_on(NULL);
    if (!strcmp(word, "version")) word = "--version";
    if (word[0] == '-') { /* no subcommand: a prompt is to be run */
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
