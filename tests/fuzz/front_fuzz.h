/* Checks of the front end's parsers, which read bytes of model processes and clients: responses (http_reply.h), and the
 * model's name in bodies and query strings (model_name.h). Only fuzz_http.c includes this file. */
#ifndef FRONT_FUZZ_H
#define FRONT_FUZZ_H

#include <stdint.h>
#include <string.h>

#include "json.h"
#include "serve/http_reply.h"
#include "serve/model_name.h"

typedef struct front_seen { /* results of one run over a response's bytes */
    enum reply_what last;
    int heads, status;
    size_t n_body, sum, n_fields;
} front_seen;

static inline void front_body(front_seen *s, const http_reply *r, const char *in, size_t n, const char *p, size_t len)
{
    if (!s->heads || !len || p < in || len > (size_t) (in + n - p)) __builtin_trap();
    if (r->no_body || r->status == 204) __builtin_trap();
    for (size_t i = 0; i < len; i++) s->sum = s->sum * 31 + (unsigned char) p[i];
    s->n_body += len;
}

/* A field that is passed on is a line: the client's connection has no other lines than the front end's own. */
static inline void front_head(front_seen *s, const http_reply *r)
{
    if (s->heads++ || r->status < 200 || r->status > 599 || memchr(r->type, '\n', strlen(r->type))) __builtin_trap();
    if (r->fields.n && memcmp(r->fields.p + r->fields.n - 2, "\r\n", 2)) __builtin_trap();
    s->status = r->status;
    s->n_fields = r->fields.n;
}

/* Parses the bytes in pieces of step bytes, until the response ends. */
static inline front_seen front_run(const char *p, size_t n, size_t step, bool no_body)
{
    http_reply r = {.no_body = no_body};
    front_seen s = {.last = REPLY_MORE};
    for (size_t at = 0; at < n && s.last != REPLY_END && s.last != REPLY_BAD;) {
        const size_t len = n - at < step ? n - at : step;
        for (size_t done = 0;;) {
            const char *body = NULL;
            size_t used = 0, n_body = 0;
            s.last = http_reply_feed(&r, p + at + done, len - done, &used, &body, &n_body);
            if (used > len - done || (s.last == REPLY_MORE && used < len - done)) __builtin_trap();
            if (s.last == REPLY_HEAD) front_head(&s, &r);
            if (s.last == REPLY_BODY) front_body(&s, &r, p + at + done, len - done, body, n_body);
            done += used;
            if (s.last == REPLY_MORE || s.last == REPLY_END || s.last == REPLY_BAD) break;
        }
        at += len;
    }
    if (s.last == REPLY_END && (!s.heads || (r.has_length && s.n_body && s.n_body != r.length))) __builtin_trap();
    http_reply_free(&r);
    return s;
}

/* The cut into reads changes neither the head nor the body, nor whether the response is complete. */
static inline void front_reply(const char *p, size_t n, size_t step, bool no_body)
{
    const front_seen all = front_run(p, n, n + 1, no_body), cut = front_run(p, n, step, no_body);
    if (all.last != cut.last || all.heads != cut.heads || all.status != cut.status || all.n_fields != cut.n_fields ||
        all.n_body != cut.n_body || all.sum != cut.sum) __builtin_trap();
}

/* For a JSON object the scan finds the model and `stream` that the process's reader finds. */
static inline void front_names(const char *p, size_t n)
{
    body_fields got;
    json_fault fault;
    char value[64];
    body_scan(p, n, "model", &got);
    if (strlen(got.model) >= sizeof got.model || (*got.model && got.fault != BODY_OK)) __builtin_trap();
    if (n && query_value(p, n, "model", value, sizeof value) && strlen(value) >= sizeof value) __builtin_trap();
    json_t *root = json_read(p, n, &fault);
    if (!root) return;
    const json_t *model = json_object_get(root, "model");
    enum body_fault fault_of = BODY_NOT_TEXT;
    if (!json_is_object(root) || json_number_text(root)) fault_of = BODY_NOT_OBJECT;
    else if (!model || json_is_null(model)) fault_of = BODY_NO_MODEL;
    else if (json_is_c_string(model)) fault_of = BODY_OK;
    if (got.fault != fault_of) __builtin_trap();
    if (fault_of == BODY_OK && strlen(json_string_value(model)) < sizeof got.model &&
        strcmp(got.model, json_string_value(model))) __builtin_trap();
    if (fault_of != BODY_NOT_OBJECT && got.stream != json_is_true(json_object_get(root, "stream"))) __builtin_trap();
    json_decref(root);
}

#endif
