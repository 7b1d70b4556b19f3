/* pagedinfer eval --concurrency-suite: conversations with a secret word each, 1 to --parallel of them concurrently.
 *
 * Each conversation first runs in a batch of one, greedily and without the prefix cache. Then come rounds with
 * increasing concurrency, with and without the prefix cache, and finally a cache so small that requests are preempted.
 * Some requests are cancelled at a random moment and repeated. For every batch composition, tokens and text must equal
 * those of the single run. No answer may contain another conversation's word, and after a round every block must be
 * free. A violation is printed and counted as a fault. --seed determines the conversations and the cancellations. */
#include "eval.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* No word contains another one or occurs in the sentences below. */
static const char *const words[] = {
    "walnut", "glacier", "trumpet", "saffron", "harpoon", "velvet", "cactus", "lantern", "pelican", "granite",
    "marzipan", "zeppelin", "orchid", "tornado", "biscuit", "falcon", "magnet", "pumpkin", "violin", "asphalt",
    "badger", "compass", "dolphin", "emerald", "fountain", "gazelle", "hammock", "iguana", "jasmine", "kettle",
    "lobster", "mustard",
    "nutmeg", "octopus", "parsley", "quartz", "raccoon", "sapphire", "thistle", "umbrella", "vulture", "whisker",
    "yogurt", "zebra", "almond", "bamboo", "canyon", "daffodil", "eclipse", "feather", "ginger", "hornet", "icicle",
    "jigsaw", "kimono", "lemon", "meteor", "noodle", "onion", "panther", "rhubarb", "scorpion", "turnip", "volcano"};
enum { N_WORDS = sizeof words / sizeof *words, FEWEST = 8, CROWD = 16, PROMPT_CAP = 1024 };

static const char *const sentences[] = {
    "The weather was cold in the morning and the bus came late.", "Somebody left a green coat on the chair.",
    "The meeting starts at nine, two hours after breakfast.", "There is new paint on the door, so do not lean on it.",
    "My sister wrote that the trip took longer than planned.", "The shop on the corner is closed until Monday.",
    "Please water the plants while we are away.", "The third step of the stairs is loose."};
enum { N_SENTENCES = sizeof sentences / sizeof *sentences };

typedef struct conversation {
    const char *word;
    char prompt[PROMPT_CAP];
    size_t n_prompt;     /* tokens of the prompt */
    int32_t *ids;        /* [n_ids] its answer in a batch of one */
    size_t n_ids;
    char *text;          /* its answer as text */
    bool recalls;        /* the answer contains its word */
} conversation;

/* A request in a round. */
typedef struct job {
    conversation *k;
    pi_request *r;       /* NULL = free slot */
    int64_t cancel_at;   /* number of tokens after which it is cancelled; -1 = never */
    size_t n_seen;       /* tokens received in events */
    char *text;          /* text received in events */
    size_t len;
} job;

/* A row of the table. */
typedef struct suite_round {
    size_t at_once;
    bool alone, cache, small;
    size_t requests, cancelled, preempted, cached, equal, bleeds;
} suite_round;

typedef struct suite {
    const cli *c;
    conversation conv[N_WORDS];
    size_t n_conv, n_rounds, n_faults;
    int64_t n_answer;            /* maximum tokens of an answer */
    int64_t longest, n_all;      /* tokens of the longest prompt; of all prompts */
    uint64_t rng;
} suite;

static uint64_t draw(suite *s, uint64_t n)
{
    s->rng = s->rng * 6364136223846793005u + 1442695040888963407u;
    return (s->rng >> 33) % n;
}

static void fault(suite *s, const suite_round *round, const char *who, const char *what)
{
    s->n_faults++;
    printf("fault: %zu concurrent, prefix cache %s%s%s: %s\n", round->at_once, round->cache ? "on" : "off",
           *who ? ", " : "", who, what);
}

/* --------------------------------------------------------------------------------------------------- conversations */

