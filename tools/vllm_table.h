/* Rows of the option table for flags of vLLM's server (see options_table.h). Flags that are spellings of other options
 * are in the rows of these options. vllm.c translates the values of the rows of section serve. */
#ifndef PAGEDINFER_VLLM_TABLE_H
#define PAGEDINFER_VLLM_TABLE_H

#define VLLM_OPTIONS(X)                                                                                                \
    X("download-dir", STRING, "", "", "--download-dir", "", "general", false,                                          \
      "Cache directory of downloads, instead of $LLAMA_CACHE and the other variables.")                                \
    X("tensor-parallel-size", INT, "1", "1..64", "-tp --tensor-parallel-size", "", "serve", false,                     \
      "Divide each layer among the first N GPUs: --device cuda0,... --split-mode tensor.")                             \
    X("pipeline-parallel-size", INT, "1", "1..64", "-pp --pipeline-parallel-size", "", "serve", false,                 \
      "Put some layers on each of the first N GPUs: --device cuda0,... --split-mode layer.")                           \
    X("kv-cache-dtype", ENUM, "auto", "auto|float16|bfloat16|fp8|fp8_e4m3|fp8_e5m2|fp8_inc|f16|bf16|q8_0|q4_0",        \
      "--kv-cache-dtype", "", "serve", false,                                                                          \
      "Type of keys and values: the same as --cache-type-k and --cache-type-v. The 8-bit floats fp8* mean q8_0.")      \
    X("speculative-config", STRING, "", "", "--speculative-config -sc", "", "serve", false,                            \
      "JSON object with method (ngram, mtp, draft_model), model, num_speculative_tokens, prompt_lookup_min: "          \
      "--spec-type, --model-draft, --spec-draft-n-max, --spec-ngram-size-m, --spec-ngram-size-n.")                     \
    X("override-generation-config", STRING, "", "", "--override-generation-config", "", "serve", false,                \
      "JSON object with defaults of requests: temperature, top_p, top_k, min_p, repetition_penalty, "                  \
      "presence_penalty, frequency_penalty, max_new_tokens.")                                                          \
    X("kv-events-config", STRING, "", "", "--kv-events-config", "", "serve", false,                                    \
      "JSON object with enable_kv_cache_events, endpoint, replay_endpoint, topic, buffer_steps: --kv-events and "      \
      "its options.")                                                                                                  \
    X("dtype", ENUM, "auto", "auto|half|float16|bfloat16|float|float32", "--dtype", "", "compat", false,               \
      "the GGUF has the types of the weights")                                                                         \
    X("enable-chunked-prefill", BOOL, "true", "", "--enable-chunked-prefill", "", "compat", false,                     \
      "prompts are always computed in chunks of at most --max-num-batched-tokens")                                     \
    X("swap-space", STRING, "", "", "--swap-space --kv-offloading-size --kv-offloading-backend", "", "compat",         \
      false, "--cache-ram sets the host memory for evicted prefixes")                                                  \
    X("cpu-offload-gb", STRING, "", "", "--cpu-offload-gb", "", "compat", false,                                       \
      "--gpu-layers auto leaves layers on the CPU that do not fit; --gpu-layers N sets their number")                  \
    X("enable-auto-tool-choice", BOOL, "true", "", "--enable-auto-tool-choice", "", "compat", false,                   \
      "tool calls are always parsed")                                                                                  \
    X("tool-call-parser", STRING, "", "", "--tool-call-parser --tool-parser-plugin", "", "compat", false,              \
      "the chat template selects the parser of tool calls")                                                            \
    X("reasoning-parser", STRING, "", "", "--reasoning-parser", "", "compat", false,                                   \
      "the chat template selects the parser of reasoning; --reasoning-format sets its place")                          \
    X("enable-reasoning", BOOL, "true", "", "--enable-reasoning", "", "compat", false,                                 \
      "the chat template selects the parser of reasoning; --reasoning-format sets its place")                          \
    X("trust-remote-code", BOOL, "false", "", "--trust-remote-code", "", "compat", false,                              \
      "a GGUF has no code, and no code is ever downloaded")                                                            \
    X("quantization", STRING, "", "", "-q --quantization", "", "compat", false,                                        \
      "the GGUF has the formats of the weights")                                                                       \
    X("load-format", ENUM, "auto", "auto|gguf", "--load-format", "", "compat", false,                                  \
      "a model is always a GGUF file")                                                                                 \
    X("revision", ENUM, "main", "main|master", "--revision", "", "compat", false,                                      \
      "the main branch of a repository is always used")                                                                \
    X("tokenizer", STRING, "", "",                                                                                     \
      "--tokenizer --tokenizer-mode --tokenizer-revision --hf-config-path --code-revision --config-format", "",        \
      "compat", false, "the GGUF has the configuration and the tokenizer")                                             \
    X("generation-config", STRING, "", "", "--generation-config", "", "compat", false,                                 \
      "the defaults of requests are options such as --temp; --override-generation-config sets several")                \
    X("enable-lora", BOOL, "true", "", "--enable-lora", "", "compat", false,                                           \
      "adapters of --lora-modules and --lora are always enabled")                                                      \
    X("max-loras", STRING, "", "",                                                                                     \
      "--max-lora-rank --max-loras --max-cpu-loras --lora-extra-vocab-size --lora-dtype", "", "compat", false,         \
      "adapters have no limit of rank or number; all stay loaded")                                                     \
    X("task", STRING, "", "", "--task --runner --convert", "", "compat", false,                                        \
      "the server has the endpoints of every task that the model supports")                                            \
    X("enable-log-requests", BOOL, "true", "",                                                                         \
      "--disable-log-requests=false --enable-log-requests --disable-log-stats=false "                                  \
      "--disable-uvicorn-access-log=false --enable-server-load-tracking", "", "compat", false,                         \
      "one log line per request at --log-level info, without texts; counters are in /metrics")                         \
    X("uvicorn-log-level", STRING, "", "", "--uvicorn-log-level --max-log-len", "", "compat", false,                   \
      "--log-level sets the level of log lines")                                                                       \
    X("root-path", STRING, "", "", "--root-path", "", "compat", false,                                                 \
      "paths without the prefix are served; if a proxy keeps the prefix, give --api-prefix")                           \
    X("distributed-executor-backend", STRING, "", "", "--distributed-executor-backend", "", "compat", false,           \
      "one process drives all of its devices; see --ranks for several")                                                \
    X("compilation-config", STRING, "", "",                                                                            \
      "--compilation-config -O --max-seq-len-to-capture --cuda-graph-sizes --cudagraph-capture-sizes "                 \
      "--max-cudagraph-capture-size --max-parallel-loading-workers", "", "compat", false,                              \
      "nothing is compiled at the start; --cuda-graphs controls the replay of steps")                                  \
    X("disable-custom-all-reduce", BOOL, "false", "", "--disable-custom-all-reduce", "", "compat", false,              \
      "devices exchange data directly where the hardware can")                                                         \
    X("structured-outputs-config", STRING, "", "",                                                                     \
      "--guided-decoding-backend --structured-outputs-config --max-logprobs --logits-processor-pattern", "",           \
      "compat", false, "structured output and logprobs need no configuration")                                         \
    X("chat-template-content-format", STRING, "", "", "--chat-template-content-format", "", "compat", false,           \
      "the chat template decides the form of message contents")                                                        \
    X("response-role", ENUM, "assistant", "assistant|model", "--response-role", "", "compat", false,                   \
      "the role of answers is assistant")                                                                              \
    X("prefix-caching-hash-algo", STRING, "", "", "--prefix-caching-hash-algo", "", "compat", false,                   \
      "block keys are always SHA-256")                                                                                 \
    X("max-num-partial-prefills", STRING, "", "",                                                                      \
      "--max-num-partial-prefills --max-long-partial-prefills --long-prefill-token-threshold "                         \
      "--num-scheduler-steps --max-num-on-the-fly --preemption-mode --scheduler-delay-factor", "", "compat", false,    \
      "short prompts pass long ones; --step-target-ms limits the delay of running answers")                            \
    X("limit-mm-per-prompt", STRING, "", "",                                                                           \
      "--limit-mm-per-prompt --mm-processor-kwargs --mm-processor-cache-gb --media-io-kwargs", "", "compat", false,    \
      "--max-body limits the size of a request")                                                                       \
    X("disable-fastapi-docs", BOOL, "false", "",                                                                       \
      "--disable-fastapi-docs --enable-prompt-tokens-details --enable-request-id-headers "                             \
      "--disable-frontend-multiprocessing --enable-ssl-refresh", "", "compat", false,                                  \
      "the server always reports cached tokens and request ids; SIGHUP rereads certificates; /openapi.json is "        \
      "always served")                                                                                                 \
    X("api-server-count", STRING, "", "",                                                                              \
      "--api-server-count -asc --allowed-methods --allowed-headers --renderer-num-workers", "", "compat", false,       \
      "--threads-http sets the threads that read requests; --cors allows all methods and headers")                     \
    X("data-parallel-size", INT, "1", "1..1", "-dp --data-parallel-size", "", "compat", false,                         \
      "each process is one replica; start several processes for more")                                                 \
    X("use-v2-block-manager", BOOL, "true", "",                                                                        \
      "--use-v2-block-manager --multi-step-stream-outputs --enable-expert-parallel", "", "compat", false,              \
      "the cache is always paged, and experts are divided like other matrices")                                        \
    X("distributed-timeout", STRING, "", "",                                                                           \
      "--distributed-timeout-seconds --worker-cls --worker-extension-cls --model-impl --additional-config", "",        \
      "compat", false, "this engine has one worker and its own models")

