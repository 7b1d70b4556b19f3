/* Trust of the disk tier: with a key, it accepts files from holders of the key; without one, it needs a directory
 * that no other user can write to. Also the key file. Parts that change owners run only as root. */
#include "tier_fixture.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "base/trust.h"

enum { OTHER_USER = 12345 };

static pi__mac_key key_from(const char *text)
{
    pi__mac_key k;
    pi__mac_key_init(&k, text, strlen(text));
    return k;
}

static pi__tier *open_keyed(const pi__mac_key *key)
{
    pi__tier_config c = config_of(1 << 24);
    c.key = key;
    return open_with(&c);
}

/* Returns the only space in the directory, and a path in it. */
static pi__digest only_space(void)
{
    pi__digest fp = {{0}}, one;
    int n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *de; (de = readdir(d));)
        if (pi__tier_parse_space(de->d_name, &one)) fp = one, n++;
    closedir(d);
    assert_int_equal(n, 1);
    return fp;
}

static void keyed_path_of(const pi__digest *space, int id, char out[512])
{
    char path[PI__TIER_PATH];
    pi__tier_path(path, space, &(pi__tier_name) {KEY(id)->hash, KEY(id)->tenant, group_of(id)});
    snprintf(out, 512, "%s/%s", dir, path);
}

/* Entry id counts as damaged, its file is removed, and it can be written again. */
static void expect_forged(pi__tier *t, const pi__digest *space, int id)
{
    char path[512];
    const int64_t damaged = stats(t).damaged;
    keyed_path_of(space, id, path);
    assert_true(has(t, id));
    assert_false(loads(t, id));
    assert_int_equal(stats(t).damaged, damaged + 1);
    assert_int_equal(access(path, F_OK), -1);
    put_all(t, id, id + 1);
    assert_true(loads(t, id));
}

static void keys_share(void **state)
{
    (void) state;
    const pi__mac_key one = key_from("a key of servers that share it"), two = key_from("another key");
    pi__tier *a = open_keyed(&one), *b = open_keyed(&two);
    put_all(a, 0, 10);
    pi__tier *c = open_keyed(&one);
    for (int id = 0; id < 10; id++) {
        assert_true(loads(c, id));
        assert_false(has(b, id));
    }
    put_all(b, 0, 10); /* equal entries, next to the others */
    assert_true(loads(b, 3) && loads(a, 3));
    pi__tier_close(c);
    c = open_tier(1 << 24); /* no key */
    assert_int_equal(stats(c).entries, 0);
    assert_int_equal(stats(a).damaged + stats(b).damaged + stats(c).damaged, 0);
    pi__tier_close(c);
    c = open_keyed(&two);
    assert_int_equal(stats(c).entries, 10);
    pi__tier_close(a);
    pi__tier_close(b);
    pi__tier_close(c);
}

static void changed_bytes_miss(void **state)
{
    (void) state;
    const pi__mac_key key = key_from("k");
    pi__tier *t = open_keyed(&key);
    put_all(t, 7, 8);
    const pi__digest space = only_space();
    unsigned char good[1024], bad[1024];
    char path[512];
    keyed_path_of(&space, 7, path);
    const size_t n = read_file(path, good, sizeof good), head = pi__tier_head_size(TOKENS);
    assert_int_equal(n, head + bytes_of(7));
    for (size_t i = 0; i < n; i++) { /* header, tokens, padding, data */
        memcpy(bad, good, n);
        bad[i] ^= (unsigned char) (1u << i % 8);
        write_file(path, bad, n);
        expect_forged(t, &space, 7);
    }
    for (size_t i = 0; i < n; i += i < head ? 1 : 17) {
        write_file(path, good, i);
        expect_forged(t, &space, 7);
    }
    pi__tier_close(t);
}

