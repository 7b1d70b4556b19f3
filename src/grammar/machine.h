/* The machine that runs a program: states, what bytes and tokens lead to, and masks (see grammar.h).
 *
 * A state is a sorted set of configurations, each a node that reads something, where in its automaton or text, and a
 * stack:
 *
 *     63           44 43        32 31             0
 *     +--------------+------------+---------------+    stack: number of the topmost entry, 0: empty, the text's own end;
 *     | node         | row        | stack         |    an entry: where to go on, the iteration of a loop, entry below
 *     +--------------+------------+---------------+
 *
 * A loop's iterations are counted in the stack. A token has at most max_bytes bytes, and an iteration reads one at
 * least. So a count that is further than that from the loop's limits has the mask of any other such count. Each entry
 * knows its CANONICAL entry, whose counts stand for all of these; a state has the mask of its canonical state. The
 * masks in the middle of a text of 10 to 50,000 characters are one mask.
 *
 * States and stack entries are each there once (found by hash), so that equal places in a text have equal numbers. They
 * lie in one of two spaces of fixed size; when it is full, the states that somebody is in are copied to the other one,
 * and the rest is forgotten. Masks are in slots beside them. Memory: one mapping, made by init, committed as it is
 * used. One thread at a time. */
#ifndef PI__GRAMMAR_MACHINE_H
#define PI__GRAMMAR_MACHINE_H

#include "grammar/grammar.h"
#include "grammar/program.h"

enum {
    PI__MAX_CONFIGS = 8192,         /* of a state */
    PI__MAX_STACKS = 1 << 16,       /* entries of a space */
    PI__MAX_STATES = 1 << 15,       /* of a space, */
    PI__STATE_WORDS = 1 << 20,      /* and words of 8 bytes that they may take */
    PI__MASK_SLOTS = 256,           /* masks that are kept */
    PI__MASK_WORK = 1 << 26,        /* steps of work for one mask, at most */
    PI__MAX_SLICES = 8,             /* of a grammar */
    PI__N_WALKS = 2,                /* masks that are being made: the callers' and the worker's */
    PI__STATE_NONE = 0,             /* an error: see code */
    PI__STATE_DEAD = 1,             /* nothing can follow */
    PI__STATE_MIXED = UINT32_MAX,   /* one state or another */
};

typedef struct pi__gstate {
    uint64_t run_kinds;   /* kinds of characters of which run_chars may follow */
    uint32_t run_chars;
    uint32_t hash;
    uint32_t n;           /* configurations */
    uint32_t mask;        /* 1 + slot of its mask, 0: none */
    uint64_t any_kinds;   /* kinds of characters that */
    uint32_t any_next;    /* all lead here; PI__STATE_MIXED: not to one state; NONE: any_kinds is not set yet */
    uint32_t canon;       /* the canonical state; 0: not known yet */
    uint32_t reach;       /* 1 + how many characters of run_kinds can follow, if it is the same for all; PI__RUN_INF: it
                             is not, or there is no limit; 0: not known yet */
    bool ends;            /* the text may end here */
    bool by_token;        /* there are nodes that read tokens */
    uint64_t config[];    /* [n]; then uint32_t next[n_cls], PI__STATE_NONE where not known yet */
} pi__gstate;

typedef struct pi__gstack {
    uint32_t go_on;       /* node */
    uint32_t count;       /* go_on is a LOOP, and this the number of its iteration, from 1; 0: a rule is being read */
    uint32_t below;       /* entry, 0: none */
    uint32_t canon;       /* entry */
    uint32_t when;        /* the last call of enter that pushed it */
} pi__gstack;

typedef struct pi__space {
    uint64_t *word;       /* [PI__STATE_WORDS] states; a state's number is the word where it is; words 0 and 1 are not used */
    uint32_t n_words, n_states;
    uint32_t *state_slot; /* [2 * PI__MAX_STATES] by hash, 0: free */
    pi__gstack *stack;    /* [PI__MAX_STACKS]; 0 is the empty one */
    uint32_t n_stacks;
    uint32_t *stack_slot; /* [2 * PI__MAX_STACKS] by hash */
} pi__space;

typedef struct pi__mask_slot {
    uint32_t state;       /* whose mask; 0: free, or its state was forgotten */
    int32_t n, only;      /* tokens allowed, without the end; the last of them */
    uint32_t pins;        /* matchers that use it */
} pi__mask_slot;

