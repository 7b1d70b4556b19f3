/* The end of a request: reference counts, and the memory freed with the last reference (see lifetime.h).
 *
 * Holders of a reference: queued events (nodes in a list), the core (until the last sample is over), the request's
 * owner. This file calls none of their files. Threads: any. The thread that drops the last reference frees without
 * the lock. */
#include "api/lifetime.h"

#include "api/breakers.h"
#include "base/alloc.h"
#include "image/picture.h"

bool pi__request_unref(pi_request *r) { return --r->ref == 0; }

void pi__request_leave(pi_request *r)
{
    if (r->prev) r->prev->next = r->next;
    else r->e->running = r->next;
    if (r->next) r->next->prev = r->prev;
    r->prev = r->next = NULL;
}

void pi__samples_free(pi_request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        pi__output_free(&pi__sample_at(r, i)->out);
        pi__free(pi__sample_at(r, i)->tokens);
    }
    pi__free(r->more);
    pi__stops_free(&r->stops);
    r->more = NULL;
    r->n_samples = 1;
}

void pi__prompt_probs_free(pi_request *r)
{
    pi__free(r->prompt_event.probs);
    r->prompt_event.probs = NULL;
    r->n_prompt_probs = 0;
}

static void pooling_free(pi_request *r)
{
    pi__free(r->prompt_event.values);
    pi__free(r->sums);
}

static void images_free(pi_request *r)
{
    for (size_t i = 0; i < r->n_images; i++) pi__picture_release(r->images[i].picture);
    pi__free(r->images);
    pi__free(r->spans);
}

void pi__request_destroy(pi_request *r)
{
    pi__breakers_put(r->e, r->breakers);
    pi__samples_free(r);
    pi__prompt_probs_free(r);
    pooling_free(r);
    pi__opt_clear(&r->set);
    images_free(r);
    pi__free(r->prompt);
    pi__call_form_free(&r->calls);
    pthread_cond_destroy(&r->changed);
    pi__free(r);
}
