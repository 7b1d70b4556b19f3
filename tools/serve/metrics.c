/* /metrics in Prometheus' text form: histograms of times, the engine's counters, and the gauges that pickers of
 * endpoints read. Names follow vLLM's, with llama-server's beside them where its dashboards know others; the prefix of
 * the first is an option. The loop's thread. */
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

/* count: by upper bound, times the unit of all but the last one, which is of what is above; total is in seconds. */
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

/* The part in use of the pool that is the fullest. */
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
    head(o, "request_success_total", "counter", "Answers that ended, by how.");
    for (int i = 0; i < N_ENDS; i++) {
        buf_fmt(&o->b, "%s:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n", o->prefix, o->labels,
                end[i], m->ended[i]);
    }
    hist(o, "time_to_first_token_seconds", "From a request's arrival to its first token.", &m->first_token);
    hist(o, "inter_token_latency_seconds", "From one token of an answer to the next.", &m->inter_token);
    hist(o, "request_queue_time_seconds", "From submission to the first step.", &m->queue);
    hist(o, "request_prefill_time_seconds", "From the first step to the first token.", &m->prefill);
    hist(o, "request_decode_time_seconds", "From the first token to the last.", &m->decode);
    hist(o, "e2e_request_latency_seconds", "From a request's arrival to its end.", &m->request);
}

/* Prefixes are taken over, and told to routers, in multiples of the largest block. */
static uint32_t reuse_block(const pi_plan *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_groups; i++)
        if (p->group[i].block_size > most) most = p->group[i].block_size;
    return most;
}

static void engine_values(struct out *o, const server *s, const pi_stats *st)
{
    value(o, "num_requests_running", "gauge", "Answers in the batch.", st->n_running);
    value(o, "num_requests_waiting", "gauge", "Answers in the queue.", st->n_waiting);
    value(o, "kv_cache_usage_perc", "gauge", "Part of the cache's blocks that is in use, 0 to 1.", cache_usage(st));
    value(o, "num_preemptions_total", "counter", "Times an answer lost its blocks and waited.",
          (double) st->n_preempted);
    value(o, "prompt_tokens_total", "counter", "Tokens of prompts.", (double) st->prompt_tokens);
    value(o, "generation_tokens_total", "counter", "Tokens sampled.", (double) st->generated_tokens);
    value(o, "prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.",
          (double) st->prompt_tokens);
    value(o, "prefix_cache_hits_total", "counter", "Tokens found there.", (double) st->cached_tokens);
    value(o, "spec_decode_num_draft_tokens_total", "counter", "Drafts that were verified.", (double) st->n_drafted);
    value(o, "spec_decode_num_accepted_tokens_total", "counter", "Drafts that were right.", (double) st->n_accepted);
    put_hist(o, "step_time_seconds", "Steps of the engine.", st->step_count, st->step_bound_ms, 1e-3, PI_N_STEP_BOUNDS,
             st->step_total_ms * 1e-3);
    const uint32_t block = reuse_block(&s->plan);
    head(o, "cache_config_info", "gauge", "Tokens of a block of the prefix cache, and how many blocks it can hold.");
    buf_fmt(&o->b, "%s:cache_config_info{%s,block_size=\"%u\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n", o->prefix,
            o->labels, block, block ? s->plan.kv_tokens / block : 0);
}

static void groups(struct out *o, const pi_stats *st)
{
    static const struct { const char *name, *help; } what[] = {
        {"blocks", "Blocks of a cache group."}, {"blocks_free", "Of them, free."}, {"blocks_used", "Of them, in use."},
        {"blocks_cached", "Of the free ones, those that hold a prefix."}, {"blocks_shared", "Used by more than one."},
        {"blocks_evicted", "Prefixes forgotten so far."}};
    for (int k = 0; k < 6; k++) {
        buf_fmt(&o->b, "# HELP pagedinfer:%s %s\n# TYPE pagedinfer:%s gauge\n", what[k].name, what[k].help,
                what[k].name);
        for (uint32_t i = 0; i < st->n_groups; i++) {
            const uint64_t v[] = {st->group[i].n_blocks, st->group[i].n_free,   st->group[i].n_used,
                                  st->group[i].n_cached, st->group[i].n_shared, st->group[i].n_evicted};
            buf_fmt(&o->b, "pagedinfer:%s{%s,group=\"%s\"} %" PRIu64 "\n", what[k].name, o->labels, st->group_name[i],
                    v[k]);
        }
    }
}

