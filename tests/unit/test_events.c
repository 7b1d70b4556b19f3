/* Requests and events with a fake core that the tests control: queues, merging, waiting, callbacks, lifetimes.
 *
 * This file defines the core's functions instead of linking the real ones: a token arrives exactly when a test sends
 * it. */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "engine/core.h"
#include "random_model.h"

/* ------------------------------------------------------------------------------------------------------- fake core */

struct pi__seq {
    atomic_int ref;
    atomic_bool cancel;
    pi__job job;
    pi__core *core;
    pi__seq *next;
    bool over;
};

struct pi__core {
    pi__vocab *vocab;
    pthread_mutex_t lock;
    pi__seq *live;
    bool draining;
    int refuse;       /* return value of submit */
    int n_cancels;    /* calls of pi__seq_cancel */
    double queue_ms, prefill_ms, decode_ms; /* reported at the end of a job */
};

static pi__core *core; /* the most recently opened core */

int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err)
{
    (void) c, (void) err;
    out->kv_tokens = 4096;
    return PI_OK;
}

int pi__core_memory(const pi__core *e, pi_plan *out)
{
    (void) e;
    return pi__core_plan(NULL, out, NULL);
}

int pi__core_open(pi__core **out, const pi__config *c, pi_error *err)
{
    pi__gguf *g = NULL;
    pi__core *e = calloc(1, sizeof *e);
    int rc = pi__gguf_open(&g, c->model, c->load_mode, err);
    if (!rc) rc = pi__vocab_load(&e->vocab, g, err);
    pi__gguf_close(g);
    if (rc) {
        free(e);
        return rc;
    }
    pthread_mutex_init(&e->lock, NULL);
    *out = core = e;
    return PI_OK;
}

void pi__core_close(pi__core *e)
{
    if (!e) return;
    assert_null(e->live); /* pi_engine_close ended all jobs before */
    pi__vocab_free(e->vocab);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int pi__core_state(const pi__core *e) { return e->draining ? PI_STATE_DRAINING : PI_STATE_READY; }
const pi__vocab *pi__core_vocab(const pi__core *e) { return e->vocab; }

int pi__core_info(const pi__core *e, pi_info *out)
{
    out->n_vocab = (uint32_t) pi__vocab_size(e->vocab);
    out->chat_template = "";
    return PI_OK;
}

int pi__core_stats(const pi__core *e, pi_stats *out)
{
    (void) e;
    out->n_steps = 7;
    return PI_OK;
}

void pi__core_cache_clear(pi__core *e, const char *salt) { (void) e, (void) salt; }
int pi__core_lora_load(pi__core *e, const char *name, const char *path, float scale, pi_error *err)
{
    (void) e, (void) name, (void) path, (void) scale;
    return pi__fail(err, PI_EUNSUPPORTED, "no adapters here");
}
int pi__core_lora_replace(pi__core *e, const char *name, const char *path, pi_error *err)
{
    return pi__core_lora_load(e, name, path, 0, err);
}
int pi__core_lora_unload(pi__core *e, const char *name, pi_error *err)
{
    return pi__core_lora_load(e, name, NULL, 0, err);
}
int pi__core_lora_scale(pi__core *e, const char *name, float scale, pi_error *err)
{
    return pi__core_lora_load(e, name, NULL, scale, err);
}
int pi__core_lora_at(pi__core *e, size_t i, pi_lora *out)
{
    (void) e, (void) i, (void) out;
    return PI_ENOENT;
}
int pi__core_on_cache_event(pi__core *e, pi_cache_event_fn fn, void *ud, pi_error *err)
{
    (void) e, (void) fn, (void) ud, (void) err;
    return PI_OK;
}
const pi__classifier *pi__core_classifier(const pi__core *e)
{
    static const pi__classifier none;
    (void) e;
    return &none;
}
const pi__dense_heads *pi__core_dense(const pi__core *e)
{
    static const pi__dense_heads none;
    (void) e;
    return &none;
}

int pi__core_grammar(pi__core *e, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err)
{
    (void) e, (void) parts, (void) work, (void) out;
    return pi__fail(err, PI_EUNSUPPORTED, "no grammars here");
}

const pi__tower *pi__core_tower(const pi__core *e)
{
    (void) e;
    return NULL;
}

const pi__gguf_copy *pi__core_metadata(const pi__core *e)
{
    static const pi__gguf_copy nothing;
    (void) e;
    return &nothing;
}

int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err)
{
    if (e->refuse || e->draining) {
        if (err) *err = (pi_error) {e->refuse ? e->refuse : PI_ECLOSED, "refused"};
        return e->refuse ? e->refuse : PI_ECLOSED;
    }
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < n; i++) {
        pi__seq *s = calloc(1, sizeof *s);
        s->ref = 2;
        s->job = j[i];
        s->core = e;
        s->next = e->live;
        e->live = out[i] = s;
    }
    pthread_mutex_unlock(&e->lock);
    return PI_OK;
}

void pi__seq_cancel(pi__core *e, pi__seq *s)
{
    pthread_mutex_lock(&e->lock);
    e->n_cancels++;
    s->cancel = true;
    pthread_mutex_unlock(&e->lock);
}

void pi__seq_release(pi__seq *s)
{
    if (s && atomic_fetch_sub(&s->ref, 1) == 1) free(s);
}

/* Returns the job that was submitted n jobs before the newest one; 0 = the newest. */
static pi__seq *live(int n)
{
    pi__seq *s = core->live;
    while (n-- > 0) s = s->next;
    return s;
}

static bool give_token(pi__seq *s, int32_t id)
{
    const pi__token_out t = {.id = id, .eog = id == TINY_EOS};
    return s->job.on_token(s->job.ud, &t);
}

static bool give_text(pi__seq *s, const char *text)
{
    bool end = false;
    for (; *text && !end; text++) end = give_token(s, TINY_BYTE0 + (unsigned char) *text);
    return end;
}

static void end_job(pi__seq *s, int reason, int code)
{
    pi__core *e = s->core;
    pthread_mutex_lock(&e->lock);
    pi__seq **p = &e->live;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    pthread_mutex_unlock(&e->lock);
    const pi__job_end end = {.reason = reason, .code = code, .msg = code ? "it broke" : "",
                             .prompt_tokens = (uint32_t) s->job.n_prompt, .cached_tokens = 1,
                             .generated_tokens = 5, .miss_reason = "because", .queue_ms = e->queue_ms,
                             .prefill_ms = e->prefill_ms, .decode_ms = e->decode_ms};
    s->job.on_done(s->job.ud, &end);
    pi__seq_release(s);
}

