/* Weights shared by processes, through an owner's socket or a directory. Also the effects of a malicious owner, a
 * malicious client and a damaged file, and the version of the packed layout. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "model/weights_image.h"
#include "pagedinfer.h"
#include "random_model.h"
#include "rounds.h"

enum { N = 12, PAGE = 4096 };

static char dir[] = "/tmp/pagedinfer-weights-XXXXXX", model[256], other[256], sock[300], cache[300];
static int warnings;

static int setup(void **state)
{
    (void) state;
    const tiny_spec s = {.seed = 3, .type = PI__Q4_K, .sizes = "E=256 H=4 G=2 D=64 F=256"};
    const tiny_spec t = {.seed = 4, .type = PI__Q4_K, .sizes = s.sizes};
    if (!mkdtemp(dir)) return -1;
    snprintf(sock, sizeof sock, "%s/socket", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    return tiny_write(tiny_path(model, "weights"), &s, NULL) || tiny_write(tiny_path(other, "weights-other"), &t, NULL);
}

static int teardown(void **state)
{
    char cmd[300];
    (void) state;
    snprintf(cmd, sizeof cmd, "rm -rf %.64s", dir);
    return unlink(model) | unlink(other) | system(cmd);
}

static void on_log(void *ud, int level, const char *line)
{
    (void) ud;
    warnings += level <= PI_LOG_WARN && strstr(line, "weights-cache") != NULL;
}

static pi_options *options_of(const char *path, const char *key, const char *value)
{
    pi_options *o = pi_options_new();
    assert_non_null(o);
    assert_int_equal(pi_options_set(o, "model", path, NULL) | pi_options_set(o, "threads", "2", NULL) |
                         pi_options_set(o, "kv-cache-tokens", "256", NULL) | pi_options_set(o, "device", "cpu", NULL),
                     PI_OK);
    pi_options_set_log(o, on_log, NULL, PI_LOG_WARN);
    if (key) assert_int_equal(pi_options_set(o, key, value, NULL), PI_OK);
    return o;
}

static int open_engine(pi_engine **e, const char *path, const char *key, const char *value, pi_error *err)
{
    pi_options *o = options_of(path, key, value);
    int rc = pi_engine_open(e, o, err);
    pi_options_free(o);
    return rc;
}

static pi_weights *own(const char *path)
{
    pi_options *o = options_of(path, NULL, NULL);
    pi_weights *w = NULL;
    pi_error err = {0};
    if (pi_weights_open(&w, o, sock, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return w;
}

static void answer(pi_engine *e, int32_t out[N])
{
    pi_request *r = pi_request_new(e);
    assert_non_null(r);
    assert_int_equal(pi_request_prompt_text(r, "the and you", 11, NULL) | pi_request_set(r, "max-tokens", "12", NULL) |
                     pi_request_set(r, "no-stop", "true", NULL) | pi_request_set(r, "temperature", "0", NULL), PI_OK);
    assert_int_equal(pi_request_submit(r, NULL) | pi_request_wait(r, 60000), PI_OK);
    assert_int_equal(pi_request_tokens(r, out, N), N);
    pi_request_free(r);
}

/* Computes the tokens that an engine with this option generates. */
static void answer_of(const char *path, const char *key, const char *value, int32_t out[N])
{
    pi_engine *e = NULL;
    pi_error err = {0};
    if (open_engine(&e, path, key, value, &err)) fail_msg("%s", err.msg);
    answer(e, out);
    pi_engine_close(e);
}

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static int count_maps(const char *what)
{
    char line[600];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, what) != NULL;
    if (f) fclose(f);
    return n;
}

/* ----------------------------------------------------------------------------------------------------------- owner */

static void from_an_owner(void **state)
{
    (void) state;
    int32_t want[N], want_other[N], got[N];
    pi_error err = {0};
    answer_of(model, NULL, NULL, want);
    answer_of(other, NULL, NULL, want_other);
    assert_memory_not_equal(want, want_other, sizeof want);
    pi_engine *e[3] = {NULL};
    assert_int_equal(open_engine(&e[0], model, "weights-from", sock, &err), PI_EIO); /* no owner listens */
    pi_weights *w = own(model);
    for (int i = 0; i < 3; i++) assert_int_equal(open_engine(&e[i], model, "weights-from", sock, &err), PI_OK);
    assert_int_equal(count_maps("pagedinfer weights"), 3); /* all map one memory */
    pi_engine *none = NULL;
    assert_int_equal(open_engine(&none, other, "weights-from", sock, &err), PI_EIO);
    assert_non_null(strstr(err.msg, "another model"));
    pi_options *o = options_of(other, NULL, NULL);
    pi_weights *second = NULL;
    assert_int_equal(pi_weights_open(&second, o, sock, &err), PI_EBUSY);
    pi_options_free(o);
    answer(e[0], got);
    assert_memory_equal(got, want, sizeof want);
    pi_engine_close(e[0]);
    pi_weights_close(w); /* the other engines keep their mappings */
    assert_int_equal(access(sock, F_OK), -1);
    w = own(other);
    for (int i = 1; i < 3; i++) {
        answer(e[i], got);
        assert_memory_equal(got, want, sizeof want);
        pi_engine_close(e[i]);
    }
    answer_of(other, "weights-from", sock, got);
    assert_memory_equal(got, want_other, sizeof want);
    pi_weights_close(w);
}