/* Files that are correct except for the key, as an attacker with all other knowledge would write them. */
static void forged_files_miss(void **state)
{
    (void) state;
    const pi__mac_key key = key_from("k"), other = key_from("l");
    pi__tier *t = open_keyed(&key);
    put_all(t, 7, 9);
    const pi__digest space = only_space();
    char path[512];
    const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
    for (int how = 0; how < 3; how++) {
        const pi__mac_key *const by[] = {NULL, &other, &key};
        int32_t tokens[TOKENS];
        unsigned char data[MAX_BYTES] = "forged";
        char image[2 * MAX_BYTES];
        tokens_of(7, tokens);
        keyed_path_of(&space, 7, path);
        assert_int_equal(unlink(path), 0);
        pi__tier_image(image, &(pi__tier_entry_id) {space, key_of(7), group_of(7), tokens, TOKENS, bytes_of(7)}, data);
        assert_int_equal(pi__tier_write(dir_fd, by[how], image, file_of(7), 1), PI__TIER_OK);
        if (how == 2) { /* the header's MAC is right, the data are wrong */
            unsigned char file[1024];
            const size_t n = read_file(path, file, sizeof file);
            file[n - 1] ^= 1;
            write_file(path, file, n);
        }
        expect_forged(t, &space, 7);
    }
    close(dir_fd);
    pi__tier_close(t);
}

static void replayed_files_miss(void **state)
{
    (void) state;
    const pi__mac_key key = key_from("k");
    pi__tier_config c = config_of(1 << 24);
    pi__tier *t = open_keyed(&key);
    unsigned char file[2 * MAX_BYTES];
    char from[512], to[512];
    put_all(t, 0, 12);
    const pi__digest space = only_space();
    keyed_path_of(&space, 4, from);
    keyed_path_of(&space, 10, to); /* in the same group */
    assert_int_equal(group_of(4), group_of(10));
    write_file(to, file, read_file(from, file, sizeof file));
    expect_forged(t, &space, 10);
    pi__tier_close(t);

    c.key = &key; /* the entry with equal tokens of another model */
    c.fingerprint.byte[0]++;
    t = open_with(&c);
    put_all(t, 4, 5);
    DIR *d = opendir(dir);
    pi__digest theirs = space, fp;
    for (const struct dirent *de; (de = readdir(d));)
        if (pi__tier_parse_space(de->d_name, &fp) && !pi__digest_equal(&fp, &space)) theirs = fp;
    closedir(d);
    keyed_path_of(&theirs, 4, to);
    assert_int_equal(unlink(to), 0);
    write_file(to, file, read_file(from, file, sizeof file));
    expect_forged(t, &theirs, 4);
    pi__tier_close(t);
}

/* A folder that is a symbolic link is not followed: no file in it is read, written or removed. */
static void links_are_not_followed(void **state)
{
    (void) state;
    const pi__mac_key key = key_from("k");
    char shard[PI__TIER_PATH], path[512], elsewhere[256], file[512];
    pi__tier *t = open_keyed(&key);
    put_all(t, 7, 8);
    pi__tier_close(t);
    const pi__digest space = only_space();
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", dir);
    pi__tier_shard_path(shard, &space, KEY(7)->hash.byte[0]);
    snprintf(path, sizeof path, "%s/%s", dir, shard);
    assert_int_equal(rename(path, elsewhere) || symlink(elsewhere, path), 0);
    keyed_path_of(&space, 7, file);
    assert_int_equal(access(file, R_OK), 0); /* other programs can follow it */
    t = open_keyed(&key);
    assert_false(loads(t, 7));
    assert_true(put(t, 7));
    sync_writes(t);
    assert_int_equal(stats(t).writes, 0);
    pi__tier_close(t);
    DIR *d = opendir(elsewhere);
    int n = 0;
    for (const struct dirent *de; (de = readdir(d));) n += de->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, 1);
}

static int try_open(const pi__mac_key *key, pi_error *err)
{
    pi__tier *t;
    pi__tier_config c = config_of(1 << 24);
    c.key = key;
    const int rc = pi__tier_open(&t, &c, err);
    pi__tier_close(t);
    return rc;
}

