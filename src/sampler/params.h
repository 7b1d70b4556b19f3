/* Parameters of a request as plain values: sampling (pi__sampling) and generation (pi__gen_params). src/api fills them
 * from options; sampler and scheduler read them. */
#ifndef PI__PARAMS_H
#define PI__PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pi__sampler_kind { /* stages of the sampler chain */
    PI__SMP_PENALTIES, PI__SMP_DRY, PI__SMP_TOP_N_SIGMA, PI__SMP_TOP_K, PI__SMP_TYPICAL, PI__SMP_TOP_P, PI__SMP_MIN_P,
    PI__SMP_XTC, PI__SMP_TEMPERATURE, PI__SMP_ADAPTIVE_P, PI__SMP_MIROSTAT, PI__SMP_N
};

typedef struct pi__logit_bias {
    int32_t id;  /* token */
    float bias;  /* added to the token's logit; -INFINITY excludes the token */
} pi__logit_bias;

typedef struct pi__sampling { /* meanings and defaults as in llama.cpp */
    uint64_t seed;           /* seed of the request's generator; equal seeds give equal tokens in any batch */
    float temp;              /* temperature; <= 0 = greedy */
    /* half width of a temperature range around temp; the entropy selects a value in it; 0 = off */
    float dynatemp_range;
    float dynatemp_exponent; /* exponent applied to the entropy, which is relative to its maximum */
    int32_t mirostat;        /* Mirostat version 1 or 2: replaces all stages of the chain except temperature; 0 = off */
    float mirostat_tau;      /* target surprise in bits */
    float mirostat_eta;      /* learning rate: each token changes mu by this fraction of its error (surprise - tau) */
    float adaptive_target;   /* target probability of adaptive-p; below 0 = off */
    /* adaptive-p: at each token, the sums over past tokens are multiplied by this; at most 0.99 */
    float adaptive_decay;
    int32_t top_k;           /* <= 0 = off */
    float top_p;             /* 1 = off */
    float min_p;             /* 0 = off */
    float typical_p;         /* 1 = off */
    float top_n_sigma;       /* <= 0 = off */
    float repeat_penalty;    /* 1 = off */
    float presence_penalty;  /* 0 = off */
    float frequency_penalty; /* 0 = off */
    int32_t repeat_last_n;   /* length of the penalty window in tokens; 0 = off, -1 = the full context */
    float dry_multiplier;    /* 0 = off */
    /* penalty: multiplier * base^(length of the repetition that the token continues - allowed length) */
    float dry_base;
    int32_t dry_allowed_length; /* a token that continues a shorter repetition has no penalty */
    int32_t dry_penalty_last_n; /* length of the DRY window in tokens; 0 = off, -1 = the full context */
    float xtc_probability;   /* probability that XTC is applied to a token; 0 = off */
    /* XTC removes all tokens of at least this probability except the least likely of them; > 0.5 = off */
    float xtc_threshold;
    int32_t min_keep;        /* minimum number of candidates that each filter keeps */
    uint8_t chain[PI__SMP_N + 1]; /* order of stages, terminated by PI__SMP_N */
    const pi__logit_bias *bias; /* [n_bias] owned by the request */
    size_t n_bias;           /* entries in bias */
    /* [n_dry_breakers] token sequences that end DRY's matching, each terminated by -1; read at create */
    const int32_t *const *dry_breakers;
    size_t n_dry_breakers;   /* entries in dry_breakers */
} pi__sampling;

enum { PI__TENANTS = 256 }; /* number of tenant slots of the round-robin scheduler */

enum { PI__LOGITS_NONE, PI__LOGITS_LAST, PI__LOGITS_ALL, PI__LOGITS_GENERATED }; /* values of option "logits" */

struct pi__grammar;

/* A LoRA adapter that a request selects, by name, with its scale. */
typedef struct pi__lora_ask {
    char name[128];
    float scale;
} pi__lora_ask;

typedef struct pi__gen_params {
    pi__sampling sampling;
    int32_t max_tokens;     /* tokens to generate; -1 = up to the end of the context */
    int32_t min_tokens;     /* end-of-generation tokens are excluded until the answer has this many tokens */
    /* limits each thought to thought_budget tokens; then thought_message, if any, and the closing tag are forced */
    bool limit_thoughts;
    int32_t thought_budget; /* maximum tokens of a thought, >= 0 */
    const char *thought_message; /* read at submit; NULL = no message */
    bool ignore_eos;        /* end-of-generation tokens are never sampled */
    bool no_stop;           /* end-of-generation tokens can be sampled, but do not end the answer */
    bool cache;             /* the request reuses cached prefixes, and its own prefixes stay in the cache */
    const char *salt;       /* only requests of equal salt share prefixes; NULL or "" = the default salt */
    int32_t n_logprobs;     /* -1 = off; otherwise the number of alternatives in addition to the sampled token */
    /* log-probabilities refer to the candidates after the sampler's stages, instead of to the raw row */
    bool probs_drawn;
    int32_t logits;         /* PI__LOGITS_*: rows that the logits function gets */
    int32_t logits_from;    /* PI__LOGITS_ALL: position of the first row */
    bool hidden;            /* on_logits gets hidden states instead of logits; nothing is generated */
    int32_t priority;       /* lower runs first under the priority policy */
    uint32_t tenant;        /* below PI__TENANTS: at equal priority, tenants are served round-robin */
    int spec;               /* PI__SPEC_* of the drafter; 0 = the engine's default */
    double deadline_ms;     /* milliseconds from submit after which the request ends; 0 = no deadline */
    const int32_t *stop_ids; /* [n_stop_ids] tokens that end the answer; owned by the request */
    size_t n_stop_ids;      /* entries in stop_ids */
    const int32_t *bad;     /* [n_bad] forbidden token sequences, each terminated by -1; owned by the request */
    size_t n_bad;           /* entries in bad; 0 = off */
    struct pi__grammar *grammar; /* constraint of the answer, or NULL; holds a reference */
    bool calls;                  /* `grammar` constrains tool calls; events then set calls_bound */
    bool lora_given;        /* use exactly the adapters in lora; false = the engine's defaults */
    const pi__lora_ask *lora; /* [n_lora] read at submit; owned by the request */
    size_t n_lora;          /* entries in lora */
} pi__gen_params;

#endif
