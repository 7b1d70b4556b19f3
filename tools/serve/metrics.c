/* /metrics in Prometheus text format: histograms of times, the engine's counters, and the gauges that endpoint pickers
 * read. Names follow vLLM's. llama-server's names are added if its dashboards use others. An option sets the prefix of
 * vLLM's names. Runs on the loop's thread. */
#include "serve/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "serve/server.h"

/* Upper bounds in seconds. */
static const double histogram_bounds[METRIC_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
                                                        0.25,  0.5,    0.75,  1,    2.5,  5,    10,   20,    40,  80};

void histogram_add(histogram *h, double seconds)
{
    size_t i = 0;
    while (i < METRIC_BUCKETS && seconds > histogram_bounds[i]) i++;
    h->count[i]++;
    h->sum += seconds;
}

void metrics_miss(metrics *m, const char *reason)
{
    for (int i = 0; *reason && i < METRIC_MISSES; i++) {
        if (!m->miss[i].n) snprintf(m->miss[i].reason, sizeof m->miss[i].reason, "%s", reason);
        if (strncmp(m->miss[i].reason, reason, sizeof m->miss[i].reason - 1) != 0) continue;
        m->miss[i].n++;
        return;
    }
}

struct out {
    buf b;
    const char *prefix; /* "vllm" */
    char labels[160];   /* model_name="..." */
};

static void head(struct out *o, const char *name, const char *type, const char *help)
{
    buf_fmt(&o->b, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", o->prefix, name, help, o->prefix, name, type);
}

static void value(struct out *o, const char *name, const char *type, const char *help, double v)
{
    head(o, name, type, help);
    buf_fmt(&o->b, "%s:%s{%s} %.17g\n", o->prefix, name, o->labels, v);
}

/* Writes a histogram. count: by upper bound; the last entry has no bound. bound: in multiples of unit. total:
 * seconds. */
static void put_hist(struct out *o, const char *name, const char *help, const uint64_t *count, const double *bound,
                     double unit, int n, double total)
{
    uint64_t sum = 0;
    head(o, name, "histogram", help);
    for (int i = 0; i < n; i++) {
        sum += count[i];
        buf_fmt(&o->b, "%s:%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", o->prefix, name, o->labels, bound[i] * unit, sum);
    }
    sum += count[n];
    buf_fmt(&o->b, "%s:%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n%s:%s_sum{%s} %.9g\n%s:%s_count{%s} %" PRIu64 "\n",
            o->prefix, name, o->labels, sum, o->prefix, name, o->labels, total, o->prefix, name, o->labels, sum);
}

static void hist(struct out *o, const char *name, const char *help, const histogram *h)
{
    put_hist(o, name, help, h->count, histogram_bounds, 1, METRIC_BUCKETS, h->sum);
}

/* Returns the used fraction of blocks, 0 to 1, of the cache group in which it is largest. */
static double cache_usage(const pi_stats *st)
{
    double most = 0;
    for (uint32_t i = 0; i < st->n_groups; i++) {
        double u = st->group[i].n_blocks ? (double) st->group[i].n_used / (double) st->group[i].n_blocks : 0;
        if (u > most) most = u;
    }
    return most;
}

static void requests(struct out *o, const server *s)
{
    static const char *const end[N_ENDS] = {"stop", "length", "abort", "error"};
    const metrics *m = &s->metrics;
    head(o, "request_success_total", "counter", "Completed requests, by reason.");
    for (int i = 0; i < N_ENDS; i++) {
        buf_fmt(&o->b, "%s:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n", o->prefix, o->labels,
                end[i], m->ended[i]);
    }
    hist(o, "time_to_first_token_seconds", "Time from a request's arrival to its first token.", &m->first_token);
    hist(o, "inter_token_latency_seconds", "Time between tokens of a request.", &m->inter_token);
    hist(o, "request_queue_time_seconds", "Time from submission to the first step.", &m->queue);
    hist(o, "request_prefill_time_seconds", "Time from the first step to the first token.", &m->prefill);
    hist(o, "request_decode_time_seconds", "Time from the first token to the last.", &m->decode);
    hist(o, "e2e_request_latency_seconds", "Time from a request's arrival to its end.", &m->request);
}

/* Returns the largest block size of the cache groups, in tokens. Prefixes are reused, and reported to routers, in
 * multiples of it. */
static uint32_t reuse_block(const pi_plan *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_groups; i++)
        if (p->group[i].block_size > most) most = p->group[i].block_size;
    return most;
}

