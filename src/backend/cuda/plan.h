/* The planner: which ops share a launch. Ops are recorded (cuda.c), planned, and then queued (emit.c).
 *
 * A plan is a list of launches. It follows from the records, the arguments in them and the facts alone. Rules
 * (PI__PLAN_RULES) join the next op to the end of the plan. A plan without rules has one launch per op, in their order,
 * and the same results: bitwise identical for every set of rules.
 *
 * A launch of the plan is usually one kernel. Some ops need several kernels (experts, products with matrices that one
 * launch cannot mix, many rows); these follow each other.
 *
 * Memory: the caller's. Any thread. */
#ifndef PI__CUDA_PLAN_H
#define PI__CUDA_PLAN_H

#include "backend/cuda/facts.h"
#include "backend/cuda/fuse_rules.h"

/* PI__RULE_NAME: the number of a rule, and its bit in pi__facts.rules_off. */
#define PI__RULE_ID(name, ops, result) PI__RULE_##name,
typedef enum pi__rule { PI__PLAN_RULES(PI__RULE_ID) PI__N_RULES } pi__rule;
#undef PI__RULE_ID

/* Families of launches. */
typedef enum pi__family {
    PI__L_OP,        /* an op as it is */
    PI__L_LINEAR,    /* products, with an epilogue */
    PI__L_ADDED,     /* products of many rows, which add their results to the residual add[0] */
    PI__L_GLU,       /* gate, up and activation; the only result is the packed input of `packs` */
    PI__L_EXPERTS,   /* op moe without its sum */
    PI__L_DOWNS,     /* products with one matrix, and down of the experts `down` */
    PI__L_ROWS,      /* sums, adds, norms and packing of rows, as in an epilogue, but for any number of rows */
    PI__L_ATTENTION, /* op attention, with an epilogue that only packs */
    PI__L_GDN,       /* op gdn, likewise */
    PI__L_HEADS,     /* op head_linear, likewise; or with q[0], an op mla_qkv of its results */
    PI__L_SPARSE,    /* op sparse */
    PI__L_INDEXER,   /* op indexer */
    PI__L_LATENT,    /* ops mla_qkv and compress */
    PI__L_STREAMS,   /* hyper_post, the product with the mixing matrix, hyper_pre */
    PI__N_FAMILIES
} pi__family;

enum { PI__NONE = -1, PI__LATENT_OPS = 2, PI__PLAN_ADDS = 2 };
/* Parts of an op mla_qkv. */
enum { PI__PART_QUERIES = 1, PI__PART_ROW = 2 };

/* One launch. Fields without another comment are indices of records; PI__NONE = no such op. */
typedef struct pi__plan_launch {
    uint8_t family;     /* PI__L_* */
    uint8_t first, n;   /* matrices first to first + n - 1 of op linear */
    bool routed;        /* EXPERTS: an earlier launch has computed the routes */
    bool mid;           /* EXPERTS: only up to the packed input of down; a DOWNS launch follows */
    bool packed;        /* HEADS: the SPARSE launch before has packed the input */
    bool joined;        /* LINEAR: post, mix and pre are in this launch */
    int16_t op;         /* the main op */
    int16_t down;       /* DOWNS: op moe */
    int16_t groups;     /* SPARSE: op head_linear, whose packed input this launch writes */
    int16_t raw;        /* SPARSE, INDEXER: op mla_qkv of the queries, which this launch applies itself */
    int16_t q[PI__LATENT_OPS], compress[PI__LATENT_OPS]; /* LATENT, or beside a LINEAR: ops mla_qkv; ops compress */
    uint8_t parts[PI__LATENT_OPS]; /* of each op mla_qkv: PI__PART_* */
    uint8_t n_q, n_compress, n_add; /* entries of q, of compress, of add */
    int16_t post, mix, pre; /* STREAMS, or after a LINEAR: hyper_post; the linear with the mixing matrix; hyper_pre */
    /* the epilogue, in this order */
    int16_t heads;      /* op qkv */
    int16_t routes;     /* op moe, whose routes are computed */
    int16_t sum, gated; /* op moe, whose results are summed; op add_gated, added to that sum */
    int16_t add[PI__PLAN_ADDS]; /* ops add_norm and norm */
    int16_t packs;      /* op linear or moe, whose input is packed */
    int16_t beside;     /* op linear, whose input is packed to a second region of scratch */
    /* index of the launch before this one that has packed inputs that this launch may read; PI__NONE = it packs its
     * inputs itself */
    int16_t uses;
} pi__plan_launch;

/* PI__MAX_RECORDS: ops that are planned at once. An op adds at most 3 launches. */
enum { PI__MAX_RECORDS = 2048, PI__MAX_LAUNCHES = 3 * PI__MAX_RECORDS };

typedef struct pi__plan {
    int32_t n;
    pi__plan_launch launch[PI__MAX_LAUNCHES];
} pi__plan;

/* Plans n records, at most PI__MAX_RECORDS. */
void pi__plan_make(pi__plan *p, const pi__facts *f, const pi__op_record *r, int32_t n);

/* Returns the matrices of a launch of linears. */
pi__linear pi__launch_linear(const pi__plan_launch *l, const pi__op_record *r);
/* Returns the name of a rule. */
const char *pi__rule_name(pi__rule rule);

#endif