static void write_prompt(suite *s, conversation *k)
{
    char *p = k->prompt, *end = p + sizeof k->prompt;
    p += snprintf(p, (size_t) (end - p),
                  "You keep notes for the members of a library. Each note is private: it is read back to the one who "
                  "left it and to nobody else, word by word, as often as it is asked for.\n\nNote:");
    uint64_t before = draw(s, 3), after = draw(s, 4);
    for (uint64_t i = 0; i < before; i++) p += snprintf(p, (size_t) (end - p), " %s", sentences[draw(s, N_SENTENCES)]);
    p += snprintf(p, (size_t) (end - p), " The secret word is %s.", k->word);
    for (uint64_t i = 0; i < after; i++) p += snprintf(p, (size_t) (end - p), " %s", sentences[draw(s, N_SENTENCES)]);
    snprintf(p, (size_t) (end - p), "\n\nQuestion: What is the secret word?\nAnswer: The secret word is");
}

static int write_conversations(suite *s)
{
    pi_vocab *v = NULL;
    pi_error err = {0};
    size_t first = draw(s, N_WORDS);
    if (pi_vocab_open(&v, cli_str(s->c, "model"), &err)) return cli_pi_error(s->c, &err);
    int64_t n = 0;
    for (size_t i = 0; i < s->n_conv && n >= 0; i++) {
        conversation *k = &s->conv[i];
        k->word = words[(first + i) % N_WORDS];
        write_prompt(s, k);
        n = pi_vocab_tokenize(v, k->prompt, strlen(k->prompt), PI_TOK_BOS | PI_TOK_SPECIAL, NULL, 0);
        k->n_prompt = n > 0 ? (size_t) n : 0;
        s->n_all += n;
        if (n > s->longest) s->longest = n;
    }
    pi_vocab_free(v);
    return n < 0 ? cli_error(s->c, cli_exit_code((int) n), "tokenizing: %s", pi_strerror((int) n)) : CLI_OK;
}

/* -------------------------------------------------------------------------------------------------------- requests */

static int submit(suite *s, pi_engine *e, job *j)
{
    const char *prompt = j->k->prompt;
    pi_error err = {0};
    char n[24];
    snprintf(n, sizeof n, "%lld", (long long) s->n_answer);
    j->r = pi_request_new(e);
    if (!j->r) return cli_error(s->c, CLI_OS, "out of memory");
    int code = eval_request_set(s->c, j->r, "max-tokens", n);
    if (!code) code = eval_request_set(s->c, j->r, "temp", "0");
    pi_request_set_user(j->r, j);
    if (!code && pi_request_prompt_text(j->r, prompt, strlen(prompt), &err)) code = cli_pi_error(s->c, &err);
    if (!code && pi_request_submit(j->r, &err)) code = cli_pi_error(s->c, &err);
    if (code) {
        pi_request_free(j->r);
        j->r = NULL;
    } else if (j->cancel_at == 0) {
        pi_request_cancel(j->r);
    }
    return code;
}

static void drop(job *j)
{
    if (j->r) {
        pi_request_cancel(j->r);
        pi_request_wait(j->r, -1);
    }
    pi_request_free(j->r);
    free(j->text);
    *j = (job) {0};
}

/* Adds an event to its request. *ended: this was the last event. */
static int note_event(suite *s, const pi_event *ev, job **which, bool *ended)
{
    job *j = ev->user;
    char *text = realloc(j->text, j->len + ev->text_len + 1);
    *which = j;
    *ended = ev->kind == PI_EVENT_DONE;
    if (!text) return cli_error(s->c, CLI_OS, "out of memory");
    j->text = text;
    if (ev->text_len) memcpy(text + j->len, ev->text, ev->text_len);
    j->len += ev->text_len;
    text[j->len] = 0;
    j->n_seen += ev->n_tokens;
    if (!*ended && j->cancel_at >= 0 && j->n_seen >= (size_t) j->cancel_at) pi_request_cancel(j->r);
    return CLI_OK;
}

