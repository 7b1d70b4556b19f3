/* Weights of emulated devices that processes share: an owner, and engines with weights-from, on one device, on
 * several as one, and next to the CPU. Devices and options that do not match, owners that pass wrong memory, and
 * failing device calls. tests/scripts/check_weights.py tests an owner and engines in separate processes. */
#include "engine_jobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "backend/cuda/runtime.h"

extern "C" {
#include "backend/devices.h"
int simt_tiny_write_even(const char *path, int32_t type);
}

enum { N_FDS = 17, REQUEST = 80, ANSWER = 256 };

static std::string sock;
static const std::vector<job> jobs = {{prompt(5, 1), "2"}};

typedef std::vector<std::pair<const char *, const char *>> flags;

static pi_options *with(const char *devices, const flags &more)
{
    pi_options *o = options_on(devices, "16");
    for (const auto &f : more) set(o, f.first, f.second);
    return o;
}

static int open_with(pi_engine **e, const char *devices, const flags &more, pi_error *err)
{
    pi_options *o = with(devices, more);
    int rc = pi_engine_open(e, o, err);
    pi_options_free(o);
    return rc;
}

/* Results of an engine with these options. */
static std::vector<rows> answers(const char *devices, const flags &more)
{
    pi_engine *e;
    pi_error err;
    if (open_with(&e, devices, more, &err)) fail_msg("%s", err.msg);
    std::vector<rows> got = run_jobs(e, jobs);
    pi_engine_close(e);
    return got;
}

static int open_owner(pi_weights **w, const char *devices, const flags &more, pi_error *err)
{
    pi_options *o = with(devices, more);
    int rc = pi_weights_open(w, o, sock.c_str(), err);
    pi_options_free(o);
    return rc;
}

static pi_weights *own(const char *devices, const flags &more)
{
    pi_weights *w;
    pi_error err;
    if (open_owner(&w, devices, more, &err)) fail_msg("%s", err.msg);
    return w;
}

static int count_fds()
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Number of mappings of shared memory with that name. */
static int count_maps(const char *what)
{
    char line[600];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, what) != nullptr;
    if (f) fclose(f);
    return n;
}

static void nothing_left(int fds)
{
    assert_int_equal(simt::watch.live, 0);
    assert_int_equal(simt::device_bytes() + simt::device_imported(), 0);
    assert_int_equal(count_maps("emulated device memory") + count_maps("pagedinfer weights"), 0);
    assert_int_equal(count_fds(), fds);
}

/* Two engines on one owner: the weights exist once, and results are bitwise identical to those of an engine that
 * loads them, also after the owner is closed. `more`: options of the owner and the engines. */
static void share(const char *devices, const flags &more, bool cpu_too)
{
    const int fds = count_fds(), n = strchr(devices, ',') ? 2 : 1;
    pi_engine *alone, *e[2];
    pi_error err;
    flags from = more;
    from.push_back({"weights-from", sock.c_str()});
    assert_int_equal(open_with(&alone, devices, more, &err), PI_OK);
    const size_t whole = simt::device_bytes();
    const std::vector<rows> want = run_jobs(alone, jobs);
    pi_engine_close(alone);
    pi_weights *w = own(devices, more);
    assert_int_equal(simt::watch.live, 0); /* the owner keeps only descriptors */
    for (int i = 0; i < 2; i++) {
        if (open_with(&e[i], devices, from, &err)) fail_msg("%s", err.msg);
        const size_t imported = simt::device_imported() / (size_t) (i + 1);
        assert_true(imported >= (size_t) n * simt::options.page);
        assert_true(simt::device_bytes() <= (size_t) (i + 1) * (whole - imported + (size_t) n * simt::options.page));
    }
    assert_int_equal(count_maps("emulated device memory"), 2 * n);
    assert_true(!cpu_too || count_maps("pagedinfer weights") == 2);
    same_rows(want, run_jobs(e[0], jobs));
    pi_weights_close(w);
    same_rows(want, run_jobs(e[1], jobs));
    pi_engine_close(e[0]);
    w = own(devices, more); /* another owner, next to an engine with the weights of the first */
    assert_int_equal(open_with(&e[0], devices, from, &err), PI_OK);
    same_rows(want, run_jobs(e[0], jobs));
    pi_engine_close(e[0]);
    pi_engine_close(e[1]);
    pi_weights_close(w);
    nothing_left(fds);
}

static void test_one_device(void **)
{
    share("emu", {}, false);
    simt::watch.shares = true; /* device memory is host memory */
    share("emu", {}, false);
    simt::watch.shares = false;
}

