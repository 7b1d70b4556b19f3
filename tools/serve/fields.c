/* The table of request fields (see fields.h). Rows with an option come first. If several fields set one option,
 * responses show the name of the first. */
#include "serve/fields.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"

#define ANSWERS(name, type, key, text) {name, API_ANSWERS, FIELD_HONOURED, TYPE_##type, key, text, NULL}
#define READ(name, apis, types, text) {name, apis, FIELD_HONOURED, types, NULL, text, NULL}
#define TAKE(name, apis, text) {name, apis, FIELD_ACCEPTED, TYPE_ANY, NULL, text, NULL}
#define REFUSE(name, apis, harmless, remedy) {name, apis, FIELD_REFUSED, TYPE_ANY, NULL, remedy, harmless}

enum { S = TYPE_STRING, I = TYPE_INTEGER, B = TYPE_BOOLEAN, L = TYPE_LIST, O = TYPE_OBJECT, NEEDED = TYPE_NEEDED };

const field fields[] = {
    ANSWERS("temperature", NUMBER, "temp", "Temperature; 0: always the most likely token."),
    ANSWERS("top_p", NUMBER, "top-p", "Only the most likely tokens with this total probability."),
    ANSWERS("top_k", INTEGER, "top-k", "Only the K most likely tokens; 0: all."),
    ANSWERS("min_p", NUMBER, "min-p", "Only tokens with at least this share of the most likely token's probability."),
    ANSWERS("typical_p", NUMBER, "typical", "Locally typical sampling."),
    ANSWERS("dynatemp_range", NUMBER, "dynatemp-range", "Range of the dynamic temperature."),
    ANSWERS("dynatemp_exponent", NUMBER, "dynatemp-exp", "Exponent of the dynamic temperature."),
    ANSWERS("mirostat", INTEGER, "mirostat", "Mirostat version 1 or 2; 0: off."),
    ANSWERS("mirostat_tau", NUMBER, "mirostat-ent", "Mirostat's target entropy."),
    ANSWERS("mirostat_eta", NUMBER, "mirostat-lr", "Mirostat's learning rate."),
    ANSWERS("adaptive_target", NUMBER, "adaptive-target", "Target probability of adaptive sampling."),
    ANSWERS("adaptive_decay", NUMBER, "adaptive-decay", "Decay of adaptive sampling."),
    ANSWERS("top_n_sigma", NUMBER, "top-n-sigma", "Only tokens within N standard deviations of the largest logit."),
    ANSWERS("min_keep", INTEGER, "min-keep", "Minimum number of tokens that filters keep."),
    ANSWERS("repeat_penalty", NUMBER, "repeat-penalty", "Penalty of recent tokens."),
    ANSWERS("repetition_penalty", NUMBER, "repeat-penalty", "Another name of repeat_penalty."),
    ANSWERS("repeat_last_n", INTEGER, "repeat-last-n", "Number of recent tokens for the penalties."),
    ANSWERS("presence_penalty", NUMBER, "presence-penalty", "Subtracted once from the logit of recent tokens."),
    ANSWERS("frequency_penalty", NUMBER, "frequency-penalty", "Subtracted from the logit for each recent occurrence."),
    ANSWERS("dry_multiplier", NUMBER, "dry-multiplier", "Strength of DRY; 0: off."),
    ANSWERS("dry_base", NUMBER, "dry-base", "Base of DRY's penalty."),
    ANSWERS("dry_allowed_length", INTEGER, "dry-allowed-length", "Length of repetitions without DRY penalty."),
    ANSWERS("dry_penalty_last_n", INTEGER, "dry-penalty-last-n", "Number of recent tokens for DRY."),
    ANSWERS("xtc_probability", NUMBER, "xtc-probability", "Probability of XTC."),
    ANSWERS("xtc_threshold", NUMBER, "xtc-threshold", "Threshold of XTC."),
    ANSWERS("seed", INTEGER, "seed", "Seed, any integer of 64 bits; -1: random."),
    ANSWERS("min_tokens", INTEGER, "min-tokens", "Minimum number of tokens before the answer may end."),
    ANSWERS("ignore_eos", BOOLEAN, "ignore-eos", "Only a limit or a stop string ends the answer."),
    ANSWERS("cache_prompt", BOOLEAN, "cache", "Reuse and keep prefixes in the cache."),
    ANSWERS("image_min_tokens", INTEGER, "image-min-tokens", "Minimum tokens of an image."),
    ANSWERS("image_max_tokens", INTEGER, "image-max-tokens", "Maximum tokens of an image."),
    ANSWERS("priority", INTEGER, "priority", "Lower numbers run first under --policy priority."),
    ANSWERS("spec_type", STRING, "spec-type", "One of the server's drafters, or none."),
    ANSWERS("reasoning_budget_tokens", INTEGER, "reasoning-budget", "Maximum tokens of reasoning; -1: no limit."),
    ANSWERS("thinking_budget_tokens", INTEGER, "reasoning-budget", "Another name of reasoning_budget_tokens."),
    ANSWERS("thinking_token_budget", INTEGER, "reasoning-budget", "Another name of reasoning_budget_tokens."),
    ANSWERS("reasoning_budget_message", STRING, "reasoning-budget-message", "Text before the forced end of reasoning."),
    ANSWERS("grammar", STRING, "grammar", "Grammar of the answer, in GBNF."),
    ANSWERS("guided_grammar", STRING, "grammar", "Another name of grammar."),
    ANSWERS("guided_regex", STRING, "regex", "Regular expression that matches the complete answer."),

    READ("messages", API_CHAT | API_MESSAGES, L | NEEDED, "The conversation."),
    READ("prompt", API_TEXT | API_NATIVE, S | L | O | NEEDED,
         "Text, token ids, a list of both, or a list of prompts. prompt_string"
         " with multimodal_data: a text with the media_marker of /props for each base64 image."),
    READ("input", API_RESPONSES, S | L | NEEDED, "The conversation: text, or items."),
    READ("instructions", API_RESPONSES, S, "System text before the conversation."),
    READ("system", API_MESSAGES, S | L, "System text before the conversation."),
    READ("model", API_ANSWERS | API_EMBEDDINGS | API_VECTORS | API_RERANK, S, "Adapter; other names select the model."),
    READ("stream", API_ANSWERS, B, "Send the answer as server-sent events."),
    READ("stream_options", API_ANSWERS, O, "include_usage, continuous_usage_stats; a stream then ends with the usage."),
    READ("max_tokens", API_ANSWERS, I, "Maximum tokens of the answer; -1: no limit."),
    READ("max_completion_tokens", API_ANSWERS, I, "Another name of max_tokens."),
    READ("max_output_tokens", API_ANSWERS, I, "Another name of max_tokens."),
    READ("n_predict", API_ANSWERS, I, "Another name of max_tokens."),
    READ("n", API_CHAT | API_PROMPTS, I, "Number of answers per prompt, 1 to 64."),
    READ("n_cmpl", API_CHAT | API_PROMPTS, I, "Another name of n."),
    READ("best_of", API_TEXT, I, "At most n, because answers are not ranked."),
    READ("stop", API_ANSWERS, S | L, "Texts that end the answer and are not part of it, at most 4,096."),
    READ("stop_sequences", API_ANSWERS, S | L, "Additional texts that end the answer."),
    READ("stop_token_ids", API_ANSWERS, L, "Tokens that end the answer."),
    READ("bad_words", API_ANSWERS, L, "Texts that must not occur in the answer."),
    READ("logit_bias", API_ANSWERS, O | L, "Added to the logits of token ids or texts; false: forbidden."),
    READ("logprobs", API_CHAT, B | I, "Log-probabilities of the answer's tokens."),
    READ("logprobs", API_PROMPTS, I | B, "Log-probabilities with N alternatives, at most 1,024."),
    READ("top_logprobs", API_CHAT | API_RESPONSES, I, "Alternatives per token, at most 1,024."),
    READ("n_probs", API_CHAT | API_PROMPTS, I, "Another name of logprobs."),
    READ("prompt_logprobs", API_CHAT | API_TEXT, I, "Log-probabilities of the prompt's tokens; not for streams."),
    READ("post_sampling_probs", API_ANSWERS, B, "Return probabilities after the sampler's filters."),
    READ("return_tokens_as_token_ids", API_CHAT | API_TEXT, B, "logprobs have token_id:ID instead of texts."),
    READ("return_token_ids", API_ANSWERS, B, "Return token_ids with the text, if the format has a field for them."),
    READ("return_tokens", API_NATIVE | API_INFILL, B, "Return tokens with the text."),
    READ("response_fields", API_NATIVE | API_INFILL, L, "Fields of the response to return."),
    READ("echo", API_CHAT | API_TEXT, B, "Return the prompt, or the continued message, before the answer."),
    READ("suffix", API_TEXT, S, "Text after the answer; the model fills in the middle."),
    READ("input_prefix", API_INFILL, S | NEEDED, "Text before the middle."),
    READ("input_suffix", API_INFILL, S | NEEDED, "Text after the middle."),
    READ("input_extra", API_INFILL, L, "Other files: filename and text."),
    READ("prompt", API_INFILL, S, "Text already typed in the middle."),
    READ("response_format", API_ANSWERS, O, "json_schema, json_object or text."),
    READ("json_schema", API_ANSWERS, O | S | B, "JSON Schema of the answer."),
    READ("guided_json", API_ANSWERS, O | S, "Another name of json_schema."),
    READ("guided_choice", API_ANSWERS, L, "Allowed answers."),
    READ("structured_outputs", API_ANSWERS, O, "One of json, json_object, regex, choice, grammar."),
    READ("text", API_RESPONSES, O, "format: json_schema, json_object or text."),
    READ("output_config", API_MESSAGES, O, "format: json_schema; effort."),
    READ("output_format", API_MESSAGES, O, "The beta API's name of output_config.format."),
    READ("tools", API_TALKS, L, "Functions; tools of other types are ignored, with a line in the log."),
    READ("tool_choice", API_TALKS, S | O, "Require a function call, or select the function."),
    READ("parallel_tool_calls", API_CHAT | API_RESPONSES, B, "false: at most one call."),
    READ("reasoning_effort", API_CHAT, S, "For the template; none: no reasoning."),
    READ("reasoning", API_RESPONSES, O, "effort, as reasoning_effort."),
    READ("thinking", API_MESSAGES, O, "Enable or disable reasoning; its budget and display."),
    READ("reasoning_format", API_TALKS, S, "none: keep reasoning in the text; hidden: drop it."),
    READ("include_reasoning", API_TALKS, B, "false: drop reasoning."),
    READ("store", API_RESPONSES, B, "false: do not keep the response, if the server has --response-store."),
    READ("include", API_RESPONSES, L, "message.output_text.logprobs; other values have no effect."),
    READ("chat_template_kwargs", API_TALKS, O, "Variables of the template."),
    READ("add_generation_prompt", API_TALKS, B, "Begin a new message."),
    READ("continue_final_message", API_TALKS, B, "Continue the last message."),
    READ("enable_thinking", API_TALKS, B, "Variable of the template."),
    READ("documents", API_TALKS, L, "Variable of the template, for templates with documents."),
    READ("samplers", API_ANSWERS, L | S, "Names of samplers, in order."),
    READ("dry_sequence_breakers", API_ANSWERS, L, "Texts that end a repetition for DRY."),
    READ("skip_special_tokens", API_ANSWERS, B, "false: return control tokens as text."),
    READ("include_stop_str_in_output", API_ANSWERS, B, "Include the stop string in the answer."),
    READ("truncate_prompt_tokens", API_TEXT | API_NATIVE | API_EMBEDDINGS | API_VECTORS, I,
         "Keep only the last N tokens."),
    READ("add_special_tokens", API_TEXT | API_NATIVE | API_EMBEDDINGS | API_VECTORS, B, "false: no BOS before a text."),
    READ("cache_salt", API_ANSWERS, S, "Share prefixes only with requests of the same salt."),
    READ("lora", API_ANSWERS | API_EMBEDDINGS | API_VECTORS, L, "Adapters and their scales."),
    READ("timings_per_token", API_CHAT | API_RESPONSES | API_PROMPTS, B, "Return timings in each event."),
    READ("return_progress", API_CHAT | API_RESPONSES | API_PROMPTS, B, "prompt_progress in a stream's first events."),
    READ("sse_ping_interval", API_ANSWERS, I, "Seconds between comments in a silent stream."),
    READ("n_indent", API_NATIVE | API_INFILL, I, "End the answer at a line with less indentation."),
    READ("t_max_predict_ms", API_ANSWERS, I, "Time limit in milliseconds; the answer ends at the next line end."),

    READ("input", API_EMBEDDINGS, S | L | O | NEEDED, "A prompt or a list of prompts."),
    READ("input", API_VECTORS, S | L | O, "A prompt or a list of prompts."),
    READ("content", API_VECTORS, S | L | O, "Another name of input."),
    READ("encoding_format", API_EMBEDDINGS, S, "float or base64."),
    READ("dimensions", API_EMBEDDINGS | API_VECTORS, I, "Number of values to return."),
    READ("embd_normalize", API_VECTORS, I, "Norm of the vectors; -1: none."),
    READ("query", API_RERANK, S | NEEDED, "Text to score the documents for."),
    READ("documents", API_RERANK, L, "Texts, or objects with text."),
    READ("texts", API_RERANK, L, "documents, in text-embeddings-inference's format."),
    READ("top_n", API_RERANK, I, "Maximum number of results."),
    READ("return_documents", API_RERANK, B, "Return the texts."),
    READ("return_text", API_RERANK, B, "return_documents, in text-embeddings-inference's format."),
    READ("content", API_TOKENIZE, S | L, "Text, or texts and token ids."),
    READ("prompt", API_TOKENIZE, S | L, "content, vLLM's name; adds BOS."),
    READ("messages", API_TOKENIZE, L, "A conversation, with the fields of its template."),
    READ("add_special", API_TOKENIZE, B, "Add BOS."),
    READ("add_special_tokens", API_TOKENIZE, B, "Another name of add_special."),
    READ("parse_special", API_TOKENIZE, B, "false: do not parse control tokens in texts."),
    READ("with_pieces", API_TOKENIZE, B, "Return the text of each token."),
    READ("return_token_strs", API_TOKENIZE, B, "Return token_strs with the tokens."),
    READ("tokens", API_DETOKENIZE, L | NEEDED, "Token ids."),
    READ("lora_name", API_LOAD | API_UNLOAD, S | NEEDED, "Name of the adapter."),
    READ("lora_path", API_LOAD, S | NEEDED, "Path of its file, on the server's machine."),
    READ("load_inplace", API_LOAD, B, "Replace a loaded adapter with this name."),

    READ("messages", API_OLLAMA_CHAT, L, "The conversation; if empty, the answer says that the model is loaded."),
    READ("prompt", API_OLLAMA_TEXT, S, "The user's message, or with raw the text to continue."),
    READ("system", API_OLLAMA_TEXT, S, "System text before the prompt."),
    READ("suffix", API_OLLAMA_TEXT, S, "Text after the answer; the model fills in the middle."),
    READ("raw", API_OLLAMA_TEXT, B, "Do not use the chat template."),
    READ("images", API_OLLAMA_TEXT, L, "Images in base64, for models that read them."),
    READ("model", API_OLLAMA | API_OLLAMA_EMBED | API_OLLAMA_SHOW, S, "Adapter; other names select the model."),
    READ("stream", API_OLLAMA, B, "false: one answer; true, the default: a line of JSON for each part."),
    READ("tools", API_OLLAMA_CHAT, L, "Functions."),
    READ("format", API_OLLAMA, S | O, "json, or a JSON Schema of the answer."),
    READ("think", API_OLLAMA, B | S, "Enable or disable reasoning; low, medium, high: its effort."),
    READ("options", API_OLLAMA | API_OLLAMA_EMBED, O,
         "temperature, top_k, top_p, min_p, typical_p, seed, stop, num_predict and penalties; others have no effect."),
    READ("input", API_OLLAMA_EMBED, S | L, "A text or a list of texts; /api/embeddings: prompt."),
    READ("prompt", API_OLLAMA_EMBED, S, "Text for /api/embeddings."),
    READ("truncate", API_OLLAMA_EMBED, B, "false: refuse a text that is too long."),
    READ("dimensions", API_OLLAMA_EMBED, I, "Number of values to return."),
    READ("model", API_MODEL, S | NEEDED, "Name of the model, for a server of several models."),
    READ("name", API_OLLAMA_SHOW, S, "Another name of model."),
    READ("verbose", API_OLLAMA_SHOW, B, "Return the vocabulary too."),
    TAKE("keep_alive", API_OLLAMA | API_OLLAMA_EMBED, "The model stays loaded."),
    TAKE("truncate", API_OLLAMA, "A too long conversation is refused."),
    TAKE("shift", API_OLLAMA, "The context is not shifted."),
    REFUSE("context", API_OLLAMA_TEXT, NULL, "send the conversation to /api/chat"),
    REFUSE("template", API_OLLAMA_TEXT, NULL, "start the server with --chat-template"),
    REFUSE("logprobs", API_OLLAMA, NULL, "use /v1/chat/completions"),
    REFUSE("top_logprobs", API_OLLAMA, "0", "use /v1/chat/completions"),

    TAKE("user", API_ANSWERS | API_EMBEDDINGS, "Label for the client."),
    TAKE("metadata", API_TALKS | API_TEXT, "Labels for the client."),
    TAKE("client_metadata", API_RESPONSES, "Labels for the client."),
    TAKE("safety_identifier", API_CHAT | API_RESPONSES, "Label for the client."),
    TAKE("request_id", API_ANSWERS, "Label for the client; the log shows the header X-Request-Id."),
    TAKE("store", API_CHAT, "Nothing is stored."),
    TAKE("service_tier", API_TALKS, "The server has one tier."),
    TAKE("prompt_cache_key", API_CHAT | API_RESPONSES, "The cache finds prefixes without it."),
    TAKE("prompt_cache_retention", API_CHAT | API_RESPONSES, "The cache evicts by use."),
    TAKE("prompt_cache_options", API_CHAT | API_RESPONSES, "The cache evicts by use."),
    TAKE("cache_control", API_MESSAGES, "The cache finds prefixes without it."),
    TAKE("prediction", API_CHAT, "The server selects the drafters."),
    TAKE("verbosity", API_CHAT, "No template uses this hint."),
    TAKE("web_search_options", API_CHAT, "The server does not search."),
    TAKE("truncation", API_RESPONSES, "A too long conversation is refused."),
    TAKE("max_tool_calls", API_RESPONSES, "Applies to built-in tools only; the server has none."),
    TAKE("context_management", API_RESPONSES | API_MESSAGES, "The client manages its context."),
    TAKE("compaction", API_MESSAGES, "The client manages its context."),
    TAKE("container", API_MESSAGES, "Tools for it are ignored."),
    TAKE("mcp_servers", API_MESSAGES, "Their tools are ignored, with a line in the log."),
    TAKE("betas", API_MESSAGES, "List of names."),
    TAKE("inference_geo", API_MESSAGES, "The server has one location."),
    TAKE("speed", API_MESSAGES, "The server has one speed."),
    TAKE("diagnostics", API_MESSAGES, "The log has this information."),
    TAKE("fallbacks", API_MESSAGES, "The server has one model."),
    TAKE("user_profile_id", API_MESSAGES, "Label for the client."),
    TAKE("workspace_id", API_MESSAGES, "Label for the client."),
    TAKE("length_penalty", API_ANSWERS, "Applies to beam search only."),
    TAKE("spaces_between_special_tokens", API_ANSWERS, "Token texts are concatenated unchanged."),
    TAKE("guided_decoding_backend", API_ANSWERS, "The server has one backend."),
    TAKE("kv_transfer_params", API_ANSWERS, "Use --prefix-cache-dir to share caches."),
    TAKE("vllm_xargs", API_ANSWERS, "For plugins of vLLM."),
    TAKE("mm_processor_kwargs", API_TALKS, "For media input; the server accepts text only."),
    TAKE("media_io_kwargs", API_TALKS, "For media input; the server accepts text only."),
    TAKE("id_slot", API_ANSWERS, "A request always reuses the longest cached prefix."),
    TAKE("n_keep", API_ANSWERS, "The context is not shifted."),
    TAKE("n_discard", API_ANSWERS, "The context is not shifted."),
    TAKE("n_cache_reuse", API_ANSWERS, "The cache always reuses complete prefixes."),
    TAKE("t_max_prompt_ms", API_ANSWERS, "A prompt is always computed completely."),
    TAKE("preserved_tokens", API_ANSWERS, "Control tokens of calls are always parsed."),
    TAKE("rank_fields", API_RERANK, "Documents are scored by their text."),
    TAKE("max_chunks_per_doc", API_RERANK, "Documents are not split."),

    REFUSE("n", API_RESPONSES | API_MESSAGES, "1", "this API returns one answer; send several requests"),
    REFUSE("best_of", API_CHAT, "1", "send 'n' and choose an answer"),
    REFUSE("use_beam_search", API_ANSWERS, NULL, "send 'n' and choose an answer"),
    REFUSE("logprobs", API_RESPONSES, NULL, "send 'top_logprobs'"),
    REFUSE("logprobs", API_MESSAGES, NULL, "use /v1/chat/completions"),
    REFUSE("top_logprobs", API_MESSAGES, "0", "use /v1/chat/completions"),
    REFUSE("n_probs", API_RESPONSES | API_MESSAGES, "0", "use /v1/chat/completions"),
    REFUSE("prompt_logprobs", API_RESPONSES | API_MESSAGES | API_NATIVE | API_INFILL, NULL, "use /v1/completions"),
    REFUSE("echo", API_RESPONSES | API_MESSAGES | API_NATIVE | API_INFILL, NULL, "use /v1/completions"),
    REFUSE("truncate_prompt_tokens", API_TALKS, NULL, "send fewer messages"),
    REFUSE("add_special_tokens", API_TALKS, NULL, "the template writes control tokens"),
    REFUSE("chat_template", API_TALKS, NULL, "start the server with --chat-template"),
    REFUSE("allowed_token_ids", API_ANSWERS, NULL, "send a 'grammar' or a 'logit_bias'"),
    REFUSE("logits_processors", API_ANSWERS, NULL, "send a 'grammar' or a 'logit_bias'"),
    REFUSE("repetition_detection", API_ANSWERS, NULL, "send 'dry_multiplier'"),
    REFUSE("guided_whitespace_pattern", API_ANSWERS, NULL, "send a 'grammar'"),
    REFUSE("grammar_lazy", API_ANSWERS, NULL, "send 'tools'; their grammar begins at a call"),
    REFUSE("grammar_triggers", API_ANSWERS, NULL, "send 'tools'; their grammar begins at a call"),
    REFUSE("image_data", API_NATIVE | API_INFILL, NULL, "send multimodal_data in prompt"),
    REFUSE("modalities", API_CHAT, "[\"text\"]", "request text only"),
    REFUSE("audio", API_CHAT, NULL, "request text only"),
    REFUSE("functions", API_CHAT, NULL, "send them as 'tools'"),
    REFUSE("function_call", API_CHAT, "\"none\" \"auto\"", "send it as 'tool_choice'"),
    REFUSE("moderation", API_CHAT | API_RESPONSES, NULL, "moderate texts in the client"),
    REFUSE("previous_response_id", API_RESPONSES, NULL,
           "responses are not stored; start the server with --response-store, or send all of it in 'input'"),
    REFUSE("conversation", API_RESPONSES, NULL, "conversations are not stored; send all of it in 'input'"),
    REFUSE("prompt", API_RESPONSES, NULL, "prompts are not stored; send the text in 'instructions' or 'input'"),
    REFUSE("background", API_RESPONSES, NULL, "wait for the answer, or set 'stream'"),
    REFUSE("thread", API_MESSAGES, NULL, "threads are not stored; send the complete conversation in 'messages'"),
};

