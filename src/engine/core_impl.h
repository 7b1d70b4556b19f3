/* Inside of the engine: sequences, lists, the step's buffers. Shared by core.c, plan.c, sched.c and step.c only. */
#ifndef PI__CORE_IMPL_H
#define PI__CORE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "cache/host_tier.h"
#include "cache/tier.h"
#include "engine/batch.h"
#include "engine/core.h"
#include "sampler/sampler.h"
#include "model/model.h"

/* Sequences that share prefixes with each other and with nobody else. */
typedef struct pi__family {
    pi__key root;              /* of their keys */
    size_t n_left;             /* sequences that have not ended; the last one frees it */
} pi__family;

struct pi__seq {
    atomic_int ref;            /* the submitter's reference and the engine's */
    atomic_bool cancel;        /* asked for */
    pi__seq *prev, *next;      /* in the waiting or running list */
    uint64_t arrival;          /* order of submit */
    int32_t row;               /* table row in the cache, -1: holds nothing */
    int32_t *tokens;           /* [max_total + 1] prompt, then answer, then drafts */
    int32_t n_tokens;          /* in tokens */
    int32_t n_prompt;          /* of them, the prompt */
    int32_t max_total;         /* n_tokens never exceeds it */
    int32_t n_computed;        /* tokens whose K,V are in the cache */
    int32_t n_new;             /* tokens of it in this step, drafts included */
    int32_t n_draft;           /* guesses of what follows, in tokens behind n_tokens */
    int32_t n_wish;            /* guesses it can use, while they are made */
    uint32_t n_drafted, n_accepted; /* drafts that were verified, and those that were right */
    bool no_hidden;            /* the hidden state before its next token is not known: it comes from the cache */
    int32_t n_rows_given;      /* prompt rows already given to on_logits */
    int32_t n_cached;          /* tokens found in the cache when it first ran */
    int32_t n_wanted;          /* longest prefix that some group held then */
    uint32_t n_preempted;      /* times it lost its blocks */
    int32_t n_found;           /* tokens it took over when it was last admitted */
    int32_t save_branch;       /* tokens after which others went another way: a snapshot belongs there; 0: none */
    int32_t save_asked;        /* the same, where a waiting request will go another way; 0: none */
    int32_t saved;             /* tokens after which the last snapshot was taken or found */
    int32_t fetches;           /* rounds of loads that are left, plus one; 0: the tiers were not asked yet */
    uint64_t fetch_upto;       /* loads up to this number are waited for */
    uint64_t fetch_bad;        /* loads that had failed when they were asked */
    pi__gen_params params;     /* arrays in it are owned */
    pi__family *family;        /* or NULL; from submit on the step thread's */
    pi__sampler *sampler;      /* its own */
    pi_token_prob *probs;      /* [1 + n_logprobs] or NULL */
    void *ud;                  /* of the callbacks */
    bool (*on_token)(void *ud, const pi__token_out *t);
    void (*on_done)(void *ud, const pi__job_end *end);
    pi_logits_fn on_logits;    /* or NULL */
    void *logits_ud;           /* its first argument */
    double t_submit, t_start, t_first, t_last; /* milliseconds; 0: not yet */
};

typedef struct pi__seq_list { /* ordered by who runs first */
    pi__seq *head, *tail;
    int32_t n;
} pi__seq_list;

/* A block that is on its way from a tier to its pool: from a slot of the host tier, into which it is first read where only
 * the disk has it; or, where the host reads device memory, straight from the disk. */
typedef struct pi__load {
    uint64_t number;           /* counted from 1; 0: this entry is free */
    pi__key key;               /* the block's */
    int32_t group, block;      /* where it goes; the load holds the block's only reference */
    int32_t slot;              /* where it comes from, held as well; -1: no slot */
    bool copying;              /* from there to the block; before that it is read from disk */
    uint64_t copy;             /* with copying: number of the copy that is the last */
    bool forgotten;            /* its prefix was cleared meanwhile */
    int32_t tokens[PI__MAX_BLOCK]; /* its tokens */
} pi__load;
enum { PI__MAX_LOADS = 256 };

/* A block of which a copy is on its way to a slot of the host tier. While it is held nobody else gets the block; where one
 * that is not was handed out meanwhile, the copy is worth nothing. */
typedef struct pi__copy {
    uint64_t number;           /* as the backend counts */
    uint32_t round;            /* of the block when it was queued */
    int32_t group, block;      /* where it comes from */
    int32_t slot;              /* where it goes; the copy holds its only reference */
    bool held;                 /* the block is */
} pi__copy;
enum { PI__MAX_COPIES = 1024 };

