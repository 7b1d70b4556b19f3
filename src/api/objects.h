/* The objects of src/api: the engine, requests, their samples, and events on their way to the caller. Data only: each
 * file has a header for its functions.
 *
 *     step thread                 lock                       caller
 *     on_token -> output.c ->  TEXT node of the sample  ->  pi_poll, or the dispatch thread's callback;
 *     on_logits ------------>  PROMPT or EMBEDDING node in the request (prompt_probs.c, pooling.c)  ->  as above;
 *     on_done  ------------->  DONE node in the sample  ->  as above.
 *
 * A request has one or several samples; each is an answer and a job of the core.
 *
 * Each engine has one mutex, which guards queues, nodes and the visible state of requests. It is never held while a
 * callback runs. Of the core's functions, only pi__seq_cancel and pi__seq_release are called with it; the core holds
 * no lock when it calls back. A request lives while one of these holds a reference: its owner (until
 * pi_request_free), the core (until on_done of its last sample), each queued or taken node. */
#ifndef PI__OBJECTS_H
#define PI__OBJECTS_H

#include <pthread.h>

#include "api/options.h"
#include "api/output.h"
#include "base/clock.h"
#include "base/work.h"
#include "engine/core.h"
#include "sampler/sampler.h"
#include "template/chat.h"

enum pi__node_state {
    PI__NODE_IDLE,   /* in no list */
    PI__NODE_QUEUED, /* in the queue of pi_poll or the list of the dispatch thread */
    PI__NODE_TAKEN,  /* held by the caller, in the engine's list of taken nodes */
};

typedef struct pi__node { /* an event and its memory */
    pi_event ev;             /* first member: pi_event_release casts back */
    struct pi__node *prev, *next; /* neighbours in the list that holds the node: queue, push or taken of the engine */
    int state;               /* enum pi__node_state */
    bool embedded;           /* part of a sample or request, not freed separately */
    char *text;              /* [cap_text] ev.text, NUL terminated */
    int32_t *ids;            /* [cap_ids] ev.tokens */
    pi_token_prob *probs;    /* [cap_probs] ev.logprobs */
    float *values;           /* ev.embedding; for a classifier at least its input vector, which the scores overwrite */
    size_t cap_text, cap_ids, cap_probs;
} pi__node;

typedef struct pi__node_list {
    pi__node *head, *tail;
} pi__node_list;

typedef struct pi__breakers pi__breakers; /* breakers.h */

struct pi_work { /* a work budget of the library's callers */
    pi__work w;
};

struct pi_engine {
    pi__core *core;        /* scheduler, cache, model */
    pi__log log;           /* from the options */
    pi__opt_set defaults;  /* default options of requests */
    pi__chat *chat;        /* the chat template, or NULL */
    pi_error chat_err;     /* error of loading the template; set if chat is NULL */
    char *rank_template;   /* text of the model's reranking template, with {query} and {document}; NULL = no template */
    uint8_t *rank_markup;  /* [(n_tok + 7) / 8] pi__trust_markup of rank_template; NULL without one */
    pthread_mutex_t lock;  /* guards the following fields, and requests as marked there */
    pthread_cond_t polled; /* signaled for pi_poll: an event was queued, or n_open became 0 */
    pthread_cond_t pushed; /* signaled for the dispatch thread: an event was queued, or stop */
    pi__node_list queue;   /* events for pi_poll */
    pi__node_list push;    /* events for callbacks */
    pi__node_list taken;   /* returned by pi_poll, not yet released */
    size_t n_open;         /* submitted requests without a callback, until their last event is queued or they are freed.
                            * pi_poll waits only while it is above 0 */
    uint32_t n_pollers;    /* threads waiting in pi_poll */
    int fd;                /* eventfd of pi_poll_fd */
    bool has_fd;           /* pi_poll_fd was called: from then on fd is readable while queue is not empty */
    bool fd_set;           /* fd is readable now */
    bool dispatching;      /* the dispatch thread was started */
    bool stop_dispatch;    /* the dispatch thread ends when push is empty */
    pthread_t dispatcher;  /* the thread that calls callbacks */
    pi__sampler_scratch *row_scratch; /* for prompt-logprobs: created by the first submit that needs it, then used by
                                       * the step thread only */
    pi_request *running;   /* list of submitted requests that have not ended */
    uint64_t n_requests;   /* requests submitted so far; numbers them in the log */
    pi__breakers *breakers; /* cached breakers of the most recent list of texts; owns a reference; NULL = none */
};

