/* The machine's program: expressions as nodes.
 *
 *     TEXT a, n -> b            reads n bytes of the program's text from a on; n is below PI__MAX_SUB;
 *     DFA a -> b                reads one character of class a, byte by byte in automaton a;
 *     SPLIT a | b               continues at both;
 *     CALL a, then b            reads rule a; pushes b as the node to continue at;
 *     LOOP a, then b            reads the body of loop a, min to max times; pushes itself with the iteration number;
 *     TOKEN, NOT_TOKEN a -> b   reads a token by its id, at a token boundary;
 *     FREE a -> b               reads anything until automaton a has found a trigger, or up to a trigger token;
 *     END                       ends a rule: pops; the only END is node 0.
 *
 * Nodes from which no text can be completed are not live and are never entered. Rules that call themselves before
 * anything is read are rejected, so the set of configurations after a byte is finite. Immutable once made. */
#ifndef PI__GRAMMAR_PROGRAM_H
#define PI__GRAMMAR_PROGRAM_H

#include "grammar/expr.h"
#include "template/chat_form.h"

enum pi__gnode_kind { PI__G_END, PI__G_TEXT, PI__G_DFA, PI__G_SPLIT, PI__G_CALL, PI__G_LOOP, PI__G_TOKEN,
                      PI__G_NOT_TOKEN, PI__G_FREE };

enum {
    PI__MAX_NODES = 1 << 20,   /* a configuration has 20 bits for the node */
    PI__MAX_SUB = 1 << 12,     /* and 12 bits for the row or offset within it */
    PI__MAX_ROWS = 1 << 13,    /* total of all automata */
    PI__CLASS_SLOTS = 2 * PI__MAX_ROWS, /* every automaton has at least one row */
    PI__DFA_END = UINT16_MAX,  /* in an automaton's rows: the character or trigger is complete */
    PI__RUN_INF = UINT32_MAX,  /* a run without a length limit */
};

typedef struct pi__gnode {
    uint8_t kind;  /* enum pi__gnode_kind */
    bool live;     /* a complete text can be reached from this node */
    uint16_t n;    /* TEXT: number of bytes */
    uint32_t a, b; /* by kind, see the table above */
} pi__gnode;

typedef struct pi__loop { /* a repetition with an iteration counter on the stack */
    uint32_t body;        /* first node; the body ends with END */
    uint32_t min, max;    /* iterations; max PI__REP_INF = unlimited; min is 0 if the body may be empty */
    uint32_t run;         /* DFA node that is an alternative of the body by itself; 0 = none */
    bool nullable;        /* the body may be empty: iterations that read nothing are skipped */
} pi__loop;

typedef struct pi__dfa {
    uint16_t (*row)[256]; /* [n_rows] by byte: 0 = no transition, PI__DFA_END, or the next row; row 0 is the start */
    size_t n_rows, cap;
    uint64_t kinds;       /* kinds of characters completely in the class; triggers: kinds that never leave a home row */
    uint16_t start;       /* triggers: row at the start of a text */
    uint16_t n_outside;   /* triggers count in rows below this one; higher rows are within reasoning */
    uint16_t home[PI__N_THOUGHT_TAGS + 2]; /* [n_homes] rows in which no trigger or tag has begun */
    uint32_t n_homes;
    pi__class cls;        /* the automaton's class; valid only while the program is made */
} pi__dfa;

typedef struct pi__program {
    pi__gnode *node;      /* [n_nodes] */
    size_t n_nodes, cap_nodes;
    uint32_t *run;        /* [n_nodes] DFA: max characters of its class in a row from this node on; else 0 */
    uint32_t *rule;       /* [n_rules] first node of each rule */
    size_t n_rules, cap_rules;
    pi__loop *loop;       /* [n_loops] */
    size_t n_loops, cap_loops;
    uint8_t *text;        /* [n_text] bytes of TEXT nodes */
    size_t n_text, cap_text;
    pi__dfa *dfa;         /* [n_dfas] */
    size_t n_dfas, cap_dfas;
    uint8_t cls[256];     /* equivalence class of each byte: all nodes treat its bytes alike */
    uint32_t n_cls;       /* number of classes */
    int32_t *trigger;     /* [n_triggers] single tokens that are triggers */
    size_t n_triggers;
    uint32_t root;        /* node at the start of a text */
} pi__program;

/* Compiles root with the rules of b; b may be freed afterwards. Errors are in b->err: PI_EINVAL, PI_ENOMEM, or the code
 * of the builder's work. */
int pi__program_make(pi__program *p, pi__builder *b, pi__expr *root);
void pi__program_free(pi__program *p);
size_t pi__program_bytes(const pi__program *p);

/* ---- automata (program_dfa.c): each returns the automaton's number, or 0 after an error */
uint32_t pi__dfa_of_class(pi__program *p, pi__builder *b, pi__class c);
/* Builds the automaton of the builder's triggers. */
uint32_t pi__dfa_of_triggers(pi__program *p, pi__builder *b);
/* ---- analysis of nodes: live, run, nullable, left recursion (program_check.c) */
int pi__program_check(pi__program *p, pi__builder *b);

#endif