/* What one group costs; pools are allocated from this. */
typedef struct pi__group_plan {
    pi__group_spec spec;   /* name, block size, window, blocks */
    size_t block_bytes[PI__N_SIDES]; /* of the layers on each side */
    int32_t n_layers;      /* layers in it */
} pi__group_plan;

/* A snapshot that this step takes. */
typedef struct pi__saving {
    int32_t seq;           /* index into step_seq */
    int32_t pos, id;       /* tokens, and the snapshot */
} pi__saving;

struct pi__core {
    pi__config cfg;            /* strings copied */
    pi__gguf *g;               /* open until loaded */
    pi__backend *be;           /* device, or two sides */
    pi__places *places;        /* what lies where, while models are declared */
    pi__model *m;              /* weights and graph */
    pi__gguf *draft_g;         /* open until loaded */
    pi__model *drafter;        /* m itself, a model beside it, or NULL: no drafts */
    pi__vocab *vocab;          /* tokens */
    pi__limits lim;            /* sizes of a step */
    int32_t ctx;               /* longest request that is allowed */
    int32_t longest;           /* longest request that the pools hold; what tables are made for */
    pi__group_plan gp[PI__MAX_GROUPS]; /* the plan of each group */
    void *pool[PI__MAX_GROUPS][PI__N_SIDES]; /* memory of each group's blocks; a block is a part on each side that has
                                              * layers of the group */
    int32_t state_group;       /* the group of recurrent states, -1: the model has none */
    size_t slot_bytes[PI__N_SIDES]; /* a sequence's state, the layers on each side; 0: none */
    char *slots[PI__N_SIDES];  /* [max_seqs] slots of slot_bytes; the slot is the table row */
    pi__cache cache;           /* block tables and prefixes */
    bool cache_ready;          /* cache was initialised */
    int32_t *eog;              /* [n_eog] tokens that end a generation */
    int32_t n_eog;             /* how many */
    int32_t *suppress;         /* [n_suppress] tokens that are never generated */
    int32_t n_suppress;        /* how many */
    int32_t turn_id[PI__MAX_TURNS]; /* tokens that begin a turn of a conversation */
    int32_t n_turn_ids;        /* how many */
    char *chat_template;       /* text, or NULL */

    /* step buffers, [limits] */
    pi__batch_builder batch;   /* what the model runs */
    pi__seq **step_seq;        /* [max_seqs] sequences of this step in batch order */
    pi__batch_builder draft_batch; /* what the drafter runs */
    int32_t *draft_hidden;     /* [max_tokens] see pi__arch.draft */
    pi__seq **draft_seq;       /* [max_seqs] whom the rows of the draft batch are for */
    pi__save *save;            /* snapshots of this step, as the batch has them */
    pi__saving *saving;        /* the same, with their sequences */
    int32_t n_saving;          /* how many */
    float *logits;             /* [max_rows, n_vocab] on the device */
    float *rows;               /* the same on the host; logits itself where the host reads device memory */
    int32_t *skip;             /* [n_skip] suppress, then eog: what the device leaves out; NULL: it looks at no rows */
    int32_t n_skip;            /* how many */
    uint64_t *found;           /* [max_rows, 2 + found_k] what the device found in each row at hand: see topk */
    int32_t found_k;           /* values of a row there */
    pi__ask *ask;              /* [max_rows] what it was asked; k 0: nothing, the row is here */
    int32_t *picked;           /* [max_rows] tokens of a drafter's rows */
    float *raw_row;            /* [n_vocab] a row as it was before sampling, for log-probabilities */
    pi__sampler_scratch *scratch; /* for sampling */
    pi__seq **row_seq;         /* [max_seqs] whose the table rows are, NULL: free */

    pi__tier *tier;            /* disk tier, or NULL */
    pi__load *load;            /* [PI__MAX_LOADS] */
    uint64_t n_loads;          /* started so far */
    uint64_t n_bad_loads;      /* of them, those that brought nothing */
    pi__host_tier *host;       /* host tier of a far device, or NULL */
    bool host_keeps;           /* it keeps what it gets; else it is only the way to the disk */
    pi__copy *copy;            /* [PI__MAX_COPIES] a ring, in the order in which they end */
    int32_t first_copy, n_copies; /* those under way */
    uint64_t last_copy;        /* number of the backend's last copy */
    uint64_t copies_ended;     /* number up to which they have ended */
    bool copies_lost;          /* the others never will */

    /* step thread only */
    pi__seq_list waiting, running;

