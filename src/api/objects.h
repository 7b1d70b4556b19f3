/* The objects of src/api: the engine, requests, their samples, and events on their way to the caller. Data only: each
 * file has a header for its functions.
 *
 *     step thread                 lock                       caller
 *     on_token -> output.c ->  TEXT node of the sample  ->  pi_poll, or the dispatch thread's callback
 *     on_logits ------------>  PROMPT or EMBEDDING node in the request (prompt_probs.c, pooling.c)  ->  the same
 *     on_done  ------------->  DONE node in the sample  ->  the same
 *
 * A request asks for one answer or more: its samples, each a job of the core.
 *
 * One mutex an engine guards queues, nodes and what a request shows of itself. It is never held while a callback runs;
 * of the core only pi__seq_cancel and pi__seq_release are called with it (the core holds no lock when it calls back). A
 * request lives until nobody refers to it: its owner (until pi_request_free), the core (until on_done of its last
 * sample), each node that is queued or taken. */
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
    PI__NODE_QUEUED, /* in the queue of pi_poll or of the dispatch thread */
    PI__NODE_TAKEN,  /* with the caller, in the engine's list of taken ones */
};

typedef struct pi__node { /* an event and its memory */
    pi_event ev;             /* first: what the caller sees */
    struct pi__node *prev, *next; /* in the list that state names */
    int state;               /* enum pi__node_state */
    bool embedded;           /* part of its sample, not freed by itself */
    char *text;              /* [cap_text] ev.text, NUL terminated */
    int32_t *ids;            /* [cap_ids] ev.tokens */
    pi_token_prob *probs;    /* [cap_probs] ev.logprobs */
    float *values;           /* ev.embedding, and room for a vector to score */
    size_t cap_text, cap_ids, cap_probs;
} pi__node;

typedef struct pi__node_list {
    pi__node *head, *tail;
} pi__node_list;

typedef struct pi__breakers pi__breakers; /* breakers.h */

struct pi_work { /* what callers of the library limit its work with */
    pi__work w;
};

struct pi_engine {
    pi__core *core;        /* what runs */
    pi__log log;           /* of the options */
    pi__opt_set defaults;  /* of requests */
    pi__chat *chat;        /* the chat template, or NULL */
    pi_error chat_err;     /* why there is none */
    char *rank_template;   /* text with {query} and {document}, or NULL */
    uint8_t *rank_markup;  /* of the template: see pi__trust */
    pthread_mutex_t lock;  /* guards all that follows, and requests as said there */
    pthread_cond_t polled; /* something for pi_poll: an event, or nothing left to wait for */
    pthread_cond_t pushed; /* something for the dispatch thread */
    pi__node_list queue;   /* events for pi_poll */
    pi__node_list push;    /* events for callbacks */
    pi__node_list taken;   /* given out by pi_poll, not yet released */
    size_t n_open;         /* requests without callback that were submitted and whose DONE is not queued yet */
    uint32_t n_pollers;    /* threads in pi_poll that wait */
    int fd;                /* eventfd of pi_poll_fd */
    bool has_fd;           /* pi_poll_fd was called: fd follows the queue */
    bool fd_set;           /* fd is readable */
    bool dispatching;      /* the dispatch thread was started */
    bool stop_dispatch;    /* it ends once push is empty */
    pthread_t dispatcher;  /* calls callbacks */
    pi__sampler_scratch *row_scratch; /* step thread: for rows of prompt-logprobs; NULL until a request needs it */
    pi_request *running;   /* list of submitted requests that have not ended */
    uint64_t n_requests;   /* numbers of requests, for the log */
    pi__breakers *breakers; /* those used last, or NULL */
};

/* One answer of a request. */
typedef struct pi__sample {
    pi_request *r;            /* whose */
    uint32_t index;           /* from 0 */

    /* step thread only, while it runs */
    pi__output out;           /* text on its way */
    bool failed;              /* no memory for an event: it ends with PI_ENOMEM */

    /* under the engine's lock */
    bool over;                /* on_done was called */
    pi__seq *seq;             /* from submit to on_done; NULL where submit has not returned yet */
    pi__node *open_text;      /* queued TEXT node that takes more, or NULL */
    pi__node done;            /* the last event */
    int32_t *tokens;          /* [cap_tokens] all sampled so far */
    size_t n_tokens, cap_tokens;
    pi_result result;         /* complete once it is over */
} pi__sample;

enum { PI__REQ_NEW, PI__REQ_RUNNING, PI__REQ_DONE };
enum { PI__MAX_SAMPLES = 64 }; /* the range of option n */

struct pi_request {
    pi_engine *e;
    /* set before submit by the one thread that owns it, constant then */
    uint64_t id;              /* number for the log */
    pi__opt_set set;          /* its options */
    int32_t *prompt;          /* [n_prompt] */
    size_t n_prompt;
    pi__call_form calls;      /* of answers to this prompt */
    pi_event_fn on_event;     /* NULL: events go to pi_poll */
    void *event_ud;
    pi_logits_fn on_logits;
    void *logits_ud;
    pi__work *work;           /* of prompt_* and submit, or NULL; not owned */
    pi__breakers *breakers;   /* referred to by params, or NULL */
    bool special;             /* control tokens are printed */
    int32_t n_probs;          /* 1 + option logprobs, 0: none */
    int32_t logits;           /* PI__LOGITS_*: rows that on_logits gets */
    int32_t n_prompt_probs;   /* entries a token of the prompt: 1 + option prompt-logprobs, 0: none */
    bool progress;            /* option prompt-progress */
    pi__node prompt_event;    /* with them, or with vectors; filled on the step thread, until it is queued */
    int32_t pooling;          /* enum pi__pooling: what its vectors are made of, 0: it has none */
    double *sums;             /* [n_embd] of pooling mean, and of rank where the classifier wants the mean */
    pi__stops stops;          /* stop strings, of the texts in set; its samples share them */
    uint32_t n_samples;       /* option n, at least 1 */
    pi__sample first;         /* sample 0 */
    pi__sample *more;         /* [n_samples - 1] the others, or NULL */

    /* under the engine's lock */
    uint32_t ref;             /* owner, core, nodes, submit */
    int state;                /* PI__REQ_* */
    uint32_t n_live;          /* samples that are not over, while it runs */
    bool freed;               /* the owner let go: no more events */
    bool cancel;              /* asked for before the core knew it */
    pi__node *open_progress;  /* queued PROGRESS node that follows the prompt, or NULL */
    pi_request *prev, *next;  /* in the engine's list of running ones */
    bool in_event, in_logits; /* a callback runs, on the dispatch or the step thread */
    pthread_cond_t changed;   /* state or in_* changed */
    void *user;               /* of pi_request_set_user */
};

static inline pi__sample *pi__sample_at(const pi_request *r, uint32_t i)
{
    return i ? &r->more[i - 1] : (pi__sample *) &r->first;
}

#endif