static void engine_values(struct out *o, const server *s, const pi_stats *st)
{
    value(o, "num_requests_running", "gauge", "Requests in the batch.", st->n_running);
    value(o, "num_requests_waiting", "gauge", "Requests in the queue.", st->n_waiting);
    value(o, "kv_cache_usage_perc", "gauge", "Used part of the cache's blocks, 0 to 1.", cache_usage(st));
    value(o, "num_preemptions_total", "counter", "Times a request lost its blocks and was requeued.",
          (double) st->n_preempted);
    value(o, "prompt_tokens_total", "counter", "Prompt tokens.", (double) st->prompt_tokens);
    value(o, "generation_tokens_total", "counter", "Sampled tokens.", (double) st->generated_tokens);
    value(o, "prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.",
          (double) st->prompt_tokens);
    value(o, "prefix_cache_hits_total", "counter", "Tokens found in the prefix cache.", (double) st->cached_tokens);
    value(o, "spec_decode_num_draft_tokens_total", "counter", "Verified draft tokens.", (double) st->n_drafted);
    value(o, "spec_decode_num_accepted_tokens_total", "counter", "Accepted draft tokens.", (double) st->n_accepted);
    put_hist(o, "step_time_seconds", "Time of engine steps.", st->step_count, st->step_bound_ms, 1e-3, PI_N_STEP_BOUNDS,
             st->step_total_ms * 1e-3);
    const uint32_t block = reuse_block(&s->plan);
    head(o, "cache_config_info", "gauge", "Block size in tokens and number of blocks of the prefix cache.");
    buf_fmt(&o->b, "%s:cache_config_info{%s,block_size=\"%u\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n", o->prefix,
            o->labels, block, block ? s->plan.kv_tokens / block : 0);
}

static void groups(struct out *o, const server *s, const pi_stats *st)
{
    static const struct { const char *name, *help; } what[] = {
        {"blocks", "Blocks of a cache group."}, {"blocks_free", "Free blocks of a cache group."},
        {"blocks_used", "Used blocks of a cache group."},
        {"blocks_cached", "Free blocks that hold a prefix."}, {"blocks_shared", "Blocks used by several requests."},
        {"blocks_evicted", "Evicted prefix blocks."}, {"block_tokens", "Tokens per block of a cache group."}};
    for (int k = 0; k < 7; k++) {
        buf_fmt(&o->b, "# HELP pagedinfer:%s %s\n# TYPE pagedinfer:%s gauge\n", what[k].name, what[k].help,
                what[k].name);
        for (uint32_t i = 0; i < st->n_groups; i++) {
            const uint64_t v[] = {st->group[i].n_blocks, st->group[i].n_free,   st->group[i].n_used,
                                  st->group[i].n_cached, st->group[i].n_shared, st->group[i].n_evicted,
                                  s->plan.group[i].block_size};
            buf_fmt(&o->b, "pagedinfer:%s{%s,group=\"%s\"} %" PRIu64 "\n", what[k].name, o->labels, st->group_name[i],
                    v[k]);
        }
    }
}

/* Writes the number of requests that the cache holds, and of those that it did not hold in time. */
static void capacity(struct out *o, const server *s, const pi_stats *st)
{
    const char *keep = o->prefix;
    o->prefix = "pagedinfer";
    value(o, "cache_block_waits_total", "counter", "Requests that have waited for cache blocks.",
          (double) st->n_block_waits);
    value(o, "cache_full_requests", "gauge", "Requests of full length that the cache holds.", s->plan.n_requests);
    value(o, "memory_planned_bytes", "gauge", "Planned memory: weights, cache, states and scratch.",
          (double) s->plan.total_bytes);
    o->prefix = keep;
}

static double quotient(double a, double b) { return b > 0 ? a / b : 0; }

/* Writes the metrics of llama-server, without labels, like llama-server. */
static void native_values(struct out *o, const server *s, const pi_stats *st)
{
    const metrics *m = &s->metrics;
    const double computed = (double) (st->prompt_tokens - st->cached_tokens), sampled = (double) st->generated_tokens;
    const struct {
        const char *name, *type, *help;
        double v;
    } list[] = {
        {"prompt_tokens_total", "counter", "Computed prompt tokens.", computed},
        {"prompt_tokens_cached_total", "counter", "Prompt tokens found in the cache.", (double) st->cached_tokens},
        {"prompt_seconds_total", "counter", "Seconds of prefill, all requests.",
         m->prompt_seconds},
        {"tokens_predicted_total", "counter", "Sampled tokens.", sampled},
        {"tokens_predicted_seconds_total", "counter", "Seconds of decoding, all requests.", m->decode_seconds},
        {"requests_processing", "gauge", "Requests in the batch.", st->n_running},
        {"requests_deferred", "gauge", "Requests in the queue.", st->n_waiting},
        {"n_decode_total", "counter", "Engine steps.", (double) st->n_steps},
        {"prompt_tokens_seconds", "gauge", "Prompt tokens per second.", quotient(computed, m->prompt_seconds)},
        {"predicted_tokens_seconds", "gauge", "Sampled tokens per second.", quotient(sampled, m->decode_seconds)},
        {"n_busy_slots_per_decode", "gauge", "Sampled tokens per step.", quotient(sampled, (double) st->n_steps)},
        {"n_tokens_max", "counter", "Maximum tokens of a request, prompt and answer.", (double) m->max_answer_tokens},
        {"spec_decode_num_draft_tokens_total", "counter", "Verified draft tokens.", (double) st->n_drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Accepted draft tokens.", (double) st->n_accepted},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        buf_fmt(&o->b, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.17g\n", list[i].name, list[i].help,
                list[i].name, list[i].type, list[i].name, list[i].v);
    }
}

