/* C declarations of pagedinfer.h. Written by gen_sys.py: do not edit. */
#![allow(non_camel_case_types, missing_docs)]
use std::os::raw::{c_char, c_int, c_void};

pub const PI_VERSION_MAJOR: c_int = 0;
pub const PI_VERSION_MINOR: c_int = 1;
pub const PI_VERSION_PATCH: c_int = 0;
pub const PI_ABI_VERSION: c_int = 0;
pub const PI_OK: c_int = 0;
pub const PI_EINVAL: c_int = -1;
pub const PI_ENOMEM: c_int = -2;
pub const PI_EIO: c_int = -3;
pub const PI_ENOENT: c_int = -4;
pub const PI_EFORMAT: c_int = -5;
pub const PI_EUNSUPPORTED: c_int = -6;
pub const PI_ETOOBIG: c_int = -7;
pub const PI_EBUSY: c_int = -8;
pub const PI_ECANCELED: c_int = -9;
pub const PI_EDEVICE: c_int = -10;
pub const PI_ETIMEDOUT: c_int = -11;
pub const PI_ECLOSED: c_int = -12;
pub const PI_EINTERNAL: c_int = -13;
pub const PI_LOG_NONE: c_int = 0;
pub const PI_LOG_ERROR: c_int = 1;
pub const PI_LOG_WARN: c_int = 2;
pub const PI_LOG_INFO: c_int = 3;
pub const PI_LOG_DEBUG: c_int = 4;
pub const PI_SCOPE_ENGINE: c_int = 0;
pub const PI_SCOPE_REQUEST: c_int = 1;
pub const PI_SCOPE_TOOL: c_int = 2;
pub const PI_LOAD_READ: c_int = 1;
pub const PI_LOAD_WEIGHTS: c_int = 2;
pub const PI_CACHE_LIMIT_OPTION: c_int = 0;
pub const PI_CACHE_LIMIT_PARALLEL: c_int = 1;
pub const PI_CACHE_LIMIT_MEMORY: c_int = 2;
pub const PI_CACHE_LIMIT_UNKNOWN: c_int = 3;
pub const PI_STATE_READY: c_int = 0;
pub const PI_STATE_DRAINING: c_int = 1;
pub const PI_STATE_FAILED: c_int = 2;
pub const PI_MODALITY_VISION: c_int = 1;
pub const PI_MODALITY_AUDIO: c_int = 2;
pub const PI_N_STEP_BOUNDS: c_int = 20;
pub const PI_CACHE_STORED: c_int = 1;
pub const PI_CACHE_REMOVED: c_int = 2;
pub const PI_CACHE_CLEARED: c_int = 3;
pub const PI_TOK_BOS: c_int = 1;
pub const PI_TOK_SPECIAL: c_int = 2;
pub const PI_FINISH_NONE: c_int = 0;
pub const PI_FINISH_STOP: c_int = 1;
pub const PI_FINISH_LENGTH: c_int = 2;
pub const PI_FINISH_CANCEL: c_int = 3;
pub const PI_FINISH_ERROR: c_int = 4;
pub const PI_FINISH_TOOL_CALLS: c_int = 5;
pub const PI_EVENT_TEXT: c_int = 1;
pub const PI_EVENT_DONE: c_int = 2;
pub const PI_EVENT_PROMPT: c_int = 3;
pub const PI_EVENT_EMBEDDING: c_int = 4;
pub const PI_EVENT_PROGRESS: c_int = 5;
pub const PI_CHAT_CONTENT: c_int = 1;
pub const PI_CHAT_REASONING: c_int = 2;
pub const PI_CHAT_CALL: c_int = 3;
pub const PI_CHAT_ARGUMENTS: c_int = 4;
pub const PI_CHAT_CALL_END: c_int = 5;
pub const PI_CHAT_CALL_DROPPED: c_int = 6;
pub const PI_JSON_TENSORS: c_int = 1;
pub const PI_JSON_ALL: c_int = 2;

