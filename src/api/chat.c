/* pi_chat_render, pi_chat_tokenize, pi_request_prompt_chat, and the chat template of an engine (see template/chat.h).
 *
 * The template is loaded when the engine opens. A template from the options must be valid, or opening fails. If the
 * model's own template is not valid, the engine opens anyway, and rendering returns the stored error. The template is
 * constant afterwards: any thread may render. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/chat.h"
#include "api/gen_params.h"
#include "api/image_prompt.h"
#include "api/request.h"
#include "base/alloc.h"
#include "base/error.h"

enum { FILE_MAX = 1 << 20 }; /* bytes of a template */

/* Reads a file of n bytes and appends a NUL. */
static int read_text(int fd, size_t n, const char *path, char **out, pi_error *err)
{
    char *text = pi__malloc(n + 1);
    size_t have = 0;
    if (!text) return pi__fail_mem(err, "the chat template");
    while (have < n) {
        ssize_t got = read(fd, text + have, n - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        have += (size_t) got;
    }
    text[have] = 0;
    if (have < n || strlen(text) < n) {
        pi__free(text);
        if (have < n) return pi__fail(err, PI_EIO, "%s: cannot be read", path);
        return pi__fail(err, PI_EINVAL, "%s: not a text", path);
    }
    *out = text;
    return PI_OK;
}

static int read_file(const char *path, char **out, pi_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return pi__fail(err, errno == ENOENT ? PI_ENOENT : PI_EIO, "%s: %s", path, strerror(errno));
    int rc = PI_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) rc = pi__fail(err, PI_EIO, "%s: not a file", path);
    else if (st.st_size > FILE_MAX) rc = pi__fail(err, PI_ETOOBIG, "%s: a chat template has at most 1 MiB", path);
    else rc = read_text(fd, (size_t) st.st_size, path, out, err);
    close(fd);
    return rc;
}

int pi__engine_open_chat(pi_engine *e, const pi_options *o, pi_error *err)
{
    const char *path = pi__opt_str(&o->set, PI__OPT_CHAT_TEMPLATE_FILE);
    const char *kwargs = pi__opt_str(&o->set, PI__OPT_CHAT_KWARGS);
    const char *text = pi__opt_str(&o->set, PI__OPT_CHAT_TEMPLATE);
    bool asked = *path || *text || *kwargs;
    pi_info info = {.size = sizeof info};
    char *owned = NULL;
    int rc = *path ? read_file(path, &owned, err) : PI_OK;
    if (rc) return rc;
    if (owned) text = owned;
    if (!*text && !pi__core_info(e->core, &info)) text = info.chat_template;
    rc = pi__chat_new(&e->chat, pi__core_vocab(e->core), *text ? text : NULL, *kwargs ? kwargs : NULL, &e->chat_err);
    pi__free(owned);
    const pi__image_frame *frame = pi__engine_tower(e) ? pi__tower_frame(pi__engine_tower(e)) : NULL;
    if (!rc && frame && pi__chat_set_image(e->chat, frame->text_before, frame->text_after))
        return pi__fail_mem(err, "the chat template");
    if (!rc) return PI_OK;
    if (rc == PI_ENOMEM || asked) {
        if (err) *err = e->chat_err;
        return rc;
    }
    if (rc != PI_EUNSUPPORTED) pi__logf(&e->log, PI_LOG_WARN, "the model's chat template: %s", e->chat_err.msg);
    return PI_OK;
}

int64_t pi_work_chat_render(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                            const char *options, char *out, size_t cap, pi_error *err)
{
    if (!e || !messages || (!out && cap)) return pi__fail(err, PI_EINVAL, "pi_chat_render: an argument is NULL");
    if (!e->chat) return pi__fail(err, e->chat_err.code, "%s", e->chat_err.msg);
    pi__text text = {.work = w ? &w->w : NULL};
    int rc = pi__chat_render(e->chat, messages, tools, options, (int64_t) time(NULL), &text, err);
    if (!rc && cap && text.n) memcpy(out, text.p, text.n < cap ? text.n : cap);
    int64_t n = rc ? rc : (int64_t) text.n;
    pi__free(text.p);
    return n;
}