/* One answer of a request. */
typedef struct pi__sample {
    pi_request *r;            /* the request of this sample */
    uint32_t index;           /* sample number, from 0 */

    /* step thread only, while the sample runs */
    pi__output out;           /* converts token bytes to text to show; holds back the start of a stop string */
    bool failed;              /* out of memory for an event: the sample ends with PI_ENOMEM */

    /* under the engine's lock */
    bool over;                /* on_done was called */
    pi__seq *seq;             /* from submit to on_done; NULL until submit returns */
    pi__node *open_text;      /* queued TEXT node that accepts more text, or NULL */
    pi__node done;            /* the sample's last event */
    int32_t *tokens;          /* [cap_tokens] all tokens sampled so far */
    size_t n_tokens, cap_tokens;
    pi_result result;         /* final once over is set */
} pi__sample;

enum { PI__REQ_NEW, PI__REQ_RUNNING, PI__REQ_DONE };
enum { PI__MAX_SAMPLES = 64 }; /* upper bound of option n */

struct pi_request {
    pi_engine *e;
    /* set before submit by the owning thread, constant afterwards */
    uint64_t id;              /* request number for the log, set by submit */
    pi__opt_set set;          /* its options */
    int32_t *prompt;          /* [n_prompt] */
    size_t n_prompt;
    pi__media_span *images;   /* [n_images] images of pi_request_image, without position; holds their pictures */
    size_t n_images, cap_images;
    pi__media_span *spans;    /* [n_images] the images in the order of the prompt; NULL = no images */
    pi__call_form calls;      /* call grammar of answers to this prompt */
    pi_event_fn on_event;     /* NULL = events go to pi_poll */
    void *event_ud;
    pi_logits_fn on_logits;
    void *logits_ud;
    pi__work *work;           /* budget for prompt_* and submit, or NULL; not owned */
    pi__breakers *breakers;   /* DRY breakers that params point to, or NULL */
    bool special;             /* option special: events print control tokens */
    int32_t n_probs;          /* entries per token: 1 + option logprobs; 0 = off */
    int32_t logits;           /* PI__LOGITS_*: rows for on_logits */
    int32_t n_prompt_probs;   /* entries per prompt token: 1 + option prompt-logprobs; 0 = off */
    bool progress;            /* option prompt-progress */
    pi__node prompt_event;    /* PROMPT or EMBEDDING event; the step thread fills it until it is queued */
    int32_t pooling;          /* enum pi__pooling: kind of vectors; 0 = no vectors */
    double *sums;             /* [n_embd] for pooling mean, and for rank if the classifier uses the mean */
    pi__stops stops;          /* automaton of option stop, shared by the samples */
    uint32_t n_samples;       /* option n, at least 1 */
    pi__sample first;         /* sample 0 */
    pi__sample *more;         /* [n_samples - 1] the other samples, or NULL */

    /* under the engine's lock */
    uint32_t ref;             /* reference count: owner, core, nodes, running submit */
    int state;                /* PI__REQ_* */
    uint32_t n_live;          /* samples not over yet */
    bool freed;               /* the owner called pi_request_free: no more events */
    bool cancel;              /* pi_request_cancel was called; a submit in progress then cancels the sequences */
    pi__node *open_progress;  /* queued PROGRESS node that later progress overwrites, or NULL */
    pi_request *prev, *next;  /* neighbours in the engine's list of running requests */
    bool in_event, in_logits; /* on_event is running on the dispatch thread; on_logits is running on the step thread */
    pthread_cond_t changed;   /* state or in_* changed */
    void *user;               /* pointer from pi_request_set_user */
};

static inline pi__sample *pi__sample_at(const pi_request *r, uint32_t i)
{
    return i ? &r->more[i - 1] : (pi__sample *) &r->first;
}

#endif
