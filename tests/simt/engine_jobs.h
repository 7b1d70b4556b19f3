/* Sends requests to an engine on the emulated device and records their logits, to check that runs are bitwise
 * identical. */
#ifndef ENGINE_JOBS_H
#define ENGINE_JOBS_H

#include "simt_test.h"

#include <map>
#include <string>
#include <unistd.h>

#include "runtime_emu.h"

extern "C" {
#include "formats/formats.h"
#include "pagedinfer.h"
int simt_tiny_write(const char *path, int32_t type);
int simt_tiny_write_small(const char *path, int32_t type);
int simt_small_write(const char *path, const char *arch, int32_t type);
int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
int simt_drafter_write(const char *path, int32_t n_pick);
int simt_flash_write(const char *path, const char *sizes);
}

static std::string model_path; /* the tiny model that engines open */

static void set(pi_options *o, const char *key, const char *value)
{
    pi_error err;
    if (pi_options_set(o, key, value, &err)) fail_msg("%s: %s", key, err.msg);
}

static const char *cuda_graphs = "auto"; /* option of engines that are opened */
static const char *drafts = "";          /* drafts per sequence and step; "" = none */
static std::string drafter_path;         /* draft model; "" = the model itself, by `draft_type` */
static const char *draft_type = "mtp";

/* Options for an engine on these devices. */
static pi_options *options_on(const char *devices, const char *batch)
{
    pi_options *o = pi_options_new();
    set(o, "model", model_path.c_str());
    set(o, "device", devices);
    set(o, "split-mode", strchr(devices, ',') ? "tensor" : "none");
    set(o, "ubatch-size", batch);
    set(o, "cuda-graphs", cuda_graphs);
    if (*drafts) {
        set(o, drafter_path.empty() ? "spec-type" : "model-draft",
            drafter_path.empty() ? draft_type : drafter_path.c_str());
        set(o, "spec-adaptive", "false");
        set(o, "spec-draft-n-max", drafts);
    }
    set(o, "ctx-size", "512");
    set(o, "kv-cache-tokens", "512");
    set(o, "parallel", "5");
    set(o, "temp", "0");
    set(o, "ignore-eos", "true");
    set(o, "logits", "generated");
    set(o, "cache-ram", "0"); /* the engine reports no errors of asynchronous copies */
    return o;
}

static int open_engine_on(pi_engine **e, const char *devices, const char *batch, pi_error *err)
{
    pi_options *o = options_on(devices, batch);
    int rc = pi_engine_open(e, o, err);
    pi_options_free(o);
    return rc;
}

[[maybe_unused]] static int open_engine(pi_engine **e, const char *batch, pi_error *err)
{
    return open_engine_on(e, "emu", batch, err);
}

/* A prompt, and the number of tokens to generate. */
struct job {
    std::vector<int32_t> prompt;
    const char *max_tokens;
    const char *lora = nullptr; /* adapters of the request */
};

/* Logits by position. */
typedef std::map<uint32_t, std::vector<float>> rows;

static void take_logits(void *ud, uint32_t pos, const float *logits, size_t n)
{
    (*static_cast<rows *>(ud))[pos].assign(logits, logits + n);
}

static pi_request *submit(pi_engine *e, const job &j, rows *out, int *code, pi_error *err)
{
    pi_request *r = pi_request_new(e);
    if (!r) return nullptr;
    pi_request_set_user(r, code);
    pi_request_on_logits(r, take_logits, out);
    *code = pi_request_set(r, "max-tokens", j.max_tokens, err);
    if (!*code && j.lora) *code = pi_request_set(r, "lora", j.lora, err);
    if (!*code) *code = pi_request_prompt_tokens(r, j.prompt.data(), j.prompt.size(), err);
    if (!*code) *code = pi_request_submit(r, err);
    return r;
}

/* Takes events until no request is running. A code is stored where the request's user pointer points. `first` is
 * called once, at the first event. */
template <class F> static void take_events(pi_engine *e, F first)
{
    bool told = false;
    pi_event *ev[8];
    for (int n; (n = pi_poll(e, ev, 8, -1)) > 0;) {
        for (int k = 0; k < n; k++) {
            if (ev[k]->code) *static_cast<int *>(ev[k]->user) = ev[k]->code;
            pi_event_release(ev[k]);
        }
        if (!told) first();
        told = true;
    }
}

/* Runs the jobs: all but the last together, the last one after the first event. */
static std::vector<rows> run_jobs(pi_engine *e, const std::vector<job> &jobs)
{
    std::vector<rows> out(jobs.size());
    std::vector<int> code(jobs.size());
    std::vector<pi_request *> r;
    pi_error err;
    for (size_t i = 0; i + 1 < jobs.size() || i == 0; i++) r.push_back(submit(e, jobs[i], &out[i], &code[i], &err));
    take_events(e, [&] {
        if (jobs.size() > 1) r.push_back(submit(e, jobs.back(), &out.back(), &code.back(), &err));
    });
    for (pi_request *q : r) pi_request_free(q);
    for (int c : code)
        if (c) fail_msg("%d: %s", c, simt::last_error());
    return out;
}

/* A deterministic prompt of tokens from the small vocabulary. */
static std::vector<int32_t> prompt(size_t n, int32_t seed)
{
    std::vector<int32_t> p = {2};
    for (size_t i = 1; i < n; i++) p.push_back(260 + (int32_t) ((i * 7 + i * i * (size_t) seed) % 50));
    return p;
}

static void same_rows(const std::vector<rows> &a, const std::vector<rows> &b)
{
    assert_int_equal(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) {
        assert_int_equal(a[i].size(), b[i].size());
        for (const auto &p : a[i]) {
            const std::vector<float> &other = b[i].at(p.first);
            assert_int_equal(p.second.size(), other.size());
            assert_memory_equal(p.second.data(), other.data(), other.size() * sizeof(float));
        }
    }
}

/* Sets the path of this program's model file. */
static void name_model(const char *what)
{
    const char *tmp = getenv("TMPDIR");
    model_path = std::string(tmp && *tmp ? tmp : "/tmp") + "/pagedinfer-" + what + "-" + std::to_string(getpid()) +
                 ".gguf";
}

#endif