static void test_devices_as_one(void **)
{
    simt::options.page = 16 << 10; /* an engine that loads has separate pages for each matrix */
    share("emu,emu", {}, false);
    simt::options.page = 2 << 20;
}

/* With some layers on the CPU, the weights on both sides are shared. */
static void test_beside_the_cpu(void **)
{
    simt::options.page = 16 << 10;
    share("emu", {{"gpu-layers", "2"}}, true);
    simt::options.page = 2 << 20;
}

/* Options that do not change packed bytes may differ between engine and owner. */
static void test_other_products(void **)
{
    const std::vector<rows> want = answers("emu", {{"matmul", "exact"}, {"cuda-fuse", "off"}});
    pi_weights *w = own("emu", {{"matmul", "w16"}});
    same_rows(want, answers("emu", {{"weights-from", sock.c_str()}, {"matmul", "exact"}, {"cuda-fuse", "off"}}));
    pi_weights_close(w);
}

/* A device with room only for the cache, as the owner has taken the rest. */
static void test_little_room(void **)
{
    pi_engine *e;
    pi_error err;
    const size_t all = simt::watch.memory;
    pi_weights *w = own("emu", {});
    assert_int_equal(open_with(&e, "emu", {{"weights-from", sock.c_str()}}, &err), PI_OK);
    const size_t used = simt::device_bytes();
    pi_engine_close(e);
    simt::watch.memory = used + (1 << 20);
    assert_int_equal(open_with(&e, "emu", {{"weights-from", sock.c_str()}}, &err), PI_OK);
    assert_true(simt::device_imported() > 0);
    pi_engine_close(e);
    const int rc = open_with(&e, "emu", {{"weights-from", sock.c_str()}, {"kv-cache-tokens", "100000"}}, &err);
    simt::watch.memory = all;
    assert_int_equal(rc, PI_ENOMEM);
    if (!strstr(err.msg, ": lower ctx-size")) fail_msg("%s", err.msg);
    pi_weights_close(w);
}

static void refused(const char *devices, const flags &more, int code, const char *text)
{
    pi_engine *e = nullptr;
    pi_error err = {};
    assert_int_equal(open_with(&e, devices, more, &err), code);
    if (!strstr(err.msg, text)) fail_msg("\"%s\" is not in \"%s\"", text, err.msg);
    assert_null(e);
}

static void test_refused(void **)
{
    const int fds = count_fds();
    pi_weights *w = own("emu", {{"gpu-layers", "2"}}), *none = nullptr;
    const flags from = {{"weights-from", sock.c_str()}};
    pi_error err;
    refused("emu", from, PI_EIO, "give both the same device");
    refused("cpu", from, PI_EIO, "give both the same device");
    refused("emu,emu", from, PI_EIO, "give both the same device");
    refused("emu", {from[0], {"gpu-layers", "1"}}, PI_EIO, "other layers on the CPU");
    simt::watch.board = 2;
    refused("emu", {from[0], {"gpu-layers", "2"}}, PI_EIO, "GPU-01");
    simt::watch.board = 1;
    pi_weights_close(w);
    for (int i = 0; i < 2; i++) {
        if (i) simt::options.page = 0;
        else simt::watch.exports = false;
        refused("emu", from, PI_EUNSUPPORTED, "leave weights-from out");
        assert_int_equal(open_owner(&none, "emu", {}, &err), PI_EUNSUPPORTED);
        assert_null(none);
        simt::watch.exports = true;
    }
    simt::options.page = 2 << 20;
    nothing_left(fds);
}

/* -------------------------------------------------------------------------------------------------- foreign memory */

/* A message with descriptors, as on the socket of an owner. */
struct message {
    char bytes[ANSWER];
    int fd[N_FDS], n_fd;
};

