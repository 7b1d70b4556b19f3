/* The engine without text: weights, cache, scheduler and the thread that runs steps.
 *
 * src/api converts options and requests to the plain structs of config.h and job.h, and converts callbacks back to
 * text and events. Prompts and answers are token ids. */
#ifndef PI__CORE_H
#define PI__CORE_H

#include "engine/config.h"
#include "engine/job.h"
#include "engine/stats.h"
#include "grammar/grammar.h"
#include "model/classifier.h"
#include "model/tower.h"
#include "pagedinfer.h"
#include "tokenizer/vocab.h"

typedef struct pi__core pi__core;

/* Computes the memory plan from metadata only. */
int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err);
/* Copies the plan that the engine was opened with. */
int pi__core_memory(const pi__core *e, pi_plan *out);
/* Loads the model, allocates all memory and starts the step thread. Strings of c are not used after the return. */
int pi__core_open(pi__core **out, const pi__config *c, pi_error *err);
/* Ends every remaining job with PI_ECLOSED (its on_done is called), joins the step thread, frees the engine. */
void pi__core_close(pi__core *e);
/* The getters below may be called from any thread. */
int pi__core_state(const pi__core *e);
const pi__vocab *pi__core_vocab(const pi__core *e);
/* Returns the metadata of the model's file, overrides included. */
const pi__gguf_copy *pi__core_metadata(const pi__core *e);
/* Returns the vision model; NULL = the engine has none. Its rules, frame, width and digest are constants. */
const pi__tower *pi__core_tower(const pi__core *e);
/* Returns the head that scores texts; n_labels 0 = the model has no scoring head. */
const pi__classifier *pi__core_classifier(const pi__core *e);
const pi__dense_heads *pi__core_dense(const pi__core *e);
int pi__core_info(const pi__core *e, pi_info *out);
int pi__core_stats(const pi__core *e, pi_stats *out);
/* Returns the live counters, including counters that pi_stats lacks. */
const pi__stats *pi__core_counters(const pi__core *e);
/* Returns the op profile, NULL = profiling is disabled. */
struct pi__profile *pi__core_profile(const pi__core *e);
/* Refuses new jobs from now on and waits until all jobs have ended. timeout_ms < 0 = forever. PI_ETIMEDOUT = some jobs
 * still run; they continue. */
int pi__core_drain(pi__core *e, int timeout_ms);
int pi__core_on_cache_event(pi__core *e, pi_cache_event_fn fn, void *ud, pi_error *err);
/* LoRA adapters: see pi_lora_load and related functions. */
int pi__core_lora_load(pi__core *e, const char *name, const char *path, float scale, pi_error *err);
int pi__core_lora_replace(pi__core *e, const char *name, const char *path, pi_error *err);
int pi__core_lora_unload(pi__core *e, const char *name, pi_error *err);
int pi__core_lora_scale(pi__core *e, const char *name, float scale, pi_error *err);
int pi__core_lora_at(pi__core *e, size_t i, pi_lora *out);
/* Drops the cached prefixes of the tenant with this salt, in pools and tiers; NULL = of all tenants. Waits until the
 * step thread has done it. */
void pi__core_cache_clear(pi__core *e, const char *salt);

/* Compiles a constraint for answers of this engine. Release it with pi__grammar_release before the engine is
 * closed. */
int pi__core_grammar(pi__core *e, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err);
/* Validates and queues j[0..n), all of them or none; n is at least 1. out[i] is a reference; release it with
 * pi__seq_release (before or after on_done). Jobs of one call share the common prefix of their prompts even where
 * params.cache is false: then no other request can reuse that prefix, and the last of these jobs to end drops it. */
int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err);
/* Requests cancellation: the step thread ends s soon. In any state, from any thread that holds a reference of s. */
void pi__seq_cancel(pi__core *e, pi__seq *s);

#endif
