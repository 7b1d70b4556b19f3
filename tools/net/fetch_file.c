/* Downloads one file by HTTP into PATH.downloadInProgress. It becomes PATH when it is complete and its hash matches
 * (see net.h).
 *
 * A partial download is resumed. A hub's file is resumed by its hash, which is checked at the end. Any other file is
 * resumed with If-Range and the ETag of its start (kept in PATH.downloadInProgress.etag). The partial file is locked:
 * if two processes want the same file, one downloads it and the other waits.
 *
 *     lock -> hash partial file -> request the rest -> append and hash -> compare -> sync, rename -> unlock
 *                                        ^------- cut, 5xx: pause, retry -------'          */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meter.h"
#include "net/digest.h"
#include "net/net.h"

enum { TRIES = 5 /* consecutive attempts without progress */ };

typedef struct fetch {
    const cli *c;
    net_file *f;
    const char *token;
    char *part;         /* PATH.downloadInProgress */
    char *part_etag;    /* PATH.downloadInProgress.etag */
    int fd;             /* descriptor of part, locked; -1 = not open */
    uint64_t have;      /* bytes in part */
    uint64_t from;      /* start offset of the current request */
    digest sum;         /* hash of the bytes in part */
    meter m;
    bool reports;        /* --download-progress */
    double report_at;    /* monotonic time of the next report */
    int error;          /* errno of a failed write; 0 = none */
    bool wrong_range;   /* the response is not the requested range */
} fetch;

bool net_sleep(double seconds)
{
    struct pollfd p = {.fd = cli_signal_fd(), .events = POLLIN};
    poll(&p, p.fd >= 0, (int) (seconds * 1000));
    return !cli_signal();
}

/* ----------------------------------------------------------------------------------------------------------- words */

static int explain_status(const cli *c, const net_where *w, const http_reply *r)
{
    const char *page = w->page ? w->page : "its page";
    switch (r->status) {
    case 401:
        return cli_error(c, CLI_CONFIG, w->has_token
                         ? "%s: refused (401): the token is invalid or has no access; create another one and give it "
                           "as -hft TOKEN or HF_TOKEN (%s)"
                         : "%s: refused (401): the repository does not exist, is private or gated; if gated, accept "
                           "its terms at %s and give a token: -hft TOKEN or HF_TOKEN", w->name, page);
    case 403:
        return cli_error(c, CLI_CONFIG,
                         "%s: refused (403): the repository is gated; accept its terms at %s as the token's owner%s",
                         w->name, page, w->has_token ? "" : ", and give the token: -hft TOKEN or HF_TOKEN");
    case 404:
        return cli_error(c, CLI_NO_INPUT, "%s: not found (404): check the name (%s)", w->name, page);
    case 429:
        return cli_error(c, CLI_TEMPFAIL, "%s: too many requests (429): try again later%s", w->name,
                         w->has_token ? "" : ", or give a token, which has a higher limit: -hft TOKEN or HF_TOKEN");
    }
    return cli_error(c, http_passes(r->status) ? CLI_TEMPFAIL : CLI_IO, "%s: the server responds with %ld%s%.200s",
                     w->name, r->status, *r->text ? ": " : "", r->text);
}

int net_explain(const cli *c, const net_where *w, enum http_result how, const http_reply *r)
{
    if (cli_signal()) return 128 + cli_signal();
    if (how == HTTP_DONE) return explain_status(c, w, r);
    if (how == HTTP_NETWORK)
        return cli_error(c, CLI_TEMPFAIL, "%s: %s; check the network, or use cached files with --offline", w->name,
                         r->error);
    return cli_error(c, CLI_IO, "%s: %s", w->name, *r->error ? r->error : "the response is not the requested content");
}

static int no_room(const fetch *x, const char *why)
{
    struct statvfs s;
    char need[32], free_bytes[32];
    const uint64_t left = x->f->size == UINT64_MAX ? 0 : x->f->size - x->have;
    const uint64_t room = statvfs(x->part, &s) ? 0 : (uint64_t) s.f_bavail * s.f_frsize;
    return cli_error(x->c, CLI_IO, "%s: %s: %s needed, %s free; free some space, or set LLAMA_CACHE to a directory on "
                     "another disk", x->part, why, left ? cli_bytes(left, need) : "some", cli_bytes(room, free_bytes));
}