static void open_directories_are_refused(void **state)
{
    (void) state;
    static const struct { mode_t mode; bool fine;
    } with[] = {
        {0700, true},  {0755, true},  {01755, true}, {0777, false}, {01777, false},
        {0775, false}, {0722, false}, {0702, false}, {0720, false},
    };
    const pi__mac_key key = key_from("k");
    pi_error err = {0};
    assert_int_equal(try_open(NULL, &err), PI_OK);
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        assert_int_equal(chmod(dir, with[i].mode), 0);
        assert_int_equal(try_open(NULL, &err), with[i].fine ? PI_OK : PI_EINVAL);
        if (!with[i].fine)
            assert_true(strstr(err.msg, dir) && strstr(err.msg, "chmod go-w") &&
                        strstr(err.msg, "set prefix-cache-key"));
        assert_int_equal(try_open(&key, &err), PI_OK);
    }
    assert_int_equal(chmod(dir, 0700), 0);

    char parent[128], link[160];
    snprintf(parent, sizeof parent, "%.*s", (int) (strrchr(dir, '/') - dir), dir);
    assert_int_equal(chmod(parent, 0777), 0);
    assert_int_equal(try_open(NULL, &err), PI_EINVAL);
    assert_true(strstr(err.msg, parent) && strstr(err.msg, "replace"));
    assert_int_equal(chmod(parent, 01777), 0);
    assert_int_equal(try_open(NULL, &err), PI_OK);
    assert_int_equal(chmod(parent, 0755), 0);

    snprintf(link, sizeof link, "%s-link", dir); /* our own link may lead there */
    assert_int_equal(symlink(dir, link), 0);
    pi__tier *t;
    pi__tier_config c = config_of(1 << 24);
    c.dir = link;
    assert_int_equal(pi__tier_open(&t, &c, &err), PI_OK);
    pi__tier_close(t);
    if (geteuid() == 0) {
        assert_int_equal(lchown(link, OTHER_USER, OTHER_USER), 0);
        assert_int_equal(pi__tier_open(&t, &c, &err), PI_EINVAL);
        assert_non_null(strstr(err.msg, "belongs to another user"));
        assert_int_equal(chown(dir, OTHER_USER, OTHER_USER), 0);
        assert_int_equal(try_open(NULL, &err), PI_EINVAL);
        assert_non_null(strstr(err.msg, "belongs to another user (12345)"));
        assert_int_equal(try_open(&key, &err), PI_OK);
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    assert_int_equal(unlink(link), 0);
}

/* Files from a time when others could write the directory are a miss. */
static void files_of_others_miss(void **state)
{
    (void) state;
    char path[512];
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 4);
    path_of(1, path);
    assert_int_equal(chmod(path, 0666), 0);
    assert_false(loads(t, 1));
    path_of(2, path);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, OTHER_USER, OTHER_USER), 0);
        assert_false(loads(t, 2));
    }
    assert_true(loads(t, 0) && loads(t, 3));
    pi__tier_close(t);
}

/* ------------------------------------------------------------------------------------------------------- key files */

static char file[160];

static int key_setup(void **state)
{
    setup(state);
    assert_int_equal(mkdir(root, 0700) && errno != EEXIST, 0);
    snprintf(file, sizeof file, "%s/key", root);
    (void) unlink(file);
    return 0;
}

static void key_files_are_made(void **state)
{
    (void) state;
    pi__secret a, b;
    pi_error err = {0};
    struct stat st;
    const mode_t mask = umask(0);
    assert_int_equal(pi__secret_load(&a, file, "k", &err), PI_OK);
    umask(mask);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(a.n, 65);
    assert_int_equal(pi__secret_load(&b, file, "k", &err), PI_OK);
    assert_memory_equal(a.byte, b.byte, a.n);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(pi__secret_load(&b, file, "k", &err), PI_OK);
    assert_memory_not_equal(a.byte, b.byte, a.n);
    pi__secret_clear(&b);
    for (size_t i = 0; i < sizeof b.byte; i++) assert_int_equal(b.byte[i], 0);
}

