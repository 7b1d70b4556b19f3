/* The stress test. Two queues of one device run random checks at the same time:
 *
 *     seed S          idle device: check A, records a digest of all buffers after each launch
 *     seed S + 1      idle device: check B, the same
 *     queue 0         check A again     \ at the same time, until both have ended: with random numbers of waiting
 *     queue 1         check B again     / blocks, random waits, queued and captured launches, bursts of one launch
 *
 * Each launch must leave the same bytes in all buffers as on the idle device. A seed determines the check (among the
 * selected ones), its shapes and its values, not the timing. The first run also launches each kernel twice: if the
 * second launch changes no buffer, later runs launch it up to 16 times without a wait.
 *
 * Memory: copies of the check's buffers on the heap. Threads: the caller's, and one for the second queue. The host
 * reads buffers while the other queue's kernels run, so the device has to support concurrent managed access. */
#include "selftest/stress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>

namespace selftest {
namespace {

enum { MOST_BURST = 16, MOST_PASSES = 20, MOST_FAILURES = 10, MOST_PAUSE_US = 300, MOST_SKIPPED = 100 };

double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class trial final : public load {
public:
    explicit trial(uint64_t seed) : seed_(seed), shape_(0), time_(0) {}
    /* Starts a run of the check. pass 0: on the idle device; others: with random timing. */
    void begin(unsigned pass)
    {
        random_salt = 0;
        shape_ = random(seed_);
        shape_.bits(); /* this number has selected the check */
        time_ = random(seed_ * 1000 + pass);
        random_salt = seed_ << 20;
        busy_ = pass > 0;
        at_ = 0;
    }
    /* Ends a run. Returns false if the run had fewer launches than the first. */
    bool end()
    {
        random_salt = 0;
        return !busy_ || at_ == idle_.size();
    }
    uint64_t launches() const { return launches_; }
    uint32_t below(uint32_t n) override { return shape_.below(n); }
    int32_t places(int32_t max) override { return busy_ && max > 1 ? 1 + (int32_t) time_.below((uint32_t) max) : max; }
    void add(void *p, size_t bytes, bool compared) override
    {
        live_.push_back({static_cast<char *>(p), bytes, compared});
    }
    void remove(const void *p) override
    {
        for (size_t i = live_.size(); i-- > 0;)
            if (live_[i].p == p) {
                live_.erase(live_.begin() + (ptrdiff_t) i);
                return;
            }
    }
    void launch(const std::function<int()> &queue, const char *what, int line) override
    {
        const bool kernels = std::strstr(what, "stream()") && !std::strstr(what, "code");
        if (!busy_) return first_launch(queue, kernels, what, line);
        if (at_ >= idle_.size()) fail_check("line %d: %.60s: more launches than on the idle device", line, what);
        const note &n = idle_[at_++];
        const unsigned times = n.repeatable && time_.below(2) ? 1 + time_.below(MOST_BURST) : 1;
        const bool replayed = kernels && time_.below(2);
        if (!time_.below(4)) usleep(time_.below(MOST_PAUSE_US));
        finish(replayed ? replay(queue, times) : repeat(queue, times), what, line);
        const std::vector<uint64_t> now_left = digests();
        for (size_t i = 0; i < now_left.size(); i++) {
            if (i < n.digests.size() && now_left[i] == n.digests[i]) continue;
            fail_check("line %d: %.80s: launch %zu, %s %u times, leaves other bytes than on the idle device in "
                       "buffer %zu (%zu bytes)", line, what, at_ - 1, replayed ? "replayed" : "queued", times, i,
                       live_[i].bytes);
        }
    }

private:
    struct region {
        char *p;
        size_t bytes;
        bool compared;
    };
    struct note {
        std::vector<uint64_t> digests; /* of each buffer after the launch */
        bool repeatable;               /* another launch leaves the same bytes */
    };

    void first_launch(const std::function<int()> &queue, bool kernels, const char *what, int line)
    {
        finish(repeat(queue, 1), what, line);
        note n = {digests(), false};
        if (kernels) {
            std::vector<std::vector<char>> before;
            for (const region &r : live_) before.emplace_back(r.p, r.p + r.bytes);
            finish(replay(queue, 1), what, line);
            n.repeatable = digests() == n.digests;
            for (size_t i = 0; i < live_.size() && !n.repeatable; i++)
                std::copy(before[i].begin(), before[i].end(), live_[i].p);
        }
        idle_.push_back(std::move(n));
    }
    /* Returns a runtime code. */
    int repeat(const std::function<int()> &queue, unsigned times)
    {
        int code = 0;
        for (unsigned i = 0; i < times && !code; i++) code = queue();
        launches_ += times;
        return code;
    }
    int replay(const std::function<int()> &queue, unsigned times)
    {
        pi__rt_graph *g = nullptr;
        int code = pi__rt_capture(now->rt);
        if (code) return code;
        const int queued = queue();
        code = pi__rt_capture_end(now->rt, &g);
        if (queued) code = queued;
        for (unsigned i = 0; i < times && !code; i++) code = pi__rt_replay(now->rt, g);
        launches_ += times;
        if (!code) code = pi__rt_wait(now->rt);
        pi__rt_graph_free(now->rt, g);
        return code;
    }
    static void finish(int code, const char *what, int line)
    {
        if (!code) code = pi__rt_wait(now->rt);
        if (code) fail_check("line %d: %.60s: %.250s", line, what, pi__rt_text(code));
    }
    /* Returns a digest of each buffer; 0 for buffers that are not compared. */
    std::vector<uint64_t> digests() const
    {
        std::vector<uint64_t> out;
        for (const region &r : live_) {
            uint64_t h = 0;
            for (size_t i = 0; i < r.bytes && r.compared; i += sizeof h) {
                uint64_t word = r.bytes;
                std::memcpy(&word, r.p + i, std::min(sizeof word, r.bytes - i));
                h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
                h ^= h >> 29;
            }
            out.push_back(h);
        }
        return out;
    }

    uint64_t seed_, launches_ = 0;
    random shape_, time_; /* for shapes; for timing */
    bool busy_ = false;
    size_t at_ = 0;           /* index of the next launch */
    std::vector<note> idle_;  /* by launch */
    std::vector<region> live_;
};

/* A check of a family, with a seed. */
struct job {
    const family *f;
    const entry *c;
    uint64_t seed;
    std::unique_ptr<trial> load;
    outcome result;
    char text[400];
};

/* Runs the job once. Returns false if the check failed, with the reason in j.text, or does not apply. */
bool run_once(target &t, job &j, unsigned pass)
{
    j.load->begin(pass);
    t.stress = j.load.get();
    j.result = run_check(t, *j.c, j.text, sizeof j.text);
    t.stress = nullptr;
    if (!j.load->end() && j.result == CHECK_OK) {
        j.result = CHECK_FAILED;
        std::snprintf(j.text, sizeof j.text, "fewer launches than on the idle device");
    }
    return j.result == CHECK_OK;
}

/* Repeats the job until all jobs have run once. */
void run_beside(target &t, job &j, std::atomic<int> &left)
{
    for (unsigned pass = 1; pass <= MOST_PASSES; pass++) {
        const bool ok = run_once(t, j, pass);
        if (pass == 1) left--;
        if (!ok || left <= 0) break;
    }
    if (j.result == CHECK_OK) return;
    char where[400];
    std::memcpy(where, j.text, sizeof where);
    std::snprintf(j.text, sizeof j.text, "on the busy device: %.370s", where);
}

struct stress {
    pi__selftest &to;
    target &first;
    target second;
    std::vector<std::pair<const family *, const entry *>> checks; /* the selected ones */
    uint64_t rounds, launches;
    int failed;

