/* The engine without strings: weights, cache, scheduler and the thread that runs steps.
 *
 * src/api turns options and requests into the plain structs of config.h and job.h, and calls back into text and events.
 * Prompts are ids, answers are ids; this layer knows no text. */
#ifndef PI__CORE_H
#define PI__CORE_H

#include "engine/config.h"
#include "engine/job.h"
#include "engine/stats.h"
#include "grammar/grammar.h"
#include "model/classifier.h"
#include "pagedinfer.h"
#include "tokenizer/vocab.h"

typedef struct pi__core pi__core;

/* Reads metadata only. */
int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err);
/* Loads, allocates everything and starts the step thread. Strings of c are copied. */
int pi__core_open(pi__core **out, const pi__config *c, pi_error *err);
/* Every job still there ends with PI_ECLOSED (its on_done is called); joins the thread; frees. */
void pi__core_close(pi__core *e);
/* From any thread. */
int pi__core_state(const pi__core *e);
const pi__vocab *pi__core_vocab(const pi__core *e);
/* The metadata of the model's file, overrides included. */
const pi__gguf_copy *pi__core_metadata(const pi__core *e);
/* The head that scores texts; its n_labels is 0 where the model has none. */
const pi__classifier *pi__core_classifier(const pi__core *e);
const pi__dense_heads *pi__core_dense(const pi__core *e);
int pi__core_info(const pi__core *e, pi_info *out);
int pi__core_stats(const pi__core *e, pi_stats *out);
/* The counters themselves, also those that pi_stats has not. */
const pi__stats *pi__core_counters(const pi__core *e);
/* Times of ops, or NULL. */
struct pi__profile *pi__core_profile(const pi__core *e);
int pi__core_drain(pi__core *e, int timeout_ms);
int pi__core_on_cache_event(pi__core *e, pi_cache_event_fn fn, void *ud, pi_error *err);
/* Adapters: as pi_lora_load and its kin. */
int pi__core_lora_load(pi__core *e, const char *name, const char *path, float scale, pi_error *err);
int pi__core_lora_replace(pi__core *e, const char *name, const char *path, pi_error *err);
int pi__core_lora_unload(pi__core *e, const char *name, pi_error *err);
int pi__core_lora_scale(pi__core *e, const char *name, float scale, pi_error *err);
int pi__core_lora_at(pi__core *e, size_t i, pi_lora *out);
void pi__core_cache_clear(pi__core *e, const char *salt); /* NULL: of all tenants */

/* What an answer of this engine has to be, compiled; released with pi__grammar_release, before the engine is closed. */
int pi__core_grammar(pi__core *e, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err);
/* Validates and queues j[0..n), all of them or none; n is at least 1. out[i] is a reference that pi__seq_release gives
 * back (before or after on_done). Jobs of one call share what their prompts have in common even where params.cache is
 * false: then nobody else finds it, and it is forgotten with the last of them. */
int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err);
/* In any state, any thread, any number of times, while the reference is held. */
void pi__seq_cancel(pi__core *e, pi__seq *s);

#endif
