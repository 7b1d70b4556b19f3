/* Parts of libpagedinfer-openai: a handle with its queue (openai.c), and completions (completion.c).
 *
 *     request -> gen.c: engine requests            (thread of pi_chat_completions)
 *     events  -> gen_take                          (dispatch thread)
 *                with a callback: chunks -> fn     (dispatch thread)
 *                else dirty list -> chunks -> queue -> pi_openai_poll   (thread of the poll)
 *
 * Locks: pi_openai.lock covers the lists of a handle and the generations of its completions without a callback. The
 * generation of a completion with a callback belongs to the dispatch thread after submit. */
#ifndef PAGEDINFER_OPENAI_OPENAI_H
#define PAGEDINFER_OPENAI_OPENAI_H

#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>

#include "pagedinfer_openai.h"
#include "serve/gen.h"

typedef struct chunk {       /* a chunk in the queue, or taken by a poll */
    pi_chunk pub;            /* first, because pi_chunk_release gets its address */
    char *text;              /* owned; NULL = pub.json is a constant */
    bool queued;             /* from the queue: pi_chunk_release frees it */
    struct chunk *next;
} chunk;

enum { N_SETTINGS = 9 };

struct pi_openai {
    service sv;
    char *value[N_SETTINGS]; /* values of pi_openai_set; NULL = default. Owned */
    char model[128];         /* name of the model from its metadata */
    locale_t c_locale;       /* numbers in JSON have a decimal point */
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* a list or n_open changed */
    int fd;                  /* eventfd of pi_openai_poll_fd */
    bool signaled;           /* fd is readable */
    pi_completion *dirty, *last_dirty; /* completions with events that no poll has processed */
    chunk *first, *last;     /* the queue */
    size_t n_open;           /* completions without a callback that have not ended, or with a chunk in the queue */
    size_t n_made;           /* completions made so far */
};

struct pi_completion {
    gen g;
    pi_openai *o;
    pi_chunk_fn fn;          /* NULL = the queue */
    void *ud, *user;
    pthread_mutex_t start;   /* held during submit: callbacks wait, because they may free the completion */
    chunk *end;              /* its last chunk, allocated early: running out of memory cannot suppress it */
    pi_completion *next;     /* in the dirty list */
    bool is_dirty, closed;   /* in the dirty list; being freed */
    bool streaming;          /* the stream has begun */
    bool ended;              /* the last chunk was written */
    bool counted;            /* in n_open */
    atomic_bool canceled;    /* by pi_completion_cancel */
};

/* completion.c: writes the chunks of new events. The caller holds the lock, or is the dispatch thread. */
void completion_pump(pi_completion *c);
/* openai.c, under the lock: puts a completion in the dirty list; puts a chunk in the queue; removes a completion and
 * its chunks. */
void openai_mark(pi_openai *o, pi_completion *c);
void openai_queue(pi_openai *o, chunk *k);
void openai_forget(pi_openai *o, pi_completion *c);

#endif
