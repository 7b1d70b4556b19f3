/* The handle of libpagedinfer-openai (see openai.h): settings, and the queue of chunks.
 *
 * Memory: chunks in the queue are owned by the queue, then by the caller of pi_openai_poll. */
#include "openai/openai.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

extern const char build_commit[];
extern const int build_number;

static int fail(pi_error *err, int code, const char *text)
{
    if (err) {
        err->code = code;
        snprintf(err->msg, sizeof err->msg, "%s", text);
    }
    return code;
}

/* -------------------------------------------------------------------------------------------------------- settings */

enum { ALIAS, REASONING, FORMAT, EFFORT, PREFILL, MAX_IMAGES, MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS, MEDIA_PATH };
static const char *const settings[N_SETTINGS] = {
    "alias", "reasoning", "reasoning-format", "reasoning-effort", "prefill-assistant", "max-images", "max-image-bytes",
    "max-image-pixels", "media-path"};

/* Finds the row of an option of the server. */
static bool row_of(const char *key, pi_option_info *row)
{
    for (size_t i = 0; options_at(i, row); i++)
        if (!strcmp(row->key, key)) return true;
    return false;
}

static const char *value_of(const pi_openai *o, int i)
{
    pi_option_info row;
    return o->value[i] ? o->value[i] : row_of(settings[i], &row) ? row.def : "";
}

static int64_t number_of(const pi_openai *o, int i)
{
    int64_t n = 0;
    (void) options_int(value_of(o, i), &n); /* the value was checked */
    return n;
}

static void apply(pi_openai *o)
{
    service *sv = &o->sv;
    const char *alias = value_of(o, ALIAS);
    sv->alias = *alias ? alias : o->model;
    sv->reasoning = value_of(o, REASONING);
    sv->reasoning_format = value_of(o, FORMAT);
    sv->reasoning_effort = value_of(o, EFFORT);
    (void) options_bool(value_of(o, PREFILL), &sv->prefill_assistant);
    sv->max_images = number_of(o, MAX_IMAGES);
    sv->max_image_bytes = number_of(o, MAX_IMAGE_BYTES);
    sv->max_image_pixels = number_of(o, MAX_IMAGE_PIXELS);
    sv->media_path = value_of(o, MEDIA_PATH);
    sv->media_domains = "";
}

static int unknown(const char *key, pi_error *err)
{
    char text[240];
    int n = snprintf(text, sizeof text, "unknown option '%.40s': give one of", key);
    for (size_t i = 0; i < N_SETTINGS; i++)
        n += snprintf(text + n, sizeof text - (size_t) n, "%s %s", i ? "," : "", settings[i]);
    return fail(err, PI_EINVAL, text);
}

int pi_openai_set(pi_openai *o, const char *key, const char *value, pi_error *err)
{
    pi_option_info row;
    pi_error why = {0};
    size_t i = 0;
    if (!o || !key || !value) return fail(err, PI_EINVAL, "a required pointer is NULL");
    while (i < N_SETTINGS && strcmp(settings[i], key)) i++;
    if (i == N_SETTINGS || !row_of(key, &row)) return unknown(key, err);
    if (options_check(NULL, &row, value, &why)) return fail(err, PI_EINVAL, why.msg);
    if (o->n_made) return fail(err, PI_EBUSY, "a completion exists: set options before the first one");
    char *copy = strdup(value);
    if (!copy) return fail(err, PI_ENOMEM, "out of memory");
    free(o->value[i]);
    o->value[i] = copy;
    apply(o);
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------ the handle */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static int init_lock(pi_openai *o)
{
    pthread_condattr_t a;
    pthread_mutex_init(&o->lock, NULL); /* these functions cannot fail on Linux */
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&o->changed, &a);
    pthread_condattr_destroy(&a);
    o->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return o->fd < 0 ? PI_EIO : PI_OK;
}

/* Writes the name of the model: the metadata's name, else its architecture. */
static void name_model(pi_openai *o)
{
    const pi_info *info = &o->sv.info;
    snprintf(o->model, sizeof o->model, "%s", info->name && *info->name ? info->name : info->arch);
}

int pi_openai_new(pi_openai **out, pi_engine *e, pi_error *err)
{
    if (out) *out = NULL;
    if (!out || !e) return fail(err, PI_EINVAL, "a required pointer is NULL");
    pthread_once(&once, text_watch_memory);
    pi_openai *o = calloc(1, sizeof *o);
    if (!o) return fail(err, PI_ENOMEM, "out of memory");
    if (init_lock(o)) {
        pi_openai_free(o);
        return fail(err, PI_EIO, "cannot create an event descriptor: raise the limit of open files");
    }
    o->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
    if (!o->c_locale) {
        pi_openai_free(o);
        return fail(err, PI_ENOMEM, "out of memory");
    }
    service_open(&o->sv, e);
    name_model(o);
    snprintf(o->sv.build, sizeof o->sv.build, "b%d-%.32s", build_number, build_number ? build_commit : pi_version());
    o->sv.id_seed = gen_now() ^ (uint64_t) time(NULL) << 32 ^ (uint64_t) getpid() << 16 ^ (uint64_t) (uintptr_t) o;
    apply(o);
    *out = o;
    return PI_OK;
}