/* Waits until one request has ended. */
static int wait_job(suite *s, pi_engine *e, job **which)
{
    bool ended = false;
    int code = CLI_OK;
    while (!code && !ended) {
        pi_event *ev = NULL;
        int n = cli_poll(e, &ev, 1);
        if (n <= 0) return eval_interrupted(s->c, n);
        code = note_event(s, ev, which, &ended);
        pi_event_release(ev);
    }
    return code;
}

static int keep_alone(suite *s, job *j, int32_t *ids, size_t n)
{
    conversation *k = j->k;
    k->ids = malloc((n + 1) * sizeof *ids);
    if (!k->ids) return cli_error(s->c, CLI_OS, "out of memory");
    memcpy(k->ids, ids, n * sizeof *ids);
    k->n_ids = n;
    k->text = j->text;
    j->text = NULL;
    k->recalls = strcasestr(k->text, k->word) != NULL;
    return CLI_OK;
}

/* True if the text of the cancelled request j is a prefix of text. Its last character may be incomplete; the end of
 * the request turned it into U+FFFD. */
static bool begins(const job *j, const char *text)
{
    size_t n = j->len;
    while (n >= 3 && !memcmp(j->text + n - 3, "\xEF\xBF\xBD", 3)) n -= 3;
    return strncmp(j->text, text, n) == 0;
}

/* Compares an answer with the conversation's answer in a batch of one: equal, or for a cancelled request a prefix of
 * it. Also checks the secret words. */
static void check_answer(suite *s, suite_round *round, const job *j, const int32_t *ids, size_t n, bool cancelled)
{
    const conversation *k = j->k;
    char what[200];
    size_t same = 0;
    while (same < n && same < k->n_ids && ids[same] == k->ids[same]) same++;
    bool equal = same == n && (cancelled || n == k->n_ids);
    if (!equal) {
        snprintf(what, sizeof what, "%zu tokens, the first %zu equal to the %zu of the single run", n, same, k->n_ids);
        fault(s, round, k->word, what);
    } else if (cancelled ? !begins(j, k->text) : strcmp(j->text, k->text) != 0) {
        fault(s, round, k->word, "equal tokens, different text");
    } else if (!cancelled) {
        round->equal++;
    }
    for (size_t i = 0; i < s->n_conv; i++) {
        const char *other = s->conv[i].word;
        if (&s->conv[i] == k || !strcasestr(j->text, other) || strcasestr(k->text, other)) continue;
        round->bleeds++;
        snprintf(what, sizeof what, "the answer contains \"%s\", the word of another conversation", other);
        fault(s, round, k->word, what);
    }
    if (!cancelled && k->recalls && !strcasestr(j->text, k->word))
        fault(s, round, k->word, "the answer does not contain its word");
}