static double quotient(double a, double b) { return b > 0 ? a / b : 0; }

/* llama-server's names, without labels, as it writes them. */
static void native_values(struct out *o, const server *s, const pi_stats *st)
{
    const metrics *m = &s->metrics;
    const double computed = (double) (st->prompt_tokens - st->cached_tokens), sampled = (double) st->generated_tokens;
    const struct {
        const char *name, *type, *help;
        double v;
    } list[] = {
        {"prompt_tokens_total", "counter", "Tokens of prompts that were computed.", computed},
        {"prompt_tokens_cached_total", "counter", "Tokens of prompts that came from the cache.", (double) st->cached_tokens},
        {"prompt_seconds_total", "counter", "Seconds from first step to first token, of all answers.",
         m->prompt_seconds},
        {"tokens_predicted_total", "counter", "Tokens sampled.", sampled},
        {"tokens_predicted_seconds_total", "counter", "Seconds from first token to last, of all.", m->decode_seconds},
        {"requests_processing", "gauge", "Answers in the batch.", st->n_running},
        {"requests_deferred", "gauge", "Answers in the queue.", st->n_waiting},
        {"n_decode_total", "counter", "Steps.", (double) st->n_steps},
        {"prompt_tokens_seconds", "gauge", "Tokens of prompts a second, of all answers.", quotient(computed, m->prompt_seconds)},
        {"predicted_tokens_seconds", "gauge", "Tokens sampled a second, of all answers.", quotient(sampled, m->decode_seconds)},
        {"n_busy_slots_per_decode", "gauge", "Tokens sampled a step.", quotient(sampled, (double) st->n_steps)},
        {"n_tokens_max", "counter", "Tokens of the longest prompt with its answer.", (double) m->most_tokens},
        {"spec_decode_num_draft_tokens_total", "counter", "Drafts that were verified.", (double) st->n_drafted},
        {"spec_decode_num_accepted_tokens_total", "counter", "Of them, those that were right.", (double) st->n_accepted},
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
    head(o, "http_responses_total", "counter", "Answers of HTTP by status.");
    for (int i = 2; i < 6; i++) {
        buf_fmt(&o->b, "pagedinfer:http_responses_total{%s,code=\"%dxx\"} %" PRIu64 "\n", o->labels, i,
                s->metrics.status[i]);
    }
    value(o, "connections", "gauge", "Open connections.", (double) s->net.n_conns);
    value(o, "connections_accepted_total", "counter", "Connections so far.", (double) s->net.n_accepted);
    value(o, "connections_refused_total", "counter", "Connections above the limit.", (double) s->net.n_refused);
    value(o, "preparations_running", "gauge", "Pieces of work on the pool: bodies that are read, answers that are written.",
          s->preps.n_running[0] + s->preps.n_running[1]);
    value(o, "preparations_waiting", "gauge", "Pieces of work that wait for a thread of the pool.", (double) s->preps.n_waiting);
    value(o, "preparation_oldest_seconds", "gauge", "Age of the oldest of both.", preps_oldest(s));
    hist(o, "preparation_time_seconds", "From a piece of work's arrival to its end, waiting included.",
         &s->metrics.preparation);
    value(o, "generations", "gauge", "Requests of clients that are not finished.", (double) s->n_gens);
    value(o, "slow_clients_total", "counter", "Streams that were ended because nobody read them.",
          (double) s->metrics.slow_clients);
    if (s->kv) {
        value(o, "kv_event_batches_total", "counter", "Batches of KV events that were published.",
              (double) kv_events_sent(s->kv));
        value(o, "kv_events_lost_total", "counter", "Changes of the cache that no batch has: the queue was full.",
              (double) kv_events_lost(s->kv));
    }
    value(o, "gone_clients_total", "counter", "Requests whose client went away.", (double) s->metrics.gone_clients);
    o->prefix = keep;
}

/* A label's value: quotes, backslashes and newlines escaped. */
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
    if (s->e) pi_engine_stats(s->e, &st);
    make_labels(&o, s->alias);
    if (s->e) {
        engine_values(&o, s, &st);
        groups(&o, &st);
        native_values(&o, s, &st);
    }
    requests(&o, s);
    server_values(&o, s);
    if (o.b.failed) answer_error(ex, 503, NULL, NULL, "out of memory");
    else answer(ex, 200, "text/plain; version=0.0.4; charset=utf-8", "", o.b.p, o.b.n);
    buf_free(&o.b);
}