/* Repeated opening and closing, and a killed owner, leak nothing. */
static void nothing_leaks(void **state)
{
    (void) state;
    const int n = rounds(100);
    int32_t want[N], got[N];
    answer_of(model, NULL, NULL, want);
    int fds = count_fds();
    for (int i = 0; i < n; i++) {
        pid_t owner = 0;
        pi_weights *w = NULL;
        if (i % 4) w = own(model);
        else if (!(owner = fork())) {
            w = own(model);
            for (;;) pause();
        }
        for (int k = 0; owner && access(sock, F_OK) && k < 10000; k++) usleep(1000);
        pi_engine *e = NULL;
        pi_error err = {0};
        /* the owner does not listen on the socket yet */
        for (int k = 0; open_engine(&e, model, "weights-from", sock, &err); k++) {
            if (!owner || k == 1000) fail_msg("%s", err.msg);
            usleep(1000);
        }
        if (owner) assert_int_equal(kill(owner, SIGKILL) | (waitpid(owner, NULL, 0) != owner), 0);
        answer(e, got);
        assert_memory_equal(got, want, sizeof want);
        pi_engine_close(e);
        pi_weights_close(w);
    }
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_maps("pagedinfer weights"), 0);
    (void) unlink(sock); /* possibly left by the last killed owner */
}

/* ------------------------------------------------------------------------------------------------- malicious peers */

enum rogue { GONE, HALF, GARBAGE, OLD, NO_FD, DEV_NULL, UNSEALED, ZEROS, SMALL, TWO, TWENTY, N_ROGUES };

static int memory_of(size_t size, bool sealed)
{
    int fd = memfd_create("rogue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t) size) == 0);
    if (sealed) assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
    return fd;
}

static void send_answer(int s, enum rogue how, size_t size)
{
    struct {
        char magic[8];
        uint32_t version;
        int32_t status;
        uint64_t size;
        char text[232];
    } a = {"", 3, 0, size, "a rogue"};
    memcpy(a.magic, how == GARBAGE ? "whatever" : "PIweight", 8);
    a.version += how == OLD;
    enum { MOST = 20 };
    union { char buf[CMSG_SPACE(MOST * sizeof(int))]; struct cmsghdr align; } control = {{0}};
    struct iovec io = {&a, how == HALF ? 50 : sizeof a};
    const int n_fd = how == TWO ? 2 : how == TWENTY ? MOST : 1;
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    int fd = how == DEV_NULL ? open("/dev/null", O_RDWR | O_CLOEXEC) :
             how >= UNSEALED ? memory_of(how == SMALL ? size / 2 : size, how != UNSEALED) : -1;
    if (fd >= 0) {
        msg.msg_control = control.buf;
        msg.msg_controllen = CMSG_SPACE((size_t) n_fd * sizeof fd);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr) {
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t) n_fd * sizeof fd)};
        for (int i = 0; i < n_fd; i++) memcpy(CMSG_DATA(c) + (size_t) i * sizeof fd, &fd, sizeof fd);
    }
    assert_true(sendmsg(s, &msg, MSG_NOSIGNAL) > 0);
    if (fd >= 0) close(fd);
}

static size_t image_size; /* of the model's weights */
static int rogue_fd;

static void *rogue_owner(void *arg)
{
    char q[80];
    for (int how = 0; how < N_ROGUES; how++) {
        int s = accept4(rogue_fd, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0 || recv(s, q, sizeof q, MSG_WAITALL) != sizeof q) return arg;
        if (how != GONE) send_answer(s, (enum rogue) how, image_size);
        close(s);
    }
    return NULL;
}