    /* shared with callers, under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;       /* the step thread has something to do */
    pthread_cond_t changed;    /* n_live, state or clear_done changed */
    pi__seq *inbox_head, *inbox_tail; /* submitted, not yet seen by the step thread */
    int32_t n_live;            /* jobs submitted and not ended */
    int32_t n_queued;          /* of them, not running */
    uint64_t n_submitted;      /* arrival numbers */
    bool closing, draining;    /* no more submits */
    char failure[256];         /* why state is FAILED */
    bool poke;                 /* a cancel or clear is to be looked at */
    uint64_t clear_asked, clear_done; /* cache_clear tickets; at most one is not done */
    const char *clear_salt;    /* of that one: whose prefixes, NULL: all */
    bool thread_started;       /* thread is to be joined */
    pthread_t thread;          /* runs steps */
    atomic_int state;          /* PI_STATE_* */

    struct { /* counters for stats: written by the step thread */
        atomic_uint n_waiting, n_running;
        atomic_ullong n_finished, n_preempted, n_steps, prompt_tokens, cached_tokens, generated_tokens;
        atomic_ullong n_drafted, n_accepted;
        atomic_ullong n_heads, n_whole; /* tokens sampled from what the device found in their rows, and from whole rows */
        atomic_ullong n_prefix_hits, n_saved, n_restored;
        atomic_ullong disk_entries, disk_bytes, disk_reads, disk_writes;
        atomic_ullong host_entries, host_bytes, host_reads, host_writes;
        atomic_ullong last_step_us;
        struct { atomic_ullong n_free, n_cached, n_shared, n_written, n_evicted; } group[PI__MAX_GROUPS];
    } st;
};

/* Most snapshots that a step takes. */
static inline size_t pi__most_saves(const pi__core *e)
{
    int32_t least = INT32_MAX;
    for (int32_t i = 0; i < e->m->n_groups; i++)
        if (e->gp[i].spec.block_size < least) least = e->gp[i].spec.block_size;
    return (size_t) e->lim.max_tokens / (size_t) least + (size_t) e->lim.max_seqs;
}

/* found, ask and picked. */
static inline size_t pi__picks_bytes(const pi__core *e)
{
    return (size_t) e->lim.max_rows * ((2 + PI__MAX_TOP) * sizeof(uint64_t) + sizeof(pi__ask) + sizeof(int32_t));
}

/* The part of a block of group g on one side. */
static inline char *pi__block_at(const pi__core *e, int32_t g, int32_t block, int32_t side)
{
    return (char *) e->pool[g][side] + (size_t) block * e->gp[g].block_bytes[side];
}

/* Bytes of a block of group g in the host tier: its part on the device, or on each of several, then the one on the CPU. */
static inline size_t pi__copy_bytes(const pi__core *e, int32_t g)
{
    const size_t n = e->be->n_ranks > 1 ? (size_t) e->be->n_ranks : 1;
    return n * e->gp[g].block_bytes[PI__AT_DEVICE] + e->gp[g].block_bytes[PI__AT_CPU];
}

/* plan.c: what everything costs. */
/* Bytes of group g's blocks, all parts; and of a layer's part. 0: such a layer is not supported. */
size_t pi__block_bytes(const pi__core *e, int32_t g);
size_t pi__kv_bytes(const pi__core *e, const pi__kv_layer *kv);
/* The shape of a step's batch, with that of its rows or without. */
pi__batch_shape pi__step_shape(const pi__core *e, bool rows);
/* Fills gp, lim, ctx and longest; *weights etc. of out where out is given. */
int pi__core_size(pi__core *e, pi_plan *out, pi_error *err);
/* metadata.c: options over the metadata of e->g. */
int pi__override_metadata(pi__core *e, pi_error *err);
/* Opens file, backend, vocabulary and model description, without loading. */
int pi__core_prepare(pi__core *e, const pi__config *c, pi_error *err);
/* The model as the places say, and who drafts for it. */
int pi__core_declare(pi__core *e, pi_error *err);
void pi__core_undeclare(pi__core *e);
/* The device becomes one of two sides, the CPU the other. */
int pi__core_add_cpu(pi__core *e, pi_error *err);
/* The name of the device beside the CPU. */
const char *pi__core_device(const pi__core *e);
/* Bytes of the device's memory that the engine as declared takes. */
int pi__device_need(pi__core *e, uint64_t *bytes, pi_error *err);

/* fit.c: a model that may be too large for the device. */
/* Leaves to the CPU what the device has no room for. */
int pi__fit(pi__core *e, pi_error *err);
/* PI_ENOMEM with what would fit, where the device has no room for what it is to have. */
int pi__fit_check(pi__core *e, pi_error *err);