static void receive(int s, message *m)
{
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof m->fd)];
    iovec io = {m->bytes, sizeof m->bytes};
    msghdr h = {};
    h.msg_iov = &io, h.msg_iovlen = 1, h.msg_control = room, h.msg_controllen = sizeof room;
    assert_int_equal(recvmsg(s, &h, MSG_WAITALL), ANSWER);
    const cmsghdr *c = CMSG_FIRSTHDR(&h);
    assert_non_null(c);
    m->n_fd = (int) ((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(m->fd, CMSG_DATA(c), (size_t) m->n_fd * sizeof(int));
}

static void pass(int s, const message *m, int n_fd)
{
    alignas(cmsghdr) char room[CMSG_SPACE(64 * sizeof(int))] = {};
    iovec io = {const_cast<char *>(m->bytes), sizeof m->bytes};
    msghdr h = {};
    h.msg_iov = &io, h.msg_iovlen = 1;
    if (n_fd) {
        h.msg_control = room, h.msg_controllen = CMSG_SPACE((size_t) n_fd * sizeof(int));
        cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN((size_t) n_fd * sizeof(int));
        for (int i = 0; i < n_fd; i++)
            memcpy(CMSG_DATA(c) + (size_t) i * sizeof(int), &m->fd[i % m->n_fd], sizeof(int));
    }
    assert_int_equal(sendmsg(s, &h, MSG_NOSIGNAL), ANSWER);
}

static int connect_to(const std::string &path)
{
    sockaddr_un at = {};
    at.sun_family = AF_UNIX;
    memcpy(at.sun_path, path.c_str(), path.size() + 1);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(s, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
    return s;
}

/* Allocates device memory of that size that does not contain the weights. */
static int other_memory(size_t size, int32_t index)
{
    pi__rt *rt;
    pi__rt_info info;
    void *p;
    bool done;
    int fd;
    assert_int_equal(pi__rt_open(&rt, index, &info), 0);
    assert_int_equal(pi__rt_reserve(rt, &p, size), 0);
    assert_int_equal(pi__rt_map_shared(rt, p, size, &fd, &done), 0);
    assert_true(done);
    pi__rt_unmap(rt, p, size);
    pi__rt_unreserve(rt, p, size);
    pi__rt_close(rt);
    return fd;
}

enum rogue {
    HONEST,
    NO_MEMORY,
    TOO_FEW,
    TOO_MANY,
    FAR_TOO_MANY,
    DEV_NULL,
    THE_HOSTS,
    ZEROS,
    OTHER_MARK,
    OTHER_SIZE,
    OTHER_DEVICE,
    N_ROGUES
};

/* Forwards the request to the real owner, and changes its response. */
static void answer_as(int s, rogue how, size_t size)
{
    message m;
    char question[REQUEST];
    assert_int_equal(recv(s, question, sizeof question, MSG_WAITALL), REQUEST);
    const int owner = connect_to(sock);
    assert_int_equal(send(owner, question, sizeof question, 0), REQUEST);
    receive(owner, &m);
    close(owner);
    assert_int_equal(m.n_fd, 2);
    const int n[] = {2, 0, 1, 3, 64};
    int instead = how == DEV_NULL ? open("/dev/null", O_RDWR) : how == ZEROS ? memfd_create("zeros", 0) :
                  how == OTHER_MARK ? other_memory(size, 0) : how == OTHER_SIZE ? other_memory(2 * size, 0) :
                  how == OTHER_DEVICE ? other_memory(size, 1) : how == THE_HOSTS ? dup(m.fd[0]) : -1;
    if (how == ZEROS) assert_int_equal(ftruncate(instead, (off_t) size + 16), 0);
    if (instead >= 0) std::swap(m.fd[1], instead);
    pass(s, &m, how < DEV_NULL ? n[how] : 2);
    for (int fd : {m.fd[0], m.fd[1], instead})
        if (fd >= 0) close(fd);
}

static void test_foreign_memory(void **)
{
    const int fds = count_fds();
    const std::string path = sock + "-rogue";
    pi_engine *e;
    pi_error err;
    pi_weights *w = own("emu", {});
    assert_int_equal(open_with(&e, "emu", {{"weights-from", sock.c_str()}}, &err), PI_OK);
    const size_t size = simt::device_imported();
    pi_engine_close(e);
    sockaddr_un at = {};
    at.sun_family = AF_UNIX;
    memcpy(at.sun_path, path.c_str(), path.size() + 1);
    const int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l, reinterpret_cast<sockaddr *>(&at), sizeof at) | listen(l, 8), 0);
    for (int how = 0; how < N_ROGUES; how++) {
        int rc = 0;
        std::thread t([&] { rc = open_with(&e, "emu", {{"weights-from", path.c_str()}}, &err); });
        const int s = accept(l, nullptr, nullptr);
        answer_as(s, static_cast<rogue>(how), size);
        t.join();
        close(s);
        if (rc != (how == HONEST ? PI_OK : PI_EIO))
            fail_msg("memory of kind %d: %d, %s", how, rc, rc ? err.msg : "taken");
        if (!rc) pi_engine_close(e);
        else assert_non_null(strstr(err.msg, path.c_str()));
    }
    close(l);
    unlink(path.c_str());
    pi_weights_close(w);
    nothing_left(fds);
}