int pi__core_drain(pi__core *e, int timeout_ms)
{
    e->draining = true;
    for (pi__seq *s = e->live, *next; s && timeout_ms < 0; s = next) {
        next = s->next;
        assert_true(s->cancel);
        end_job(s, PI_FINISH_CANCEL, PI_ECANCELED);
    }
    return e->live ? PI_ETIMEDOUT : PI_OK;
}

/* --------------------------------------------------------------------------------------------------------- helpers */

static char model[256];

static int setup(void **state)
{
    (void) state;
    return tiny_write(tiny_path(model, "events"), &(tiny_spec) {.vocab_only = true}, NULL);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(model);
}

static pi_engine *open_engine(void)
{
    pi_error err = {0};
    pi_engine *e;
    pi_options *o = pi_options_new();
    assert_int_equal(pi_options_set(o, "model", model, &err), PI_OK);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static pi_request *new_request(pi_engine *e)
{
    static const int32_t prompt[] = {TINY_BOS, TINY_PIECE0 + 1};
    pi_request *r = pi_request_new(e);
    assert_non_null(r);
    assert_int_equal(pi_request_prompt_tokens(r, prompt, 2, NULL), PI_OK);
    return r;
}

static pi_request *submitted(pi_engine *e)
{
    pi_request *r = new_request(e);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    return r;
}

static pi_request *submitted_samples(pi_engine *e, const char *n)
{
    pi_request *r = new_request(e);
    assert_int_equal(pi_request_set(r, "n", n, NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    return r;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}

/* The next event is available and matches. */
static void expect(pi_engine *e, pi_request *r, int kind, const char *text)
{
    pi_event *ev = NULL;
    assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
    assert_true(ev->kind == kind && ev->request == r);
    assert_string_equal(ev->text, text);
    assert_int_equal(ev->text_len, strlen(text));
    pi_event_release(ev);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* ----------------------------------------------------------------------------------------------------------- tests */

static void events_come_in_order_and_merge(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *a = submitted(e), *b = submitted(e);
    pi__seq *sa = live(1), *sb = live(0);
    give_text(sa, "ab");
    give_text(sb, "x");
    give_text(sa, "c"); /* merged into a's event, which was not polled yet */
    pi_event *ev[8];
    assert_int_equal(pi_poll(e, ev, 8, -1), 2);
    assert_true(ev[0]->request == a && ev[0]->n_tokens == 3 && ev[0]->tokens[2] == TINY_BYTE0 + 'c');
    assert_string_equal(ev[0]->text, "abc");
    assert_string_equal(ev[1]->text, "x");
    give_text(sa, "d"); /* a new event, because the caller has the first one */
    assert_string_equal(ev[0]->text, "abc");
    pi_event_release(ev[1]);
    pi_event_release(ev[0]);
    end_job(sa, PI_FINISH_LENGTH, PI_OK);
    expect(e, a, PI_EVENT_TEXT, "d");
    expect(e, a, PI_EVENT_DONE, "");
    end_job(sb, PI_FINISH_ERROR, PI_EDEVICE);
    assert_int_equal(pi_poll(e, ev, 8, -1), 1);
    assert_true(ev[0]->kind == PI_EVENT_DONE && ev[0]->code == PI_EDEVICE && ev[0]->finish_reason == PI_FINISH_ERROR);
    pi_event_release(ev[0]);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(b, &res), PI_OK);
    assert_string_equal(res.msg, "it broke");
    pi_request_free(a);
    pi_request_free(b);
    pi_engine_close(e);
}

static void waiting(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_event *ev[2];
    assert_int_equal(pi_poll(e, ev, 2, -1), 0); /* no request to wait for */
    pi_request *r = submitted(e);
    assert_int_equal(pi_poll(e, ev, 2, 0), 0);
    double t = now_ms();
    assert_int_equal(pi_poll(e, ev, 2, 30), 0);
    assert_true(now_ms() - t > 25);
    assert_int_equal(pi_request_wait(r, 0), PI_ETIMEDOUT);
    t = now_ms();
    assert_int_equal(pi_request_wait(r, 30), PI_ETIMEDOUT);
    assert_true(now_ms() - t > 25);
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    assert_int_equal(pi_request_wait(r, -1), PI_OK);
    assert_int_equal(pi_poll(e, ev, 2, -1), 1);
    assert_int_equal(pi_poll(e, ev + 1, 1, -1), 0);
    pi_event_release(ev[0]);
    assert_int_equal(pi_poll(e, ev, 0, 0), PI_EINVAL);
    assert_int_equal(pi_poll(NULL, ev, 1, 0), PI_EINVAL);
    pi_request_free(r);
    pi_engine_close(e);
}

static void descriptor_follows_the_queue(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = submitted(e);
    pi__seq *s = live(0);
    give_text(s, "a"); /* before the descriptor is requested */
    int fd = pi_poll_fd(e);
    assert_true(fd >= 0 && readable(fd));
    expect(e, r, PI_EVENT_TEXT, "a");
    assert_false(readable(fd));
    give_text(s, "b");
    end_job(s, PI_FINISH_STOP, PI_OK);
    assert_true(readable(fd));
    expect(e, r, PI_EVENT_TEXT, "b");
    assert_true(readable(fd));
    pi_request_free(r); /* also frees its last event */
    assert_false(readable(fd));
    pi_engine_close(e);
}

static void stop_strings_end_the_job(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    assert_int_equal(pi_request_set(r, "stop", "END", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    assert_false(give_text(live(0), "abE"));
    assert_false(give_text(live(0), "N"));
    expect(e, r, PI_EVENT_TEXT, "ab");
    assert_true(give_text(live(0), "D"));
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_string_equal(res.stop, "END");
    assert_string_equal(res.miss_reason, "because");
    expect(e, r, PI_EVENT_TEXT, "");
    expect(e, r, PI_EVENT_DONE, "");
    assert_int_equal(pi_request_tokens(r, NULL, 0), 5);
    pi_request_free(r);
    r = new_request(e);
    assert_int_equal(pi_request_set(r, "stop", "END", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    give_text(live(0), "abEN\xE6");
    end_job(live(0), PI_FINISH_LENGTH, PI_OK); /* the end flushes the held text */
    expect(e, r, PI_EVENT_TEXT, "ab");
    expect(e, r, PI_EVENT_DONE, "EN\xEF\xBF\xBD");
    pi_request_free(r);
    pi_engine_close(e);
}

/* At the length limit, the replacement character of the incomplete last character can complete the stop string. */
static void a_stop_string_at_the_very_end(void **state)
{
    (void) state;
    static const struct { int reason, code, want; } how[] = {
        {PI_FINISH_LENGTH, PI_OK, PI_FINISH_STOP}, {PI_FINISH_STOP, PI_OK, PI_FINISH_STOP},
        {PI_FINISH_CANCEL, PI_ECANCELED, PI_FINISH_CANCEL}, {PI_FINISH_ERROR, PI_EDEVICE, PI_FINISH_ERROR}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        pi_engine *e = open_engine();
        pi_request *r = new_request(e);
        assert_int_equal(pi_request_set(r, "stop", "b\xEF\xBF\xBD", NULL), PI_OK);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
        assert_false(give_text(live(0), "ab\xE6"));
        end_job(live(0), how[i].reason, how[i].code);
        expect(e, r, PI_EVENT_TEXT, "a");
        pi_event *ev;
        assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
        assert_true(ev->text_len == 0 && ev->finish_reason == how[i].want && ev->code == how[i].code);
        pi_event_release(ev);
        pi_result res = {.size = sizeof res};
        assert_int_equal(pi_request_result(r, &res), PI_OK);
        assert_int_equal(res.finish_reason, how[i].want);
        assert_string_equal(res.stop, how[i].want == PI_FINISH_STOP ? "b\xEF\xBF\xBD" : "");
        pi_request_free(r);
        pi_engine_close(e);
    }
}

static void eos_is_a_token_without_text(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = submitted(e);
    give_token(live(0), TINY_EOS);
    pi_event *ev;
    assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
    assert_true(ev->n_tokens == 1 && ev->tokens[0] == TINY_EOS && ev->text_len == 0 && ev->n_logprobs == 0);
    pi_event_release(ev);
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
}

static void logprobs_and_user_pointer(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    int mine;
    pi_request_set_user(r, &mine);
    assert_int_equal(pi_request_set(r, "logprobs", "1", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    assert_int_equal(live(0)->job.params.n_logprobs, 1);
    for (int32_t i = 0; i < 20; i++) {
        const pi_token_prob probs[2] = {{i, -1.0f}, {i + 100, -2.0f}};
        const pi__token_out t = {.id = TINY_BYTE0 + 'a', .probs = probs, .n_probs = 2};
        live(0)->job.on_token(live(0)->job.ud, &t);
    }
    pi_event *ev;
    assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
    assert_true(ev->user == &mine && ev->n_tokens == 20 && ev->n_logprobs == 2);
    for (int32_t i = 0; i < 20; i++) assert_true(ev->logprobs[2 * i].id == i && ev->logprobs[2 * i + 1].id == i + 100);
    pi_event_release(ev);
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
}

static void a_taken_event_outlives_its_request(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = submitted(e);
    pi_event *ev[4];
    give_text(live(0), "abc");
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    assert_int_equal(pi_poll(e, ev, 4, 0), 2);
    pi_request_free(r);
    assert_string_equal(ev[0]->text, "abc");
    assert_int_equal(ev[1]->kind, PI_EVENT_DONE);
    pi_event_release(ev[1]);
    pi_event_release(ev[0]);
    r = submitted(e);
    give_text(live(0), "left to close");
    assert_int_equal(pi_poll(e, ev, 4, 0), 1); /* never released */
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
}

static void free_in_every_state(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request_free(NULL);
    pi_event_release(NULL);
    pi_request_free(pi_request_new(e));     /* without any setting */
    pi_request_free(new_request(e));        /* not submitted */
    pi_request *r = submitted(e);
    pi__seq *s = live(0);
    give_text(s, "a");
    pi_request_free(r);                     /* running, with an event in the queue */
    assert_true(s->cancel);
    pi_event *ev;
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    give_text(s, "nobody listens");
    end_job(s, PI_FINISH_CANCEL, PI_ECANCELED);
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    r = submitted(e);
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_request_free(r);                     /* ended, with its last event not polled */
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    r = submitted(e);
    pi_request_free(r);                     /* running when the engine closes */
    pi_engine_close(e);
    pi_engine_close(NULL);
}

/* --------------------------------------------------------------------------------------------------------- samples */

/* The next event is available and belongs to this sample. n_left negative = a TEXT event. */
static void expect_of(pi_engine *e, pi_request *r, uint32_t index, int n_left, const char *text)
{
    pi_event *ev = NULL;
    assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
    assert_true(ev->request == r && ev->index == index);
    assert_int_equal(ev->kind, n_left < 0 ? PI_EVENT_TEXT : PI_EVENT_DONE);
    assert_int_equal(ev->n_left, n_left < 0 ? 0 : n_left);
    assert_string_equal(ev->text, text);
    pi_event_release(ev);
}

static void samples_have_events_and_ends_of_their_own(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    static const char *const set[][2] = {{"n", "3"}, {"seed", "40"}, {"stop", "END"}};
    for (size_t i = 0; i < 3; i++) assert_int_equal(pi_request_set(r, set[i][0], set[i][1], NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    pi__seq *s[3] = {live(2), live(1), live(0)};
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(s[i]->job.params.sampling.seed, 40 + i);
    pi_result res = {.size = sizeof res};
    int32_t ids[8];
    give_text(s[1], "b");
    give_text(s[0], "aa");
    give_text(s[1], "bb"); /* both have an event that more text can join */
    assert_true(give_text(s[2], "cEND"));
    expect_of(e, r, 1, -1, "bbb");
    end_job(s[2], PI_FINISH_STOP, PI_OK);
    expect_of(e, r, 0, -1, "aa");
    expect_of(e, r, 2, -1, "c");
    expect_of(e, r, 2, 2, "");
    assert_int_equal(pi_request_wait(r, 0), PI_ETIMEDOUT);
    assert_int_equal(pi_request_result(r, &res), PI_EBUSY);
    assert_true(res.prompt_tokens == 2 && res.generated_tokens == 3 + 2 + 5 && !res.finish_reason && !*res.stop);
    assert_int_equal(pi_request_sample(r, 2, &res), PI_OK);
    assert_true(res.finish_reason == PI_FINISH_STOP && res.cached_tokens == 1 && !strcmp(res.stop, "END"));
    assert_int_equal(pi_request_sample(r, 1, &res), PI_EBUSY);
    assert_true(res.generated_tokens == 3 && res.prompt_tokens == 2);
    assert_int_equal(pi_request_sample(r, 3, &res), PI_EINVAL);
    assert_int_equal(pi_request_sample_tokens(r, 1, ids, 8), 3);
    assert_true(ids[2] == TINY_BYTE0 + 'b');
    assert_int_equal(pi_request_sample_tokens(r, 2, ids, 1), 4);
    assert_int_equal(pi_request_sample_tokens(r, 3, ids, 8), 0);
    assert_int_equal(pi_request_tokens(r, ids, 8), 2);
    give_text(s[1], "EN");
    end_job(s[1], PI_FINISH_ERROR, PI_EDEVICE);
    expect_of(e, r, 1, -1, ""); /* all text is still held back */
    expect_of(e, r, 1, 1, "EN");
    end_job(s[0], PI_FINISH_LENGTH, PI_OK);
    assert_int_equal(pi_request_wait(r, 0), PI_OK);
    expect_of(e, r, 0, 0, "");
    pi_event *ev;
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_true(res.code == PI_EDEVICE && res.finish_reason == PI_FINISH_ERROR && res.generated_tokens == 15);
    assert_true(res.prompt_tokens == 2 && res.cached_tokens == 1 && !strcmp(res.miss_reason, "because"));
    assert_string_equal(res.msg, "it broke");
    assert_int_equal(pi_request_sample(r, 0, &res), PI_OK);
    assert_true(res.code == PI_OK && res.finish_reason == PI_FINISH_LENGTH && res.generated_tokens == 5);
    pi_request_free(r);
    pi_engine_close(e);
}

/* A request's times run from the first sample's start to the first token of any sample, and to the last token of
 * all. */
static void times_of_samples_overlap(void **state)
{
    (void) state;
    static const double t[3][3] = {{2, 5, 10}, {1, 8, 20}, {4, 1, 3}}; /* tokens at 7..17, 9..29, 5..8 */
    pi_engine *e = open_engine();
    pi_request *r = submitted_samples(e, "3");
    for (int i = 0; i < 3; i++) {
        core->queue_ms = t[i][0], core->prefill_ms = t[i][1], core->decode_ms = t[i][2];
        end_job(live(2 - i), PI_FINISH_STOP, PI_OK);
    }
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_true(res.queue_ms == 1 && res.prefill_ms == 4 && res.decode_ms == 24);
    pi_request_free(r);
    pi_engine_close(e);
}

static void samples_freed_in_every_state(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_event *ev[8];
    pi_request *r = new_request(e);
    assert_int_equal(pi_request_set(r, "n", "65", NULL), PI_EINVAL);
    assert_int_equal(pi_request_set(r, "n", "64", NULL), PI_OK);
    core->refuse = PI_EBUSY;
    assert_int_equal(pi_request_submit(r, NULL), PI_EBUSY);
    core->refuse = 0;
    assert_int_equal(pi_request_sample(r, 0, &(pi_result) {.size = sizeof(pi_result)}), PI_EINVAL);
    assert_int_equal(pi_request_set(r, "n", "2", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK); /* another number of samples this time */
    pi__seq *a = live(1), *b = live(0);
    assert_null(b->next->next);
    give_text(a, "a");
    end_job(a, PI_FINISH_STOP, PI_OK);
    give_text(b, "b");
    pi_request_free(r); /* one ended, one runs; both have queued events */
    assert_true(b->cancel);
    assert_int_equal(pi_poll(e, ev, 8, -1), 0);
    give_text(b, "nobody listens");
    end_job(b, PI_FINISH_CANCEL, PI_ECANCELED);
    r = submitted_samples(e, "2");
    for (int i = 0; i < 2; i++) end_job(live(0), PI_FINISH_STOP, PI_OK);
    pi_request_free(r); /* ended, with last events not polled */
    assert_int_equal(pi_poll(e, ev, 8, -1), 0);
    r = submitted_samples(e, "3");
    for (int i = 0; i < 3; i++) give_text(live(i), "abc");
    for (int i = 0; i < 2; i++) end_job(live(0), PI_FINISH_STOP, PI_OK);
    assert_int_equal(pi_poll(e, ev, 8, 0), 5);
    pi_request_free(r); /* events polled, one sample runs */
    end_job(live(0), PI_FINISH_CANCEL, PI_ECANCELED);
    assert_string_equal(ev[2]->text, "abc");
    assert_true(ev[3]->kind == PI_EVENT_DONE && ev[3]->index == 2 && ev[4]->index == 1 && ev[4]->n_left == 1);
    for (int i = 4; i >= 0; i--) pi_event_release(ev[i]);
    pi_request_free(submitted_samples(e, "4")); /* all run when the engine closes */
    r = submitted_samples(e, "2");
    end_job(live(1), PI_FINISH_STOP, PI_OK);
    pi_request_free(r); /* one sample still runs */
    pi_engine_close(e);
}

static void cancel_ends_all_samples(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = submitted_samples(e, "3");
    end_job(live(1), PI_FINISH_STOP, PI_OK);
    pi_request_cancel(r);
    pi_request_cancel(r);
    assert_int_equal(core->n_cancels, 4); /* only the two running samples */
    while (live(0)) end_job(live(0), PI_FINISH_CANCEL, PI_ECANCELED);
    pi_request_cancel(r);
    assert_int_equal(core->n_cancels, 4);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_true(res.code == PI_ECANCELED && res.finish_reason == PI_FINISH_CANCEL);
    assert_int_equal(pi_request_sample(r, 1, &res), PI_OK);
    assert_int_equal(res.code, PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
}

static void cancel_any_number_of_times(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    pi_request_cancel(NULL);
    pi_request_cancel(r); /* not submitted: no effect */
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    assert_false(live(0)->cancel);
    pi_request_cancel(r);
    pi_request_cancel(r);
    assert_int_equal(core->n_cancels, 2);
    end_job(live(0), PI_FINISH_CANCEL, PI_ECANCELED);
    pi_request_cancel(r);
    assert_int_equal(core->n_cancels, 2);
    expect(e, r, PI_EVENT_DONE, "");
    pi_request_free(r);
    pi_engine_close(e);
}

static void a_refused_request_may_try_again(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_error err = {0};
    pi_event *ev;
    pi_request *r = pi_request_new(e);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL); /* no prompt */
    assert_int_equal(pi_request_result(r, &res), PI_EINVAL);
    assert_int_equal(pi_request_wait(r, -1), PI_EINVAL);
    assert_int_equal(pi_request_prompt_text(r, "the", 3, &err), PI_OK);
    core->refuse = PI_EBUSY;
    assert_int_equal(pi_request_submit(r, &err), PI_EBUSY);
    assert_string_equal(err.msg, "refused");
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    core->refuse = 0;
    assert_int_equal(pi_request_set(r, "stop", "x", &err), PI_OK);
    assert_int_equal(pi_request_set(r, "dry-multiplier", "0.5", &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    assert_true(live(0)->job.n_prompt == 2 && live(0)->job.prompt[0] == TINY_BOS);
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL); /* it is running */
    assert_int_equal(pi_request_set(r, "temp", "1", &err), PI_EINVAL);
    assert_int_equal(pi_request_prompt_text(r, "a", 1, &err), PI_EINVAL);
    assert_int_equal(pi_request_result(r, &res), PI_EBUSY);
    assert_int_equal(res.prompt_tokens, 2);
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL); /* a request can be submitted only once */
    pi_request_free(r);
    pi_engine_close(e);
}

static void what_the_vocabulary_refuses(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_error err = {0};
    pi_request *r = new_request(e);
    const int32_t bad[] = {TINY_BOS, TINY_VOCAB};
    assert_int_equal(pi_request_prompt_tokens(r, bad, 2, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "prompt token 1 is"));
    assert_int_equal(pi_request_prompt_tokens(r, bad, 0, &err), PI_EINVAL);
    assert_int_equal(pi_request_set(r, "logit-bias", "100000+1", &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
    assert_int_equal(pi_request_set(r, "logit-bias", "", &err), PI_OK);
    assert_int_equal(pi_request_set(r, "stop-token", "100000", &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
    assert_int_equal(pi_request_set(r, "stop-token", "", &err), PI_OK);
    assert_int_equal(pi_request_set(r, "model", "x", &err), PI_EINVAL);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
}

static void logit_bias_leaves_a_token(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    pi_error err = {0};
    char text[32];
    for (int32_t id = 0; id < TINY_VOCAB; id++) {
        if (id == TINY_EOS) continue;
        snprintf(text, sizeof text, "%d-inf", id);
        assert_int_equal(pi_request_set(r, "logit-bias", text, NULL), PI_OK);
    }
    assert_int_equal(pi_request_set(r, "min-tokens", "1", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL); /* min-tokens forbids the only remaining token */
    assert_non_null(strstr(err.msg, "logit-bias forbids every token except ends of generation"));
    assert_int_equal(pi_request_set(r, "min-tokens", "0", NULL), PI_OK);
    snprintf(text, sizeof text, "%d-inf", TINY_EOS);
    assert_int_equal(pi_request_set(r, "logit-bias", text, NULL), PI_OK);
    assert_int_equal(pi_request_set(r, "logit-bias", "5+3", NULL), PI_OK); /* a later bias does not lift the ban */
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "logit-bias forbids every token:"));
    pi_request_free(r);
    r = new_request(e);
    for (int32_t id = 1; id < TINY_VOCAB; id++) {
        snprintf(text, sizeof text, "%d-inf", id);
        assert_int_equal(pi_request_set(r, "logit-bias", text, NULL), PI_OK);
    }
    assert_int_equal(pi_request_submit(r, &err), PI_OK); /* one allowed token is enough */
    pi_request_free(r);
    pi_engine_close(e);
}

static void parameters_reach_the_core(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    static const char *const set[][2] = {
        {"max-tokens", "9"}, {"temp", "0.5"}, {"top-k", "3"}, {"seed", "77"}, {"samplers", "kt"},
        {"logit-bias", "5-inf"}, {"logit-bias", "6+1.5"},
        {"stop-token", "4"}, {"timeout", "1.5"}, {"ignore-eos", "true"}, {"cache", "false"},
        {"dry-multiplier", "0.8"}, {"dry-sequence-breaker", "the"}, {"priority", "-3"}, {"logits", "all"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        assert_int_equal(pi_request_set(r, set[i][0], set[i][1], NULL), PI_OK);
    }
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    const pi__gen_params *p = &live(0)->job.params;
    assert_true(p->max_tokens == 9 && p->sampling.temp == 0.5f && p->sampling.top_k == 3 && p->sampling.seed == 77);
    assert_true(p->sampling.chain[0] == PI__SMP_TOP_K && p->sampling.chain[1] == PI__SMP_TEMPERATURE);
    assert_true(p->sampling.chain[2] == PI__SMP_N && p->sampling.n_bias == 2 && p->n_stop_ids == 1);
    assert_true(p->deadline_ms == 1500 && p->ignore_eos && !p->cache && p->priority == -3 && p->n_logprobs == -1);
    assert_int_equal(p->logits, PI__LOGITS_NONE); /* there is no logits function */
    /* "the": the tokens that contain it, and tokens that end with "t" or "th" followed by the rest */
    bool whole = false, split = false;
    for (size_t i = 0; i < p->sampling.n_dry_breakers; i++) {
        const int32_t *s = p->sampling.dry_breakers[i];
        char text[32] = "";
        size_t n = pi__token_bytes(core->vocab, s[0], true, text, sizeof text);
        whole |= s[1] < 0 && memmem(text, n, "the", 3);
        split |= s[1] >= 0 && n == 2 && !memcmp(text, "th", 2);
    }
    assert_true(whole && split);
    pi_request_free(r);
    pi_engine_close(e);
}

/* ------------------------------------------------------------------------------------------------------- callbacks */

typedef struct heard {
    pthread_mutex_t lock;
    char text[256];
    int n_done;
    int n_last;       /* last events of a request among them */
    bool free_it;     /* free the request in its last event */
    atomic_bool hold; /* the callback waits for this to become false */
    atomic_bool inside;
} heard;

static void listen(void *ud, const pi_event *ev)
{
    heard *h = ud;
    h->inside = true;
    while (h->hold) usleep(100);
    pthread_mutex_lock(&h->lock);
    strncat(h->text, ev->text, sizeof h->text - 1 - strlen(h->text));
    h->n_done += ev->kind == PI_EVENT_DONE;
    bool last = ev->kind == PI_EVENT_DONE && !ev->n_left;
    h->n_last += last;
    pthread_mutex_unlock(&h->lock);
    if (last && h->free_it) pi_request_free(ev->request);
    h->inside = false;
}

static int n_done(heard *h)
{
    pthread_mutex_lock(&h->lock);
    int n = h->n_done;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static pi_request *submitted_to(pi_engine *e, heard *h, const char *n)
{
    pi_request *r = new_request(e);
    assert_int_equal(pi_request_set(r, "n", n, NULL), PI_OK);
    pi_request_on_event(r, listen, h);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    return r;
}

static void callbacks_instead_of_polling(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    heard h = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pi_request *r = submitted_to(e, &h, "1");
    pi_event *ev;
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0); /* pi_poll does not wait for requests with a callback */
    give_text(live(0), "abc");
    give_text(live(0), "def");
    end_job(live(0), PI_FINISH_STOP, PI_OK);
    while (!n_done(&h)) usleep(100);
    assert_string_equal(h.text, "abcdef");
    pi_request_free(r);
    h.free_it = true;
    for (int i = 0; i < 3; i++) { /* freed in their own last event, two of them while the engine closes */
        submitted_to(e, &h, "1");
        if (!i) end_job(live(0), PI_FINISH_STOP, PI_OK);
    }
    for (int i = 0; i < 2; i++) { /* likewise with several samples */
        submitted_to(e, &h, "3");
        for (int k = 0; k < 3 - 2 * i; k++) end_job(live(0), PI_FINISH_STOP, PI_OK);
    }
    pi_engine_close(e);
    assert_true(h.n_done == 10 && h.n_last == 6);
}

static void *release_later(void *ud)
{
    usleep(20000);
    ((heard *) ud)->hold = false;
    return NULL;
}

static void free_waits_for_a_running_callback(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    heard h = {.lock = PTHREAD_MUTEX_INITIALIZER, .hold = true};
    pi_request *r = submitted_to(e, &h, "1");
    give_text(live(0), "a");
    while (!h.inside) usleep(100);
    pthread_t t;
    pthread_create(&t, NULL, release_later, &h);
    pi_request_free(r);
    assert_false(h.inside); /* h could be freed now */
    pthread_join(t, NULL);
    give_text(live(0), "b");
    end_job(live(0), PI_FINISH_CANCEL, PI_ECANCELED);
    pi_engine_close(e);
    assert_string_equal(h.text, "a");
    assert_int_equal(h.n_done, 0);
}

static void take_logits(void *ud, uint32_t pos, const float *logits, size_t n)
{
    *(float *) ud += (float) pos + logits[0] + (float) n;
}

static void logits_until_freed(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    float sum = 0;
    const float row = 0.5f;
    pi_request_on_logits(r, take_logits, &sum);
    assert_int_equal(pi_request_set(r, "logits", "all", NULL), PI_OK);
    assert_int_equal(pi_request_set(r, "n", "2", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    pi__seq *s = live(1);
    assert_int_equal(s->job.params.logits, PI__LOGITS_ALL);
    assert_true(live(0)->job.params.logits == PI__LOGITS_NONE && !live(0)->job.on_logits); /* only the first sample */
    s->job.on_logits(s->job.logits_ud, 2, &row, 1);
    pi_request_free(r);
    s->job.on_logits(s->job.logits_ud, 3, &row, 1);
    assert_true(sum == 3.5f);
    end_job(s, PI_FINISH_CANCEL, PI_ECANCELED);
    end_job(live(0), PI_FINISH_CANCEL, PI_ECANCELED);
    pi_engine_close(e);
}

/* ------------------------------------------------------------------------------------------------- prompt-logprobs */

/* Delivers a row in which token id has logit 2 and all others 0. */
static void give_row(pi__seq *s, uint32_t pos, int32_t id)
{
    float row[TINY_VOCAB] = {0};
    row[id] = 2;
    s->job.on_logits(s->job.logits_ud, pos, row, TINY_VOCAB);
}

/* Creates a request for the six tokens of `six`, with options as "key", "value", ... NULL. */
static const int32_t six[] = {TINY_BOS, 300 % TINY_VOCAB, 261, 262, 263, 264};

static pi_request *scored(pi_engine *e, const char *const *set)
{
    pi_request *r = pi_request_new(e);
    assert_int_equal(pi_request_prompt_tokens(r, six, 6, NULL), PI_OK);
    for (; *set; set += 2) assert_int_equal(pi_request_set(r, set[0], set[1], NULL), PI_OK);
    return r;
}

#define SET(...) ((const char *const[]) {__VA_ARGS__, NULL})

static void the_prompt_has_probabilities(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    const float best = -log1pf((TINY_VOCAB - 1) * expf(-2)), other = best - 2;
    pi_request *r = scored(e, SET("prompt-logprobs", "1", "n", "2"));
    int mine;
    pi_request_set_user(r, &mine);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    assert_int_equal(live(1)->job.params.logits, PI__LOGITS_ALL);
    assert_true(live(0)->job.params.logits == PI__LOGITS_NONE && !live(0)->job.on_logits);
    pi_event *ev;
    for (uint32_t pos = 0; pos < 5; pos++) {
        assert_int_equal(pi_poll(e, &ev, 1, 0), 0); /* a single event, when the last one is known */
        give_row(live(1), pos, pos % 2 ? TINY_PAD : six[pos + 1]);
    }
    give_row(live(1), 5, TINY_PAD); /* belongs to the answer */
    give_text(live(1), "a");
    assert_int_equal(pi_poll(e, &ev, 1, 0), 1);
    assert_true(ev->kind == PI_EVENT_PROMPT && ev->request == r && ev->user == &mine && ev->index == 0);
    assert_true(ev->n_tokens == 5 && ev->n_logprobs == 2 && ev->text_len == 0 && !*ev->text);
    assert_memory_equal(ev->tokens, six + 1, 5 * sizeof *six);
    for (size_t i = 0; i < 5; i++) {
        const pi_token_prob *p = ev->logprobs + 2 * i;
        assert_true(p[0].id == six[i + 1] && fabsf(p[0].logprob - (i % 2 ? other : best)) < 1e-5f);
        assert_true(p[1].id == (i % 2 ? TINY_PAD : six[i + 1]) && fabsf(p[1].logprob - best) < 1e-5f);
    }
    expect(e, r, PI_EVENT_TEXT, "a");
    while (live(0)) end_job(live(0), PI_FINISH_LENGTH, PI_OK);
    pi_request_free(r);
    assert_memory_equal(ev->tokens, six + 1, 5 * sizeof *six); /* a polled event outlives its request */
    pi_event_release(ev);
    pi_engine_close(e);
}

static void note_rows(void *ud, uint32_t pos, const float *row, size_t n)
{
    (void) row, (void) n;
    *(uint32_t *) ud |= 1u << pos;
}

/* prompt-logprobs together with a logits function, which gets only the rows of its own option; also with
 * logits-from. */
static void probabilities_beside_logits(void **state)
{
    (void) state;
    static const struct { const char *logits, *from; uint32_t rows, n; } cases[] = {
        {"none", "0", 0, 5}, {"last", "0", 0x20, 5}, {"all", "0", 0x3F, 5}, {"none", "2", 0, 3}, {"all", "2", 0x3C, 3},
        {"last", "4", 0x20, 1}};
    pi_engine *e = open_engine();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_request *r = scored(e, SET("prompt-logprobs", "0", "logits", cases[i].logits, "logits-from", cases[i].from));
        uint32_t rows = 0, from = (uint32_t) atoi(cases[i].from);
        pi_request_on_logits(r, note_rows, &rows);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
        assert_int_equal(live(0)->job.params.logits_from, from);
        for (uint32_t pos = from; pos < 6; pos++) give_row(live(0), pos, TINY_PAD);
        end_job(live(0), PI_FINISH_LENGTH, PI_OK);
        assert_int_equal(rows, cases[i].rows);
        pi_event *ev[2];
        assert_int_equal(pi_poll(e, ev, 2, 0), 2);
        assert_true(ev[0]->kind == PI_EVENT_PROMPT && ev[0]->n_tokens == cases[i].n &&
                    ev[0]->tokens[0] == six[from + 1]);
        pi_event_release(ev[0]);
        pi_event_release(ev[1]);
        pi_request_free(r);
    }
    pi_request *r = scored(e, SET("prompt-logprobs", "0", "logits", "last", "logits-from", "5"));
    uint32_t rows = 0;
    pi_request_on_logits(r, note_rows, &rows);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK); /* nothing to report, so the option has no effect */
    assert_int_equal(live(0)->job.params.logits, PI__LOGITS_LAST);
    end_job(live(0), PI_FINISH_LENGTH, PI_OK);
    expect(e, r, PI_EVENT_DONE, "");
    pi_request_free(r);
    r = scored(e, SET("prompt-logprobs", "0", "logits", "generated"));
    pi_request_on_logits(r, note_rows, &rows);
    pi_error err = {0};
    assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "logits=generated"));
    assert_int_equal(pi_request_set(r, "logits", "all", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    give_row(live(0), 0, TINY_PAD);
    pi_request_free(r); /* half of the rows are known */
    for (uint32_t pos = 1; pos < 6; pos++) give_row(live(0), pos, TINY_PAD);
    assert_int_equal(rows, 1);
    pi_engine_close(e);
}

/* --------------------------------------------------------------------------------------------------------- threads */

typedef struct concurrency {
    pi_engine *e;
    atomic_int n_done, n_text;
    atomic_bool stop;
} concurrency;

static void *poller(void *ud)
{
    concurrency *c = ud;
    pi_event *ev[4];
    while (!c->stop) {
        int n = pi_poll(c->e, ev, 4, 5);
        for (int i = 0; i < n; i++) {
            c->n_text += (int) ev[i]->text_len;
            /* the canceling thread frees its own */
            if (ev[i]->kind == PI_EVENT_DONE && !ev[i]->n_left && ev[i]->user != c) {
                pi_request_free(ev[i]->request);
                c->n_done++;
            }
            pi_event_release(ev[i]);
        }
    }
    return NULL;
}

static void *canceller(void *ud)
{
    concurrency *c = ud;
    pi_stats s = {.size = sizeof s};
    for (int round = 0; !c->stop;) {
        pi_request *r = new_request(c->e);
        pi_result res = {.size = sizeof res};
        pi_request_set_user(r, c);
        if (round++ % 2) assert_int_equal(pi_request_set(r, "n", "3", NULL), PI_OK);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
        pi_request_sample(r, 2, &res);
        pi_request_result(r, &res);
        pi_request_cancel(r);
        pi_request_sample_tokens(r, 1, NULL, 0);
        pi_engine_stats(c->e, &s);
        pi_request_free(r);
        usleep(200);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void) state;
    enum { N = 200 };
    concurrency c = {.e = open_engine()};
    pthread_t t[4];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, poller, &c);
    pthread_create(&t[3], NULL, canceller, &c);
    int started = 0;
    for (int round = 0; c.n_done < N; round++) { /* this thread acts as the step thread */
        if (started < N && round % 2) {
            static const char *const n[] = {"1", "2", "5"};
            submitted_samples(c.e, n[started % 3]);
            started++;
        }
        pthread_mutex_lock(&core->lock);
        pi__seq *list[64];
        int n = 0;
        for (pi__seq *s = core->live; s && n < 64; s = s->next) list[n++] = s;
        pthread_mutex_unlock(&core->lock);
        for (int i = 0; i < n; i++) {
            bool its_turn = list[i]->job.params.sampling.seed % 7 == (uint64_t) round % 7;
            if (list[i]->cancel) end_job(list[i], PI_FINISH_CANCEL, PI_ECANCELED);
            else if (its_turn) end_job(list[i], PI_FINISH_STOP, PI_OK);
            else give_text(list[i], "x");
        }
        if (started == N) usleep(100);
    }
    c.stop = true;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    assert_int_equal(c.n_done, N);
    pi_engine_close(c.e);
}

static void *free_later(void *ud)
{
    usleep(20000);
    pi_request_free(ud);
    return NULL;
}

static void a_poller_wakes_when_the_last_request_is_freed(void **state)
{
    (void) state;
    pi_engine *e = open_engine();
    pthread_t t;
    pi_event *ev;
    pthread_create(&t, NULL, free_later, submitted(e));
    assert_int_equal(pi_poll(e, &ev, 1, -1), 0);
    pthread_join(t, NULL);
    pi_engine_close(e);
}

/* --------------------------------------------------------------------------------------------------- out of memory */

/* Runs all jobs to their stop string, one after the other. Returns PI_ENOMEM if memory for an event was missing. */
static int run_jobs(pi_engine *e, int n_jobs)
{
    int failed = 0, n_done = 0, rc = PI_OK;
    for (int j = n_jobs; j-- > 0;) { /* in the order of samples */
        bool ended = give_text(live(j), "abc E");
        for (int k = 0; k < 40 && !ended; k++) ended = give_text(live(j), "0123456789");
        end_job(live(j), ended ? PI_FINISH_STOP : PI_FINISH_LENGTH, PI_OK);
        failed += ended;
        pi_event *ev[4];
        int n = pi_poll(e, ev, 4, 0);
        assert_true(n > 0 && ev[n - 1]->kind == PI_EVENT_DONE);
        assert_int_equal(ev[n - 1]->code, ended ? PI_ENOMEM : PI_OK);
        assert_int_equal(ev[n - 1]->n_left, n_jobs - ++n_done);
        if (!rc) rc = ev[n - 1]->code;
        for (int k = 0; k < n; k++) pi_event_release(ev[k]);
    }
    assert_true(failed <= 1); /* the failure does not affect the other jobs */
    return rc;
}

/* Fails each allocation of a complete run in turn: every submitted request ends with an event, and nothing leaks. */
static void every_allocation_fails(int n_samples)
{
    counting_alloc a;
    char n_text[8];
    snprintf(n_text, sizeof n_text, "%d", n_samples);
    bool clean = false;
    long i = 0;
    for (; !clean && i < 5000; i++) {
        counting_use(&a, i);
        pi_error err = {0};
        pi_engine *e = NULL;
        pi_options *o = pi_options_new();
        pi_request *r = NULL;
        int rc = o ? pi_options_set(o, "model", model, &err) : PI_ENOMEM;
        if (!rc) rc = pi_engine_open(&e, o, &err);
        if (!rc && !(r = pi_request_new(e))) rc = PI_ENOMEM;
        if (!rc) rc = pi_request_set(r, "n", n_text, &err);
        if (!rc) rc = pi_request_set(r, "stop", "END", &err);
        if (!rc) rc = pi_request_set(r, "logit-bias", "5+1", &err);
        if (!rc) rc = pi_request_set(r, "dry-multiplier", "1", &err);
        if (!rc) rc = pi_request_set(r, "prompt-logprobs", "2", &err);
        if (!rc) rc = pi_request_prompt_text(r, "the end", 7, &err);
        if (!rc) rc = pi_request_submit(r, &err);
        if (!rc) rc = run_jobs(e, n_samples);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s: %s", i, pi_err_name(rc), err.msg);
        pi_request_free(r);
        pi_engine_close(e);
        pi_options_free(o);
        if (a.live) fail_msg("allocation %ld failed: %ld blocks are left", i, a.live);
        clean = !rc;
    }
    pi_set_allocator(NULL);
    assert_true(clean && i > 30);
}

static void out_of_memory(void **state)
{
    (void) state;
    every_allocation_fails(1);
}

static void out_of_memory_with_samples(void **state)
{
    (void) state;
    every_allocation_fails(3);
}

/* Delivers token 'a' + i % 26 with its probability, as with logprobs=0. */
static bool give_probable(pi__seq *s, int i)
{
    const pi_token_prob prob = {i, -1.0f};
    const pi__token_out t = {.id = TINY_BYTE0 + 'a' + i % 26, .probs = &prob, .n_probs = 1};
    return s->job.on_token(s->job.ud, &t);
}

typedef struct whole { /* accumulated contents of events */
    atomic_int n;     /* number of tokens */
    atomic_int n_done;
    atomic_bool hold; /* the callback waits for this to become false */
    atomic_bool wrong; /* a content differs from the delivered one */
} whole;

/* Reads every byte, id and probability of the event, so that ASan detects dangling pointers. */
static void read_whole(void *ud, const pi_event *ev)
{
    whole *w = ud;
    while (w->hold) usleep(100);
    bool ok = ev->text_len == ev->n_tokens && strlen(ev->text) == ev->text_len;
    for (size_t k = 0; ok && k < ev->n_tokens; k++) {
        int i = w->n++;
        ok = ev->text[k] == 'a' + i % 26 && ev->tokens[k] == TINY_BYTE0 + 'a' + i % 26 && ev->n_logprobs == 1 &&
             ev->logprobs[k].id == i;
    }
    if (!ok) w->wrong = true;
    w->n_done += ev->kind == PI_EVENT_DONE;
}

/* Delivers 300 tokens with their events queued, while allocation n fails. Returns true if no allocation failed. */
static bool tokens_without_memory(long n, bool callback)
{
    enum { N = 300 };
    counting_alloc a;
    counting_use(&a, -1);
    pi_engine *e = open_engine();
    pi_request *r = new_request(e);
    whole w = {.hold = callback};
    if (callback) pi_request_on_event(r, read_whole, &w);
    assert_int_equal(pi_request_set(r, "logprobs", "0", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    a.fail_at = a.count + n;
    int given = 0;
    bool failed = false;
    while (given < N && !failed) {
        failed = give_probable(live(0), given);
        given += !failed;
    }
    end_job(live(0), failed ? PI_FINISH_STOP : PI_FINISH_LENGTH, PI_OK);
    w.hold = false;
    pi_event *ev[4];
    for (int k = 0, got = callback ? 0 : pi_poll(e, ev, 4, 0); k < got; k++) {
        read_whole(&w, ev[k]);
        pi_event_release(ev[k]);
    }
    while (!w.n_done) usleep(100);
    assert_true(!w.wrong && w.n == given);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_int_equal(res.code, failed ? PI_ENOMEM : PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
    pi_set_allocator(NULL);
    assert_int_equal(a.live, 0);
    return !failed;
}

/* The arrays of a queued event grow one by one. If growing the second or third fails, the event stays valid although
 * the first has moved. */
static void a_waiting_event_is_whole_without_memory(void **state)
{
    (void) state;
    for (int callback = 0; callback < 2; callback++) {
        long n = 0;
        while (!tokens_without_memory(n, callback)) n++;
        assert_true(n > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order_and_merge),
        cmocka_unit_test(waiting),
        cmocka_unit_test(descriptor_follows_the_queue),
        cmocka_unit_test(stop_strings_end_the_job),
        cmocka_unit_test(a_stop_string_at_the_very_end),
        cmocka_unit_test(eos_is_a_token_without_text),
        cmocka_unit_test(logprobs_and_user_pointer),
        cmocka_unit_test(a_taken_event_outlives_its_request),
        cmocka_unit_test(free_in_every_state),
        cmocka_unit_test(samples_have_events_and_ends_of_their_own),
        cmocka_unit_test(times_of_samples_overlap),
        cmocka_unit_test(samples_freed_in_every_state),
        cmocka_unit_test(cancel_ends_all_samples),
        cmocka_unit_test(cancel_any_number_of_times),
        cmocka_unit_test(a_refused_request_may_try_again),
        cmocka_unit_test(what_the_vocabulary_refuses),
        cmocka_unit_test(logit_bias_leaves_a_token),
        cmocka_unit_test(parameters_reach_the_core),
        cmocka_unit_test(callbacks_instead_of_polling),
        cmocka_unit_test(free_waits_for_a_running_callback),
        cmocka_unit_test(logits_until_freed),
        cmocka_unit_test(the_prompt_has_probabilities),
        cmocka_unit_test(probabilities_beside_logits),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_poller_wakes_when_the_last_request_is_freed),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(out_of_memory_with_samples),
        cmocka_unit_test(a_waiting_event_is_whole_without_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