/* sched.c: who runs. */
void pi__list_insert(pi__core *e, pi__seq_list *l, pi__seq *s); /* in order of policy */
void pi__list_remove(pi__seq_list *l, pi__seq *s);
/* Chooses this step's tokens (n_new of each running sequence). Returns the number of tokens, 0: nothing can run. */
int32_t pi__schedule(pi__core *e);
/* Its blocks may be found by others (of its family, where it has one), and others' by it. */
bool pi__seq_keeps(const pi__core *e, const pi__seq *s);
/* Tokens that it may take over from others at most: all but the last, or those before the first row of the prompt that it
 * still has to give. */
int32_t pi__seq_most(const pi__seq *s);
/* Gives back the sequence's cache row. intact: what it computed is right, and its state is worth a snapshot. */
void pi__seq_drop_row(pi__core *e, pi__seq *s, bool intact);

/* tiers.c: prefixes in the host's memory and on disk. */
int pi__tiers_open(pi__core *e, pi_error *err);
void pi__tiers_close(pi__core *e);
/* Bytes that open takes, but for the slots of the host tier. */
size_t pi__tiers_bytes(const pi__core *e);
/* What s leaves behind was used: the tier evicts it later than what was used before, and its end before its beginning. */
void pi__tiers_touch(pi__core *e, const pi__seq *s);
/* Forgets what the tiers hold of a tenant (NULL: of all), and what is being read. */
void pi__tiers_clear(pi__core *e, const pi__key *tenant);
/* Publishes the tiers' counters. */
void pi__tiers_stats(pi__core *e);
/* Takes finished loads and copies, and starts copies of what will be evicted next. */
void pi__tiers_poll(pi__core *e);
/* Whether s, matched so far up to `got` tokens, should wait for blocks that are on their way; starts them. */
bool pi__tiers_wait(pi__core *e, pi__seq *s, int32_t got);
/* Something is to be polled soon. */
bool pi__tiers_busy(const pi__core *e);

/* offload.c: the host tier of far devices. */
/* Slots and bytes of the host tier for the pools as planned; false: there is none. */
bool pi__offload_plan(const pi__core *e, pi__host_config *out);
int pi__offload_open(pi__core *e, pi_error *err);
/* Ends all copies, and keeps what they brought. */
void pi__offload_end(pi__core *e);
void pi__offload_close(pi__core *e);
/* Queues a copy of the block to the host. false: not now. */
bool pi__offload(pi__core *e, int32_t group, int32_t block);
/* The slot goes to the block, as soon as the copy *number has ended. false: it does not. */
bool pi__offload_back(pi__core *e, int32_t group, int32_t block, int32_t slot, uint64_t *number);
/* One more block that is being copied may be handed out from now on. false: there is none. */
bool pi__offload_yield(pi__core *e);
/* Takes copies that have ended. */
void pi__offload_poll(pi__core *e);
/* Copies of what will be evicted next, as far as there is none. */
void pi__offload_ahead(pi__core *e);

/* snapshots.c: where others may go on from; recurrent states, which cannot be taken over token by token. */
/* See pi__cache.place; ud: the engine. */
bool pi__place(void *ud, int32_t row, int32_t n);
/* Positions and memory of the snapshots that the step takes of step_seq[q], which computes up to `to`. */
void pi__snapshots_plan(pi__core *e, int32_t q, int32_t to);
/* The step is over; good: what it took can be found from now on. */
void pi__snapshots_done(pi__core *e, bool good);
/* The state of a sequence that leaves its row. */
void pi__snapshot_last(pi__core *e, pi__seq *s);
/* The state of a sequence that starts after the tokens it found in the cache. */
void pi__snapshot_restore(pi__core *e, pi__seq *s);

/* draft.c: guessing tokens, which later steps verify. */
/* Runs the drafter over all but the last token of each sequence of the step, where it has a cache; before sampling. */
int pi__drafts_catch_up(pi__core *e, pi_error *err);
/* Drafts for all sequences of the step that were sampled from and go on. */
int pi__drafts_make(pi__core *e, pi_error *err);

/* step.c: runs what was scheduled. */
/* Waits for the device, and for the best tokens of the first n rows of logits to come to picked, nothing skipped. PI_EDEVICE. */
int pi__fetch_picks(pi__core *e, int32_t n, pi_error *err);
void pi__step(pi__core *e);
/* Publishes what pi__core_stats tells of lists and pools. */
void pi__update_stats(pi__core *e);
/* Takes it off its list, releases everything it holds and calls on_done. */
void pi__seq_finish(pi__core *e, pi__seq_list *l, pi__seq *s, int reason, int code, const char *msg);

#endif