    job pick(uint64_t seed) const
    {
        const auto &c = checks[random(seed).below((unsigned) checks.size())];
        job j = {c.first, c.second, seed, nullptr, CHECK_OK, ""};
        j.load.reset(new trial(seed));
        return j;
    }
    /* other_seed: the first seed of the round, which repeats both checks. */
    void tell(const job &j, uint64_t other_seed)
    {
        launches += j.load->launches();
        to.n_done += j.result != CHECK_SKIPPED;
        if (j.result != CHECK_FAILED) return;
        failed++, to.n_failed++;
        pi__selftest_line(&to, "  FAILED %s.%s, seed %llu: %.400s", j.f->name, j.c->name, (unsigned long long) j.seed,
                          j.text);
        pi__selftest_line(&to,
                          "    repeat: pagedinfer selftest --device %s --stress 10 --checks %s.%s --stress-seed %llu",
                          first.name, j.f->name, j.c->name, (unsigned long long) j.seed);
        pi__selftest_line(&to, "    with the check beside it: --stress 1%s%.300s --stress-seed %llu",
                          to.checks && *to.checks ? " --checks " : "", to.checks ? to.checks : "",
                          (unsigned long long) other_seed);
        pi__selftest_open(&to, nullptr, '{');
        pi__selftest_text(&to, "name", (std::string(j.f->name) + "." + j.c->name).c_str());
        pi__selftest_text(&to, "seed", std::to_string(j.seed).c_str());
        pi__selftest_text(&to, "text", j.text);
        pi__selftest_close(&to, '}');
    }
    /* Returns false if the device has failed. */
    bool round(uint64_t seed)
    {
        job a = pick(seed), b = pick(seed + 1);
        const bool a_ok = run_once(first, a, 0), b_ok = run_once(second, b, 0);
        if (a_ok && b_ok) {
            std::atomic<int> left{2};
            std::thread other([&] { run_beside(second, b, left); });
            run_beside(first, a, left);
            other.join();
        }
        tell(a, seed), tell(b, seed);
        rounds++;
        const int code = pi__rt_wait(first.rt) ? pi__rt_wait(first.rt) : pi__rt_wait(second.rt);
        if (code) pi__selftest_line(&to, "  the device failed: %s", pi__rt_text(code));
        return !code;
    }
};

/* Runs rounds until the time has passed. */
void run_rounds(stress &s)
{
    const double begin = seconds();
    uint64_t seed = s.to.seed;
    pi__selftest_line(&s.to,
                      "stress: random ones of %d checks, seed %llu, two queues with %d and %d places for "
                      "waiting blocks",
                      (int) s.checks.size(), (unsigned long long) seed, (int) s.first.info.places,
                      (int) s.second.info.places);
    pi__selftest_open(&s.to, "stress", '{');
    pi__selftest_text(&s.to, "seed", std::to_string(seed).c_str());
    pi__selftest_open(&s.to, "failures", '[');
    do {
        if (!s.round(seed)) break;
        if (s.rounds >= MOST_SKIPPED && !s.launches) break; /* the selected checks do not apply to the device */
        seed += 2;
    } while (seconds() - begin < s.to.stress && s.failed < MOST_FAILURES);
    pi__selftest_line(&s.to, "  %-14s %-6s %llu rounds of two checks, %llu launches, %.1f s", "stress",
                      s.failed ? "FAILED" : s.launches ? "ok" : "none", (unsigned long long) s.rounds,
                      (unsigned long long) s.launches, seconds() - begin);
    pi__selftest_close(&s.to, ']');
    pi__selftest_number(&s.to, "rounds", (double) s.rounds);
    pi__selftest_number(&s.to, "launches", (double) s.launches);
    pi__selftest_number(&s.to, "seconds", seconds() - begin);
    pi__selftest_close(&s.to, '}');
}

} // namespace

void run_stress(pi__selftest &to, target &t, const family *const *families, int n_families)
{
    stress s = {to, t, t, {}, 0, 0, 0};
    pi__rt_facts facts;
    for (int i = 1; i < n_families; i++) /* family 0 has no kernels of its own: memory, copies, replay */
        for (int k = 0; k < families[i]->n; k++)
            if (pi__selftest_wants(&to, families[i]->name, families[i]->checks[k].name))
                s.checks.push_back({families[i], &families[i]->checks[k]});
    if (s.checks.empty()) return;
    int code = pi__rt_tell_facts(t.rt, &facts);
    if (!code && !facts.concurrent) {
        pi__selftest_line(&to, "stress: not run: the host cannot read memory of this device while kernels run");
        return;
    }
    s.second.rt = nullptr;
    if (!code) code = pi__rt_open(&s.second.rt, pi__rt_index(t.rt), &s.second.info);
    const char *lazy;
    if (!code) code = pi__rt_load_kernels(s.second.rt, &lazy);
    if (!code) run_rounds(s);
    else {
        to.n_done++, to.n_failed++;
        pi__selftest_line(&to, "  FAILED stress: no second queue: %s", pi__rt_text(code));
    }
    if (s.second.rt) pi__rt_close(s.second.rt);
}

} // namespace selftest
