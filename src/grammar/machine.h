/* The machine that runs a program: states, transitions on bytes and tokens, and masks (see grammar.h).
 *
 * A state is a sorted set of configurations. Each has a node that reads something, a row in its automaton (or offset in
 * its text), and a stack:
 *
 *     63           44 43        32 31             0
 *     +--------------+------------+---------------+    stack: number of its top entry; 0 = empty, the end of the text;
 *     | node         | row        | stack         |    an entry: return node, loop iteration, next lower entry
 *     +--------------+------------+---------------+
 *
 * Stack entries count loop iterations. A token has at most max_bytes bytes, and each iteration reads at least one byte.
 * So all counts that are further than max_bytes from the loop's limits have the same mask. Each entry knows its
 * CANONICAL entry, whose counts represent all equivalent counts. A state shares the mask of its canonical state:
 * in a text of 10 to 50,000 characters, all positions in the middle share one mask.
 *
 * Each state and stack entry exists once (found by hash), so equal positions in a text have equal numbers. Both lie in
 * one of two spaces of fixed size. When a space is full, the states that matchers are in are copied to the other one,
 * and the rest is dropped. Masks live in separate slots. Memory: one mapping, made by init, committed as it is used.
 * One thread at a time. */
#ifndef PI__GRAMMAR_MACHINE_H
#define PI__GRAMMAR_MACHINE_H

#include "grammar/grammar.h"
#include "grammar/program.h"

enum {
    PI__MAX_CONFIGS = 8192,         /* maximum configurations per state */
    PI__MAX_STACKS = 1 << 16,       /* stack entries per space */
    PI__MAX_STATES = 1 << 15,       /* states per space */
    PI__STATE_WORDS = 1 << 20,      /* 8-byte words for states per space */
    PI__MASK_SLOTS = 256,           /* number of cached masks */
    PI__MASK_WORK = 1 << 26,        /* maximum steps of work for one mask */
    PI__MAX_SLICES = 8,             /* maximum slices per grammar */
    PI__N_WALKS = 2,                /* masks computed at the same time: one for callers, one for the worker */
    PI__STATE_NONE = 0,             /* not a state: an error; the cause is in full or wide */
    PI__STATE_DEAD = 1,             /* the text so far is no prefix of a text of the grammar */
    PI__STATE_MIXED = UINT32_MAX,   /* value of any_next: different characters lead to different states */
};

typedef struct pi__gstate {
    /* a run: characters of one class that may follow in a row */
    uint64_t run_kinds;   /* kinds of characters in the run */
    uint32_t run_chars;   /* length limit of the run, in characters; PI__RUN_INF = unlimited; 0 = no run */
    uint32_t hash;
    uint32_t n;           /* number of configurations */
    uint32_t mask;        /* canonical states: 1 + slot of the mask; 0 = no mask cached */
    uint64_t any_kinds;   /* cached query of any_next: kinds of characters */
    uint32_t any_next;    /* state that all of any_kinds lead to; PI__STATE_MIXED = several; NONE = nothing cached */
    uint32_t canon;       /* canonical state; 0 = not computed yet */
    uint32_t reach;       /* 1 + number of characters of run_kinds that can follow, if equal for all characters;
                             PI__RUN_INF = not equal, or unlimited; 0 = not computed yet */
    bool ends;            /* the text may end in this state */
    bool by_token;        /* a configuration's node reads a token by its id */
    uint64_t config[];    /* [n]; then uint32_t next[n_cls], PI__STATE_NONE = not computed yet */
} pi__gstate;

typedef struct pi__gstack {
    uint32_t go_on;       /* node to continue at */
    uint32_t count;       /* iteration number, from 1, if go_on is a LOOP; 0: a rule is being read */
    uint32_t below;       /* next lower entry; 0 = none */
    uint32_t canon;       /* canonical entry */
    uint32_t when;        /* value of pi__machine.n_enters in the last call of enter that pushed this entry */
} pi__gstack;

typedef struct pi__space {
    uint64_t *word;       /* [PI__STATE_WORDS] states; a state's number is its first word's index; 0 and 1 are unused */
    uint32_t n_words, n_states;
    uint32_t *state_slot; /* [2 * PI__MAX_STATES] states by hash, 0 = free */
    pi__gstack *stack;    /* [PI__MAX_STACKS]; entry 0 is the empty stack */
    uint32_t n_stacks;
    uint32_t *stack_slot; /* [2 * PI__MAX_STACKS] entries by hash, 0 = free */
} pi__space;

typedef struct pi__mask_slot {
    uint32_t state;       /* the mask's state; 0 = free, or the state was dropped */
    int32_t n, only;      /* number of allowed tokens, without end tokens; the last allowed token */
    uint32_t pins;        /* number of matchers that use it */
} pi__mask_slot;