static void one_key_for_all(void **state)
{
    (void) state;
    enum { PROCESSES = 8, ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], told[2];
        uint8_t first[65], key[65], byte;
        assert_int_equal(pipe(go) | pipe(told), 0);
        (void) unlink(file);
        for (int i = 0; i < PROCESSES; i++) {
            if (fork()) continue;
            pi__secret s;
            close(go[1]);
            (void) !read(go[0], &byte, 1); /* all at the same time */
            const bool ok = !pi__secret_load(&s, file, "k", NULL) && s.n == 65 && write(told[1], s.byte, 65) == 65;
            _exit(!ok);
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0, code; i < PROCESSES; i++) {
            assert_true(wait(&code) > 0 && code == 0);
            assert_int_equal(read(told[0], i ? key : first, 65), 65);
            if (i) assert_memory_equal(key, first, 65);
        }
        close(told[0]);
        close(told[1]);
    }
    int left = 0;
    DIR *d = opendir(root);
    for (const struct dirent *de; (de = readdir(d));) left += strncmp(de->d_name, "key.", 4) == 0;
    closedir(d);
    assert_int_equal(left, 0);
}

static void refused(const char *word)
{
    pi__secret s;
    pi_error err = {0};
    const int rc = pi__secret_load(&s, file, "prefix-cache-key", &err);
    if (!rc || !strstr(err.msg, word) || !strstr(err.msg, "prefix-cache-key")) fail_msg("%d %s", rc, err.msg);
}

static void bad_key_files(void **state)
{
    (void) state;
    static const mode_t modes[] = {0644, 0640, 0660, 0604, 0602, 0620, 0610, 0601, 0666};
    char text[PI__SECRET_MAX + 2];
    pi__secret s;
    memset(text, 'k', sizeof text);
    write_file(file, text, 64);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(file, modes[i]), 0);
        refused("chmod 600");
    }
    assert_int_equal(chmod(file, 0400), 0);
    assert_int_equal(pi__secret_load(&s, file, "k", NULL), PI_OK);
    assert_int_equal(chmod(file, 0600), 0);
    static const struct { size_t n; const char *word;
    } size[] = {
        {0, "has 0 bytes"},
        {31, "has 31 bytes"},
        {32, NULL},
        {PI__SECRET_MAX, NULL},
        {PI__SECRET_MAX + 1, "at least 4097 bytes"},
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        write_file(file, text, size[i].n);
        if (size[i].word) refused(size[i].word);
        else assert_true(!pi__secret_load(&s, file, "k", NULL) && s.n == size[i].n);
    }
    if (geteuid() == 0) {
        assert_int_equal(chown(file, OTHER_USER, OTHER_USER), 0);
        refused("another user (12345)");
    }
    assert_int_equal(unlink(file) || mkfifo(file, 0600), 0);
    refused("not a regular file"); /* must not block on the FIFO */
    assert_int_equal(unlink(file) || mkdir(file, 0700), 0);
    refused("not a regular file");
    assert_int_equal(rmdir(file) || symlink("nothing-there", file), 0);
    refused("key file");
    assert_int_equal(unlink(file), 0);
    snprintf(file, sizeof file, "%s/none/key", root);
    refused("cannot create the key file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIER_TEST(keys_share),
        TIER_TEST(changed_bytes_miss),
        TIER_TEST(forged_files_miss),
        TIER_TEST(replayed_files_miss),
        TIER_TEST(links_are_not_followed),
        TIER_TEST(open_directories_are_refused),
        TIER_TEST(files_of_others_miss),
        cmocka_unit_test_setup_teardown(key_files_are_made, key_setup, teardown),
        cmocka_unit_test_setup_teardown(one_key_for_all, key_setup, teardown),
        cmocka_unit_test_setup_teardown(bad_key_files, key_setup, teardown),
    };
    return RUN_TIER_TESTS(tests);
}