static void foreign_owners(void **state)
{
    (void) state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    pthread_t thread;
    void *bad;
    int32_t tokens[N];
    char path[700];
    answer_of(model, "weights-cache", cache, tokens); /* creates a file of the image's size */
    DIR *d = opendir(cache);
    for (const struct dirent *de; (de = readdir(d));)
        if (strstr(de->d_name, ".weights")) snprintf(path, sizeof path, "%s/%s", cache, de->d_name);
    closedir(d);
    assert_int_equal(stat(path, &st), 0);
    image_size = (size_t) st.st_size;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/rogue", dir);
    rogue_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(rogue_fd, (struct sockaddr *) &at, sizeof at) | listen(rogue_fd, 8), 0);
    int fds = count_fds();
    assert_int_equal(pthread_create(&thread, NULL, rogue_owner, dir), 0);
    for (int how = 0; how < N_ROGUES; how++) {
        pi_engine *e = NULL;
        pi_error err = {0};
        assert_int_equal(open_engine(&e, model, "weights-from", at.sun_path, &err), PI_EIO);
        assert_non_null(strstr(err.msg, "weights-from"));
        assert_null(e);
    }
    pthread_join(thread, &bad);
    assert_null(bad);
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_maps("rogue"), 0);
    close(rogue_fd);
}

/* Clients that send too little, too much, other data, or nothing, and disconnect. */
static void foreign_clients(void **state)
{
    (void) state;
    uint64_t seed = 11;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    pi_weights *w = own(model);
    memcpy(at.sun_path, sock, strlen(sock) + 1);
    int fds = count_fds();
    for (int i = 0; i < 200; i++) {
        char junk[112];
        for (size_t k = 0; k < sizeof junk; k++) junk[k] = (char) tiny_random(&seed);
        if (i % 3 == 0) memcpy(junk, "PIweight\3\0\0", 12);
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(s, (struct sockaddr *) &at, sizeof at), 0);
        (void) !send(s, junk, tiny_random(&seed) % sizeof junk, MSG_NOSIGNAL);
        shutdown(s, SHUT_WR);
        close(s);
    }
    int32_t want[N], got[N];
    answer_of(model, NULL, NULL, want);
    answer_of(model, "weights-from", sock, got);
    assert_memory_equal(got, want, sizeof want);
    for (int i = 0; count_fds() > fds && i < 1000; i++) usleep(1000);
    assert_int_equal(count_fds(), fds);
    pi_weights_close(w);
}

/* Clients that stay connected silently or with half a request do not delay other clients. */
static void silent_clients(void **state)
{
    (void) state;
    enum { SILENT = 150 };
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int32_t want[N], got[N];
    answer_of(model, NULL, NULL, want);
    pi_weights *w = own(model);
    memcpy(at.sun_path, sock, strlen(sock) + 1);
    int fds = count_fds(), s[SILENT];
    for (int i = 0; i < SILENT; i++) {
        s[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(s[i], (struct sockaddr *) &at, sizeof at), 0);
        if (i % 2) assert_int_equal(send(s[i], "PIweight\3\0\0", 12, MSG_NOSIGNAL), 12);
    }
    for (int i = 0; i < 3; i++) { /* serially, two seconds per silent client would exceed a client's timeout */
        answer_of(model, "weights-from", sock, got);
        assert_memory_equal(got, want, sizeof want);
    }
    for (int i = 0; i < SILENT; i++) close(s[i]);
    for (int i = 0; count_fds() > fds && i < 1000; i++) usleep(1000);
    assert_int_equal(count_fds(), fds);
    pi_weights_close(w);
}

/* ------------------------------------------------------------------------------------------------------- directory */

/* Returns the path of the only image, and its data checksum. */
static uint64_t only_image(char path[700])
{
    int n = 0;
    uint64_t sum = 0;
    DIR *d = opendir(cache);
    for (const struct dirent *de; d && (de = readdir(d));) {
        if (de->d_name[0] == '.') continue;
        snprintf(path, 700, "%s/%s", cache, de->d_name);
        assert_non_null(strstr(path, ".weights"));
        n++;
    }
    if (d) closedir(d);
    assert_int_equal(n, 1);
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &sum, sizeof sum, 88), sizeof sum);
    close(fd);
    return sum;
}

static void empty_cache(void)
{
    char cmd[400];
    snprintf(cmd, sizeof cmd, "rm -rf %.290s", cache);
    assert_int_equal(system(cmd), 0);
    warnings = 0;
}

static void from_a_directory(void **state)
{
    (void) state;
    int32_t want[N], got[N];
    char path[700];
    struct stat first, st;
    answer_of(model, NULL, NULL, want);
    empty_cache();
    for (int i = 0; i < 3; i++) {
        answer_of(model, "weights-cache", cache, got);
        assert_memory_equal(got, want, sizeof want);
        only_image(path);
        assert_int_equal(stat(path, &st), 0);
        if (!i) first = st;
        assert_true(st.st_ino == first.st_ino && st.st_mtim.tv_nsec == first.st_mtim.tv_nsec);
    }
    assert_int_equal(warnings, 0);
    const off_t at[] = {0, 9, 20, 40, 60, 90, 100, PAGE + 5, st.st_size / 2, st.st_size - 1};
    for (size_t i = 0; i < sizeof at / sizeof *at + 3; i++) { /* damaged images are removed and created again */
        const size_t flips = sizeof at / sizeof *at;
        int fd = open(path, O_RDWR);
        char c;
        assert_true(fd >= 0);
        if (i < flips) {
            assert_int_equal(pread(fd, &c, 1, at[i]), 1);
            c ^= 4;
            assert_int_equal(pwrite(fd, &c, 1, at[i]), 1);
        } else assert_int_equal(ftruncate(fd, i == flips ? 0 : i == flips + 1 ? st.st_size - 1 : st.st_size + 1), 0);
        close(fd);
        warnings = 0;
        answer_of(model, "weights-cache", cache, got);
        assert_memory_equal(got, want, sizeof want);
        only_image(path);
        assert_int_equal(warnings, 1);
    }
}

