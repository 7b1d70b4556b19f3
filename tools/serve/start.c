/* The start of a server (see start.h). */
#include "serve/start.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve/file.h"
#include "serve/log.h"
#include "serve/notify.h"

/* ------------------------------------------------------------------------------------------------------------ keys */

static const char *read_keys(const cli *c, keys *k)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < cli_n(c, "api-key") && !wrong; i++) wrong = keys_add(k, cli_nth(c, "api-key", i));
    if (!wrong && *cli_str(c, "api-key-file")) wrong = keys_read(k, cli_str(c, "api-key-file"));
    if (!wrong && !k->n && (cli_given(c, "api-key") || cli_given(c, "api-key-file"))) wrong = "it contains no key";
    return wrong;
}

static const char *read_tls(const cli *c, tls_config **out, char err[256])
{
    const char *cert = cli_str(c, "ssl-cert-file"), *key = cli_str(c, "ssl-key-file");
    *out = NULL;
    if (!*cert && !*key) return NULL;
    if (!*cert || !*key) return "give both --ssl-cert-file and --ssl-key-file";
    for (int i = 0; i < 2; i++) { /* OpenSSL would block on a pipe */
        const char *wrong;
        FILE *f = file_open(i ? key : cert, &wrong);
        if (!f) {
            snprintf(err, 256, "%.150s: %s", i ? key : cert, wrong);
            return err;
        }
        fclose(f);
    }
    *out = tls_open(cert, key, err, 256);
    return *out ? NULL : err;
}

static void read_tls_again(server *s)
{
    char err[256];
    tls_config *t;
    const char *wrong = read_tls(s->c, &t, err);
    if (wrong) log_line(s, PI_LOG_ERROR, "the certificate was not reloaded: %s; the old one stays in use", wrong);
    if (!t) return;
    tls_close(s->net.tls);
    s->net.tls = t;
}

int start_access(server *s)
{
    char err[256];
    const char *wrong = read_keys(s->c, &s->keys);
    if (wrong) return cli_error(s->c, CLI_CONFIG, "API keys: %s", wrong);
    wrong = read_tls(s->c, &s->net.tls, err);
    return wrong ? cli_error(s->c, CLI_CONFIG, "TLS: %s", wrong) : CLI_OK;
}

void start_reload(server *s)
{
    keys k = {0};
    read_tls_again(s);
    const char *wrong = read_keys(s->c, &k);
    if (wrong) {
        log_line(s, PI_LOG_ERROR, "API keys were not reloaded: %s; the old keys stay in use", wrong);
        keys_free(&k);
        return;
    }
    keys_free(&s->keys);
    s->keys = k;
    log_line(s, PI_LOG_WARN, "API keys reloaded: %zu", s->keys.n);
}

/* ------------------------------------------------------------------------------------------------------- listeners */

static void new_id(void *ud, char out[64]) { service_new_id(&((server *) ud)->sv, "req_", out); }

static void on_end(void *ud, const exchange *ex)
{
    server *s = ud;
    s->metrics.status[ex->status >= 100 && ex->status < 600 ? ex->status / 100 : 0]++;
    if (ex->generates) histogram_add(&s->metrics.request, (double) (uv_hrtime() - ex->began) / 1e9);
    else log_exchange(s, ex);
}

int start_listen(server *s)
{
    const cli *c = s->c;
    const char *path = cli_str(c, "unix-socket"), *host = cli_str(c, "host");
    int port = (int) cli_int(c, "port"), n = notify_sockets(), rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        if ((rc = net_listen_fd(&s->net, 3 + i))) return cli_error(c, CLI_OS, "socket %d: %s", 3 + i, uv_strerror(rc));
    }
    if (n) return CLI_OK;
    if (*path && (rc = net_listen_pipe(&s->net, path))) return cli_error(c, CLI_OS, "%s: %s", path, uv_strerror(rc));
    if (*path && !cli_bool(c, "supervised")) log_line(s, PI_LOG_WARN, "listening on unix:%s", path);
    if (*path && !cli_given(c, "port") && !cli_given(c, "host")) return CLI_OK;
    if ((rc = net_listen_tcp(&s->net, host, &port))) {
        return cli_error(c, CLI_OS, "%s port %d: %s%s", host, port, uv_strerror(rc),
                         rc == UV_EADDRINUSE ? "; give another --port" : "");
    }
    log_line(s, PI_LOG_WARN, strchr(host, ':') ? "listening on %s://[%s]:%d" : "listening on %s://%s:%d",
             s->net.tls ? "https" : "http", host, port);
    if (!s->keys.n && strcmp(host, "127.0.0.1") && strcmp(host, "localhost") && strcmp(host, "::1"))
        log_line(s, PI_LOG_WARN, "every client of this address can use the model: require a key with --api-key-file");
    return CLI_OK;
}

void start_configure(server *s, const cli *c)
{
    s->c = c;
    s->sv.alias = s->aliases = "";
    snprintf(s->sv.build, sizeof s->sv.build, "b%d-%.32s", build_number, build_number ? build_commit : pi_version());
    s->created = (int64_t) time(NULL);
    s->sv.id_seed = uv_hrtime() ^ (uint64_t) s->created << 32 ^ (uint64_t) getpid() << 16;
    s->ping_s = cli_int(c, "sse-ping-interval");
    s->net.limits = (http_limits) {(size_t) cli_int(c, "max-header"), (size_t) cli_int(c, "max-body")};
    s->net.header_ms = (unsigned) cli_int(c, "header-timeout") * 1000;
    s->net.idle_ms = (unsigned) cli_int(c, "idle-timeout") * 1000;
    s->net.max_conns = (size_t) cli_int(c, "max-connections");
    s->net.cors = cli_str(c, "cors");
    s->net.ud = s;
    s->net.on_head = route_head;
    s->net.on_request = route_request;
    s->net.on_end = on_end;
    s->net.new_id = new_id;
}