/* -------------------------------------------------------------------------------------------------------- failures */

/* Device calls fail in turn while an owner, and then an engine, opens: an error, and everything is freed. Most calls
 * have nothing to do with sharing: only every ninth is tried, and each with PAGEDINFER_LONG. */
template <class F> static void each_failing(F open_and_close)
{
    for (long i = 0;; i += getenv("PAGEDINFER_LONG") ? 1 : 9) {
        simt::watch.n_calls = 0;
        simt::watch.fail_at = i;
        const int rc = open_and_close();
        simt::watch.fail_at = -1;
        assert_int_equal(simt::watch.live, 0);
        if (simt::watch.n_calls <= i) {
            assert_int_equal(rc, PI_OK);
            assert_true(i > 20);
            return;
        }
    }
}

/* Each call fails in turn while several devices share memory: first in share, then in adopt. */
static void test_failing_memory(void **)
{
    const int fds = count_fds();
    const pi__device_params params = {};
    const pi__digest mark = {{1, 2}}, other = {{1, 3}};
    const size_t size = simt::options.page;
    pi__backend *be;
    pi_error err;
    int fd[2];
    assert_int_equal(pi__device_create(&be, "emu,emu", true, &params, nullptr, &err), PI_OK);
    const long live = simt::watch.live;
    char *a = static_cast<char *>(be->opt->arena_alloc(be, 2 * size));
    for (long i = 0;; i++) {
        simt::watch.n_calls = 0, simt::watch.fail_at = i;
        fd[0] = fd[1] = -1;
        const bool shared = be->opt->arena_share(be, a, size, &mark, fd, &err) == PI_OK;
        const bool adopted = shared && be->opt->arena_adopt(be, a + size, size, &mark, fd, &err) == PI_OK;
        const bool all = simt::watch.n_calls <= i; /* no further calls */
        simt::watch.fail_at = -1;
        if (adopted) be->opt->arena_unmap(be, a + size, size);
        if (adopted) assert_int_equal(be->opt->arena_adopt(be, a + size, size, &other, fd, &err), PI_EIO);
        if (shared) be->opt->arena_unmap(be, a, size);
        for (int f : fd) assert_int_equal(shared ? close(f) : f, shared ? 0 : -1);
        assert_int_equal(simt::device_bytes() + simt::device_imported(), 0);
        assert_int_equal(adopted, all);
        if (all && i >= 10) break;
    }
    be->opt->arena_free(be, a, 2 * size);
    assert_int_equal(simt::watch.live, live);
    be->dev->destroy(be);
    nothing_left(fds);
}

static void test_failing_calls(void **)
{
    const int fds = count_fds();
    each_failing([] {
        pi_weights *w = nullptr;
        pi_error err;
        int rc = open_owner(&w, "emu", {}, &err);
        pi_weights_close(w);
        return rc;
    });
    pi_weights *w = own("emu", {});
    each_failing([] {
        pi_engine *e = nullptr;
        pi_error err;
        int rc = open_with(&e, "emu", {{"weights-from", sock.c_str()}}, &err);
        pi_engine_close(e);
        return rc;
    });
    pi_weights_close(w);
    for (long k = 0, done = 0; !done; k++) { /* out of memory in the owner */
        pi_error err;
        w = nullptr;
        simt::options.fail_alloc = k;
        const int rc = open_owner(&w, "emu,emu", {}, &err);
        done = simt::options.fail_alloc >= 0;
        simt::options.fail_alloc = -1;
        assert_int_equal(rc, done ? PI_OK : PI_ENOMEM);
        pi_weights_close(w);
    }
    nothing_left(fds);
}

static int begin(void **)
{
    name_model("shared");
    sock = model_path + ".socket";
    return simt_tiny_write_even(model_path.c_str(), PI__F32);
}

static int end(void **) { return unlink(model_path.c_str()); }

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_one_device),     cmocka_unit_test(test_devices_as_one),
                                cmocka_unit_test(test_beside_the_cpu), cmocka_unit_test(test_other_products),
                                cmocka_unit_test(test_little_room),    cmocka_unit_test(test_refused),
                                cmocka_unit_test(test_foreign_memory), cmocka_unit_test(test_failing_memory),
                                cmocka_unit_test(test_failing_calls)};
    return cmocka_run_group_tests(tests, begin, end);
}
