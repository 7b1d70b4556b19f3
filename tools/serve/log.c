/* Log lines (see log.h). With --log-json each line is a JSON object.
 *
 *     TIME CLIENT KEY METHOD PATH STATUS, ..., REQUEST_ID[, trace TRACEPARENT] */
#include "serve/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void stamp(char out[32])
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + 19, 13, ".%03uZ", (unsigned) (t.tv_nsec / 1000000) % 1000);
}

static void write_json(const server *s, json_t *o)
{
    char when[32];
    stamp(when);
    json_object_set_new(o, "time", json_string(when));
    if (s->supervised) json_object_set_new(o, "model", json_string(s->sv.alias));
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6) | JSON_SORT_KEYS);
    if (text) fprintf(s->c->log, "%s\n", text);
    (void) text_failed(); /* a failed log line does not fail the response */
    free(text);
    json_decref(o);
}

void log_line(const server *s, int level, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (!cli_logs(s->c, level)) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (cli_bool(s->c, "log-json")) write_json(s, json_pack("{s:o}", "message", text_json(text, strlen(text))));
    else fprintf(s->c->log, "%s\n", text);
}

/* Copies the path. It comes from the client, so control characters and quotes become '?'. */
static void clean(const exchange *ex, char out[128])
{
    size_t n = ex->req.path_len < 127 ? ex->req.path_len : 127;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char) ex->req.target.p[i];
        out[i] = c > ' ' && c < 127 && c != '"' ? (char) c : '?';
    }
    out[n] = 0;
}

/* Returns the request's W3C trace context if it is valid (VERSION-TRACE-PARENT-FLAGS in lower-case hex), else "". */
static const char *trace_of(const exchange *ex)
{
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    static const char zeros[] = "00000000000000000000000000000000";
    const char *v = http_field(&ex->req, HTTP_FIELD_TRACEPARENT);
    if (!v || strlen(v) != sizeof form - 1 || !strncmp(v, "ff", 2)) return "";
    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'x' ? !strchr("0123456789abcdef", v[i]) : v[i] != '-') return "";
    return strncmp(v + 3, zeros, 32) && strncmp(v + 36, zeros, 16) ? v : "";
}

/* Writes the part of a line that each request has, up to the status. */
static void put_request(FILE *f, const exchange *ex, int status)
{
    char path[128], when[32];
    clean(ex, path);
    stamp(when);
    fprintf(f, "%s %s %s %s %s %d", when, ex->client, *ex->key_name ? ex->key_name : "-",
            *ex->req.verb ? ex->req.verb : "?", *path ? path : "?", status);
}

static void put_end(FILE *f, const exchange *ex)
{
    const char *trace = trace_of(ex);
    fprintf(f, ", %s%s%s\n", ex->id, *trace ? ", trace " : "", trace);
}

static json_t *request_json(const exchange *ex, int status)
{
    char path[128];
    clean(ex, path);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f}", "request_id", ex->id, "client", ex->client, "key",
                          ex->key_name, "method", ex->req.verb, "path", path, "status", status, "total_s",
                          (double) (uv_hrtime() - ex->began) / 1e9);
    if (*trace_of(ex)) json_object_set_new(o, "traceparent", json_string(trace_of(ex)));
    return o;
}

void log_exchange(const server *s, const exchange *ex)
{
    if (!cli_logs(s->c, ex->status >= 400 ? PI_LOG_WARN : PI_LOG_INFO)) return;
    if (cli_bool(s->c, "log-json")) {
        write_json(s, request_json(ex, ex->status));
        return;
    }
    put_request(s->c->log, ex, ex->status);
    fprintf(s->c->log, ", total %.4f s", (double) (uv_hrtime() - ex->began) / 1e9);
    put_end(s->c->log, ex);
}

static const char *how_it_ended(const gen *g)
{
    if (g->err.code) return g->err.msg;
    if (g->abort_why) return g->abort_why;
    const char *reason = g->n_choices && g->choices[0].reason ? g->choices[0].reason : "";
    for (size_t i = 1; i < g->n_choices; i++) {
        if (g->choices[i].reason && strcmp(reason, g->choices[i].reason) != 0) return "several ends";
    }
    return reason;
}

void log_reply(const reply *r)
{
    const gen *g = &r->g;
    const server *s = r->s;
    if (!cli_logs(s->c, PI_LOG_WARN)) return;
    if (g->p.left_out.n)
        log_line(s, PI_LOG_WARN, "%s: ignored, not supported by this server: %s", g->id, g->p.left_out.p);
    usage u = {0};
    const pi_result *first = g->n_choices && g->choices[0].done ? &g->choices[0].res : NULL;
    if (r->submitted) u = gen_usage(g);
    double ttft = g->first_at ? (double) (g->first_at - r->ex->began) / 1e9 : 0;
    double rest = g->first_at ? (double) (uv_hrtime() - g->first_at) / 1e9 : 0;
    double rate = rest > 0 && u.completion > g->n_choices ? (double) (u.completion - g->n_choices) / rest : 0;
    const char *miss = first && first->miss_reason ? first->miss_reason : "", *how = how_it_ended(g);
    if (cli_bool(s->c, "log-json")) {
        json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:s, s:I, s:I}", "id", g->id, "what", g->w->what,
                              "prompt_tokens", (json_int_t) u.prompt, "cached_tokens", (json_int_t) u.cached,
                              "completion_tokens", (json_int_t) u.completion, "ttft_s", ttft, "tokens_per_s", rate,
                              "miss_reason", miss, "drafted", (json_int_t) u.drafted, "accepted",
                              (json_int_t) u.accepted);
        json_t *request = request_json(r->ex, r->status);
        json_object_update(o, request);
        json_decref(request);
        json_object_set_new(o, "end", text_json(how, strlen(how)));
        write_json(s, o);
        return;
    }
    FILE *f = s->c->log;
    put_request(f, r->ex, r->status);
    if (r->submitted)
        fprintf(f, ", prompt %llu, cached %llu%s%s%s, generated %llu at %.1f t/s, ttft %.3f s",
                (unsigned long long) u.prompt, (unsigned long long) u.cached, *miss ? " (" : "", miss,
                *miss ? ")" : "", (unsigned long long) u.completion, rate, ttft);
    fprintf(f, ", total %.3f s", (double) (uv_hrtime() - r->ex->began) / 1e9);
    if (u.drafted) fprintf(f, ", drafts %llu/%llu", (unsigned long long) u.accepted, (unsigned long long) u.drafted);
    fprintf(f, ", %s, %s", how, g->id);
    put_end(f, r->ex);
}
