/* Input of prompts and files, text output (see cli.h). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "encoding.h"
#include "terminal.h"

/* ---------------------------------------------------------------------------------------------------------- files */

int cli_read_file(const cli *c, const char *path, char **text, size_t *len)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f) return cli_error(c, errno == ENOENT ? CLI_NO_INPUT : CLI_IO, "%s: %s", path, strerror(errno));
    char *buf = NULL;
    size_t n = 0, cap = 0;
    int code = CLI_OK;
    for (;;) {
        if (cap - n < 2) {
            size_t want = cap ? cap * 2 : 65536;
            char *p = want > cap ? realloc(buf, want) : NULL;
            if (!p) {
                code = cli_error(c, CLI_OS, "%s: out of memory", path);
                break;
            }
            buf = p;
            cap = want;
        }
        size_t got = fread(buf + n, 1, cap - n - 1, f);
        n += got;
        if (got) continue;
        if (ferror(f)) code = cli_error(c, CLI_IO, "%s: %s", path, strerror(errno));
        break;
    }
    if (!is_stdin) fclose(f);
    if (code) {
        free(buf);
        return code;
    }
    buf[n] = 0;
    *text = buf;
    *len = n;
    return CLI_OK;
}

bool cli_is_utf8(const cli *c, const char *what, const char *text, size_t n)
{
    size_t i = 0;
    for (size_t len; i < n && (len = utf8_char(text + i, n - i)); i += len) {}
    if (i < n) cli_error(c, CLI_DATA, "%s: byte %zu (0x%02X) is not UTF-8", what, i, (unsigned char) text[i]);
    return i >= n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Returns the value of "\xHH" at the start of s; -1 if s does not start with one. */
static int hex_byte(const char *s, size_t n)
{
    if (n < 4 || s[0] != '\\' || s[1] != 'x') return -1;
    int hi = hex_digit(s[2]), lo = hex_digit(s[3]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Replaces \n \r \t \' \" \\ and \xHH in place; other backslashes are kept. Returns the new length. */
size_t cli_unescape(char *s, size_t n)
{
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    size_t out = 0;
    int byte;
    for (size_t i = 0; i < n; i++) {
        const char *k = s[i] == '\\' && i + 1 < n && s[i + 1] ? strchr(from, s[i + 1]) : NULL;
        if (k) {
            s[out++] = to[k - from];
            i++;
        } else if ((byte = hex_byte(s + i, n - i)) >= 0) {
            s[out++] = (char) byte;
            i += 3;
        } else {
            s[out++] = s[i];
        }
    }
    s[out] = 0;
    return out;
}

int cli_prompt(const cli *c, bool keep_newline, char **text, size_t *len)
{
    bool from_stdin = cli_has_section(c->cmd, "tokenize") && cli_bool(c, "stdin");
    const char *file = cli_given(c, "prompt") ? NULL : "-";
    if (cli_given(c, "file") && !from_stdin) file = cli_str(c, "file");
    if (from_stdin) file = "-";
    if (file && !from_stdin && !cli_given(c, "file") && isatty(STDIN_FILENO)) {
        return cli_usage_error(c, "no prompt: give --prompt TEXT, --file FILE, or text on standard input");
    }
    if (!file) {
        const char *p = cli_str(c, "prompt");
        *len = strlen(p);
        *text = strdup(p);
        if (!*text) return cli_error(c, CLI_OS, "out of memory");
    } else {
        int code = cli_read_file(c, file, text, len);
        if (code) return code;
        if (!keep_newline && *len && (*text)[*len - 1] == '\n') (*text)[--*len] = 0;
    }
    if (cli_bool(c, "escape")) *len = cli_unescape(*text, *len);
    return CLI_OK;
}

/* Prints one token as text, with control tokens spelled out. A sequence's text may lose its first space, so the token
 * is detokenized twice in a row; the second copy is the token's text. */
static void print_piece(const pi_engine *e, int32_t id)
{
    const int32_t twice[2] = {id, id};
    int64_t one = pi_detokenize(e, twice, 1, PI_TOK_SPECIAL, NULL, 0);
    int64_t both = pi_detokenize(e, twice, 2, PI_TOK_SPECIAL, NULL, 0);
    char *text = one < 0 || both < one ? NULL : malloc((size_t) both + 1);
    int64_t got = text ? pi_detokenize(e, twice, 2, PI_TOK_SPECIAL, text, (size_t) both) : -1;
    fprintf(stderr, "%6d -> '", id);
    if (got == both) fwrite(text + one, 1, (size_t) (both - one), stderr);
    fprintf(stderr, "'\n");
    free(text);
}

void cli_print_prompt(const cli *c, const pi_engine *e, const char *text, size_t len)
{
    int flags = PI_TOK_BOS | PI_TOK_SPECIAL;
    int64_t n = pi_tokenize(e, text, len, flags, NULL, 0);
    int32_t *ids = n < 0 ? NULL : malloc(((size_t) n + 1) * sizeof *ids);
    if (!ids || pi_tokenize(e, text, len, flags, ids, (size_t) n) != n) {
        fprintf(stderr, "%s: --verbose-prompt: the prompt cannot be tokenized\n", c->name);
    } else {
        fprintf(stderr, "%s: prompt: '%.*s'\n%s: number of tokens in prompt = %lld\n", c->name, (int) len, text,
                c->name, (long long) n);
        for (int64_t i = 0; i < n; i++) print_piece(e, ids[i]);
        fputc('\n', stderr);
    }
    free(ids);
}

/* Prints a timing line in the format that scripts expect from llama.cpp's tools. */
static void print_timing(const cli *c, const char *what, const char *unit, double ms, uint64_t n)
{
    double per = n ? ms / (double) n : 0;
    fprintf(stderr, "%s: %s = %10.2f ms / %5llu %s (%8.2f ms per token, %8.2f tokens per second)\n", c->called, what,
            ms, (unsigned long long) n, unit, per, per > 0 ? 1e3 / per : 0);
}

/* Prints "prompt 45 tokens (32 cached), 1234.5 t/s; generated 64 tokens, 210.3 t/s". */
void cli_print_speed(const cli *c, pi_request *const *r, size_t n)
{
    uint64_t prompt = 0, cached = 0, generated = 0, drafted = 0, accepted = 0;
    double prefill = 0, decode = 0;
    for (size_t i = 0; i < n; i++) {
        pi_result s = {.size = sizeof s};
        pi_request_result(r[i], &s);
        prompt += s.prompt_tokens;
        cached += s.cached_tokens;
        generated += s.generated_tokens;
        drafted += s.n_drafted;
        accepted += s.n_accepted;
        if (s.prefill_ms > prefill) prefill = s.prefill_ms;
        if (s.decode_ms > decode) decode = s.decode_ms;
    }
    cli_new_line();
    if (c->called && *c->called) {
        print_timing(c, "prompt eval time", "tokens", prefill, prompt - cached);
        print_timing(c, "       eval time", "runs  ", decode, generated > n ? generated - n : 0);
        return;
    }
    fprintf(stderr, "%sprompt %llu tokens", cli_logs(c, PI_LOG_INFO) ? "" : "\n", (unsigned long long) prompt);
    if (cached) fprintf(stderr, " (%llu cached)", (unsigned long long) cached);
    if (prefill > 0) fprintf(stderr, ", %.1f t/s", (double) (prompt - cached) / prefill * 1e3);
    fprintf(stderr, "; generated %llu tokens", (unsigned long long) generated);
    if (decode > 0 && generated > n) fprintf(stderr, ", %.1f t/s", (double) (generated - n) / decode * 1e3);
    if (drafted)
        fprintf(stderr, ", %llu of %llu drafts accepted", (unsigned long long) accepted, (unsigned long long) drafted);
    fputc('\n', stderr);
}

/* True if the cursor of standard error's terminal follows text without a newline. Protected by the lock of stderr,
 * because other threads write log lines. */
static bool mid_line;

bool cli_shares_terminal(FILE *f)
{
    struct stat a, b;
    if (!isatty(STDERR_FILENO)) return false;
    return f == stderr || (!fstat(fileno(f), &a) && !fstat(STDERR_FILENO, &b) && a.st_rdev == b.st_rdev &&
                           S_ISCHR(a.st_mode) && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}

bool cli_text(FILE *f, const char *text, size_t n)
{
    if (!n) return true;
    flockfile(stderr);
    bool ok = fwrite(text, 1, n, f) == n && !fflush(f);
    if (ok && cli_shares_terminal(f)) mid_line = text[n - 1] != '\n';
    funlockfile(stderr);
    return ok;
}

void cli_new_line(void)
{
    flockfile(stderr);
    if (mid_line) fputc('\n', stderr);
    mid_line = false;
    funlockfile(stderr);
}

bool cli_color(const cli *c, int fd)
{
    const char *how = cli_str(c, "color"), *never = getenv("NO_COLOR"); /* no-color.org */
    if (strcmp(how, "auto") != 0) return !strcmp(how, "on");
    return isatty(fd) && terminal_has_escapes() && !(never && *never);
}

/* True if standard output is a pipe without a reader. */
static bool reader_is_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

int cli_flush(const cli *c)
{
    static bool said;
    if (!fflush(stdout) && !ferror(stdout)) return CLI_OK;
    int error = errno;
    if (error == EPIPE || reader_is_gone()) return 128 + SIGPIPE;
    if (said) return CLI_IO;
    said = true;
    return cli_error(c, CLI_IO, "standard output: %s", strerror(error));
}

const char *cli_bytes(uint64_t n, char buf[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double) n;
    int u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(buf, 32, u ? "%.2f %s" : "%.0f %s", v, unit[u]);
    return buf;
}

/* Prints the cache statistics on standard error. */
static void print_kv_stats(const cli *c, const pi_engine *e)
{
    pi_stats s = {.size = sizeof s};
    char bytes[32];
    if (pi_engine_stats(e, &s)) return;
    fprintf(stderr, "%s: cache: %llu of %llu prompt tokens reused, %llu requests found a prefix, %llu preempted\n",
            c->name, (unsigned long long) s.cached_tokens, (unsigned long long) s.prompt_tokens,
            (unsigned long long) s.n_prefix_hits, (unsigned long long) s.n_preempted);
    if (s.n_snapshots_saved)
        fprintf(stderr, "%s: snapshots: %llu taken, %llu restored\n", c->name,
                (unsigned long long) s.n_snapshots_saved, (unsigned long long) s.n_snapshots_restored);
    if (s.n_drafted)
        fprintf(stderr, "%s: drafts: %llu of %llu accepted, %llu tokens in %llu steps\n", c->name,
                (unsigned long long) s.n_accepted, (unsigned long long) s.n_drafted,
                (unsigned long long) s.generated_tokens, (unsigned long long) s.n_steps);
    if (s.key_blocks_possible)
        fprintf(stderr, "%s: sparse prefill: %.1f %% of the key blocks attended to\n", c->name,
                100.0 * (double) s.key_blocks_attended / (double) s.key_blocks_possible);
    if (s.disk_entries || s.disk_reads || s.disk_writes)
        fprintf(stderr, "%s: disk: %llu entries, %s; %llu read, %llu written\n", c->name,
                (unsigned long long) s.disk_entries, cli_bytes(s.disk_bytes, bytes), (unsigned long long) s.disk_reads,
                (unsigned long long) s.disk_writes);
    if (s.host_entries || s.host_reads || s.host_writes)
        fprintf(stderr, "%s: host memory: %llu entries, %s; %llu read, %llu written\n", c->name,
                (unsigned long long) s.host_entries, cli_bytes(s.host_bytes, bytes), (unsigned long long) s.host_reads,
                (unsigned long long) s.host_writes);
    fprintf(stderr, "%-10s %8s %8s %8s %8s %8s %9s %12s\n", "group", "blocks", "free", "used", "cached", "shared",
            "evicted", "committed");
    for (uint32_t i = 0; i < s.n_groups; i++)
        fprintf(stderr, "%-10s %8llu %8llu %8llu %8llu %8llu %9llu %12s\n", s.group_name[i],
                (unsigned long long) s.group[i].n_blocks, (unsigned long long) s.group[i].n_free,
                (unsigned long long) s.group[i].n_used, (unsigned long long) s.group[i].n_cached,
                (unsigned long long) s.group[i].n_shared, (unsigned long long) s.group[i].n_evicted,
                cli_bytes(s.group[i].committed_bytes, bytes));
}

void cli_close(const cli *c, pi_engine *e)
{
    if (e && cli_bool(c, "kv-stats")) print_kv_stats(c, e);
    pi_engine_close(e);
}
