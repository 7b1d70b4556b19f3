/* Requests inside the engine: jobs, sampled tokens, ends. Prompts and answers are token ids. */
#ifndef PI__JOB_H
#define PI__JOB_H

#include "base/hash.h"
#include "pagedinfer.h"
#include "sampler/params.h"

struct pi__picture; /* image/picture.h */

/* One image of a prompt: positions start..start + n - 1 of the prompt hold its rows. Their ids in the prompt are the
 * model's soft token. Spans of a job ascend and do not overlap. */
typedef struct pi__media_span {
    int32_t start, n;            /* first position; positions */
    /* grid of tokens, for M-RoPE: row i of the image is at grid row i / cols and column i % cols. rows * cols is n, or
     * with a break row after each grid row but the last, rows * cols + rows - 1 */
    int32_t rows, cols;
    pi__digest id;               /* identity: the image's source or pixels, its sizes, preprocessing and tower */
    struct pi__picture *picture; /* reference counted; pixels and sizes, until the rows are computed */
} pi__media_span;

/* One sampled token. */
typedef struct pi__token_out {
    int32_t id;                 /* the token */
    bool eog;                   /* ends the generation (its text is not part of the answer) */
    const pi_token_prob *probs; /* 1 + n_logprobs entries, or NULL; valid during the call */
    int32_t n_probs;            /* entries in probs */
    uint32_t n_cached;          /* prompt tokens found in the cache at the start */
    bool calls_bound;           /* the tool call grammar constrained this token (params.calls) */
} pi__token_out;

/* The end of a job. */
typedef struct pi__job_end {
    int reason;               /* PI_FINISH_* */
    int code;                 /* PI_OK or PI_E* */
    const char *msg;          /* message of code; valid during on_done */
    uint32_t prompt_tokens, cached_tokens, generated_tokens, n_preempted, n_drafted, n_accepted;
    /* reason that a part of the prompt was not reused from the cache: static text; "" = none */
    const char *miss_reason;
    double queue_ms, prefill_ms, decode_ms;
} pi__job_end;

typedef struct pi__job {
    const int32_t *prompt; /* copied; at least one token */
    size_t n_prompt;       /* tokens in prompt */
    const pi__media_span *media; /* [n_media] images; copied by submit, which takes a reference of each picture */
    int32_t n_media;       /* 0 = no images */
    pi__gen_params params; /* its arrays and strings are not used after submit */
    void *ud;              /* first argument of the callbacks, which are called without any lock held */
    /* Called on the step thread after each token; must be short. Returns true if the answer is complete (a stop
     * string). */
    bool (*on_token)(void *ud, const pi__token_out *t);
    /* Called once per submitted job, as the last call with ud, on the step thread. */
    void (*on_done)(void *ud, const pi__job_end *end);
    /* Called on the step thread after each step with prompt tokens: prompt tokens computed so far, tokens found in the
     * cache at the start, ms since the start. May be NULL. */
    void (*on_prefill)(void *ud, uint32_t n_computed, uint32_t n_cached, double ms);
    /* see pi_request_on_logits; NULL with PI__LOGITS_NONE. With params.hidden: gets n_embd values */
    pi_logits_fn on_logits;
    void *logits_ud;        /* first argument of on_logits */
} pi__job;

typedef struct pi__seq pi__seq; /* a submitted job; reference counted */
/* Releases the submitter's reference; before or after on_done. */
void pi__seq_release(pi__seq *s);

#endif
