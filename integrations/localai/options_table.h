/* options_table.h: options of LocalAI's llama-cpp backend, and their effect here.
 *
 * Any other name is an option of libpagedinfer (docs/OPTIONS.md). A name that libpagedinfer knows needs no row, unless
 * its value differs. `pagedinfer-localai --options` prints these rows for docs/LOCALAI.md. */
#ifndef PAGEDINFER_LOCALAI_OPTIONS_TABLE_H
#define PAGEDINFER_LOCALAI_OPTIONS_TABLE_H

namespace localai {

enum option_kind {
    PASS,    /* the option `key`, unchanged */
    LOWER,   /* in lower case */
    DRAFT,   /* a number, at most 16 */
    DIRECT,  /* true = load-mode dio */
    IGNORE   /* no effect; note has the reason */
};

struct option_row {
    const char *names; /* llama-cpp's spellings, separated by spaces */
    const char *key;   /* option of libpagedinfer or libpagedinfer-openai; "" = none */
    option_kind kind;
    const char *note;  /* for the table in the documentation */
};

inline constexpr option_row option_rows[] = {
    {"parallel n_parallel", "parallel", PASS, "default 16"},
    {"n_ubatch ubatch", "ubatch-size", PASS, "tokens of a step"},
    {"threads_batch n_threads_batch", "threads-batch", PASS, ""},
    {"cache_ram", "cache-ram", PASS, ""},
    {"check_tensors", "check-tensors", PASS, ""},
    {"device devices", "device", LOWER, "`cpu`, `cuda0,cuda1`"},
    {"split_mode sm", "split-mode", PASS, "`row` is refused"},
    {"fit_params fit", "fit", PASS, ""},
    {"fit_params_target fit_target", "fit-target", PASS, ""},
    {"cpu_moe", "cpu-moe", PASS, ""},
    {"n_cpu_moe", "n-cpu-moe", PASS, ""},
    {"override_tensor tensor_buft_overrides", "override-tensor", PASS, ""},
    {"direct_io use_direct_io", "load-mode", DIRECT, "`true` sets `dio`"},
    {"pooling pooling_type", "pooling", PASS, "of the Embedding call only"},
    {"embd_normalize embedding_normalize", "embd-normalize", PASS, ""},
    {"image_min_tokens", "image-min-tokens", PASS, ""},
    {"image_max_tokens", "image-max-tokens", PASS, ""},
    {"reasoning_format", "reasoning-format", PASS, ""},
    {"reasoning_budget enable_reasoning", "reasoning-budget", PASS, ""},
    {"prefill_assistant", "prefill-assistant", PASS, ""},
    {"spec_type speculative_type", "spec-type", PASS, ""},
    {"spec_n_max draft_max", "spec-draft-n-max", DRAFT, "at most 16"},
    {"spec_n_min draft_min", "spec-draft-n-min", DRAFT, "at most 16"},
    {"spec_p_min draft_p_min", "spec-draft-p-min", PASS, ""},
    {"spec_ngram_size_n ngram_size_n spec_ngram_mod_n_match spec_ngram_map_k_size_n spec_ngram_map_k4v_size_n",
     "spec-ngram-size-n", PASS, ""},
    {"spec_ngram_size_m ngram_size_m spec_ngram_mod_n_max spec_ngram_map_k_size_m spec_ngram_map_k4v_size_m",
     "spec-ngram-size-m", PASS, ""},
    {"spec_ngram_min_hits ngram_min_hits spec_ngram_mod_n_min spec_ngram_map_k_min_hits spec_ngram_map_k4v_min_hits",
     "", IGNORE, "the draft length adapts instead"},
    {"spec_p_split spec_lookup_cache_static lookup_cache_static spec_lookup_cache_dynamic lookup_cache_dynamic", "",
     IGNORE, "no such drafter"},
    {"draft_gpu_layers draft_ctx_size draft_threads spec_draft_threads draft_threads_batch spec_draft_threads_batch "
     "draft_cache_type_k spec_draft_cache_type_k draft_cache_type_v spec_draft_cache_type_v draft_cpu_moe "
     "spec_draft_cpu_moe draft_n_cpu_moe spec_draft_n_cpu_moe draft_override_tensor spec_draft_override_tensor",
     "", IGNORE, "a drafter has the model's settings"},
    {"cont_batching continuous_batching kv_unified unified_kv no_op_offload", "", IGNORE, "always on"},
    {"jinja use_jinja", "", IGNORE, "templates are always Jinja"},
    {"context_shift swa_full", "", IGNORE, "the context is not shifted"},
    {"n_cache_reuse cache_reuse slot_prompt_similarity sps cache_idle_slots idle_slots_cache", "", IGNORE,
     "the cache is paged and shared, without slots"},
    {"n_ctx_checkpoints ctx_checkpoints checkpoint_min_step checkpoint_min_spacing checkpoint_every_nt "
     "checkpoint_every_n_tokens n_rs_seq rs_seq",
     "", IGNORE, "use `snapshot_interval` and `snapshot_bytes`"},
    {"fit_params_min_ctx fit_ctx", "", IGNORE, "the context is never reduced"},
    {"mmproj_use_gpu mmproj_offload", "", IGNORE, "the vision model runs on the model's device"},
    {"warmup", "", IGNORE, "not needed"},
    {"verbosity", "", IGNORE, "use `log_level`"},
    {"grpc_servers rpc_servers", "", IGNORE, "use ranks (docs/RANKS.md)"},
};

} // namespace localai

#endif
