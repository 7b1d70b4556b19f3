/* The table of request fields (see fields.h). Rows with an option come first; of several names of one option the first
 * is the one that answers show. */
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
    ANSWERS("temperature", NUMBER, "temp", "Temperature; 0: always the likeliest token."),
    ANSWERS("top_p", NUMBER, "top-p", "The likeliest tokens that have this probability together."),
    ANSWERS("top_k", INTEGER, "top-k", "The K likeliest tokens; 0: all."),
    ANSWERS("min_p", NUMBER, "min-p", "Tokens with at least this share of the likeliest token's probability."),
    ANSWERS("typical_p", NUMBER, "typical", "Locally typical sampling."),
    ANSWERS("dynatemp_range", NUMBER, "dynatemp-range", "Range of the dynamic temperature."),
    ANSWERS("dynatemp_exponent", NUMBER, "dynatemp-exp", "Exponent of the dynamic temperature."),
    ANSWERS("mirostat", INTEGER, "mirostat", "Mirostat version 1 or 2; 0: off."),
    ANSWERS("mirostat_tau", NUMBER, "mirostat-ent", "Mirostat's target entropy."),
    ANSWERS("mirostat_eta", NUMBER, "mirostat-lr", "Mirostat's learning rate."),
    ANSWERS("adaptive_target", NUMBER, "adaptive-target", "Probability that adaptive sampling aims at."),
    ANSWERS("adaptive_decay", NUMBER, "adaptive-decay", "Decay of adaptive sampling."),
    ANSWERS("top_n_sigma", NUMBER, "top-n-sigma", "Tokens within so many standard deviations of the largest logit."),
    ANSWERS("min_keep", INTEGER, "min-keep", "Tokens that filters leave at least."),
    ANSWERS("repeat_penalty", NUMBER, "repeat-penalty", "Penalty of tokens that came before."),
    ANSWERS("repetition_penalty", NUMBER, "repeat-penalty", "Another name of repeat_penalty."),
    ANSWERS("repeat_last_n", INTEGER, "repeat-last-n", "Tokens that penalties look back at."),
    ANSWERS("presence_penalty", NUMBER, "presence-penalty", "Subtracted once from logits of tokens that came before."),
    ANSWERS("frequency_penalty", NUMBER, "frequency-penalty", "Subtracted for each time that a token came before."),
    ANSWERS("dry_multiplier", NUMBER, "dry-multiplier", "Strength of DRY; 0: off."),
    ANSWERS("dry_base", NUMBER, "dry-base", "Base of DRY's penalty."),
    ANSWERS("dry_allowed_length", INTEGER, "dry-allowed-length", "Repeated tokens that DRY allows."),
    ANSWERS("dry_penalty_last_n", INTEGER, "dry-penalty-last-n", "Tokens that DRY looks back at."),
    ANSWERS("xtc_probability", NUMBER, "xtc-probability", "Probability of XTC."),
    ANSWERS("xtc_threshold", NUMBER, "xtc-threshold", "Threshold of XTC."),
    ANSWERS("seed", INTEGER, "seed", "Seed, any integer of 64 bits; -1: another one each time."),
    ANSWERS("min_tokens", INTEGER, "min-tokens", "Tokens before which the answer may not end."),
    ANSWERS("ignore_eos", BOOLEAN, "ignore-eos", "The answer ends by its limit or a stop string only."),
    ANSWERS("cache_prompt", BOOLEAN, "cache", "Use and keep prefixes in the cache."),
    ANSWERS("priority", INTEGER, "priority", "Lower numbers run first under --policy priority."),
    ANSWERS("spec_type", STRING, "spec-type", "One of the server's drafters, or none."),
    ANSWERS("reasoning_budget_tokens", INTEGER, "reasoning-budget", "Tokens of a thought at most; -1: any."),
    ANSWERS("thinking_budget_tokens", INTEGER, "reasoning-budget", "Another name of reasoning_budget_tokens."),
    ANSWERS("thinking_token_budget", INTEGER, "reasoning-budget", "Another name of reasoning_budget_tokens."),
    ANSWERS("reasoning_budget_message", STRING, "reasoning-budget-message", "Text before the end of a thought that is cut."),
    ANSWERS("grammar", STRING, "grammar", "Grammar of the answer, in GBNF."),
    ANSWERS("guided_grammar", STRING, "grammar", "Another name of grammar."),
    ANSWERS("guided_regex", STRING, "regex", "Regular expression that the whole answer matches."),

    READ("messages", API_CHAT | API_MESSAGES, L | NEEDED, "The conversation."),
    READ("prompt", API_TEXT | API_NATIVE, S | L | O | NEEDED, "Text, token ids, both in one list, or a list of prompts."),
    READ("input", API_RESPONSES, S | L | NEEDED, "The conversation: text, or items."),
    READ("instructions", API_RESPONSES, S, "System text in front of the conversation."),
    READ("system", API_MESSAGES, S | L, "System text in front of the conversation."),
    READ("model", API_ANSWERS | API_EMBEDDINGS | API_VECTORS | API_RERANK, S, "An adapter's name; other names mean the model."),
    READ("stream", API_ANSWERS, B, "Send the answer as server-sent events."),
    READ("stream_options", API_ANSWERS, O, "include_usage, continuous_usage_stats, where a stream does not end with the usage."),
    READ("max_tokens", API_ANSWERS, I, "Tokens of the answer at most; -1: any."),
    READ("max_completion_tokens", API_ANSWERS, I, "Another name of max_tokens."),
    READ("max_output_tokens", API_ANSWERS, I, "Another name of max_tokens."),
    READ("n_predict", API_ANSWERS, I, "Another name of max_tokens."),
    READ("n", API_CHAT | API_PROMPTS, I, "Answers to each prompt, 1 to 64."),
    READ("n_cmpl", API_CHAT | API_PROMPTS, I, "Another name of n."),
    READ("best_of", API_TEXT, I, "At most n: answers are not ranked."),
    READ("stop", API_ANSWERS, S | L, "Texts that end the answer and are not part of it, at most 4,096."),
    READ("stop_sequences", API_ANSWERS, S | L, "More texts that end the answer."),
    READ("stop_token_ids", API_ANSWERS, L, "Tokens that end the answer."),
    READ("bad_words", API_ANSWERS, L, "Texts that the answer may not hold."),
    READ("logit_bias", API_ANSWERS, O | L, "Added to logits of token ids or texts; false: forbidden."),
    READ("logprobs", API_CHAT, B | I, "Log-probabilities of the answer's tokens."),
    READ("logprobs", API_PROMPTS, I | B, "Log-probabilities with so many alternatives, at most 1,024."),
    READ("top_logprobs", API_CHAT | API_RESPONSES, I, "Alternatives to each token, at most 1,024."),
    READ("n_probs", API_CHAT | API_PROMPTS, I, "Another name of logprobs."),
    READ("prompt_logprobs", API_CHAT | API_TEXT, I, "Log-probabilities of the prompt's tokens; not in streams."),
    READ("post_sampling_probs", API_ANSWERS, B, "Probabilities are those that the tokens were drawn by."),
    READ("return_tokens_as_token_ids", API_CHAT | API_TEXT, B, "logprobs have token_id:ID instead of texts."),
    READ("return_token_ids", API_ANSWERS, B, "token_ids beside the text, where the form has a place for them."),
    READ("return_tokens", API_NATIVE | API_INFILL, B, "tokens beside the text."),
    READ("response_fields", API_NATIVE | API_INFILL, L, "Fields of the answer that are written."),
    READ("echo", API_CHAT | API_TEXT, B, "The prompt, or the message that is continued, is part of the answer."),
    READ("suffix", API_TEXT, S, "Text after the answer, which fills the middle."),
    READ("input_prefix", API_INFILL, S | NEEDED, "Text before the middle."),
    READ("input_suffix", API_INFILL, S | NEEDED, "Text after the middle."),
    READ("input_extra", API_INFILL, L, "Other files: filename and text."),
    READ("prompt", API_INFILL, S, "Text that was typed in the middle."),
    READ("response_format", API_ANSWERS, O, "json_schema, json_object or text."),
    READ("json_schema", API_ANSWERS, O | S | B, "JSON Schema of the answer."),
    READ("guided_json", API_ANSWERS, O | S, "Another name of json_schema."),
    READ("guided_choice", API_ANSWERS, L, "Texts of which the answer is one."),
    READ("structured_outputs", API_ANSWERS, O, "One of json, json_object, regex, choice, grammar."),
    READ("text", API_RESPONSES, O, "format: json_schema, json_object or text."),
    READ("output_config", API_MESSAGES, O, "format: json_schema; effort."),
    READ("output_format", API_MESSAGES, O, "The beta API's name of output_config.format."),
    READ("tools", API_TALKS, L, "Functions; tools of other types are left out, with a line in the log."),
    READ("tool_choice", API_TALKS, S | O, "Whether a function, or which one, must be called."),
    READ("parallel_tool_calls", API_CHAT | API_RESPONSES, B, "false: one call at most."),
    READ("reasoning_effort", API_CHAT, S, "For the template; none: no thoughts."),
    READ("reasoning", API_RESPONSES, O, "effort, as reasoning_effort."),
    READ("thinking", API_MESSAGES, O, "Thoughts on or off, their budget and display."),
    READ("reasoning_format", API_TALKS, S, "none: thoughts stay in the text; hidden: they are dropped."),
    READ("include_reasoning", API_TALKS, B, "false: thoughts are dropped."),
    READ("include", API_RESPONSES, L, "message.output_text.logprobs; other values have no effect."),
    READ("chat_template_kwargs", API_TALKS, O, "Variables of the template."),
    READ("add_generation_prompt", API_TALKS, B, "The answer is a new message."),
    READ("continue_final_message", API_TALKS, B, "The answer goes on with the last message."),
    READ("enable_thinking", API_TALKS, B, "Variable of the template."),
    READ("documents", API_TALKS, L, "Variable of templates that read documents."),
    READ("samplers", API_ANSWERS, L | S, "Names of samplers, in order."),
    READ("dry_sequence_breakers", API_ANSWERS, L, "Texts that end a repetition for DRY."),
    READ("skip_special_tokens", API_ANSWERS, B, "false: control tokens are text."),
    READ("include_stop_str_in_output", API_ANSWERS, B, "The stop string is part of the answer."),
    READ("truncate_prompt_tokens", API_TEXT | API_NATIVE | API_EMBEDDINGS | API_VECTORS, I, "The prompt's last tokens."),
    READ("add_special_tokens", API_TEXT | API_NATIVE | API_EMBEDDINGS | API_VECTORS, B, "false: no BOS before a text."),
    READ("cache_salt", API_ANSWERS, S, "Prefixes are shared among requests of one salt."),
    READ("lora", API_ANSWERS | API_EMBEDDINGS | API_VECTORS, L, "Adapters and their scales."),
    READ("timings_per_token", API_CHAT | API_RESPONSES | API_PROMPTS, B, "timings in each event."),
    READ("return_progress", API_CHAT | API_RESPONSES | API_PROMPTS, B, "prompt_progress in a stream's first events."),
    READ("sse_ping_interval", API_ANSWERS, I, "Seconds between comments of a silent stream."),
    READ("n_indent", API_NATIVE | API_INFILL, I, "An answer ends where a later line has less indentation."),
    READ("t_max_predict_ms", API_ANSWERS, I, "Time after which an answer ends at a line's end."),

    READ("input", API_EMBEDDINGS, S | L | O | NEEDED, "A prompt or a list of prompts."),
    READ("input", API_VECTORS, S | L | O, "A prompt or a list of prompts."),
    READ("content", API_VECTORS, S | L | O, "Another name of input."),
    READ("encoding_format", API_EMBEDDINGS, S, "float or base64."),
    READ("dimensions", API_EMBEDDINGS | API_VECTORS, I, "The first so many values."),
    READ("embd_normalize", API_VECTORS, I, "Norm of the vectors; -1: none."),
    READ("query", API_RERANK, S | NEEDED, "Text that documents are scored for."),
    READ("documents", API_RERANK, L, "Texts, or objects with text."),
    READ("texts", API_RERANK, L, "documents in text-embeddings-inference's form."),
    READ("top_n", API_RERANK, I, "Results at most."),
    READ("return_documents", API_RERANK, B, "Texts are part of the answer."),
    READ("return_text", API_RERANK, B, "The same in text-embeddings-inference's form."),
    READ("content", API_TOKENIZE, S | L, "Text, or texts and token ids."),
    READ("prompt", API_TOKENIZE, S | L, "The same, vLLM's name: with BOS."),
    READ("messages", API_TOKENIZE, L, "A conversation, with the fields that its template reads."),
    READ("add_special", API_TOKENIZE, B, "BOS in front."),
    READ("add_special_tokens", API_TOKENIZE, B, "Another name of add_special."),
    READ("parse_special", API_TOKENIZE, B, "false: texts hold no control tokens."),
    READ("with_pieces", API_TOKENIZE, B, "The text of each token."),
    READ("return_token_strs", API_TOKENIZE, B, "token_strs beside tokens."),
    READ("tokens", API_DETOKENIZE, L | NEEDED, "Token ids."),
    READ("lora_name", API_LOAD | API_UNLOAD, S | NEEDED, "Name of the adapter."),
    READ("lora_path", API_LOAD, S | NEEDED, "Its file, on the server's machine."),
    READ("load_inplace", API_LOAD, B, "Replace an adapter of that name."),

    TAKE("user", API_ANSWERS | API_EMBEDDINGS, "A label of the client's."),
    TAKE("metadata", API_TALKS | API_TEXT, "Labels of the client's."),
    TAKE("client_metadata", API_RESPONSES, "Labels of the client's."),
    TAKE("safety_identifier", API_CHAT | API_RESPONSES, "A label of the client's."),
    TAKE("request_id", API_ANSWERS, "A label of the client's; header X-Request-Id is the one that the log shows."),
    TAKE("store", API_CHAT | API_RESPONSES, "Nothing is stored."),
    TAKE("service_tier", API_TALKS, "There is one tier."),
    TAKE("prompt_cache_key", API_CHAT | API_RESPONSES, "The cache finds prefixes without it."),
    TAKE("prompt_cache_retention", API_CHAT | API_RESPONSES, "The cache decides by use."),
    TAKE("prompt_cache_options", API_CHAT | API_RESPONSES, "The cache decides by use."),
    TAKE("cache_control", API_MESSAGES, "The cache finds prefixes without it."),
    TAKE("prediction", API_CHAT, "Drafters are the server's."),
    TAKE("verbosity", API_CHAT, "A hint that no template reads."),
    TAKE("web_search_options", API_CHAT, "The server does not search."),
    TAKE("truncation", API_RESPONSES, "A conversation that is too long is refused."),
    TAKE("max_tool_calls", API_RESPONSES, "Counts built-in tools only, and there are none."),
    TAKE("context_management", API_RESPONSES | API_MESSAGES, "The client manages its context."),
    TAKE("compaction", API_MESSAGES, "The client manages its context."),
    TAKE("container", API_MESSAGES, "Tools that run in it are left out."),
    TAKE("mcp_servers", API_MESSAGES, "Their tools are left out, with a line in the log."),
    TAKE("betas", API_MESSAGES, "A list of names."),
    TAKE("inference_geo", API_MESSAGES, "The server is where it is."),
    TAKE("speed", API_MESSAGES, "There is one speed."),
    TAKE("diagnostics", API_MESSAGES, "The log has them."),
    TAKE("fallbacks", API_MESSAGES, "There is one model."),
    TAKE("user_profile_id", API_MESSAGES, "A label of the client's."),
    TAKE("workspace_id", API_MESSAGES, "A label of the client's."),
    TAKE("length_penalty", API_ANSWERS, "Counts in a beam search only."),
    TAKE("spaces_between_special_tokens", API_ANSWERS, "Texts of tokens are put together as they are."),
    TAKE("guided_decoding_backend", API_ANSWERS, "There is one."),
    TAKE("kv_transfer_params", API_ANSWERS, "Caches are shared by --prefix-cache-dir."),
    TAKE("vllm_xargs", API_ANSWERS, "For plugins of vLLM."),
    TAKE("mm_processor_kwargs", API_TALKS, "For media, of which there is none."),
    TAKE("media_io_kwargs", API_TALKS, "For media, of which there is none."),
    TAKE("id_slot", API_ANSWERS, "A request takes the longest prefix there is."),
    TAKE("n_keep", API_ANSWERS, "A context is not shifted."),
    TAKE("n_discard", API_ANSWERS, "A context is not shifted."),
    TAKE("n_cache_reuse", API_ANSWERS, "The cache takes over whole prefixes."),
    TAKE("t_max_prompt_ms", API_ANSWERS, "A prompt is computed whole."),
    TAKE("preserved_tokens", API_ANSWERS, "Control tokens of calls are read as they are."),
    TAKE("rank_fields", API_RERANK, "Documents are scored by their text."),
    TAKE("max_chunks_per_doc", API_RERANK, "Documents are not split."),

    REFUSE("n", API_RESPONSES | API_MESSAGES, "1", "this API gives one answer; send several requests"),
    REFUSE("best_of", API_CHAT, "1", "take 'n', and choose"),
    REFUSE("use_beam_search", API_ANSWERS, NULL, "take 'n', and choose"),
    REFUSE("logprobs", API_RESPONSES, NULL, "ask for them by 'top_logprobs'"),
    REFUSE("logprobs", API_MESSAGES, NULL, "ask for them at /v1/chat/completions"),
    REFUSE("top_logprobs", API_MESSAGES, "0", "ask for them at /v1/chat/completions"),
    REFUSE("n_probs", API_RESPONSES | API_MESSAGES, "0", "ask for them at /v1/chat/completions"),
    REFUSE("prompt_logprobs", API_RESPONSES | API_MESSAGES | API_NATIVE | API_INFILL, NULL, "ask for them at /v1/completions"),
    REFUSE("echo", API_RESPONSES | API_MESSAGES | API_NATIVE | API_INFILL, NULL, "ask for it at /v1/completions"),
    REFUSE("truncate_prompt_tokens", API_TALKS, NULL, "leave out messages instead"),
    REFUSE("add_special_tokens", API_TALKS, NULL, "the template writes control tokens"),
    REFUSE("chat_template", API_TALKS, NULL, "start the server with --chat-template"),
    REFUSE("allowed_token_ids", API_ANSWERS, NULL, "send a 'grammar', or a 'logit_bias'"),
    REFUSE("logits_processors", API_ANSWERS, NULL, "send a 'grammar', or a 'logit_bias'"),
    REFUSE("repetition_detection", API_ANSWERS, NULL, "send 'dry_multiplier'"),
    REFUSE("guided_whitespace_pattern", API_ANSWERS, NULL, "send a 'grammar'"),
    REFUSE("grammar_lazy", API_ANSWERS, NULL, "send 'tools', whose grammar begins with a call"),
    REFUSE("grammar_triggers", API_ANSWERS, NULL, "send 'tools', whose grammar begins with a call"),
    REFUSE("image_data", API_NATIVE | API_INFILL, NULL, "send text"),
    REFUSE("modalities", API_CHAT, "[\"text\"]", "answers are text"),
    REFUSE("audio", API_CHAT, NULL, "answers are text"),
    REFUSE("functions", API_CHAT, NULL, "send them as 'tools'"),
    REFUSE("function_call", API_CHAT, "\"none\" \"auto\"", "send it as 'tool_choice'"),
    REFUSE("moderation", API_CHAT | API_RESPONSES, NULL, "texts are not judged here"),
    REFUSE("previous_response_id", API_RESPONSES, NULL, "answers are not kept; send the whole conversation in 'input'"),
    REFUSE("conversation", API_RESPONSES, NULL, "conversations are not kept; send the whole conversation in 'input'"),
    REFUSE("prompt", API_RESPONSES, NULL, "prompts are not kept; send the text in 'instructions' or 'input'"),
    REFUSE("background", API_RESPONSES, NULL, "wait for the answer, or set 'stream'"),
    REFUSE("thread", API_MESSAGES, NULL, "threads are not kept; send the whole conversation in 'messages'"),
};

const size_t n_fields = sizeof fields / sizeof *fields;

/* true: a value that asks for nothing, or one that the row takes; *no_memory. */
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
