/* Sampling parameters of a request, as plain values. The option table fills it; sampler and scheduler read it. */
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
    float bias;  /* added to its logit; -INFINITY forbids it */
} pi__logit_bias;

typedef struct pi__sampling { /* meanings and defaults as in llama.cpp */
    uint64_t seed;           /* of the request's own generator; the same seed gives the same tokens in any batch */
    float temp;              /* <= 0: greedy */
    float dynatemp_range;    /* temp is the middle of so much below and above, by the entropy; 0: off */
    float dynatemp_exponent; /* of the entropy, as a part of the largest there can be */
    int32_t mirostat;        /* 1 or 2: which Mirostat, instead of all other stages but temp; 0: off */
    float mirostat_tau;      /* surprise that it aims at, in bits */
    float mirostat_eta;      /* how much of a token's error it corrects */
    float adaptive_target;   /* probability that adaptive-p aims at; below 0: off */
    float adaptive_decay;    /* weight that a token keeps from one to the next, at most 0.99 */
    int32_t top_k;           /* <= 0: off */
    float top_p;             /* 1: off */
    float min_p;             /* 0: off */
    float typical_p;         /* 1: off */
    float top_n_sigma;       /* <= 0: off */
    float repeat_penalty;    /* 1: off */
    float presence_penalty;  /* 0: off */
    float frequency_penalty; /* 0: off */
    int32_t repeat_last_n;   /* tokens looked back at; 0: none, -1: the whole context */
    float dry_multiplier;    /* 0: off */
    float dry_base;          /* growth a token */
    int32_t dry_allowed_length; /* longest repetition without penalty */
    int32_t dry_penalty_last_n; /* tokens looked back at; 0: off, -1: the whole context */
    float xtc_probability;   /* 0: off */
    float xtc_threshold;     /* tokens at least this probable may be removed but the last; > 0.5: off */
    int32_t min_keep;        /* candidates that filters leave at least */
    uint8_t chain[PI__SMP_N + 1]; /* order of stages, ended by PI__SMP_N */
    const pi__logit_bias *bias; /* owned by the request */
    size_t n_bias;           /* entries in bias */
    const int32_t *const *dry_breakers; /* token sequences that DRY does not cross, each ended by -1 */
    size_t n_dry_breakers;   /* entries in dry_breakers */
} pi__sampling;

enum { PI__TENANTS = 256 };

enum { PI__LOGITS_NONE, PI__LOGITS_LAST, PI__LOGITS_ALL, PI__LOGITS_GENERATED };

struct pi__grammar;

/* An adapter that a request asks for. */
typedef struct pi__lora_ask {
    char name[128];
    float scale;
} pi__lora_ask;

typedef struct pi__gen_params {
    pi__sampling sampling;
    int32_t max_tokens;     /* tokens to generate; -1: to the context's end */
    int32_t min_tokens;     /* end-of-generation tokens are forbidden before so many */
    bool limit_thoughts;    /* of thought_budget tokens; then thought_message, if any, and the closing tag are forced */
    int32_t thought_budget; /* tokens of a thought, not negative */
    const char *thought_message; /* read at submit; may be NULL */
    bool ignore_eos;        /* end-of-generation tokens are never sampled */
    bool no_stop;           /* end-of-generation tokens are sampled and do not end it */
    bool cache;             /* reuse and keep prefixes */
    const char *salt;       /* prefixes are shared among requests of equal salt; NULL or "": the common one */
    int32_t n_logprobs;     /* -1: none; otherwise so many alternatives beside the sampled token's */
    bool probs_drawn;       /* they are of what the sampler's stages left, not of the whole row */
    int32_t logits;         /* PI__LOGITS_*: rows given to the logits function */
    int32_t logits_from;    /* PI__LOGITS_ALL: the first position whose row is given */
    bool hidden;            /* rows are hidden states instead of logits; nothing is generated */
    int32_t priority;       /* lower runs first under the priority policy */
    uint32_t tenant;        /* below PI__TENANTS: of equal priority, tenants take turns */
    int spec;               /* PI__SPEC_* of who drafts; 0: as the engine likes */
    double deadline_ms;     /* from submit; 0: none */
    const int32_t *stop_ids; /* tokens that end it; owned by the request */
    size_t n_stop_ids;      /* entries in stop_ids */
    const int32_t *bad;     /* [n_bad] sequences that the answer may not hold, each ended by -1; owned by the request */
    size_t n_bad;           /* entries in bad; 0: none */
    struct pi__grammar *grammar; /* what the answer has to be, or NULL; a reference of the request */
    bool calls;                  /* it is the one of tool calls */
    bool lora_given;        /* it says which adapters it has: these alone, or else the engine's defaults */
    const pi__lora_ask *lora; /* [n_lora] read at submit; owned by the request */
    size_t n_lora;          /* how many */
} pi__gen_params;

#endif