/* A mask under construction. The walk can pause at each node of the trie and resume later. */
typedef struct pi__walk {
    uint32_t state;       /* the mask's state; 0 = idle */
    uint32_t at;          /* next node to visit: index in the trie, or in the slice's list of other nodes */
    uint32_t depth;       /* number of ancestors of that node */
    uint32_t full_at;     /* `at` when the tables were last full; UINT32_MAX = never */
    bool stale;           /* `path` refers to states that a collection dropped; they must be recomputed */
    const pi__slice *slice; /* slice that filled in its tokens already; NULL = no slice */
    uint64_t work;        /* steps spent so far */
    int32_t n, only;      /* counts of the finished mask, as in pi__mask_slot */
    uint64_t *bits;       /* [words] */
    uint32_t *path;       /* [max_bytes + 1] states by depth; path[0] is `state` */
    uint8_t *text;        /* [max_bytes + 1] bytes by depth */
} pi__walk;

enum pi__walk_end { PI__WALK_DONE, PI__WALK_MORE, PI__WALK_FULL, PI__WALK_WIDE };

typedef struct pi__machine {
    const pi__program *p;
    const pi__tokens *t;
    char *map;            /* all of the following */
    size_t map_bytes;
    pi__space space[2], *now; /* now: the space in use */
    uint64_t *mask;       /* [PI__MASK_SLOTS][words] */
    pi__walk walk[PI__N_WALKS];
    pi__slice *slice[PI__MAX_SLICES]; /* [n_slices] slices for the runs of the program */
    size_t n_slices;
    pi__mask_slot slot[PI__MASK_SLOTS];
    uint32_t next_slot;   /* slot that the next new mask overwrites, unless it is pinned */
    uint64_t *config;     /* [PI__MAX_CONFIGS] configurations of the state under construction */
    uint32_t n_config;
    bool ends;            /* the state under construction may end the text */
    uint64_t *todo;       /* [4 * PI__MAX_CONFIGS] (node, stack) pairs to enter */
    uint64_t *seen;       /* [8 * PI__MAX_CONFIGS] (node, stack) pairs entered already, by hash */
    uint32_t *seen_when;  /* [8 * PI__MAX_CONFIGS] a slot of `seen` is valid if this equals `when` */
    uint32_t when;        /* number of the state under construction */
    uint32_t n_seen;
    uint32_t n_enters;    /* calls of enter */
    uint32_t far;         /* max_bytes + 2: counts further than this from a loop's limits are equivalent */
    char *text;           /* [max_bytes] bytes of a token */
    uint32_t start;       /* state at the start of a text; 0 = not made yet */
    uint64_t work;        /* steps so far: configurations, trie nodes and stack entries */
    bool full;            /* a space has no capacity for a new state or stack entry; a collection is needed */
    bool wide;            /* the current state has too many configurations, or a mask took too much work: an error */
    uint64_t n_states, n_masks; /* states created; masks computed */
} pi__machine;

/* Returns the number of bytes that init maps. */
size_t pi__machine_bytes(const pi__tokens *t);
int pi__machine_init(pi__machine *m, const pi__program *p, const pi__tokens *t, pi_error *err);
void pi__machine_free(pi__machine *m);
/* Returns the bytes in use: states, stacks and masks. */
size_t pi__machine_used(const pi__machine *m);

static inline pi__gstate *pi__state_at(const pi__machine *m,
                                       uint32_t s) { return (pi__gstate *) (void *) (m->now->word + s); }
/* Returns the state at the start of a text. This function and the next four return PI__STATE_NONE if they set m->full
 * or m->wide. */
uint32_t pi__machine_start(pi__machine *m);
/* Returns the state that byte leads to from s; DEAD if the grammar does not allow it. */
uint32_t pi__machine_byte(pi__machine *m, uint32_t s, uint8_t byte);
/* Returns the canonical state of s, which has the same mask. */
uint32_t pi__machine_canon(pi__machine *m, uint32_t s);
/* Returns the state that token id leads to from s, by its id or its text; DEAD if the grammar does not allow it. */
uint32_t pi__machine_token(pi__machine *m, uint32_t s, int32_t id);
/* Returns the state after the remaining text of s. The only configuration of s must be a TEXT. */
uint32_t pi__machine_after_text(pi__machine *m, uint32_t s);
/* Returns the slot with the mask of s, which leaves out end tokens; -1 = not cached, or m->full or m->wide is set. */
int32_t pi__machine_mask(pi__machine *m, uint32_t s);
/* Continues to compute the mask of s in w, in about `steps` steps at most. DONE: the mask is in w, and in a slot
 * unless all slots are pinned. MORE: call again to continue. FULL: call again after a collection. WIDE: an error, w is
 * idle. */
int pi__machine_walk(pi__machine *m, pi__walk *w, uint32_t s, uint64_t steps);
static inline uint64_t *pi__mask_bits(const pi__machine *m,
                                      int32_t slot) { return m->mask + (size_t) slot * pi__mask_words(m->t); }
/* Frees table space: keeps the n states at *root[i], which get new numbers there, and the states of walks. Drops all
 * other states and all cached masks; the bits of pinned masks stay valid. */
void pi__machine_collect(pi__machine *m, uint32_t *const *root, size_t n);

#endif
