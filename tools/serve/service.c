/* The facts of a service that come from its engine: ids of responses, texts of tokens (see service.h). */
#include "serve/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void find_anchor(service *sv)
{
    int32_t ids[8];
    char text[64];
    int64_t n = pi_tokenize(sv->e, "a", 1, 0, ids, 8);
    sv->anchor = n > 0 && n <= 8 ? ids[n - 1] : -1;
    n = sv->anchor < 0 ? 0 : pi_detokenize(sv->e, &sv->anchor, 1, 0, text, sizeof text);
    if (n > 0) sv->anchor_len = (size_t) n;
    else sv->anchor = -1;
}

void service_open(service *sv, pi_engine *e)
{
    sv->e = e;
    sv->info.size = sizeof sv->info;
    pi_engine_info(e, &sv->info);
    find_anchor(sv);
}

void service_new_id(service *sv, const char *prefix, char out[64])
{
    const uint64_t n = atomic_fetch_add(&sv->n_ids, 1) + 1;
    uint64_t x = sv->id_seed + n * 0x9E3779B97F4A7C15u; /* splitmix64: ids do not reveal their count */
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    snprintf(out, 64, "%s%016llx%08llx", prefix, (unsigned long long) (x ^ (x >> 31)),
             (unsigned long long) (n & 0xFFFFFFFFu));
}

void service_put_prompt(const service *sv, const prompt *pr, int flags, buf *out)
{
    int32_t *ids = malloc((pr->n_ids + 1) * sizeof *ids);
    size_t n_ids = 0;
    for (size_t i = 0; ids && i < pr->n_ids; i++)
        if (pr->ids[i] >= 0) ids[n_ids++] = pr->ids[i];
    const int64_t n = ids ? pi_detokenize(sv->e, ids, n_ids, flags, NULL, 0) : PI_ENOMEM;
    char *to = n < 0 ? NULL : buf_reserve(out, (size_t) n);
    if (!to || pi_detokenize(sv->e, ids, n_ids, flags, to, (size_t) n) != n) out->failed = true;
    else out->p[out->n += (size_t) n] = 0;
    free(ids);
}

size_t service_token_text(const service *sv, int32_t id, bool special, char *out, size_t cap)
{
    if (id < 0) return 0;
    /* A token alone would lose the leading space that tokenizers add, so it is decoded after another token. */
    const int32_t two[] = {sv->anchor, id};
    char buf[512], *p = buf;
    int flags = special ? PI_TOK_SPECIAL : 0;
    if (sv->anchor < 0) {
        int64_t n = pi_detokenize(sv->e, &id, 1, flags, out, cap);
        if (n < 0) text_no_memory();
        return n < 0 ? 0 : (size_t) n;
    }
    int64_t n = pi_detokenize(sv->e, two, 2, flags, buf, sizeof buf);
    if (n < 0) text_no_memory();
    if (n < 0 || (size_t) n < sv->anchor_len) return 0;
    size_t len = (size_t) n - sv->anchor_len;
    if ((size_t) n > sizeof buf) {
        if (!(p = malloc((size_t) n))) return text_no_memory(), 0;
        if (pi_detokenize(sv->e, two, 2, flags, p, (size_t) n) != n) text_no_memory();
    }
    if (len && cap) memcpy(out, p + sv->anchor_len, len < cap ? len : cap);
    if (p != buf) free(p);
    return len;
}

size_t service_token_count(const service *sv, int32_t id, bool special, utf8_hold *h, size_t *chars)
{
    char small[256], out[8], *p = small;
    size_t n = service_token_text(sv, id, special, small, sizeof small), bytes = 0;
    if (n > sizeof small) {
        if (!(p = malloc(n))) return text_no_memory(), 0;
        service_token_text(sv, id, special, p, n);
    }
    for (size_t i = 0; i < n; i++) {
        size_t k = utf8_step(h, (unsigned char) p[i], out);
        for (size_t j = 0; j < k; j++) *chars += (out[j] & 0xC0) != 0x80;
        bytes += k;
    }
    if (p != small) free(p);
    return bytes;
}