static int file_error(const fetch *x, int e)
{
    if (e == ENOSPC || e == EDQUOT) return no_room(x, "the disk is full");
    return cli_error(x->c, CLI_IO, "%s: %s", x->part, strerror(e));
}

/* ------------------------------------------------------------------------------------------------- existing parts */

static char *with(const char *path, const char *suffix)
{
    const size_t n = strlen(path) + strlen(suffix) + 1;
    char *s = malloc(n);
    if (s) snprintf(s, n, "%s%s", path, suffix);
    return s;
}

uint64_t net_partial(const net_file *f)
{
    struct stat st;
    char *part = with(f->path, ".downloadInProgress");
    const bool there = part && !stat(part, &st);
    free(part);
    return there ? (uint64_t) st.st_size : 0;
}

/* Opens and locks part. Returns 1 on success; 0 if another process held the lock and the file has been replaced: try
 * again; -1 on an error (errno) or a signal. */
static int try_lock(fetch *x)
{
    struct stat mine, named;
    bool said = false;
    x->fd = open(x->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (x->fd < 0) return -1;
    if (fstat(x->fd, &mine)) return -1;
    if (!S_ISREG(mine.st_mode)) return errno = EINVAL, -1;
    while (flock(x->fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) return errno == ENOLCK || errno == ENOTSUP ? 1 : -1;
        if (!said) fprintf(stderr, "%s: another process downloads %s; waiting for it\n", x->c->name, x->f->name);
        said = true;
        if (!net_sleep(0.2)) return -1;
    }
    if (!fstat(x->fd, &mine) && !stat(x->part, &named) && mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
        return 1;
    close(x->fd);
    x->fd = -1;
    return 0;
}

/* Discards the partial file. Returns false on failure; errno is set. */
static bool from_nothing(fetch *x)
{
    x->have = 0;
    digest_begin(&x->sum, strlen(x->f->oid), x->f->size);
    return !ftruncate(x->fd, 0) && lseek(x->fd, 0, SEEK_SET) == 0;
}

/* Hashes the bytes of part. Returns false on an error (errno) or a signal. */
static bool hash_part(fetch *x)
{
    enum { N = 1 << 20 };
    char *buf = malloc(N);
    ssize_t n = -1;
    digest_begin(&x->sum, strlen(x->f->oid), x->f->size);
    x->have = 0;
    errno = ENOMEM;
    if (buf && lseek(x->fd, 0, SEEK_SET) == 0)
        while (!cli_signal() && ((n = read(x->fd, buf, N)) > 0 || (n < 0 && errno == EINTR))) {
            if (n < 0) continue;
            digest_add(&x->sum, buf, (size_t) n);
            x->have += (uint64_t) n;
        }
    free(buf);
    return n == 0;
}

/* Reads the ETag with which the partial download was started. */
static void read_etag(const char *path, char etag[200])
{
    FILE *f = fopen(path, "r");
    if (!f || !fgets(etag, 200, f)) *etag = 0;
    etag[strcspn(etag, "\r\n")] = 0;
    if (f) fclose(f);
}

/* True if the partial download can be resumed. */
static bool can_go_on(const fetch *x)
{
    char etag[200];
    if (*x->f->oid) return x->f->size == UINT64_MAX || x->have <= x->f->size;
    read_etag(x->part_etag, etag);
    return *etag == '"' && !strcmp(etag, x->f->etag) && x->have <= x->f->size;
}

/* -------------------------------------------------------------------------------------------------------- transfer */

static bool on_start(void *ud, const http_reply *r)
{
    fetch *x = ud;
    if (r->status == 206 && r->first != x->from) return x->wrong_range = true, false;
    if (x->f->size == UINT64_MAX && r->length != UINT64_MAX) x->f->size = r->length + (r->status == 206 ? x->from : 0);
    if (!*x->f->oid && r->linked_sha256[0] && !x->from) memcpy(x->f->oid, r->linked_sha256, sizeof x->f->oid);
    if (!*x->f->etag && !*x->f->oid) memcpy(x->f->etag, r->etag, sizeof x->f->etag);
    if (r->status == 206) return true;
    if (*x->f->etag) (void) hub_write_file(x->part_etag, x->f->etag); /* if this fails, the next download restarts */
    if (from_nothing(x)) return true;
    x->error = errno;
    return false;
}

/* Writes the progress for another program, at most five times a second. Returns false if its reader is gone. */
static bool report(fetch *x, bool complete)
{
    const double t = meter_now();
    if (!x->reports || (!complete && t < x->report_at)) return true;
    x->report_at = t + 0.2;
    printf("progress %llu %llu %s\n", (unsigned long long) x->have,
           (unsigned long long) (x->f->size == UINT64_MAX ? 0 : x->f->size), x->f->url);
    return !fflush(stdout);
}

static bool on_body(void *ud, const char *p, size_t n)
{
    fetch *x = ud;
    digest_add(&x->sum, p, n);
    while (n) {
        const ssize_t w = write(x->fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return x->error = w ? errno : ENOSPC, false;
        p += w;
        n -= (size_t) w;
        x->have += (uint64_t) w;
    }
    if (x->f->size != UINT64_MAX && x->have > x->f->size) return x->wrong_range = true, false;
    meter_update(&x->m, x->have, x->f->size == UINT64_MAX ? 0 : x->f->size);
    if (!report(x, x->have == x->f->size)) return x->error = EPIPE, false;
    return true;
}

static bool complete(const fetch *x) { return x->f->size != UINT64_MAX && x->have == x->f->size; }

/* Sends requests until the file is complete. */
static int transfer(fetch *x, http *h)
{
    const net_where w = {.name = x->f->name, .page = x->f->page, .has_token = *x->token};
    http_reply r;
    for (int tries = 0;;) {
        if (complete(x) && x->have) return CLI_OK;
        const uint64_t before = x->from = x->have;
        x->wrong_range = false;
        const http_request q = {.url = x->f->url, .token = x->token, .from = x->from,
                                .if_range = *x->f->oid || !*x->f->etag ? NULL : x->f->etag,
                                .start = on_start, .body = on_body, .ud = x};
        const enum http_result how = http_run(h, &q, &r);
        if (cli_signal()) return 128 + cli_signal();
        if (x->error) return file_error(x, x->error);
        if (x->wrong_range || (how == HTTP_DONE && r.status == 416)) {
            if (!from_nothing(x)) return file_error(x, errno);
        } else if (how == HTTP_DONE && r.status / 100 == 2) {
            if (x->f->size == UINT64_MAX || complete(x)) return CLI_OK;
        } else if (how != HTTP_NETWORK && !(how == HTTP_DONE && http_passes(r.status))) {
            return net_explain(x->c, &w, how, &r);
        }
        if (x->have > before) tries = 0;
        if (++tries >= TRIES)
            return net_explain(x->c, &w, how == HTTP_DONE && r.status / 100 == 2 ? HTTP_REFUSED : how, &r);
        if (!net_sleep(r.retry_after > 0 ? r.retry_after : 0.25 * (1 << tries))) return 128 + cli_signal();
    }
}

/* True if the hash matches; otherwise part is emptied. */
static bool is_right(fetch *x)
{
    char hex[65];
    digest_end(&x->sum, hex);
    if (!*x->f->oid || !strcmp(hex, x->f->oid)) return true;
    if (!strcasecmp(hex, x->f->oid)) return true;
    (void) from_nothing(x);
    return false;
}

static int finish(fetch *x)
{
    if (fdatasync(x->fd) || rename(x->part, x->f->path)) return file_error(x, errno);
    unlink(x->part_etag);
    if (*x->f->etag) {
        char *path = with(x->f->path, ".etag");
        if (path) (void) hub_write_file(path, x->f->etag); /* if this fails, the next use downloads the file again */
        free(path);
    }
    return CLI_OK;
}

static int fetch_locked(fetch *x, http *h)
{
    char size[32] = "size unknown", went_on[64] = "";
    struct statvfs s;
    if (!hash_part(x)) return cli_signal() ? 128 + cli_signal() : file_error(x, errno);
    if (!can_go_on(x) && !from_nothing(x)) return file_error(x, errno);
    if (x->f->size != UINT64_MAX) cli_bytes(x->f->size, size);
    if (x->have) snprintf(went_on, sizeof went_on, ", %.0f %% exist", 100.0 * (double) x->have / (double) x->f->size);
    if (x->f->size != UINT64_MAX && !statvfs(x->part, &s) && x->f->size - x->have > (uint64_t) s.f_bavail * s.f_frsize)
        return no_room(x, "the disk is too small");
    fprintf(stderr, "%s: downloading %s (%s%s) to %s\n", x->c->name, x->f->name, size, went_on, x->f->path);
    for (int i = 0; i < 2; i++) {
        meter_begin(&x->m, x->f->name, false, 0);
        meter_update(&x->m, x->have, x->f->size == UINT64_MAX ? 0 : x->f->size);
        int code = transfer(x, h);
        meter_end(&x->m);
        if (code) return code;
        if (is_right(x)) return finish(x);
        if (!i) fprintf(stderr, "%s: %s: wrong checksum; downloading it again\n",
                        x->c->name, x->f->name);
    }
    unlink(x->part);
    return cli_error(x->c, CLI_DATA, "%s: wrong checksum twice: the server or a proxy sends another file than the "
                     "hub lists", x->f->name);
}

int net_fetch(const cli *c, http *h, const char *token, net_file *f)
{
    fetch x = {.c = c, .f = f, .token = token, .fd = -1, .reports = cli_bool(c, "download-progress"),
               .part = with(f->path, ".downloadInProgress"),
               .part_etag = with(f->path, ".downloadInProgress.etag")};
    struct stat before = {0}, now;
    const bool was = !stat(f->path, &before);
    int code = x.part && x.part_etag ? CLI_OK : cli_error(c, CLI_OS, "out of memory");
    if (!code && !hub_make_parents(f->path)) code = cli_error(c, CLI_IO, "%s: %s", f->path, strerror(errno));
    for (int got = 0; !code && !got;) {
        got = try_lock(&x);
        if (got < 0) code = cli_signal() ? 128 + cli_signal() : file_error(&x, errno);
        else if (!stat(f->path, &now) && (!was || now.st_ino != before.st_ino)) { /* another process completed it */
            if (got) unlink(x.part);
            break;
        } else if (got) code = fetch_locked(&x, h);
    }
    if (x.fd >= 0) close(x.fd);
    EVP_MD_CTX_free(x.sum.ctx);
    free(x.part);
    free(x.part_etag);
    return code;
}

int net_head(const cli *c, http *h, const char *token, bool quiet, net_file *f)
{
    const http_request q = {.url = f->url, .head = true, .token = token};
    const net_where w = {.name = f->name, .page = f->page, .has_token = *token};
    http_reply r;
    enum http_result how = http_run(h, &q, &r);
    for (int i = 0; i < 3 && (how == HTTP_NETWORK || (how == HTTP_DONE && http_passes(r.status) && r.status != 501));
         i++) {
        if (!net_sleep(r.retry_after > 0 ? r.retry_after : 0.5 * (1 << i))) break;
        how = http_run(h, &q, &r);
    }
    if (cli_signal()) return 128 + cli_signal();
    /* GET may succeed */
    if (how == HTTP_DONE && (r.status == 405 || r.status == 501 || r.status == 403)) return CLI_OK;
    if (how != HTTP_DONE || r.status / 100 != 2)
        return quiet ? CLI_TEMPFAIL : net_explain(c, &w, how, &r);
    f->size = r.linked_size != UINT64_MAX ? r.linked_size : r.length;
    memcpy(f->etag, r.etag, sizeof f->etag);
    memcpy(f->oid, r.linked_sha256, sizeof f->oid);
    return CLI_OK;
}