int64_t pi_chat_render(const pi_engine *e, const char *messages, const char *tools, const char *options, char *out,
                       size_t cap, pi_error *err)
{
    return pi_work_chat_render(NULL, e, messages, tools, options, out, cap, err);
}

int64_t pi_work_chat_tokenize(pi_work *w, const pi_engine *e, const char *messages, const char *tools,
                              const char *options, int32_t *out, size_t cap, pi_error *err)
{
    if (!e || !messages || (!out && cap)) return pi__fail(err, PI_EINVAL, "pi_chat_tokenize: an argument is NULL");
    if (!e->chat) return pi__fail(err, e->chat_err.code, "%s", e->chat_err.msg);
    pi__ids ids = {.work = w ? &w->w : NULL};
    pi__text text;
    size_t n_images;
    int rc = pi__chat_tokens(e->chat, messages, tools, options, (int64_t) time(NULL), &ids, &text, &n_images, err);
    if (!rc && n_images) rc = pi__image_check(e, err);
    if (!rc && cap && ids.n) memcpy(out, ids.p, (ids.n < cap ? ids.n : cap) * sizeof *out);
    int64_t n = rc ? rc : (int64_t) ids.n;
    pi__free(text.p);
    pi__free(ids.p);
    return n;
}

int64_t pi_chat_tokenize(const pi_engine *e, const char *messages, const char *tools, const char *options, int32_t *out,
                         size_t cap, pi_error *err)
{
    return pi_work_chat_tokenize(NULL, e, messages, tools, options, out, cap, err);
}

/* Compiles the grammar of a required call. The engine caches it for submit. */
static int try_grammar(const pi_request *r, const pi__call_form *f, pi_error *err)
{
    const pi__grammar_parts parts = pi__call_parts(f);
    pi__grammar *g = NULL;
    int rc = pi__core_grammar(r->e->core, &parts, r->work, &g, err);
    pi__grammar_release(g);
    return rc;
}

int pi_request_prompt_chat(pi_request *r, const char *messages, const char *tools, const char *options, pi_error *err)
{
    int rc = pi__request_check_new(r, err);
    if (rc) return rc;
    const pi_engine *e = r->e;
    if (!messages) return pi__fail(err, PI_EINVAL, "pi_request_prompt_chat: messages must not be NULL");
    if (!e->chat) return pi__fail(err, e->chat_err.code, "%s", e->chat_err.msg);
    pi__ids ids = {.work = r->work};
    pi__text text;
    size_t n_images;
    pi__call_form calls = {.required = false};
    rc = pi__chat_tokens(e->chat, messages, tools, options, (int64_t) time(NULL), &ids, &text, &n_images, err);
    if (!rc && !ids.n) rc = pi__fail(err, PI_EINVAL, "the prompt is empty");
    if (!rc && n_images) rc = pi__image_check(e, err);
    if (!rc && n_images != r->n_images)
        rc = pi__fail(err, PI_EINVAL, "the messages have %zu images, the request has %zu: call pi_request_image once "
                      "for each part of type image", n_images, r->n_images);
    const pi__str prompt = {text.p ? text.p : "", text.n};
    if (!rc) rc = pi__chat_grammar(e->chat, tools, options, prompt, &calls, err);
    if (!rc && calls.required) rc = try_grammar(r, &calls, err);
    pi__free(text.p);
    if (!rc) rc = pi__image_expand(r, &ids, false, err);
    if (rc) {
        pi__free(ids.p);
        pi__call_form_free(&calls);
        return rc;
    }
    pi__request_take_prompt(r, ids.p, ids.n);
    r->calls = calls;
    return PI_OK;
}
