/* Requests as the engine sees them: jobs, their tokens, their ends. Prompts and answers are ids. */
#ifndef PI__JOB_H
#define PI__JOB_H

#include "pagedinfer.h"
#include "sampler/params.h"

/* One sampled token. */
typedef struct pi__token_out {
    int32_t id;                 /* the token */
    bool eog;                   /* it ends the generation (its text is not part of the answer) */
    const pi_token_prob *probs; /* 1 + n_logprobs entries, or NULL; valid during the call */
    int32_t n_probs;            /* entries in probs */
    bool calls_bound;           /* the grammar of tool calls held it (params.calls) */
} pi__token_out;

/* The end of a job. */
typedef struct pi__job_end {
    int reason;               /* PI_FINISH_* */
    int code;                 /* PI_OK or PI_E* */
    const char *msg;          /* of code; valid during the call */
    uint32_t prompt_tokens, cached_tokens, generated_tokens, n_preempted, n_drafted, n_accepted;
    const char *miss_reason;  /* static text, "" where nothing was missed */
    double queue_ms, prefill_ms, decode_ms;
} pi__job_end;

typedef struct pi__job {
    const int32_t *prompt; /* copied; at least one token */
    size_t n_prompt;       /* tokens in prompt */
    pi__gen_params params; /* bias, stop_ids, bad and dry_breakers are copied */
    void *ud;              /* first argument of the callbacks, which are called without any lock held */
    /* On the step thread, after each token; short. true: the answer is complete (a stop string). */
    bool (*on_token)(void *ud, const pi__token_out *t);
    /* On the step thread (or the closing one), exactly once for each submitted job, the last call with ud. */
    void (*on_done)(void *ud, const pi__job_end *end);
    /* On the step thread, after each step with some of the prompt: tokens that are computed, and that were cached; ms since it
     * was started; or NULL. */
    void (*on_prefill)(void *ud, uint32_t n_computed, uint32_t n_cached, double ms);
    pi_logits_fn on_logits; /* see pi_request_on_logits; NULL with PI__LOGITS_NONE. With params.hidden: n_embd values */
    void *logits_ud;        /* its first argument */
} pi__job;

typedef struct pi__seq pi__seq; /* a submitted job; reference counted */
/* Gives the submitter's reference back; before or after on_done. */
void pi__seq_release(pi__seq *s);

#endif