const size_t n_fields = sizeof fields / sizeof *fields;

/* True if the value has no effect, or if the row accepts it. Sets *no_memory if out of memory. */
static bool is_harmless(const field *f, const json_t *v, bool *no_memory)
{
    const bool empty = json_is_null(v) || json_is_false(v) || (json_is_string(v) && !json_string_length(v)) ||
                       (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
    if (empty || !f->harmless || json_is_object(v)) return empty;
    char *text = json_write(v, 0);
    *no_memory = !text;
    const size_t n = text ? strlen(text) : 0;
    bool found = false;
    for (const char *p = f->harmless; n && *p && !found; p += strcspn(p, " "), p += *p == ' ')
        found = strcspn(p, " ") == n && !memcmp(p, text, n);
    free(text);
    return found;
}

int fields_check(params *p, unsigned api, pi_error *err)
{
    bool no_memory = false;
    for (size_t i = 0; i < n_fields; i++) {
        const field *f = &fields[i];
        if (f->effect != FIELD_REFUSED || !(f->apis & api)) continue;
        const json_t *v = json_object_get(p->root, f->name);
        if (!v) continue;
        if (is_harmless(f, v, &no_memory)) {
            json_object_del(p->root, f->name);
            continue;
        }
        if (no_memory) return params_no_memory(err);
        return params_fail(p, f->name, err, "'%s' is not supported: %s", f->name, f->text);
    }
    return PI_OK;
}