/* The next writer removes a killed writer's file; a directory that is not writable causes only a warning. */
static void bad_directories(void **state)
{
    (void) state;
    int32_t want[N], got[N];
    char path[700];
    answer_of(model, NULL, NULL, want);
    empty_cache();
    assert_int_equal(mkdir(cache, 0700), 0);
    snprintf(path, sizeof path, "%s/tmp-1-2", cache);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    answer_of(model, "weights-cache", cache, got);
    assert_memory_equal(got, want, sizeof want);
    only_image(path);
    assert_int_equal(unlink(path) | mkdir(path, 0700), 0); /* a directory with the image's name */
    warnings = 0;
    answer_of(model, "weights-cache", cache, got);
    assert_memory_equal(got, want, sizeof want);
    assert_true(warnings > 0);
    empty_cache();
    fd = open(cache, O_CREAT | O_WRONLY, 0600); /* not a directory */
    close(fd);
    answer_of(model, "weights-cache", cache, got);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(warnings, 1);
    pi_engine *e = NULL;
    pi_error err = {0};
    assert_int_equal(open_engine(&e, model, "weights-cache", "/proc/none/none", &err), PI_EIO);
    assert_int_equal(unlink(cache), 0);
}

/* Another file with equal name, size and time in seconds has another key. */
static void another_file(void **state)
{
    (void) state;
    int32_t want[N], got[N];
    char path[256], cmd[900];
    tiny_path(path, "weights-same-name");
    empty_cache();
    snprintf(cmd, sizeof cmd, "cp %s %s && touch -d @1700000000 %s", model, path, path);
    assert_int_equal(system(cmd), 0);
    answer_of(path, "weights-cache", cache, got);
    snprintf(cmd, sizeof cmd, "cp %s %s && touch -d @1700000000 %s", other, path, path);
    assert_int_equal(system(cmd), 0);
    answer_of(other, NULL, NULL, want);
    answer_of(path, "weights-cache", cache, got);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(unlink(path), 0);
}

/* ---------------------------------------------------------------------------------------------------------- layout */

/* Hash of the packed bytes. A change of the packed bytes must increase PI__PACKED_LAYOUT; otherwise newer builds would
 * misread files of older builds. */
static void packed_layout(void **state)
{
    (void) state;
    static const int32_t types[] = {PI__F32, PI__BF16, PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__NVFP4};
    /* one common layout */
    static const char *const isa[] = {"generic", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm", "sve256"};
    static const uint64_t known = 0x0b628f783cfdad2a;
    int wrong = 0;
    for (size_t k = 0; k < (emulated() ? 1 : sizeof isa / sizeof *isa); k++) {
        uint64_t all = 0;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            char file[256], path[700];
            const tiny_spec s = {.seed = 3, .type = types[i], .sizes = "E=256 H=4 G=2 D=64 F=256"};
            assert_int_equal(tiny_write(tiny_path(file, "weights-layout"), &s, NULL), 0);
            empty_cache();
            pi_options *o = options_of(file, "weights-cache", cache);
            pi_engine *e = NULL;
            assert_int_equal(pi_options_set(o, "cpu-isa", isa[k], NULL), PI_OK);
            int rc = pi_engine_open(&e, o, NULL);
            pi_options_free(o);
            pi_engine_close(e);
            assert_int_equal(unlink(file), 0);
            if (rc == PI_EUNSUPPORTED) break; /* needs another processor */
            assert_int_equal(rc, PI_OK);
            const uint64_t sum = only_image(path);
            all = pi__hash64(&sum, sizeof sum, all);
        }
        if (all != known) print_message("%s: %016llx\n", isa[k], (unsigned long long) all);
        wrong += all && all != known;
    }
    assert_int_equal(PI__PACKED_LAYOUT, 1); /* the hash belongs to this version */
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_an_owner),    cmocka_unit_test(nothing_leaks),   cmocka_unit_test(foreign_owners),
        cmocka_unit_test(foreign_clients), cmocka_unit_test(silent_clients),
        cmocka_unit_test(from_a_directory), cmocka_unit_test(bad_directories),
        cmocka_unit_test(another_file),     cmocka_unit_test(packed_layout),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
