/* Fill in the middle (FIM): builds the prompt that a code model was trained on from the text before and after a
 * position and from other files ("Efficient Training of Language Models to Fill in the Middle", Bavarian et al. 2022;
 * with files of the repository: Qwen2.5-Coder's technical report).
 *
 *     [REP] repo \n  [SEP] name \n text ...  [SEP] name \n  [BOS] [PRE] prefix typed [SUF] suffix [MID]
 *
 * Parts are tokenized separately, as in llama-server, so that the tokens of other files do not depend on the typed
 * text. */
#include "tokenizer/infill.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tokenizer/vocab_impl.h"

/* Separates files if the vocabulary has no token for it; the text is llama-server's, as models expect it. */
#define BETWEEN "\n\n--- snippet ---\n\n"

static int add_id(pi__ids *ids, int32_t id)
{
    if (!pi__grow(&ids->p, &ids->cap, ids->n + 1, sizeof *ids->p)) return PI_ENOMEM;
    ids->p[ids->n++] = id;
    return PI_OK;
}

static int add_text(const pi__vocab *v, const char *text, size_t n, pi__ids *ids)
{
    return n ? pi__tokenize(v, text, n, false, false, ids) : PI_OK;
}

/* Appends a token, then a name and a line end. */
static int add_name(const pi__vocab *v, int32_t before, const char *name, pi__ids *ids)
{
    const size_t n = strlen(name);
    char *line = pi__malloc(n + 1);
    if (!line) return PI_ENOMEM;
    memcpy(line, name, n);
    line[n] = '\n';
    int rc = add_id(ids, before);
    if (!rc) rc = add_text(v, line, n + 1, ids);
    pi__free(line);
    return rc;
}

/* Appends everything before the edited file. */
static int add_files(const pi__vocab *v, const pi_infill_parts *in, pi__ids *ids)
{
    const int32_t rep = v->fim[PI__FIM_REP], sep = v->fim[PI__FIM_SEP];
    int rc = rep >= 0 ? add_name(v, rep, in->repo ? in->repo : "myproject", ids) : PI_OK;
    for (size_t i = 0; !rc && i < in->n_files; i++) {
        const pi_infill_file *f = &in->files[i];
        rc = sep >= 0 ? add_name(v, sep, f->name ? f->name : "tmp", ids)
                      : add_text(v, BETWEEN, sizeof BETWEEN - 1, ids);
        if (!rc) rc = add_text(v, f->text, f->len, ids);
    }
    return rc || sep < 0 ? rc : add_name(v, sep, in->name ? in->name : "filename", ids);
}

typedef struct parts {
    pi__ids files, prefix, typed, suffix;
} parts;

static int read_parts(const pi__vocab *v, const pi_infill_parts *in, parts *p)
{
    int rc = add_text(v, in->prefix, in->prefix_len, &p->prefix);
    if (!rc) rc = add_text(v, in->suffix, in->suffix_len, &p->suffix);
    if (!rc && in->typed_len) rc = pi__tokenize(v, in->typed, in->typed_len, false, true, &p->typed);
    return rc ? rc : add_files(v, in, &p->files);
}

/* Cuts the parts to `room` tokens (0 = unlimited). Keeps the end of the prefix and the start of the suffix, three to
 * one, and the end of the files, which is nearest to the position. */
static int shorten(parts *p, size_t room, size_t fixed, pi_error *err)
{
    const size_t need = p->typed.n + fixed;
    if (!room) return PI_OK;
    if (need > room)
        return pi__fail(err, PI_EINVAL, "the typed text has %zu tokens, but the prompt can have at most %zu: shorten "
                                        "it", p->typed.n, room);
    room -= need;
    const size_t least_suffix = p->suffix.n < room / 4 ? p->suffix.n : room / 4;
    const size_t prefix = p->prefix.n < room - least_suffix ? p->prefix.n : room - least_suffix;
    p->prefix.p += p->prefix.n - prefix;
    p->prefix.n = prefix;
    if (p->suffix.n > room - prefix) p->suffix.n = room - prefix;
    room -= prefix + p->suffix.n;
    if (p->files.n > room) {
        p->files.p += p->files.n - room;
        p->files.n = room;
    }
    return PI_OK;
}

static int add_ids(pi__ids *to, const pi__ids *from)
{
    int rc = PI_OK;
    for (size_t i = 0; !rc && i < from->n; i++) rc = add_id(to, from->p[i]);
    return rc;
}

static int join(const pi__vocab *v, const parts *p, bool suffix_first, pi__ids *ids)
{
    int rc = add_ids(ids, &p->files);
    if (!rc && v->add_bos && v->bos >= 0) rc = add_id(ids, v->bos);
    for (int i = 0; !rc && i < 2; i++) {
        const bool suffix = suffix_first == (i == 0);
        rc = add_id(ids, v->fim[suffix ? PI__FIM_SUF : PI__FIM_PRE]);
        if (!rc) rc = add_ids(ids, suffix ? &p->suffix : &p->prefix);
        if (!rc && !suffix) rc = add_ids(ids, &p->typed);
    }
    return rc ? rc : add_id(ids, v->fim[PI__FIM_MID]);
}

int pi__infill(const pi__vocab *v, const pi_infill_parts *in, pi__ids *ids, pi_error *err)
{
    static const char *const names[] = {"prefix", "suffix", "middle"};
    for (int i = PI__FIM_PRE; i <= PI__FIM_MID; i++) {
        if (v->fim[i] < 0)
            return pi__fail(err, PI_EUNSUPPORTED,
                            "the model's vocabulary has no token for the %s of a fill-in-the-middle "
                            "prompt: use a code model that was trained for it (Qwen Coder, StarCoder, ...)",
                            names[i]);
    }
    const pi__ids none = {.work = ids->work};
    parts p = {none, none, none, none}, whole;
    int rc = read_parts(v, in, &p);
    whole = p; /* buffers to free */
    if (rc) pi__fail(err, rc, "tokenizing the text around the position: %s", pi_strerror(rc));
    else rc = shorten(&p, in->max_tokens, 3 + (v->add_bos && v->bos >= 0), err);
    if (!rc && (rc = join(v, &p, in->suffix_first, ids))) pi__fail_mem(err, "the prompt");
    pi__free(whole.files.p);
    pi__free(whole.prefix.p);
    pi__free(whole.typed.p);
    pi__free(whole.suffix.p);
    return rc;
}