/* Checks and frees an ended request. *again: it was cancelled and must be repeated. */
static int finish(suite *s, suite_round *round, job *j, bool *again)
{
    pi_result res = {.size = sizeof res};
    int rc = pi_request_result(j->r, &res);
    *again = res.finish_reason == PI_FINISH_CANCEL;
    if (rc || (res.code && !*again))
        return cli_error(s->c, cli_exit_code(rc ? rc : res.code), "conversation \"%s\": %s", j->k->word,
                         rc ? pi_strerror(rc) : res.msg);
    size_t n = pi_request_tokens(j->r, NULL, 0);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return cli_error(s->c, CLI_OS, "out of memory");
    pi_request_tokens(j->r, ids, n);
    round->requests++;
    round->cancelled += *again;
    round->preempted += res.n_preempted;
    round->cached += res.cached_tokens;
    int code = CLI_OK;
    if (n != j->n_seen) fault(s, round, j->k->word, "events and result have different numbers of tokens");
    if (round->alone) code = keep_alone(s, j, ids, n);
    else check_answer(s, round, j, ids, n, *again);
    free(ids);
    drop(j);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- rounds */

/* Runs conversations in random order, at_once of them concurrently. One in four is cancelled first: the very first one
 * before its first token, the others in the first half of their answer. */
static int run_jobs(suite *s, pi_engine *e, suite_round *round)
{
    size_t n = round->at_once > FEWEST ? round->at_once : FEWEST, order[N_WORDS], next = 0, live = 0;
    job slots[N_WORDS] = {{0}};
    int code = CLI_OK;
    if (round->alone || n > s->n_conv) n = s->n_conv;
    for (size_t i = 0; i < s->n_conv; i++) order[i] = i;
    for (size_t i = s->n_conv; !round->alone && i > 1; i--) {
        size_t other = draw(s, i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    while (!code && (next < n || live)) {
        job *j = NULL;
        for (size_t i = 0; next < n && i < round->at_once && !j; i++) j = slots[i].k ? NULL : &slots[i];
        if (j) {
            bool first = next == 0, cancel = !round->alone && (first || draw(s, 4) == 0);
            *j = (job) {.k = &s->conv[order[next++]], .cancel_at = -1};
            if (cancel) j->cancel_at = first ? 0 : (int64_t) draw(s, (uint64_t) s->n_answer / 2);
            code = submit(s, e, j);
            live++;
            continue;
        }
        bool again = false;
        code = wait_job(s, e, &j);
        if (code) break;
        conversation *k = j->k;
        code = finish(s, round, j, &again);
        live -= !again;
        if (!code && again) {
            *j = (job) {.k = k, .cancel_at = -1};
            code = submit(s, e, j);
        }
    }
    for (size_t i = 0; i < N_WORDS; i++) drop(&slots[i]);
    return code;
}

/* Waits until all blocks are free and no request is left. The engine releases the last request shortly after its last
 * event. */
static bool all_free(const pi_engine *e)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int tries = 0; tries < 5000; tries++) {
        pi_stats st = {.size = sizeof st};
        bool clean = pi_engine_stats(e, &st) == PI_OK && !st.n_running && !st.n_waiting;
        for (uint32_t i = 0; i < st.n_groups; i++)
            clean &= st.group[i].n_free == st.group[i].n_blocks && st.group[i].n_used == 0;
        if (clean) return true;
        nanosleep(&ms, NULL);
    }
    return false;
}

static int run_round(suite *s, pi_engine *e, suite_round *round)
{
    int code = run_jobs(s, e, round);
    if (code) return code;
    if (!all_free(e)) fault(s, round, "", "blocks are in use after the round");
    if (!round->cache && round->cached) fault(s, round, "", "tokens were reused although the prefix cache is disabled");
    if (round->alone) return CLI_OK;
    if (round->cache && !round->small && !round->cached) fault(s, round, "", "the prefix cache was not used");
    s->n_rounds++;
    printf("| %7zu | %-12s | %-5s | %8zu | %9zu | %9zu | %8zu | %8zu | %6zu |\n", round->at_once,
           round->cache ? "on" : "off", round->small ? "small" : "ample", round->requests, round->cancelled,
           round->preempted, round->cached, round->equal, round->bleeds);
    return cli_flush(s->c);
}

static int64_t round_up(int64_t n) { return (n + 63) / 64 * 64; } /* complete blocks of any supported size */

/* Opens an engine with a cache of `room` tokens. */
static int open_engine(suite *s, size_t at_once, int64_t room, bool cache, pi_engine **e)
{
    pi_info info;
    int code = CLI_OK;
    pi_options *o = cli_options(s->c, &code);
    *e = NULL;
    if (!o) return code;
    code = eval_set_int(s->c, o, "parallel", (int64_t) at_once);
    if (!code) code = eval_set_int(s->c, o, "kv-cache-tokens", room);
    if (!code) code = eval_set(s->c, o, "prefix-cache", cache ? "true" : "false");
    if (!code && !cli_given(s->c, "ctx-size")) code = eval_set_int(s->c, o, "ctx-size", s->longest + s->n_answer);
    if (!code) code = eval_open(s->c, o, e, &info);
    pi_options_free(o);
    return code;
}

/* Runs rounds of 1, 2, 4, ... most concurrent requests in a large cache. */
static int run_ample(suite *s, size_t most, bool cache)
{
    pi_engine *e;
    int code = open_engine(s, most, (int64_t) most * round_up(s->longest + s->n_answer), cache, &e);
    for (size_t n = 1; !code; n = n * 2 < most ? n * 2 : most) {
        suite_round round = {.at_once = n, .cache = cache};
        code = run_round(s, e, &round);
        if (n == most) break;
    }
    cli_close(s->c, e);
    return code;
}

/* Runs a round in a cache that holds at most half of the concurrent prompts, and no answers in addition. The fill
 * level varies, so the round repeats with a smaller cache until a request is preempted. */
static int run_small(suite *s, size_t most, bool cache)
{
    int64_t one = round_up(s->longest + s->n_answer), room = s->n_all / (int64_t) s->n_conv * (int64_t) most / 2;
    suite_round round = {.preempted = 0};
    int code = CLI_OK;
    if (room > 8 * one) room = 8 * one;
    for (int tries = 0; !code && tries < 24 && !round.preempted; tries++, room -= 80) {
        pi_engine *e;
        round = (suite_round) {.at_once = most, .cache = cache, .small = true};
        code = open_engine(s, most, room > one ? room : one, cache, &e);
        if (!code) code = run_round(s, e, &round);
        cli_close(s->c, e);
    }
    if (!code && most >= CROWD && !round.preempted) fault(s, &round, "", "no request was preempted in a small cache");
    return code;
}

static int run_alone(suite *s)
{
    suite_round round = {.at_once = 1, .alone = true};
    size_t recalled = 0;
    pi_engine *e;
    int code = open_engine(s, 1, round_up(s->longest + s->n_answer), false, &e);
    if (!code) code = run_round(s, e, &round);
    cli_close(s->c, e);
    if (code) return code;
    for (size_t i = 0; i < s->n_conv; i++) recalled += s->conv[i].recalls;
    printf("alone: %zu conversations, %lld prompt tokens; %zu answers name their word\n\n", s->n_conv,
           (long long) s->n_all, recalled);
    printf("| at once | prefix cache | cache | requests | cancelled | preempted | cached t |    equal | bleeds |\n"
           "|---------|--------------|-------|----------|-----------|-----------|----------|----------|--------|\n");
    return cli_flush(s->c);
}

int eval_suite(const cli *c)
{
    size_t most = cli_given(c, "parallel") ? (size_t) strtoul(cli_str(c, "parallel"), NULL, 10) : N_WORDS;
    if (most < 1 || most > N_WORDS)
        return cli_usage_error(c, "--concurrency-suite: give --parallel 1 to %d", (int) N_WORDS);
    if (cli_given(c, "kv-cache-tokens") || cli_given(c, "kv-cache-bytes") || cli_given(c, "prefix-cache"))
        return cli_usage_error(c, "--concurrency-suite sets the cache size: omit cache options");
    suite *s = calloc(1, sizeof *s);
    if (!s) return cli_error(c, CLI_OS, "out of memory");
    s->c = c;
    s->n_conv = most > FEWEST ? most : FEWEST;
    s->rng = cli_given(c, "seed") ? strtoull(cli_str(c, "seed"), NULL, 10) : 1;
    s->n_answer = cli_given(c, "max-tokens") ? strtoll(cli_str(c, "max-tokens"), NULL, 10) : 24;
    int code = CLI_OK;
    if (s->n_answer < 2 || s->n_answer > 4096) code = cli_usage_error(c, "--concurrency-suite: give -n 2 to 4096");
    if (!code) code = write_conversations(s);
    if (!code) code = run_alone(s);
    if (!code) code = run_ample(s, most, true);
    if (!code) code = run_ample(s, most, false);
    if (!code) code = run_small(s, most, true);
    if (!code) code = run_small(s, most, false);
    if (!code) printf("\n%zu rounds, %zu faults\n", s->n_rounds, s->n_faults);
    if (!code && s->n_faults) code = 1;
    for (size_t i = 0; i < s->n_conv; i++) {
        free(s->conv[i].ids);
        free(s->conv[i].text);
    }
    free(s);
    return code;
}