void pi_openai_free(pi_openai *o)
{
    if (!o) return;
    if (o->fd >= 0) close(o->fd);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    if (o->c_locale) freelocale(o->c_locale);
    for (size_t i = 0; i < N_SETTINGS; i++) free(o->value[i]);
    free(o);
}

/* ------------------------------------------------------------------------------------------------------- the queue */

/* Makes the descriptor readable if there is a chunk or work, and only then; wakes waiting polls. */
static void update(pi_openai *o)
{
    const bool some = o->first || o->dirty;
    uint64_t n = 1;
    pthread_cond_broadcast(&o->changed);
    if (some == o->signaled) return;
    const ssize_t got = some ? write(o->fd, &n, sizeof n) : read(o->fd, &n, sizeof n);
    o->signaled = got == (ssize_t) sizeof n ? some : o->signaled;
}

void openai_mark(pi_openai *o, pi_completion *c)
{
    if (c->is_dirty) return;
    c->is_dirty = true;
    c->next = NULL;
    if (o->dirty) o->last_dirty->next = c;
    else o->dirty = c;
    o->last_dirty = c;
    update(o);
}

void openai_queue(pi_openai *o, chunk *k)
{
    k->queued = true;
    k->next = NULL;
    if (o->first) o->last->next = k;
    else o->first = k;
    o->last = k;
    update(o);
}

/* Removes the first chunk from the queue. */
static chunk *take(pi_openai *o)
{
    chunk *k = o->first;
    o->first = k->next;
    if (k->pub.last) {
        k->pub.completion->counted = false;
        o->n_open--;
    }
    return k;
}

void openai_forget(pi_openai *o, pi_completion *c)
{
    pi_completion *before = NULL;
    chunk *kept = NULL, *last = NULL;
    for (pi_completion *d = o->dirty; c->is_dirty && d != c; d = d->next) before = d;
    if (c->is_dirty && before) before->next = c->next;
    else if (c->is_dirty) o->dirty = c->next;
    if (c->is_dirty && o->last_dirty == c) o->last_dirty = before;
    c->is_dirty = false;
    for (chunk *k = o->first, *next; k; k = next) {
        next = k->next;
        k->next = NULL;
        if (k->pub.completion == c) {
            pi_chunk_release(&k->pub);
        } else {
            if (last) last->next = k;
            else kept = k;
            last = k;
        }
    }
    o->first = kept;
    o->last = last;
    o->n_open -= c->counted;
    c->counted = false;
    update(o);
}

/* Processes the first completion with new events. */
static void work(pi_openai *o)
{
    pi_completion *c = o->dirty;
    o->dirty = c->next;
    c->is_dirty = false;
    completion_pump(c);
}

/* Waits for a change. Returns false at the time limit. */
static bool wait_for(pi_openai *o, int timeout_ms, const struct timespec *until)
{
    if (!timeout_ms) return false;
    if (timeout_ms < 0) return !pthread_cond_wait(&o->changed, &o->lock);
    return pthread_cond_timedwait(&o->changed, &o->lock, until) != ETIMEDOUT;
}

static struct timespec after(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (timeout_ms < 0) return t;
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long) (timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

int pi_openai_poll(pi_openai *o, pi_chunk **buf, size_t cap, int timeout_ms)
{
    const struct timespec until = after(timeout_ms);
    const size_t most = cap < 1 << 20 ? cap : 1 << 20;
    size_t n = 0;
    if (!o || !buf || !cap) return PI_EINVAL;
    const locale_t before = uselocale(o->c_locale);
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (n < most && o->first) buf[n++] = &take(o)->pub;
        if (n == most || (n && !o->dirty)) break;
        if (o->dirty) work(o);
        else if (!o->n_open || !wait_for(o, timeout_ms, &until)) break;
    }
    update(o);
    pthread_mutex_unlock(&o->lock);
    uselocale(before);
    return (int) n;
}

int pi_openai_poll_fd(const pi_openai *o) { return o ? o->fd : PI_EINVAL; }

void pi_chunk_release(pi_chunk *pub)
{
    chunk *k = (chunk *) pub;
    if (!k || !k->queued) return;
    free(k->text);
    free(k);
}
