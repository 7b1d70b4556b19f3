/* The machine's program: expressions as nodes.
 *
 *     TEXT a, n -> b    reads the n bytes of the program's text from a on; n is below PI__MAX_SUB
 *     DFA a -> b        reads one character of class a, whose bytes its automaton follows
 *     SPLIT a | b       goes on at both
 *     CALL a, then b    reads rule a; b is pushed as where to go on
 *     LOOP a, then b    reads the body of loop a, min to max times; the node is pushed with the number of the iteration
 *     TOKEN, NOT_TOKEN a -> b   reads a token by its id, at a token's start
 *     FREE a -> b       reads anything until automaton a has found a trigger, or a token that is one
 *     END               of a rule: pops; node 0, the only one
 *
 * Nodes from which no text can be completed are not live, and never entered. Rules that would call themselves before
 * anything is read are refused, so that what a byte leads to is finite. Immutable once made. */
#ifndef PI__GRAMMAR_PROGRAM_H
#define PI__GRAMMAR_PROGRAM_H

#include "grammar/expr.h"
#include "template/chat_form.h"

enum pi__gnode_kind { PI__G_END, PI__G_TEXT, PI__G_DFA, PI__G_SPLIT, PI__G_CALL, PI__G_LOOP, PI__G_TOKEN,
                      PI__G_NOT_TOKEN, PI__G_FREE };

enum {
    PI__MAX_NODES = 1 << 20,   /* a place in the program has 20 bits, */
    PI__MAX_SUB = 1 << 12,     /* one in an automaton 12 */
    PI__MAX_ROWS = 1 << 13,    /* of all automata together */
    PI__CLASS_SLOTS = 2 * PI__MAX_ROWS, /* an automaton has a row at least */
    PI__DFA_END = UINT16_MAX,  /* in an automaton's rows: the character, or trigger, is complete */
    PI__RUN_INF = UINT32_MAX,  /* a run without end */
};

typedef struct pi__gnode {
    uint8_t kind;  /* enum pi__gnode_kind */
    bool live;     /* a text can be completed from here */
    uint16_t n;    /* TEXT */
    uint32_t a, b; /* see above */
} pi__gnode;

typedef struct pi__loop { /* a repetition that is counted while a text is followed */
    uint32_t body;        /* first node; the body ends with END */
    uint32_t min, max;    /* iterations; max PI__REP_INF: no limit. A body that may be empty has min 0 */
    uint32_t run;         /* a DFA node that is a whole iteration, 0: none */
    bool nullable;        /* the body may be empty: an iteration that reads nothing is left out */
} pi__loop;

typedef struct pi__dfa {
    uint16_t (*row)[256]; /* [n_rows] by byte: 0 no way, PI__DFA_END, or the next row; row 0 is the start */
    size_t n_rows, cap;
    uint64_t kinds;       /* kinds of characters that are in the class as a whole; of triggers: that leave a home one */
    uint16_t start;       /* of triggers: where a text starts */
    uint16_t n_outside;   /* below this row triggers count; the others are within thoughts */
    uint16_t home[PI__N_THOUGHT_TAGS + 2]; /* [n_homes] rows in which nothing has begun */
    uint32_t n_homes;
    pi__class cls;        /* of it, while the program is made */
} pi__dfa;

typedef struct pi__program {
    pi__gnode *node;      /* [n_nodes] */
    size_t n_nodes, cap_nodes;
    uint32_t *run;        /* [n_nodes] DFA: so many characters of the class may follow each other from here; else 0 */
    uint32_t *rule;       /* [n_rules] first node of each */
    size_t n_rules, cap_rules;
    pi__loop *loop;       /* [n_loops] */
    size_t n_loops, cap_loops;
    uint8_t *text;        /* [n_text] bytes of TEXT nodes */
    size_t n_text, cap_text;
    pi__dfa *dfa;         /* [n_dfas] */
    size_t n_dfas, cap_dfas;
    uint8_t cls[256];     /* bytes that all nodes treat alike have one number, */
    uint32_t n_cls;       /* below this */
    int32_t *trigger;     /* [n_triggers] tokens that are triggers */
    size_t n_triggers;
    uint32_t root;        /* where a text starts */
} pi__program;

/* Of root, with the rules of b; the builder may go afterwards. PI_EINVAL, PI_ENOMEM, the code of the builder's work: b->err. */
int pi__program_make(pi__program *p, pi__builder *b, pi__expr *root);
void pi__program_free(pi__program *p);
size_t pi__program_bytes(const pi__program *p);

/* ---- automata (program_dfa.c): their number, or 0 after an error */
uint32_t pi__dfa_of_class(pi__program *p, pi__builder *b, pi__class c);
/* Of the builder's triggers. */
uint32_t pi__dfa_of_triggers(pi__program *p, pi__builder *b);
/* ---- what is found out about nodes (program_check.c) */
int pi__program_check(pi__program *p, pi__builder *b);

#endif