/* A mask that is being made. It can stop at each node of the trie and go on later. */
typedef struct pi__walk {
    uint32_t state;       /* whose mask; 0: none is being made */
    uint32_t at;          /* the next node: of the trie, or of the slice's other nodes */
    uint32_t depth;       /* nodes before it on its path */
    uint32_t full_at;     /* where it was when the tables were full last, UINT32_MAX: never */
    bool stale;           /* path is of states that were forgotten */
    const pi__slice *slice; /* whose tokens are done, or NULL */
    uint64_t work;        /* steps so far */
    int32_t n, only;      /* of the mask, once it is done */
    uint64_t *bits;       /* [words] */
    uint32_t *path;       /* [max_bytes + 1] states by depth; path[0] is state */
    uint8_t *text;        /* [max_bytes + 1] bytes by depth */
} pi__walk;

enum pi__walk_end { PI__WALK_DONE, PI__WALK_MORE, PI__WALK_FULL, PI__WALK_WIDE };

typedef struct pi__machine {
    const pi__program *p;
    const pi__tokens *t;
    char *map;            /* all of the following */
    size_t map_bytes;
    pi__space space[2], *now; /* now: in use */
    uint64_t *mask;       /* [PI__MASK_SLOTS][words] */
    pi__walk walk[PI__N_WALKS];
    pi__slice *slice[PI__MAX_SLICES]; /* [n_slices] of runs that the program has */
    size_t n_slices;
    pi__mask_slot slot[PI__MASK_SLOTS];
    uint32_t next_slot;   /* to be used next */
    uint64_t *config;     /* [PI__MAX_CONFIGS] of the state that is being made */
    uint32_t n_config;
    bool ends;            /* of it */
    uint64_t *todo;       /* [4 * PI__MAX_CONFIGS] nodes, with stacks, to be entered */
    uint64_t *seen;       /* [8 * PI__MAX_CONFIGS] those that were, by hash */
    uint32_t *seen_when;  /* [8 * PI__MAX_CONFIGS] if it is this number, */
    uint32_t when;        /* the entry counts */
    uint32_t n_seen;
    uint32_t n_enters;    /* calls of enter */
    uint32_t far;         /* iterations that a token can make, and a few */
    char *text;           /* [max_bytes] of a token */
    uint32_t start;       /* state at the start of a text, 0: not made yet */
    uint64_t work;        /* steps: configurations, nodes of the trie, entries of the stack */
    bool full;            /* the space has no more room */
    bool wide;            /* too many configurations, or too much work */
    uint64_t n_states, n_masks; /* made */
} pi__machine;

/* Bytes that init maps. */
size_t pi__machine_bytes(const pi__tokens *t);
int pi__machine_init(pi__machine *m, const pi__program *p, const pi__tokens *t, pi_error *err);
void pi__machine_free(pi__machine *m);
/* Bytes in use: states, stacks and masks. */
size_t pi__machine_used(const pi__machine *m);

static inline pi__gstate *pi__state_at(const pi__machine *m,
                                       uint32_t s) { return (pi__gstate *) (void *) (m->now->word + s); }
/* The state at a text's start. All of these: PI__STATE_NONE where full or wide is set. */
uint32_t pi__machine_start(pi__machine *m);
/* What a byte leads to. */
uint32_t pi__machine_byte(pi__machine *m, uint32_t s, uint8_t byte);
/* The state that has the mask of s. */
uint32_t pi__machine_canon(pi__machine *m, uint32_t s);
/* What a token leads to. */
uint32_t pi__machine_token(pi__machine *m, uint32_t s, int32_t id);
/* The state behind the text of s, whose only configuration is a TEXT. */
uint32_t pi__machine_after_text(pi__machine *m, uint32_t s);
/* The slot of the mask of s, without ends; -1: it is not there. */
int32_t pi__machine_mask(pi__machine *m, uint32_t s);
/* Makes the mask of s in at most so many steps, about. DONE: it is in w, and in a slot if one was not pinned. MORE: call
 * again to go on. FULL: after a collection. WIDE: an error. */
int pi__machine_walk(pi__machine *m, pi__walk *w, uint32_t s, uint64_t steps);
static inline uint64_t *pi__mask_bits(const pi__machine *m,
                                      int32_t slot) { return m->mask + (size_t) slot * pi__mask_words(m->t); }
/* Keeps the n states of root, which get their new numbers, and the states of walks. Forgets all others and all masks; the
 * bits of pinned masks stay. */
void pi__machine_collect(pi__machine *m, uint32_t *const *root, size_t n);

#endif