static void server_values(struct out *o, const server *s)
{
    const char *keep = o->prefix;
    o->prefix = "pagedinfer";
    head(o, "http_responses_total", "counter", "HTTP responses by status.");
    for (int i = 2; i < 6; i++) {
        buf_fmt(&o->b, "pagedinfer:http_responses_total{%s,code=\"%dxx\"} %" PRIu64 "\n", o->labels, i,
                s->metrics.status[i]);
    }
    head(o, "prefix_misses_total", "counter", "Answers with incomplete reuse of their prompt, by reason.");
    for (int i = 0; i < METRIC_MISSES && s->metrics.miss[i].n; i++) {
        buf_fmt(&o->b, "pagedinfer:prefix_misses_total{%s,reason=\"%s\"} %" PRIu64 "\n", o->labels,
                s->metrics.miss[i].reason, s->metrics.miss[i].n);
    }
    value(o, "step_target_seconds", "gauge", "Target time of an engine step; 0 = none.", s->step_target_ms * 1e-3);
    value(o, "connections", "gauge", "Open connections.", (double) s->net.n_conns);
    value(o, "connections_accepted_total", "counter", "Accepted connections.", (double) s->net.n_accepted);
    value(o, "connections_refused_total", "counter", "Connections refused above the limit.", (double) s->net.n_refused);
    value(o, "preparations_running", "gauge", "Running work on the pool: request bodies and large responses.",
          s->preps.n_running[0] + s->preps.n_running[1]);
    value(o, "preparations_waiting", "gauge", "Work waiting for a thread of the pool.", (double) s->preps.n_waiting);
    value(o, "preparation_oldest_seconds", "gauge", "Age of the oldest running or waiting work.", preps_oldest(s));
    hist(o, "preparation_time_seconds", "Time from the arrival of work on the pool to its end, including the wait.",
         &s->metrics.preparation);
    value(o, "generations", "gauge", "Unfinished client requests.", (double) s->n_replies);
    if (s->store) {
        size_t n, bytes;
        store_size(s->store, &n, &bytes);
        value(o, "stored_responses", "gauge", "Responses in the store.", (double) n);
        value(o, "stored_response_bytes", "gauge", "Bytes of the responses in the store.", (double) bytes);
    }
    value(o, "slow_clients_total", "counter", "Streams canceled because the client did not read them.",
          (double) s->metrics.slow_clients);
    if (s->kv) {
        value(o, "kv_event_batches_total", "counter", "Published batches of KV events.",
              (double) kv_events_sent(s->kv));
        value(o, "kv_events_lost_total", "counter", "Cache changes not published: the queue was full.",
              (double) kv_events_lost(s->kv));
    }
    value(o, "gone_clients_total", "counter", "Requests canceled by a disconnect.", (double) s->metrics.gone_clients);
    o->prefix = keep;
}

/* Builds a label value: escapes quotes and backslashes, replaces control characters by spaces. */
static void make_labels(struct out *o, const char *name)
{
    size_t n = (size_t) snprintf(o->labels, sizeof o->labels, "model_name=\"");
    for (; *name && n < sizeof o->labels - 4; name++) {
        if (*name == '"' || *name == '\\') o->labels[n++] = '\\';
        o->labels[n++] = (unsigned char) *name < ' ' ? ' ' : *name;
    }
    o->labels[n++] = '"';
    o->labels[n] = 0;
}

void handle_metrics(server *s, exchange *ex)
{
    struct out o = {.prefix = cli_str(s->c, "metrics-prefix")};
    pi_stats st = {.size = sizeof st};
    if (s->sv.e) pi_engine_stats(s->sv.e, &st);
    make_labels(&o, s->sv.alias);
    if (s->sv.e) {
        engine_values(&o, s, &st);
        groups(&o, s, &st);
        capacity(&o, s, &st);
        native_values(&o, s, &st);
    }
    requests(&o, s);
    server_values(&o, s);
    if (o.b.failed) answer_error(ex, 503, NULL, NULL, "out of memory");
    else answer(ex, 200, "text/plain; version=0.0.4; charset=utf-8", "", o.b.p, o.b.n);
    buf_free(&o.b);
}