#[repr(C)]
pub struct pi_chat_parser {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_engine {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_options {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_request {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_vocab {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_weights {
    _private: [u8; 0],
}

#[repr(C)]
pub struct pi_work {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_error {
    pub code: c_int,
    pub msg: [c_char; 240],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_allocator {
    pub size: u32,
    pub ud: *mut c_void,
    pub malloc: *mut c_void,
    pub realloc: *mut c_void,
    pub free: *mut c_void,
    pub map: *mut c_void,
    pub unmap: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_option_info {
    pub size: u32,
    pub key: *const c_char,
    pub r#type: *const c_char,
    pub def: *const c_char,
    pub range: *const c_char,
    pub flags: *const c_char,
    pub section: *const c_char,
    pub help: *const c_char,
    pub scope: c_int,
    pub common: bool,
    pub env: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_device {
    pub size: u32,
    pub name: [c_char; 16],
    pub desc: [c_char; 96],
    pub lacks: [c_char; 256],
    pub memory_bytes: u64,
    pub usable: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_plan_group {
    pub name: [c_char; 16],
    pub n_layers: u32,
    pub block_size: u32,
    pub window: u32,
    pub n_blocks: u64,
    pub block_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_plan_place {
    pub name: [c_char; 64],
    pub weights_bytes: u64,
    pub kv_bytes: u64,
    pub state_bytes: u64,
    pub scratch_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_plan {
    pub size: u32,
    pub weights_bytes: u64,
    pub kv_bytes: u64,
    pub scratch_bytes: u64,
    pub total_bytes: u64,
    pub kv_tokens: u64,
    pub n_groups: u32,
    pub group: [pi_plan_group; 8],
    pub ctx_size: u32,
    pub state_bytes: u64,
    pub n_places: u32,
    pub place: [pi_plan_place; 8],
    pub host_cache_bytes: u64,
    pub cache_limit: i32,
    pub n_requests: u32,
    pub n_requests_1k: u32,
    pub max_requests: u32,
    pub free_bytes: u64,
    pub host_weights_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_info {
    pub size: u32,
    pub arch: *const c_char,
    pub name: *const c_char,
    pub type_desc: *const c_char,
    pub n_params: u64,
    pub file_bytes: u64,
    pub n_vocab: u32,
    pub n_ctx_train: u32,
    pub n_embd: u32,
    pub n_layer: u32,
    pub ctx_size: u32,
    pub n_threads: u32,
    pub device: *const c_char,
    pub bos: i32,
    pub eos: i32,
    pub chat_template: *const c_char,
    pub pooling: *const c_char,
    pub n_labels: u32,
    pub labels: *mut *const c_char,
    pub modalities: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_stats_group {
    pub n_blocks: u64,
    pub n_free: u64,
    pub n_used: u64,
    pub n_cached: u64,
    pub n_shared: u64,
    pub n_evicted: u64,
    pub committed_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_stats {
    pub size: u32,
    pub n_waiting: u32,
    pub n_running: u32,
    pub n_finished: u64,
    pub n_preempted: u64,
    pub n_steps: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub n_groups: u32,
    pub group: [pi_stats_group; 8],
    pub last_step_ms: f64,
    pub n_prefix_hits: u64,
    pub n_snapshots_saved: u64,
    pub n_snapshots_restored: u64,
    pub group_name: [*const c_char; 8],
    pub disk_entries: u64,
    pub disk_bytes: u64,
    pub n_drafted: u64,
    pub n_accepted: u64,
    pub disk_reads: u64,
    pub disk_writes: u64,
    pub host_entries: u64,
    pub host_bytes: u64,
    pub host_reads: u64,
    pub host_writes: u64,
    pub step_total_ms: f64,
    pub step_bound_ms: [f64; 20],
    pub step_count: [u64; 21],
    pub draft_total_ms: f64,
    pub key_blocks_attended: u64,
    pub key_blocks_possible: u64,
    pub n_block_waits: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_cache_event {
    pub kind: c_int,
    pub hashes: *const u64,
    pub n_hashes: usize,
    pub tokens: *const i32,
    pub n_tokens: usize,
    pub parent: u64,
    pub has_parent: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_lora {
    pub size: u32,
    pub name: [c_char; 128],
    pub path: [c_char; 512],
    pub scale: f32,
    pub rank: u32,
    pub n_matrices: u32,
    pub bytes: u64,
    pub n_running: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_infill_file {
    pub name: *const c_char,
    pub text: *const c_char,
    pub len: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_infill_parts {
    pub prefix: *const c_char,
    pub suffix: *const c_char,
    pub typed: *const c_char,
    pub prefix_len: usize,
    pub suffix_len: usize,
    pub typed_len: usize,
    pub files: *const pi_infill_file,
    pub n_files: usize,
    pub repo: *const c_char,
    pub name: *const c_char,
    pub max_tokens: usize,
    pub suffix_first: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_result {
    pub size: u32,
    pub code: c_int,
    pub finish_reason: c_int,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub generated_tokens: u32,
    pub n_preempted: u32,
    pub miss_reason: *const c_char,
    pub queue_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
    pub stop: *const c_char,
    pub msg: [c_char; 240],
    pub n_drafted: u32,
    pub n_accepted: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_image {
    pub size: u32,
    pub width: u32,
    pub height: u32,
    pub rgb: *const u8,
    pub source: *const c_void,
    pub source_len: usize,
    pub min_tokens: u32,
    pub max_tokens: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_token_prob {
    pub id: i32,
    pub logprob: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_event {
    pub size: u32,
    pub kind: c_int,
    pub request: *mut pi_request,
    pub user: *mut c_void,
    pub text: *const c_char,
    pub text_len: usize,
    pub tokens: *const i32,
    pub n_tokens: usize,
    pub logprobs: *const pi_token_prob,
    pub n_logprobs: usize,
    pub finish_reason: c_int,
    pub code: c_int,
    pub index: u32,
    pub n_left: u32,
    pub embedding: *const f32,
    pub n_embd: usize,
    pub n_embeddings: usize,
    pub calls_bound: bool,
    pub n_prompt: u32,
    pub n_cached: u32,
    pub n_computed: u32,
    pub prompt_ms: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_chat_delta {
    pub size: u32,
    pub kind: c_int,
    pub text: *const c_char,
    pub text_len: usize,
    pub index: u32,
    pub id: *const c_char,
    pub name: *const c_char,
    pub sure: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_chat_call {
    pub size: u32,
    pub index: u32,
    pub id: *const c_char,
    pub name: *const c_char,
    pub arguments: *const c_char,
    pub arguments_len: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_quantize_info {
    pub size: u32,
    pub number: i32,
    pub name: *const c_char,
    pub matrices: *const c_char,
    pub bits: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_op_time {
    pub size: u32,
    pub what: *const c_char,
    pub n_seqs: u32,
    pub n_tokens: u32,
    pub ns: f64,
    pub bytes: u64,
    pub bandwidth: f64,
    pub products: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_op_share {
    pub size: u32,
    pub decode: u32,
    pub op: *const c_char,
    pub n_steps: u64,
    pub n_calls: u64,
    pub ns: f64,
    pub bytes: u64,
    pub integers: u64,
    pub floats: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct pi_selftest_params {
    pub size: u32,
    pub checks: *const c_char,
    pub stress: u32,
    pub json: bool,
    pub seed: u64,
}

pub type pi_log_fn = Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char)>;
pub type pi_progress_fn = Option<unsafe extern "C" fn(*mut c_void, c_int, u64, u64) -> bool>;
pub type pi_cache_event_fn = Option<unsafe extern "C" fn(*mut c_void, *const pi_cache_event)>;
pub type pi_event_fn = Option<unsafe extern "C" fn(*mut c_void, *const pi_event)>;
pub type pi_logits_fn = Option<unsafe extern "C" fn(*mut c_void, u32, *const f32, usize)>;
pub type pi_line_fn = Option<unsafe extern "C" fn(*mut c_void, *const c_char)>;
pub type pi_op_time_fn = Option<unsafe extern "C" fn(*mut c_void, *const pi_op_time) -> bool>;
pub type pi_op_share_fn = Option<unsafe extern "C" fn(*mut c_void, *const pi_op_share) -> bool>;

#[link(name = "pagedinfer")]
extern "C" {
    pub fn pi_abi_version() -> c_int;
    pub fn pi_version() -> *const c_char;
    pub fn pi_strerror(a: c_int) -> *const c_char;
    pub fn pi_err_name(a: c_int) -> *const c_char;
    pub fn pi_set_allocator(a: *const pi_allocator) -> c_int;
    pub fn pi_options_new() -> *mut pi_options;
    pub fn pi_options_set(a: *mut pi_options, b: *const c_char, c: *const c_char, d: *mut pi_error) -> c_int;
    pub fn pi_options_set_log(a: *mut pi_options, b: pi_log_fn, c: *mut c_void, d: c_int);
    pub fn pi_options_set_progress(a: *mut pi_options, b: pi_progress_fn, c: *mut c_void);
    pub fn pi_options_describe(a: usize, b: *mut pi_option_info) -> c_int;
    pub fn pi_options_free(a: *mut pi_options);
    pub fn pi_device_describe(a: usize, b: *mut pi_device) -> c_int;
    pub fn pi_engine_plan(a: *const pi_options, b: *mut pi_plan, c: *mut pi_error) -> c_int;
    pub fn pi_engine_open(a: *mut *mut pi_engine, b: *const pi_options, c: *mut pi_error) -> c_int;
    pub fn pi_engine_close(a: *mut pi_engine);
    pub fn pi_engine_memory(a: *const pi_engine, b: *mut pi_plan) -> c_int;
    pub fn pi_engine_state(a: *const pi_engine) -> c_int;
    pub fn pi_engine_info(a: *const pi_engine, b: *mut pi_info) -> c_int;
    pub fn pi_engine_meta(a: *const pi_engine, b: *const c_char, c: *mut c_char, d: usize) -> i64;
    pub fn pi_engine_meta_key(a: *const pi_engine, b: usize, c: *mut c_char, d: usize) -> i64;
    pub fn pi_engine_stats(a: *const pi_engine, b: *mut pi_stats) -> c_int;
    pub fn pi_engine_drain(a: *mut pi_engine, b: c_int) -> c_int;
    pub fn pi_engine_cache_clear(a: *mut pi_engine, b: *const c_char) -> c_int;
    pub fn pi_engine_on_cache_event(a: *mut pi_engine, b: pi_cache_event_fn, c: *mut c_void, d: *mut pi_error) -> c_int;
    pub fn pi_lora_load(a: *mut pi_engine, b: *const c_char, c: *const c_char, d: f32, e: *mut pi_error) -> c_int;
    pub fn pi_lora_replace(a: *mut pi_engine, b: *const c_char, c: *const c_char, d: *mut pi_error) -> c_int;
    pub fn pi_lora_unload(a: *mut pi_engine, b: *const c_char, c: *mut pi_error) -> c_int;
    pub fn pi_lora_scale(a: *mut pi_engine, b: *const c_char, c: f32, d: *mut pi_error) -> c_int;
    pub fn pi_lora_describe(a: *mut pi_engine, b: usize, c: *mut pi_lora) -> c_int;
    pub fn pi_weights_open(a: *mut *mut pi_weights, b: *const pi_options, c: *const c_char, d: *mut pi_error) -> c_int;
    pub fn pi_weights_close(a: *mut pi_weights);
    pub fn pi_rank(a: *const pi_options, b: *mut c_int, c: *mut pi_error) -> c_int;
    pub fn pi_rank_follow(a: *const pi_options, b: *mut pi_error) -> c_int;
    pub fn pi_work_new(a: u64, b: usize, c: c_int) -> *mut pi_work;
    pub fn pi_work_cancel(a: *mut pi_work);
    pub fn pi_work_check(a: *mut pi_work) -> c_int;
    pub fn pi_work_free(a: *mut pi_work);
    pub fn pi_tokenize(a: *const pi_engine, b: *const c_char, c: usize, d: c_int, e: *mut i32, f: usize) -> i64;
    pub fn pi_work_tokenize(a: *mut pi_work, b: *const pi_engine, c: *const c_char, d: usize, e: c_int, f: *mut i32, g: usize) -> i64;
    pub fn pi_detokenize(a: *const pi_engine, b: *const i32, c: usize, d: c_int, e: *mut c_char, f: usize) -> i64;
    pub fn pi_chat_render(a: *const pi_engine, b: *const c_char, c: *const c_char, d: *const c_char, e: *mut c_char, f: usize, g: *mut pi_error) -> i64;
    pub fn pi_work_chat_render(a: *mut pi_work, b: *const pi_engine, c: *const c_char, d: *const c_char, e: *const c_char, f: *mut c_char, g: usize, h: *mut pi_error) -> i64;
    pub fn pi_chat_tokenize(a: *const pi_engine, b: *const c_char, c: *const c_char, d: *const c_char, e: *mut i32, f: usize, g: *mut pi_error) -> i64;
    pub fn pi_work_chat_tokenize(a: *mut pi_work, b: *const pi_engine, c: *const c_char, d: *const c_char, e: *const c_char, f: *mut i32, g: usize, h: *mut pi_error) -> i64;
    pub fn pi_infill(a: *const pi_engine, b: *const pi_infill_parts, c: *mut i32, d: usize, e: *mut pi_error) -> i64;
    pub fn pi_work_infill(a: *mut pi_work, b: *const pi_engine, c: *const pi_infill_parts, d: *mut i32, e: usize, f: *mut pi_error) -> i64;
    pub fn pi_vocab_open(a: *mut *mut pi_vocab, b: *const c_char, c: *mut pi_error) -> c_int;
    pub fn pi_vocab_tokenize(a: *const pi_vocab, b: *const c_char, c: usize, d: c_int, e: *mut i32, f: usize) -> i64;
    pub fn pi_vocab_detokenize(a: *const pi_vocab, b: *const i32, c: usize, d: c_int, e: *mut c_char, f: usize) -> i64;
    pub fn pi_vocab_free(a: *mut pi_vocab);
    pub fn pi_request_new(a: *mut pi_engine) -> *mut pi_request;
    pub fn pi_request_set(a: *mut pi_request, b: *const c_char, c: *const c_char, d: *mut pi_error) -> c_int;
    pub fn pi_request_set_work(a: *mut pi_request, b: *mut pi_work);
    pub fn pi_request_image(a: *mut pi_request, b: *const pi_image, c: *mut pi_error) -> c_int;
    pub fn pi_image_tokens(a: *const pi_engine, b: u32, c: u32, d: u32, e: u32, f: *mut u32, g: *mut pi_error) -> c_int;
    pub fn pi_request_prompt_tokens(a: *mut pi_request, b: *const i32, c: usize, d: *mut pi_error) -> c_int;
    pub fn pi_request_prompt_text(a: *mut pi_request, b: *const c_char, c: usize, d: *mut pi_error) -> c_int;
    pub fn pi_request_prompt_rank(a: *mut pi_request, b: *const c_char, c: usize, d: *const c_char, e: usize, f: *mut pi_error) -> c_int;
    pub fn pi_request_prompt_chat(a: *mut pi_request, b: *const c_char, c: *const c_char, d: *const c_char, e: *mut pi_error) -> c_int;
    pub fn pi_request_on_event(a: *mut pi_request, b: pi_event_fn, c: *mut c_void);
    pub fn pi_request_on_logits(a: *mut pi_request, b: pi_logits_fn, c: *mut c_void);
    pub fn pi_request_submit(a: *mut pi_request, b: *mut pi_error) -> c_int;
    pub fn pi_request_cancel(a: *mut pi_request);
    pub fn pi_request_wait(a: *mut pi_request, b: c_int) -> c_int;
    pub fn pi_request_result(a: *const pi_request, b: *mut pi_result) -> c_int;
    pub fn pi_request_tokens(a: *const pi_request, b: *mut i32, c: usize) -> usize;
    pub fn pi_request_sample(a: *const pi_request, b: u32, c: *mut pi_result) -> c_int;
    pub fn pi_request_sample_tokens(a: *const pi_request, b: u32, c: *mut i32, d: usize) -> usize;
    pub fn pi_request_free(a: *mut pi_request);
    pub fn pi_request_set_user(a: *mut pi_request, b: *mut c_void);
    pub fn pi_poll(a: *mut pi_engine, b: *mut *mut pi_event, c: usize, d: c_int) -> c_int;
    pub fn pi_poll_fd(a: *const pi_engine) -> c_int;
    pub fn pi_event_release(a: *mut pi_event);
    pub fn pi_chat_parser_new(a: *mut *mut pi_chat_parser, b: *const pi_engine, c: *const c_char, d: *const c_char, e: *mut pi_error) -> c_int;
    pub fn pi_chat_parser_free(a: *mut pi_chat_parser);
    pub fn pi_chat_parser_feed(a: *mut pi_chat_parser, b: *const c_char, c: usize) -> c_int;
    pub fn pi_chat_parser_feed_tokens(a: *mut pi_chat_parser, b: *const i32, c: usize) -> c_int;
    pub fn pi_chat_parser_bind(a: *mut pi_chat_parser);
    pub fn pi_chat_parser_end(a: *mut pi_chat_parser, b: c_int) -> c_int;
    pub fn pi_chat_parser_next(a: *mut pi_chat_parser, b: *mut pi_chat_delta) -> bool;
    pub fn pi_chat_parser_content(a: *const pi_chat_parser, b: *mut *const c_char) -> usize;
    pub fn pi_chat_parser_reasoning(a: *const pi_chat_parser, b: *mut *const c_char) -> usize;
    pub fn pi_chat_parser_call(a: *const pi_chat_parser, b: u32, c: *mut pi_chat_call) -> c_int;
    pub fn pi_model_inspect(a: *const c_char, b: bool, c: pi_line_fn, d: *mut c_void, e: *mut pi_error) -> c_int;
    pub fn pi_model_json(a: *const c_char, b: c_int, c: pi_line_fn, d: *mut c_void, e: *mut pi_error) -> c_int;
    pub fn pi_quantize(a: *const c_char, b: *const c_char, c: *const c_char, d: *mut *const c_char, e: pi_line_fn, f: *mut c_void, g: *mut pi_error) -> c_int;
    pub fn pi_quantize_type(a: usize) -> *const c_char;
    pub fn pi_quantize_describe(a: usize, b: *mut pi_quantize_info) -> c_int;
    pub fn pi_bench_op(a: *const pi_options, b: *const c_char, c: *const c_char, d: pi_op_time_fn, e: *mut c_void, f: *mut pi_error) -> c_int;
    pub fn pi_engine_profile(a: *mut pi_engine, b: pi_op_share_fn, c: *mut c_void, d: *mut pi_error) -> c_int;
    pub fn pi_selftest(a: *const pi_options, b: *const c_char, c: pi_line_fn, d: *mut c_void, e: *mut pi_error) -> c_int;
    pub fn pi_selftest_run(a: *const pi_options, b: *const pi_selftest_params, c: pi_line_fn, d: *mut c_void, e: *mut pi_error) -> c_int;
}

/// Name and size of each struct, for tests.
pub const LAYOUT: &[(&str, usize)] = &[
    ("pi_error", std::mem::size_of::<pi_error>()),
    ("pi_allocator", std::mem::size_of::<pi_allocator>()),
    ("pi_option_info", std::mem::size_of::<pi_option_info>()),
    ("pi_device", std::mem::size_of::<pi_device>()),
    ("pi_plan_group", std::mem::size_of::<pi_plan_group>()),
    ("pi_plan_place", std::mem::size_of::<pi_plan_place>()),
    ("pi_plan", std::mem::size_of::<pi_plan>()),
    ("pi_info", std::mem::size_of::<pi_info>()),
    ("pi_stats_group", std::mem::size_of::<pi_stats_group>()),
    ("pi_stats", std::mem::size_of::<pi_stats>()),
    ("pi_cache_event", std::mem::size_of::<pi_cache_event>()),
    ("pi_lora", std::mem::size_of::<pi_lora>()),
    ("pi_infill_file", std::mem::size_of::<pi_infill_file>()),
    ("pi_infill_parts", std::mem::size_of::<pi_infill_parts>()),
    ("pi_result", std::mem::size_of::<pi_result>()),
    ("pi_image", std::mem::size_of::<pi_image>()),
    ("pi_token_prob", std::mem::size_of::<pi_token_prob>()),
    ("pi_event", std::mem::size_of::<pi_event>()),
    ("pi_chat_delta", std::mem::size_of::<pi_chat_delta>()),
    ("pi_chat_call", std::mem::size_of::<pi_chat_call>()),
    ("pi_quantize_info", std::mem::size_of::<pi_quantize_info>()),
    ("pi_op_time", std::mem::size_of::<pi_op_time>()),
    ("pi_op_share", std::mem::size_of::<pi_op_share>()),
    ("pi_selftest_params", std::mem::size_of::<pi_selftest_params>()),
];