/* Flags of vLLM that are recognized and refused, as in REFUSED_OPTIONS. */
#define VLLM_REFUSED(LATER, NEVER)                                                                                     \
    NEVER("--ssl-ca-certs --ssl-cert-reqs", "", "serve",                                                               \
          "clients are not asked for certificates; use --api-key-file, or a reverse proxy")                            \
    NEVER("--middleware --logits-processors --io-processor-plugin --enable-sleep-mode", "", "serve",                   \
          "the server loads no Python code; a model stays loaded")                                                     \
    LATER("--allow-credentials", "", "serve", "send the key in a header; cookies are not used")                        \
    LATER("--num-gpu-blocks-override", "", "serve", "use --kv-cache-tokens")                                           \
    LATER("--kv-transfer-config --ec-transfer-config", "", "serve",                                                    \
          "use --prefix-cache-dir, which stores prefixes for other processes")                                         \
    LATER("--otlp-traces-endpoint --collect-detailed-traces", "", "serve",                                             \
          "use /metrics, and the log line of each request")                                                            \
    LATER("--hf-overrides", "", "serve", "use --override-kv, --rope-scaling, --rope-scale or --rope-freq-base")        \
    LATER(                                                                                                             \
          "--data-parallel-rank --data-parallel-size-local --data-parallel-address --data-parallel-rpc-port "          \
          "--data-parallel-backend --nnodes --node-rank --master-addr --master-port --headless", "", "serve",          \
          "start one server per replica; docs/RANKS.md describes several processes with one model")                    \
    LATER("--disable-sliding-window", "", "serve",                                                                     \
          "the model file sets the windows; --override-kv changes metadata")                                           \
    LATER("--return-tokens-as-token-ids --enable-force-include-usage", "", "serve",                                    \
          "send return_tokens_as_token_ids or stream_options.include_usage in the request")                            \
    LATER("--num-speculative-tokens --speculative-model --ngram-prompt-lookup-max --ngram-prompt-lookup-min", "",      \
          "serve", "use --speculative-config, or --spec-type and --model-draft")                                       \
    LATER(                                                                                                             \
          "--lora-target-modules --fully-sharded-loras --default-mm-loras --long-lora-scaling-factors "                \
          "--enable-prompt-adapter", "", "serve", "use --lora-modules NAME=FILE.gguf")                                 \
    NEVER("--video-pruning-rate --skip-mm-profiling --mm-encoder-tp-mode --mm-encoder-only --language-model-only",     \
          "", "serve", "encoders of images have no options")
#endif
